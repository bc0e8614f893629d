"""The question to a human whether an interrupted call happened, and its answers. Pure.

`build_outcome_question` is the value of the interrupt; `parse_outcome` parses the answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, TypeAlias, TypedDict

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from echelons.effects.journal import EffectCall, JournalEntry
from echelons.text.sanitize import sanitize_value

OUTCOME_QUESTION_KIND = "outcome_unknown"
MAX_ARGUMENT_LENGTH = 200
"""Characters of an argument shown in the question."""
MAX_ARGUMENTS = 20
"""Arguments shown in the question."""


class OutcomeUnknown(TypedDict):
    """The value of the interrupt that asks about an interrupted call.

    Attributes:
        kind: `"outcome_unknown"`.
        question: The question in words.
        tool: Name of the tool.
        arguments: Its arguments, shortened.
        agent_path: Path of the calling agent from the root, joined with `/`.
        started_at: When the call was last started, ISO 8601, UTC.
        idempotency_key: The call's key, by which an external service may identify it.
        happened: Whether the call is known to have happened and only its result is missing.
        answers: An example of each possible answer.
    """

    kind: str
    question: str
    tool: str
    arguments: dict[str, Any]
    agent_path: str
    started_at: str
    idempotency_key: str
    happened: bool
    answers: list[Any]


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Happened(_Answer):
    """The call was executed, with this result."""

    outcome: Literal["happened"]
    result: str


class NotHappened(_Answer):
    """The call was not executed, and is not to be repeated."""

    outcome: Literal["not_happened"]


class RunAgain(_Answer):
    """The call is to be executed now, whether or not it was before."""

    outcome: Literal["run_again"]


CallOutcome: TypeAlias = Happened | NotHappened | RunAgain

EXAMPLE_ANSWERS: tuple[Any, ...] = (
    {"outcome": "happened", "result": "what the tool would have returned"},
    {"outcome": "not_happened"},
    {"outcome": "run_again"},
)


def build_outcome_question(call: EffectCall, entry: JournalEntry) -> OutcomeUnknown:
    """Return the question to a human about a call."""
    shown = {
        sanitize_value(str(key)): _shorten_value(value)
        for key, value in [*call.arguments.items()][:MAX_ARGUMENTS]
    }
    left = len(call.arguments) - len(shown)
    words = f"{call.tool} was started at {entry.at} and then cut short. Did it happen?"
    if entry.cut:
        words = f"{call.tool} was started at {entry.at} and given up: {entry.cut}. Did it happen?"
    if entry.lost:
        words = f"{call.tool} did happen, but its result is lost: {entry.lost}. What was it?"
    return OutcomeUnknown(
        kind=OUTCOME_QUESTION_KIND,
        question=words,
        tool=call.tool,
        arguments=shown | ({"…": f"{left} more"} if left > 0 else {}),
        agent_path=call.path,
        started_at=entry.at,
        idempotency_key=call.id,
        happened=bool(entry.lost),
        answers=[dict(each) for each in EXAMPLE_ANSWERS],
    )


def is_outcome_question(value: object) -> bool:
    """Return whether an interrupt's value is a question about a call's outcome."""
    if not isinstance(value, Mapping) or value.get("kind") != OUTCOME_QUESTION_KIND:
        return False
    # A tool's own interrupt may use the same `kind`.
    whole = OutcomeUnknown.__annotations__.keys() <= value.keys()
    return whole and isinstance(value["arguments"], Mapping)


def parse_outcome(answer: object) -> CallOutcome | None:
    """Return the outcome that an answer states, or `None` if it is not a valid answer.

    Examples:
        >>> parse_outcome("run_again")
        RunAgain(outcome='run_again')
        >>> parse_outcome({"outcome": "happened", "result": "booked"}).result
        'booked'
        >>> parse_outcome("perhaps") is None
        True
    """
    try:
        found: CallOutcome = _build_adapter_and_schema()[0].validate_python(
            {"outcome": answer} if isinstance(answer, str) else answer
        )
    except ValidationError:
        return None
    return found


def build_outcome_schema() -> dict[str, Any]:
    """Return the JSON Schema of a valid answer."""
    return _build_adapter_and_schema()[1]


@cache
def _build_adapter_and_schema() -> tuple[TypeAdapter[Any], dict[str, Any]]:
    words = Literal["not_happened", "run_again"]
    return TypeAdapter(CallOutcome), TypeAdapter(CallOutcome | words).json_schema()


def _shorten_value(value: Any) -> Any:
    value = sanitize_value(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    text = value if isinstance(value, str) else json.dumps(value, default=repr, ensure_ascii=False)
    if len(text) > MAX_ARGUMENT_LENGTH:
        return f"{text[: MAX_ARGUMENT_LENGTH - 1]}…"
    return value if isinstance(value, str) else json.loads(text)
