"""``Ledger``: the interface that both stores implement, with a twin of each name for event loops.

The turn engine keeps its turns here, the effect journal its effects, and later the breakers,
budgets and the mailbox theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from echelons.checkpoints.ledger.blocking_ledger import BlockingLedger
from echelons.checkpoints.ledger.lease import Lease
from echelons.errors import EchelonsError

P = ParamSpec("P")
T = TypeVar("T")


def _twin(
    method: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    # Not what else the method carries: it may be abstract, and the twin is not.
    @wraps(method, updated=())
    async def twin(self: BlockingLedger, /, *args: P.args, **kwargs: P.kwargs) -> T:
        # By its name, for what is passed here may be overridden.
        work: Callable[[], T] = partial(getattr(self, method.__name__), *args, **kwargs)
        return await self.arun(work)

    twin.__doc__ = f"Do what ``{method.__name__}`` does in an event loop.\n\n{method.__doc__}"
    return twin


def _kept(
    taking: Callable[Concatenate[Any, P], Coroutine[Any, Any, Lease]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, Lease]]:
    """Let no lease go astray whose taker is cancelled while a thread takes it for him."""

    @wraps(taking)
    async def kept(self: BlockingLedger, /, *args: P.args, **kwargs: P.kwargs) -> Lease:
        task = asyncio.create_task(taking(self, *args, **kwargs))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            with suppress(EchelonsError):
                (await task).release()
            raise

    return kept


class Ledger(BlockingLedger):
    """What the world has already seen: it is never forked and never rolled back.

    Ordered streams of records, keys that are compared and set, and leases. An ``a…`` twin
    takes what its original takes, and raises what it raises.

    Examples:
        >>> from echelons.checkpoints.ledger import MemoryLedger
        >>> ledger = MemoryLedger()
        >>> ledger.append("mail", {"text": "hello"})
        1
        >>> [entry.record["text"] for entry in ledger.read("mail")]
        ['hello']
        >>> with ledger.lease("thread") as lease:
        ...     version = ledger.compare_and_set("turn/1", None, "begun", fence=lease.fence)
        >>> ledger.compare_and_set("turn/1", None, "begun again") is None
        True
    """

    acommit = _twin(BlockingLedger.commit)
    aappend = _twin(BlockingLedger.append)
    aappend_after = _twin(BlockingLedger.append_after)
    aread = _twin(BlockingLedger.read)
    alast = _twin(BlockingLedger.last)
    aget = _twin(BlockingLedger.get)
    acompare_and_set = _twin(BlockingLedger.compare_and_set)
    adelete = _twin(BlockingLedger.delete)
    akeys = _twin(BlockingLedger.keys)
    alease = _kept(_twin(BlockingLedger.lease))
    atake_over = _kept(_twin(BlockingLedger.take_over))
    aholder = _twin(BlockingLedger.holder)
    acheck = _twin(BlockingLedger.check)
