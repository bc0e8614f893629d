"""The question that nobody but a human can answer: did a call that was cut short happen?

``nodes`` ask it with ``question`` as an interrupt's value; ``outcome_of`` reads the answer. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, TypeAlias, TypedDict

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from echelons.effects.journal import Call, Entry
from echelons.text.sanitize import mend

KIND = "outcome_unknown"
LONGEST = 200
"""Characters of an argument that the question shows."""
MOST = 20
"""Arguments that the question shows."""


class OutcomeUnknown(TypedDict):
    """The value of a question about a call that was cut short.

    Attributes:
        kind: ``"outcome_unknown"``.
        question: The question in words.
        tool: Name of the tool.
        arguments: What it was given, shortened.
        agent_path: The agent that called it, from the root, joined with ``/``.
        started_at: When it was started last, ISO 8601, UTC.
        idempotency_key: The call's key, by which a service may know it.
        happened: Whether it is known to have happened; its result is what is missing then.
        answers: An example of each answer that is understood.
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
    """It was carried out, with this result."""

    outcome: Literal["happened"]
    result: str


class NotHappened(_Answer):
    """It was not carried out, and is not to be tried again."""

    outcome: Literal["not_happened"]


class RunAgain(_Answer):
    """It is to be carried out now, whatever has happened."""

    outcome: Literal["run_again"]


Outcome: TypeAlias = Happened | NotHappened | RunAgain

ANSWERS: tuple[Any, ...] = (
    {"outcome": "happened", "result": "what the tool would have returned"},
    {"outcome": "not_happened"},
    {"outcome": "run_again"},
)


def question(call: Call, entry: Entry) -> OutcomeUnknown:
    """Return what a human is asked about a call."""
    words = f"{call.tool} was started at {entry.at} and then cut short. Did it happen?"
    if entry.lost:
        words = f"{call.tool} did happen, but its result is lost: {entry.lost}. What was it?"
    return OutcomeUnknown(
        kind=KIND,
        question=words,
        tool=call.tool,
        arguments=_shortened(call.arguments),
        agent_path=call.path,
        started_at=entry.at,
        idempotency_key=call.id,
        happened=bool(entry.lost),
        answers=[dict(each) for each in ANSWERS],
    )


def is_unknown(value: object) -> bool:
    """Return whether the value of an interrupt is a question about a call's outcome."""
    if not isinstance(value, Mapping) or value.get("kind") != KIND:
        return False
    # Any tool may ask anything.
    whole = OutcomeUnknown.__annotations__.keys() <= value.keys()
    return whole and isinstance(value["arguments"], Mapping)


def outcome_of(answer: object) -> Outcome | None:
    """Return what an answer says, or ``None`` if it is none of the three.

    Examples:
        >>> outcome_of("run_again")
        RunAgain(outcome='run_again')
        >>> outcome_of({"outcome": "happened", "result": "booked"}).result
        'booked'
        >>> outcome_of("perhaps") is None
        True
    """
    try:
        found: Outcome = _readers()[0].validate_python(
            {"outcome": answer} if isinstance(answer, str) else answer
        )
    except ValidationError:
        return None
    return found


def schema() -> dict[str, Any]:
    """Return the JSON Schema of the answers."""
    return _readers()[1]


@cache
def _readers() -> tuple[TypeAdapter[Any], dict[str, Any]]:
    words = Literal["not_happened", "run_again"]
    return TypeAdapter(Outcome), TypeAdapter(Outcome | words).json_schema()


def _shortened(arguments: Mapping[str, Any]) -> dict[str, Any]:
    shown = {mend(str(key)): _short(value) for key, value in [*arguments.items()][:MOST]}
    left = len(arguments) - len(shown)
    return shown | ({"…": f"{left} more"} if left > 0 else {})


def _short(value: Any) -> Any:
    """Return a value of plain data as it is if it is short, else the beginning of its text."""
    value = mend(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    text = value if isinstance(value, str) else json.dumps(value, default=repr, ensure_ascii=False)
    if len(text) > LONGEST:
        return f"{text[: LONGEST - 1]}…"
    return value if isinstance(value, str) else json.loads(text)
