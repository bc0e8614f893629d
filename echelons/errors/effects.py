"""Errors of calls: of the tools and functions of agents.

Raised by the nodes that carry calls out, their journal, and what tools ask about themselves.
"""

from __future__ import annotations

from echelons.errors.base import SHORT, EchelonsError
from echelons.errors.ledger import LedgerError


class NoCall(EchelonsError):
    """An idempotency key was requested outside of any call.

    Attributes:
        given: The argument, shortened.
    """

    given: object
    message = (
        "{given} belongs to no call of an agent; give idempotency_key() the ToolRuntime that the "
        "tool was called with, or its config"
    )

    def __post_init__(self) -> None:
        # The value itself may be large, and need not survive a way to another process.
        self.given = SHORT.repr(self.given)
        super().__post_init__()


class CallContested(LedgerError):
    """Two runs of one thread carry out the same call, so this one did not.

    Attributes:
        tool: Name of the tool.
        call_id: The call.
    """

    tool: str
    call_id: str
    message = (
        "call {call_id:short} of {tool} is carried out by another run of this thread; it was not "
        "carried out here. Run a thread in one place at a time, with a Session"
    )
