"""Turns: what a session's run carries into every write, and what is remembered of each.

A ``Turn`` travels in the config of a run. The checkpointer asks it, inside the transaction
of each write, whether the run still holds its lease; and has it write down the turn in the
transaction of the checkpoint that the turn begins with. So a turn is known if and only if it
has begun.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from echelons.checkpoints.clock import now
from echelons.checkpoints.ledger import Fence, Transaction, key, require_in
from echelons.checkpoints.ledger.records import SIZE
from echelons.checkpoints.ledger.sqlite import SqliteTransaction

TURN_KEY = "__echelons_turn"
"""Where a run's config holds its turn; LangGraph stores nothing that begins like this."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn on its way.

    Attributes:
        thread_id: The root's thread.
        id: The turn, as its caller or its session calls it.
        fence: The lease under which it runs.
        task: Digest of the task that it begins with; empty if it goes on.
        asked_for: Whether a caller gave the id, and may submit the turn again.
    """

    thread_id: str
    id: str
    fence: Fence
    task: str = ""
    asked_for: bool = False

    def enter(self, cursor: sqlite3.Cursor) -> None:
        """Refuse a write of a run that has lost its lease.

        Raises:
            LeaseLost: Somebody else runs the thread now.
        """
        require_in(cursor, self.fence)

    def begin(self, cursor: sqlite3.Cursor) -> None:
        """Write the turn down, in the transaction of its first checkpoint."""
        self.record(SqliteTransaction(cursor, now, SIZE))

    def record(self, open_: Transaction) -> None:
        """Write the turn down, if a caller may ask for it again."""
        if self.asked_for and self.task:
            name = turn_key(self.thread_id, self.id)
            open_.compare_and_set(name, None, {"task": self.task})


def turn_of(configurable: Mapping[str, Any]) -> Turn | None:
    """Return the turn that a write belongs to, or ``None`` outside of sessions."""
    turn = configurable.get(TURN_KEY)
    return turn if isinstance(turn, Turn) else None


def turn_key(thread_id: str, turn_id: str) -> str:
    """Return the ledger's key of a turn."""
    return key(thread_id, "turn", turn_id)


def digest(task: str) -> str:
    """Return what tells two tasks apart."""
    return sha256(task.encode("utf-8", "surrogatepass")).hexdigest()
