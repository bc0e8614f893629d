"""``ledger_of``: the ledger that goes with a saver.

Checkpoints and ledger belong together: what one says happened, the other must not contradict.
A SQLite checkpointer of ours has its ledger in its own database. Any other saver gets one in
memory, which lives and dies with it.
"""

from __future__ import annotations

from threading import Lock
from typing import Any
from urllib.parse import quote
from weakref import WeakKeyDictionary

from langgraph.checkpoint.base import BaseCheckpointSaver

from echelons.checkpoints.ledger.base_ledger import Ledger
from echelons.checkpoints.ledger.memory_ledger import MemoryLedger

_IN_MEMORY: WeakKeyDictionary[BaseCheckpointSaver[Any], MemoryLedger] = WeakKeyDictionary()
_LOCK = Lock()


def ledger_of(saver: BaseCheckpointSaver[Any]) -> Ledger:
    """Return the ledger of a saver, the same one every time."""
    own = getattr(saver, "ledger", None)
    if isinstance(own, Ledger):
        return own
    with _LOCK:
        return _IN_MEMORY.setdefault(saver, MemoryLedger())


def key(thread_id: str, *parts: str) -> str:
    """Return the name of something of a root's thread: a key, a stream, or a lease.

    All names of a thread begin alike, so that they are deleted with it.

    Examples:
        >>> key("trip", "turn", "1")
        'thread/trip/turn/1'
    """
    # A host graph may call its threads anything, and one's names must not begin like another's.
    return "/".join(("thread", quote(thread_id, safe=""), *parts))
