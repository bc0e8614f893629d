"""Errors of stop and pause: orders that cannot be carried out.

Raised by the plans that give orders, in sessions and commands.
"""

from __future__ import annotations

from collections.abc import Sequence

from echelons.errors.base import SHORT, EchelonsError


class ControlError(EchelonsError):
    """An order cannot be carried out; nothing was changed."""


class UnknownPath(ControlError):
    """An order names an agent that the tree does not have.

    Attributes:
        path: The path as it was given.
        known: The paths of the tree.
    """

    path: str
    known: Sequence[str]

    def _describe(self) -> str:
        some = ", ".join(self.known[:20]) + (", …" if len(self.known) > 20 else "")
        return f"there is no agent at {SHORT.repr(self.path)}; the paths of this tree are: {some}"


class NothingRunning(ControlError):
    """An order was given to a thread whose last turn has ended.

    Attributes:
        thread: The thread's name or id.
    """

    thread: str
    message = (
        "no turn of thread {thread!r} is on its way, so nothing can be stopped or paused; an order "
        "holds for the turn that it is given in, and begins with it"
    )


class NotPaused(ControlError):
    """There is no pause to lift at a path.

    Attributes:
        path: The path as it was given.
        paused: The paths that are paused.
    """

    path: str
    paused: Sequence[str]
    message = "nothing is paused at {path:short} or below it; paused are: {paused}"
