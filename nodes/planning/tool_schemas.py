"""The tools that every level may have: `call_subordinate`, `delegate_many` and `report`.

Their arguments are pydantic models; the functions build the JSON schemas bound to a chat
model. `reason` handles the calls itself, so no tool has a body.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field

from echelons.delegation.join_policies import JOIN_NAMES
from echelons.delegation.request import Status
from echelons.errors import InvalidInput
from echelons.text.input_limits import check_context
from echelons.tree.members import Member
from echelons.tree.names import CALL_SUBORDINATE, DELEGATE_MANY, REPORT
from echelons.tree.roster import RosterEntry, render_roster
from echelons.tree.traversal import collect_capabilities

MAX_REQUESTS = 256
"""Most requests of one call, so that a model's slip does not start ten thousand agents."""


def _check_context(given: dict[str, Any] | None) -> dict[str, Any]:
    try:
        return check_context(given, "the context")
    except InvalidInput as error:
        raise ValueError(str(error)) from error


class CallSubordinateArgs(BaseModel):
    """Arguments of `call_subordinate`."""

    message: str = Field(min_length=1)
    subordinate: str | None = None
    reset: bool = False
    context: Annotated[dict[str, Any] | None, AfterValidator(_check_context)] = None


class DelegateManyArgs(BaseModel):
    """Arguments of `delegate_many`."""

    requests: list[CallSubordinateArgs] = Field(min_length=1, max_length=MAX_REQUESTS)
    join: Any = "all"
    n: Any = None


class ReportArgs(BaseModel):
    """Arguments of `report`."""

    status: Status
    result: str = ""
    confidence: float | None = Field(default=None, ge=0.0, le=1.0)
    reason: str = ""


def build_call_subordinate_schema(subordinates: Sequence[Member]) -> dict[str, Any]:
    """Return the schema of `call_subordinate` for these subordinates.

    Each is listed with its description and the declared capabilities of everything below it:
    a superior knows what a branch can do without knowing its members.
    """
    roster = render_roster(
        RosterEntry(each.name, each.description, collect_capabilities(each))
        for each in subordinates
    )
    return _build_function_schema(
        CALL_SUBORDINATE,
        "Give a task to a subordinate and get its answer. Call it several times in one "
        f"message to have tasks done side by side.\n\nYour subordinates:\n{roster}",
        _build_request_properties(subordinates),
        ["message"],
    )


def build_delegate_many_schema(subordinates: Sequence[Member]) -> dict[str, Any]:
    """Return the schema of `delegate_many` for these subordinates."""
    request = {
        "type": "object",
        "properties": _build_request_properties(subordinates),
        "required": ["message"],
    }
    return _build_function_schema(
        DELEGATE_MANY,
        "Give several tasks to subordinates at the same time and get one answer: when you need "
        "the fastest, the best or some of several answers. Who they are says "
        f"{CALL_SUBORDINATE}.",
        {
            "requests": {
                "type": "array",
                "items": request,
                "minItems": 1,
                "maxItems": MAX_REQUESTS,
            },
            "join": {
                "type": "string",
                "enum": list(JOIN_NAMES),
                "default": "all",
                "description": "all: every answer; first: the first that is fulfilled, the others "
                "are stopped then; quorum: the first n; best: the best of all.",
            },
            "n": {"type": "integer", "minimum": 1, "description": "For quorum: how many."},
        },
        ["requests"],
    )


def _build_request_properties(subordinates: Sequence[Member]) -> dict[str, Any]:
    return {
        "message": {"type": "string", "description": "The task, complete in itself."},
        "subordinate": {
            "type": "string",
            "enum": [each.name for each in subordinates],
            "description": "Whom to give it to. Left out, it goes to the agent that fits best, "
            "also further down, and to the next best if that one cannot.",
        },
        "reset": {
            "type": "boolean",
            "default": False,
            "description": "true: start anew; false: go on with the subordinate's "
            "latest conversation, which it remembers.",
        },
        "context": {
            "type": "object",
            "description": "Facts for the task as data, by name, such as ids and amounts. It gets "
            "these and no others: name what you were given yourself again.",
        },
    }


def build_report_schema() -> dict[str, Any]:
    """Return the schema of `report`."""
    return _build_function_schema(
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


def _build_function_schema(
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
