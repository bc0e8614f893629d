"""A lease: the right to work on one thread, for as long as the process lives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Self

from echelons.checkpoints.ledger.locks import Lock
from echelons.checkpoints.ledger.transaction import Fence


class Lease:
    """What ``Ledger.lease`` gives: held until it is released, or its process ends.

    To hold it is not enough to write: a process that was stopped may have been taken over
    and not know it yet. What must not happen then is written under ``fence``.

    Attributes:
        fence: What each protected write shows.
        since: When it was taken, ISO 8601, UTC.
    """

    def __init__(
        self,
        fence: Fence,
        since: str,
        lock: Lock,
        run: Callable[[Callable[[], None]], Awaitable[None]],
    ) -> None:
        self.fence = fence
        self.since = since
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
        """Let others have it, at once; once is enough.

        Its fence holds until somebody has: what was begun before can still be written.
        """
        self._lock.release()

    async def arelease(self) -> None:
        """Do what ``release`` does in an event loop."""
        await self._run(self.release)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.arelease()
