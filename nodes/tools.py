"""The two tools that every level may have: ``call_subordinate`` and ``report``.

Their arguments are pydantic models; ``bind`` makes the schemas that a model is shown.
``reason`` handles the calls itself, so neither has a body.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, Field

from echelons.delegation import Status
from echelons.members import Member
from echelons.names import CALL_SUBORDINATE, REPORT
from echelons.roster import Entry, render
from echelons.tree import capabilities_below


class CallSubordinate(BaseModel):
    """Arguments of ``call_subordinate``."""

    message: str = Field(min_length=1)
    subordinate: str | None = None
    reset: bool = False


class Report(BaseModel):
    """Arguments of ``report``."""

    status: Status
    result: str = ""
    confidence: float | None = Field(default=None, ge=0.0, le=1.0)
    reason: str = ""


def call_subordinate_schema(subordinates: Sequence[Member]) -> dict[str, Any]:
    """Return the schema of ``call_subordinate`` for these subordinates.

    Each is listed with its description and the declared capabilities of everything below
    it, so a superior knows what a branch can do without knowing who is in it.
    """
    roster = render(
        Entry(each.name, each.description, capabilities_below(each)) for each in subordinates
    )
    return _function(
        CALL_SUBORDINATE,
        "Give a task to a subordinate and get its answer. Call it several times in one "
        f"message to have tasks done side by side.\n\nYour subordinates:\n{roster}",
        {
            "message": {"type": "string", "description": "The task, complete in itself."},
            "subordinate": {
                "type": "string",
                "enum": [each.name for each in subordinates],
                "description": "Whom to give it to. Left out, it goes to whoever fits best, "
                "also further down, and to the next best if that one cannot.",
            },
            "reset": {
                "type": "boolean",
                "default": False,
                "description": "true: start anew; false: go on with the subordinate's "
                "latest conversation, which it remembers.",
            },
        },
        ["message"],
    )


def report_schema() -> dict[str, Any]:
    """Return the schema of ``report``."""
    return _function(
        REPORT,
        "End your turn with anything else than a plain answer. A plain answer counts as fulfilled.",
        {
            "status": {
                "type": "string",
                "enum": [str(status) for status in Status],
                "description": "fulfilled: done; partial: done in part; unable: you cannot "
                "do it; needs_input: you need to know more first.",
            },
            "result": {"type": "string", "description": "The answer, or your question."},
            "confidence": {"type": "number", "minimum": 0, "maximum": 1},
            "reason": {"type": "string", "description": "Why, unless it is fulfilled."},
        },
        ["status"],
    )


def _function(
    name: str, description: str, properties: dict[str, Any], required: list[str]
) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {"type": "object", "properties": properties, "required": required},
        },
    }
