"""The ledger of a saver, and the names of what belongs to a thread.

Checkpoints and ledger must not contradict each other. So a `SqliteCheckpointer` has its ledger
in its own database; any other saver gets one in memory, which lives as long as the saver.
"""

from __future__ import annotations

from functools import lru_cache
from threading import Lock
from typing import Any
from urllib.parse import quote
from weakref import WeakKeyDictionary

from langgraph.checkpoint.base import BaseCheckpointSaver

from echelons.checkpoints.ledger.base_ledger import Ledger
from echelons.checkpoints.ledger.memory_ledger import MemoryLedger

_MEMORY_LEDGERS: WeakKeyDictionary[BaseCheckpointSaver[Any], MemoryLedger] = WeakKeyDictionary()
_MEMORY_LOCK = Lock()


def get_ledger(saver: BaseCheckpointSaver[Any]) -> Ledger:
    """Return the ledger of a saver, the same object every time."""
    ledger = getattr(saver, "ledger", None)
    if isinstance(ledger, Ledger):
        return ledger
    with _MEMORY_LOCK:
        return _MEMORY_LEDGERS.setdefault(saver, MemoryLedger())


@lru_cache(maxsize=1024)
def build_key(thread_id: str, *parts: str) -> str:
    """Return the name of a key, a stream or a lease that belongs to a root's thread.

    All names of a thread have one prefix, by which they are deleted with it.

    Examples:
        >>> build_key("trip", "turn", "1")
        'thread/trip/turn/1'
    """
    # Quoted: a thread id may hold a slash, and no thread's names may begin like another's.
    return "/".join(("thread", _quote(thread_id), *parts))


@lru_cache(maxsize=1024)
def _quote(thread_id: str) -> str:
    return quote(thread_id, safe="")
