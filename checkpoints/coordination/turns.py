"""Turns: what a session's run carries into every write, and what is remembered of each.

A ``Turn`` travels in the config of a run. The checkpointer asks it, inside the transaction
of each write, whether the run still holds its lease; and has it write down the turn in the
transaction of the checkpoint that the turn begins with. So a turn is known if and only if it
has begun, and one that is submitted again is never run again. Other savers share no transaction
with the ledger: there a turn is announced, and its checkpoints say whether it has begun.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from echelons.checkpoints.clock import now
from echelons.checkpoints.ledger import Fence, Transaction, key, require_in
from echelons.checkpoints.ledger.records import SIZE
from echelons.checkpoints.ledger.sqlite_ledger import SqliteTransaction
from echelons.errors import StorageError

TURN_KEY = "__echelons_turn"
"""Where a run's config holds its turn; LangGraph stores nothing that begins like this."""
LONGEST_TEXT = 2**20
"""Characters of an answer that are remembered with its turn; the thread itself has them all."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn on its way.

    Attributes:
        thread_id: The root's thread.
        id: The turn, as its caller or its session calls it.
        fence: The lease under which it runs.
        task: Digest of the task that it begins with, if its caller may submit it again.
        failures: Why a write of it was not stored; then none that comes later is, for it may
            stand on that one. LangGraph goes on for a while: it waits for no input's checkpoint,
            and drops the error if an agent below asks something.
    """

    thread_id: str
    id: str
    fence: Fence
    task: str = ""
    failures: list[StorageError] = field(default_factory=list, compare=False)

    def enter(self, cursor: sqlite3.Cursor) -> None:
        """Refuse a write of a run that has lost its lease, or a write before.

        Raises:
            LeaseLost: Somebody else runs the thread now.
            StorageError: A write before this one has failed.
        """
        self.check()
        require_in(cursor, self.fence)

    def require(self, open_: Transaction) -> None:
        """Do what ``enter`` does, in a transaction of the ledger."""
        self.check()
        open_.require(self.fence)

    def check(self) -> None:
        """Refuse to go on after a write that has failed.

        Raises:
            StorageError: One has.
        """
        for failure in self.failures[:1]:
            raise StorageError(failure.path, failure.why)

    def begin(self, cursor: sqlite3.Cursor) -> None:
        """Write the turn down in the transaction of its first checkpoint, if it may come again."""
        if self.task:
            open_ = SqliteTransaction(cursor, now, SIZE)
            open_.compare_and_set(_key(self.thread_id, self.id), None, {"task": self.task})

    def announce(self, open_: Transaction) -> None:
        """Write the turn down, if it may come again, where its checkpoints are stored elsewhere.

        Its first one may never be, so that it is known and has not begun.
        """
        name = _key(self.thread_id, self.id)
        if self.task and open_.get(name) is None:
            open_.compare_and_set(name, None, {"task": self.task, "announced": True})


@dataclass(frozen=True, slots=True)
class Known:
    """What is remembered of a turn.

    Attributes:
        task: Digest of its task.
        text: Its answer; ``None`` until its end is written down.
        announced: Whether it was written down before anything of it was stored.
    """

    task: str
    text: str | None
    announced: bool = False


@contextmanager
def failing(configurable: Mapping[str, Any], final: bool = True) -> Iterator[None]:
    """Let a turn know of a write that fails.

    Args:
        configurable: Of the write's config.
        final: Whether it is not tried again.
    """
    try:
        yield
    except StorageError as error:
        turn = turn_of(configurable)
        if turn and final and not turn.failures:
            turn.failures.append(error)
        raise


def turn_of(configurable: Mapping[str, Any]) -> Turn | None:
    """Return the turn that a write belongs to, or ``None`` outside of sessions."""
    turn = configurable.get(TURN_KEY)
    return turn if isinstance(turn, Turn) else None


def known(open_: Transaction, thread_id: str, turn_id: str) -> Known | None:
    """Return what is remembered of a turn, ``None`` if it has not begun."""
    found = open_.get(_key(thread_id, turn_id))
    if found is None:
        return None
    kept = found.value
    return Known(kept["task"], kept.get("text"), kept.get("announced", False))


def finish(open_: Transaction, thread_id: str, turn_id: str, text: str) -> None:
    """Write down the answer of a turn that has come to its end, if anybody may ask for it."""
    name = _key(thread_id, turn_id)
    found = open_.get(name)
    if found and "text" not in found.value:
        open_.compare_and_set(name, found.version, {**found.value, "text": text[:LONGEST_TEXT]})


def digest(task: str) -> str:
    """Return what tells two tasks apart."""
    return sha256(task.encode()).hexdigest()


def _key(thread_id: str, turn_id: str) -> str:
    return key(thread_id, "turn", turn_id)
