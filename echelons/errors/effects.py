"""Errors of calls: of tools and functions that an agent has called.

Raised by the nodes that carry calls out, their journal, and what tools ask about themselves.
"""

from __future__ import annotations

from echelons.errors.base import SHORT, EchelonsError
from echelons.errors.ledger import LedgerError


class NoCall(EchelonsError):
    """Something asked for the idempotency key of a call outside of any.

    Attributes:
        given: What it was asked of, shortened.
    """

    def __init__(self, given: object) -> None:
        self.given = SHORT.repr(given)
        super().__init__(
            f"{self.given} belongs to no call of an agent; give idempotency_key() the "
            "ToolRuntime that the tool was called with, or its config"
        )


class CallContested(LedgerError):
    """Two runs of one thread carry out the same call, so this one did not.

    Attributes:
        tool: Name of the tool.
        call_id: The call.
    """

    def __init__(self, tool: str, call_id: str) -> None:
        self.tool = tool
        self.call_id = call_id
        super().__init__(
            f"call {SHORT.repr(call_id)} of {tool} is carried out by another run of this thread; "
            "it was not carried out here. Run a thread in one place at a time, with a Session"
        )
