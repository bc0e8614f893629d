"""Questions of agents to their superiors and to people, and the answers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, TypedDict, TypeGuard

from pydantic import ValidationError, field_validator

from echelons.errors import InvalidInput
from echelons.settings import StoredModel
from echelons.text.input_limits import measure_size
from echelons.text.json_schema import find_mismatch, find_schema_fault
from echelons.tree.agent_path import AgentPath
from echelons.tree.names import CALL_SUBORDINATE, PATH_SEPARATOR

QUESTION_BYTES = 64 * 1024
"""Maximum size of a question with its choices and its schema, in bytes; models read it."""
QUESTION_ID_LENGTH = 8
"""Characters of a thread's id that name a question to a model, which has to repeat them."""
QUESTION_KIND = "agent_question"
"""The `kind` in the value of an interrupt that asks such a question."""
MISSED_KIND = "missed_answer"
"""The `kind` of what stands for an answer that was not given in time."""


class AgentQuestion(StoredModel):
    """A question of an agent.

    Attributes:
        text: The question in words.
        choices: The answers that it takes; empty if any will do.
        answer_schema: JSON Schema of the answer; `None` if it has none.
        urgent: Whether it comes before others.
        deadline: Until when an answer is of use, ISO 8601, UTC; `None` for any time.
        default: The answer that is taken when its deadline passes; `None` if it has none.
        addressee: Name of the human that it is for; empty for anyone.
        path: Agents from the one that reads it down to the one that asks.
        thread_id: The thread of the first of them below the reader, on which an answer goes on.
    """

    text: str
    choices: tuple[str, ...] = ()
    answer_schema: dict[str, Any] | None = None
    urgent: bool = False
    deadline: str | None = None
    default: Any = None
    addressee: str = ""
    path: AgentPath = AgentPath()
    thread_id: str = ""

    @field_validator("deadline")
    @classmethod
    def _check_deadline(cls, deadline: str | None) -> str | None:
        if deadline is not None and datetime.fromisoformat(deadline).tzinfo is None:
            raise ValueError("a deadline has a time zone")
        return deadline

    @property
    def response_schema(self) -> dict[str, Any] | None:
        """JSON Schema of the answers that it takes; `None` if any value will do."""
        # Each choice fits the question's own schema.
        return {"enum": [*self.choices]} if self.choices else self.answer_schema

    @property
    def facts(self) -> dict[str, Any]:
        """The parts beside its text, as the user reads them."""
        fields = {"choices", "urgent", "deadline", "default", "addressee"}
        return self.model_dump(mode="json", exclude_defaults=True, include=fields)

    def build_interrupt_value(self) -> dict[str, Any]:
        """Return the value of the interrupt that asks the user."""
        return {"kind": QUESTION_KIND, "question": self.text, **self.facts}


class MissedAnswer(TypedDict):
    """The replacement of an answer when the deadline of a question has passed.

    Attributes:
        kind: `"missed_answer"`.
        deadline: The deadline, ISO 8601, UTC.
        default: The answer that is taken; `None` if the question has none.
    """

    kind: str
    deadline: str
    default: Any


def build_missed_answer(deadline: str, default: Any) -> MissedAnswer:
    """Return what is delivered in place of an answer that was not given by the deadline."""
    return MissedAnswer(kind=MISSED_KIND, deadline=deadline, default=default)


def is_missed_answer(answer: object) -> TypeGuard[MissedAnswer]:
    """Return whether what was delivered stands for an answer that was not given in time."""
    return isinstance(answer, Mapping) and answer.get("kind") == MISSED_KIND


def find_question_fault(
    text: str, choices: Sequence[str] | None, schema: Mapping[str, Any] | None = None
) -> str:
    """Return why a question cannot be asked; empty if it can.

    Examples:
        >>> find_question_fault("Which city?", [])
        'choices: give at least one, or leave them out'
    """
    try:
        measure_size([text, choices, schema], "the question", QUESTION_BYTES)
    except InvalidInput as error:
        return str(error)
    fault = ""
    if not text.strip():
        fault = "question: it is empty"
    elif choices is not None and not choices:
        fault = "choices: give at least one, or leave them out"
    elif choices and not all(choice.strip() for choice in choices):
        fault = "choices: one of them is empty"
    elif schema is not None and (why := find_schema_fault(schema)):
        fault = f"schema: it is no JSON Schema: {why}"
    elif schema is not None:
        faults = (find_mismatch(choice, schema) for choice in choices or ())
        why = next(filter(None, faults), "")
        fault = f"choices: one of them does not fit the schema: {why}" if why else ""
    return fault


def find_default_fault(default: object, schema: Mapping[str, Any] | None) -> str:
    """Return why an answer cannot be the default of a question; empty if it can."""
    try:
        measure_size(default, "the default", QUESTION_BYTES)
    except InvalidInput as error:
        return str(error)
    why = find_mismatch(default, schema) if schema is not None else ""
    return f"default: the question does not take it: {why}" if why else ""


def build_question_id(thread_id: str) -> str:
    """Return the id by which an answer names the thread of a subordinate that has asked."""
    return thread_id[:QUESTION_ID_LENGTH]


def format_questions(questions: Iterable[AgentQuestion]) -> list[str]:
    r"""Return questions as notices for a superior's model: who asks what, and how to answer.

    The urgent ones come first.

    Examples:
        >>> asked = AgentQuestion(
        ...     text="By day?", choices=("yes", "no"), path=("head", "eat"), thread_id="5eb1a2c3-40"
        ... )
        >>> [line] = format_questions([asked])
        >>> print(line.partition(" To answer")[0])
        eat asks: "By day?" Choices: ["yes", "no"].
    """
    in_order = sorted(questions, key=lambda question: not question.urgent)
    return [*map(_format_question, in_order)]


def _format_question(question: AgentQuestion) -> str:
    # All of it on one line, and quoted: the text of a question is that of another agent.
    asker = PATH_SEPARATOR.join(question.path.parts[1:])
    line = f"{asker} asks: {json.dumps(question.text, ensure_ascii=False)}"
    if question.choices:
        line += f" Choices: {json.dumps(question.choices, ensure_ascii=False)}."
    elif question.answer_schema is not None:
        schema = json.dumps(question.answer_schema, ensure_ascii=False)
        line += f" The answer is JSON of this schema: {schema}."
    return (
        f"{line} To answer, give {CALL_SUBORDINATE} your answer as the message and "
        f'answers="{build_question_id(question.thread_id)}".'
    )


def read_question_value(value: object) -> AgentQuestion | None:
    """Return the question that the value of an interrupt asks, `None` if a tool asks on its own."""
    if not isinstance(value, Mapping) or value.get("kind") != QUESTION_KIND:
        return None
    fields = {key: item for key, item in value.items() if key not in ("kind", "question")}
    try:
        return AgentQuestion.model_validate(
            {**fields, "text": value.get("question")}, extra="ignore"
        )
    except ValidationError:
        return None


_TITLE: Final = "human_answer"
HUMAN_ANSWER_SCHEMA: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "title": _TITLE,
        "type": ["string", "object"],
        "minLength": 1,
        "pattern": r"\S",
        "properties": {
            "status": {"enum": ["fulfilled", "partial", "unable", "needs_input"]},
            "result": {"type": "string"},
            "reason": {"type": "string"},
            "confidence": {"type": "number", "minimum": 0, "maximum": 1},
        },
        "required": ["status"],
        "additionalProperties": False,
        "if": {"properties": {"status": {"const": "unable"}}},
        "else": {
            "required": ["result"],
            "properties": {"result": {"minLength": 1, "pattern": r"\S"}},
        },
    }
)
"""JSON Schema of a human's answer: the result as a text, or a report with a status."""
MAX_EARLIER: Final = 6
"""Most messages of the conversation before that a person is shown again."""
EARLIER_LENGTH: Final = 500
"""Characters of each of them."""


def is_human_request(schema: Mapping[str, Any] | None) -> bool:
    """Return whether a question with a schema of its answer is a request to a human."""
    return schema is not None and schema.get("title") == _TITLE


def build_human_question(
    human: str,
    task: str,
    facts: str = "",
    earlier: Sequence[tuple[str, str]] = (),
    deadline: str | None = None,
) -> AgentQuestion:
    """Return the question that asks a human to work on a task.

    Args:
        human: The human's name.
        task: The task.
        facts: The facts that accompany it, a line for each.
        earlier: The earlier messages of the thread, with their authors.
        deadline: Until when an answer is of use.

    Examples:
        >>> asked = build_human_question("anna", "Book it", "nights: 2", [("head", "Find a room")])
        >>> print(asked.text)
        Book it
        <BLANKLINE>
        nights: 2
        <BLANKLINE>
        Earlier in this conversation:
        head: Find a room
    """
    shown = [f"{speaker}: {_shorten(text)}" for speaker, text in earlier[-MAX_EARLIER:]]
    if shown:
        shown.insert(0, "Earlier in this conversation:")
    parts = (task, facts, "\n".join(shown))
    return AgentQuestion(
        text="\n\n".join(filter(None, parts)),
        answer_schema=dict(HUMAN_ANSWER_SCHEMA),
        deadline=deadline,
        addressee=human,
    )


def parse_human_answer(answer: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return what a human says in an answer of `HUMAN_ANSWER_SCHEMA`, and the report of it.

    A text needs no report: it is the result, with the human's declared confidence. A human that
    needs to know more asks its superior, as an agent does with `ask`.

    Examples:
        >>> parse_human_answer("The Ritz")
        ('The Ritz', {})
        >>> parse_human_answer({"status": "unable", "reason": "on holiday"})
        ('on holiday', {'status': 'unable', 'reason': 'on holiday'})
    """
    if isinstance(answer, str):
        return answer, {}
    report = dict(answer)
    text = report.get("result") or report.get("reason") or f"{report['status']}."
    if report["status"] == "needs_input":
        report["questions"] = [AgentQuestion(text=report["result"]).stored()]
    return text, report


def _shorten(text: str) -> str:
    return text if len(text) <= EARLIER_LENGTH else f"{text[: EARLIER_LENGTH - 1]}…"
