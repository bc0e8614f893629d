"""A request to a `Human` as a question, and the report that its answer makes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from echelons.messaging.agent_question import AgentQuestion

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
    shown = [f"{who}: {_shorten(text)}" for who, text in earlier[-MAX_EARLIER:]]
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
    said = report.get("result") or report.get("reason") or f"{report['status']}."
    if report["status"] == "needs_input":
        report["questions"] = [AgentQuestion(text=report["result"]).stored()]
    return said, report


def _shorten(text: str) -> str:
    return text if len(text) <= EARLIER_LENGTH else f"{text[: EARLIER_LENGTH - 1]}…"
