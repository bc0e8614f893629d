"""A lease: the right to work on one thread, for as long as the process lives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Self

from echelons.checkpoints.ledger.locks import LeaseLock
from echelons.checkpoints.ledger.transaction import Fence


class Lease:
    """A lease taken by `Ledger.lease`: held until it is released, or its process ends.

    Holding it does not protect a write: a process that was suspended may have been taken over
    without noticing. Pass `fence` to each write that must then be refused.

    Attributes:
        fence: Proof of the lease, for protected writes.
        since: When it was taken, ISO 8601, UTC.
        store_version: `Transaction.store_version` just before it was taken.
    """

    def __init__(
        self,
        fence: Fence,
        since: str,
        store_version: tuple[int, int] | None,
        lock: LeaseLock,
        run: Callable[[Callable[[], None]], Awaitable[None]],
    ) -> None:
        self.fence = fence
        self.since = since
        self.store_version = store_version
        self._lock = lock
        self._run = run

    def __repr__(self) -> str:
        state = "held" if self.held else "released"
        return f"<Lease of {self.fence.name!r}, epoch {self.fence.epoch}, {state}>"

    @property
    def name(self) -> str:
        """The name that is leased."""
        return self.fence.name

    @property
    def epoch(self) -> int:
        """How many times the name has been leased, this time included."""
        return self.fence.epoch

    @property
    def held(self) -> bool:
        """Whether it has not been released; never so in a fork of the process that holds it."""
        return self._lock.held

    def release(self) -> None:
        """Free the lease at once; further calls do nothing.

        Its fence stays valid until the lease is taken again: pending writes can still be made.
        """
        self._lock.release()

    async def arelease(self) -> None:
        """Async version of `release`."""
        if self._lock.held:
            # At once, for a cancellation may come while the rest waits for a thread. What it
            # leaves behind then, the next holder removes.
            self._lock.close()
            await self._run(self._lock.remove)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.arelease()


class PendingLease:
    """A lease that may be taken in a thread for a task that is cancelled meanwhile.

    The thread and the task both release a lease that is abandoned, so that it is freed whichever
    of them comes last, and even if the event loop no longer runs.

    Attributes:
        running: Whether it is being taken at this moment.
    """

    def __init__(self, take: Callable[[], Lease]) -> None:
        self.running = False
        self._take = take
        self._abandoned = False
        self._lease: Lease | None = None

    def run(self) -> Lease:
        """Take the lease, and release it if it has been abandoned."""
        self.running = True
        try:
            lease = self._lease = self._take()
        finally:
            self.running = False
        if self._abandoned:
            lease.release()
        return lease

    def abandon(self) -> None:
        """Release the lease, now or as soon as it is taken."""
        self._abandoned = True
        if self._lease:
            self._lease.release()
