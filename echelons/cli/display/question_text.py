"""Questions as text and JSON, and the question that an answer is for. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from echelons.cli.display.text_format import (
    build_command_line,
    escape_controls,
    format_question_value,
    format_tool_call,
)
from echelons.errors import QuestionError, no_open_thread, unknown_question
from echelons.messaging.human_request import is_human_request
from echelons.tree.names import PATH_SEPARATOR

if TYPE_CHECKING:
    from echelons.checkpoints.threads.pending_work import Question
    from echelons.effects.approvals import ReviewedCall

_PLAIN = str | int | float
SHORTEST_PREFIX = 4
"""Fewest characters of an id's beginning that may stand for it."""


def format_questions(
    questions: Sequence[Question], given: Path | None, aliases: Mapping[str, str] | None = None
) -> str:
    """Return questions as text, each with the command that answers it in the given database.

    `aliases` are the names for people of the agents that ask, by their paths.
    """
    return "\n\n".join(_format_question(each, given, aliases or {}) for each in questions)


def _format_question(question: Question, given: Path | None, aliases: Mapping[str, str]) -> str:
    ways = [*_list_answer_arguments(question)]
    answers = [build_command_line("answer", question.id, *way, db=given) for way in ways]
    how = "with one of:\n  " if len(answers) > 1 else "with: "
    listed = "\n  ".join(answers)
    alias = aliases.get(PATH_SEPARATOR.join(question.path), "")
    return f"{format_asked(question, alias)}\nAnswer it {how}{listed}"


def format_asked(question: Question, alias: str = "") -> str:
    """Return who asks what, and until when, as text; `alias` is the asker's name for people."""
    calls = question.reviewed_calls
    words = _format_calls(calls) if calls else format_question(question.value, question.schema)
    words = words.replace("\n", "\n  ")
    named = f" ({escape_controls(alias)})" if alias else ""
    asks = f"{PATH_SEPARATOR.join(question.path)}{named} asks"
    if is_human_request(question.schema):
        asks = f"{PATH_SEPARATOR.join(question.path[:-1])} asks {question.addressee}"
    urgently = " urgently" * question.urgent
    return f"{asks}{urgently}:\n  {words}{_format_deadline(question)}"


def _format_deadline(question: Question) -> str:
    """Return until when a question waits, as a further line; empty if it waits for any time."""
    if question.deadline is None:
        return ""
    then = "" if question.default is None else f", then {_to_json(question.default)} is taken"
    return "\n" + escape_controls(f"It waits until {question.deadline}{then}.")


def _list_answer_arguments(question: Question) -> Iterator[tuple[str, ...]]:
    """Yield the arguments of `echelons answer` for each way to answer a question."""
    from echelons.effects.journal import is_outcome_question

    schema = question.schema
    if question.reviewed_calls:
        yield from _list_decision_arguments(question.reviewed_calls)
    elif is_outcome_question(question.value):
        yield from (("happened", "--result", "TEXT"), ("not_happened",), ("run_again",))
    elif is_human_request(schema):
        yield ("VALUE",)
        yield "--json-value", json.dumps({"status": "unable", "reason": "TEXT"})
    elif choices := list_choices(question.value, schema):
        yield from map(_build_choice_arguments, choices)
    elif schema is None or schema.get("type") == "string":
        yield ("VALUE",)
    else:
        yield "--json-value", "VALUE"


def format_question(value: Any, schema: Mapping[str, Any] | None = None) -> str:
    """Return the whole text of a question: what it asks, and by its schema, what it takes.

    >>> print(format_question("How many nights?", {"enum": [1, 2]}))
    How many nights?
    choices: 1, 2
    """
    from echelons.effects.approvals import find_review
    from echelons.effects.journal import is_outcome_question

    words = format_question_value(value)
    if schema is None or is_human_request(schema):
        return words
    if is_outcome_question(value) or find_review(value, schema):
        return words
    if schema.get("type") == "string" and schema.keys() <= {"type", "title"}:
        return words
    choices = list_choices(value, schema)
    told = f"choices: {', '.join(map(str, choices))}" if choices else f"answer: {_to_json(schema)}"
    return f"{words}\n{escape_controls(told)}"


def list_choices(value: Any, schema: Mapping[str, Any] | None) -> list[Any]:
    """Return the answers that a question offers, by its schema or its value; none if any will do.

    A value offers a list of texts or numbers as its `choices` or `options`.
    """
    if schema is not None:
        return _list_schema_choices(schema)
    facts = value if isinstance(value, Mapping) else {}
    offered = facts.get("choices") or facts.get("options")
    if not isinstance(offered, list) or not all(isinstance(each, _PLAIN) for each in offered):
        return []
    return [*offered]


def _list_schema_choices(schema: Mapping[str, Any]) -> list[Any]:
    match schema:
        case {"enum": [*values]} if all(isinstance(each, _PLAIN) for each in values):
            return values
        case {"const": str() | int() | float() as only}:
            return [only]
        case {"type": "boolean"}:
            return [True, False]
        case {"anyOf": [*ways]} | {"oneOf": [*ways]}:
            each_one = [_list_schema_choices(way) for way in ways if isinstance(way, Mapping)]
            return [choice for way in each_one for choice in way] if all(each_one) else []
    return []


def _build_choice_arguments(choice: Any) -> tuple[str, ...]:
    """Return the arguments of `echelons answer` that give a choice, whatever it looks like."""
    plain = isinstance(choice, str) and choice.strip() and not choice.startswith("-")
    return (choice,) if plain else ("--json-value", json.dumps(choice))


def _to_json(value: Any) -> str:
    return json.dumps(value, default=str)


def _format_calls(calls: Sequence[ReviewedCall]) -> str:
    lines: list[str] = []
    for each in calls:
        # LangChain's own description goes on with the tool and its arguments.
        about = each.description.partition("\n\nTool: ")[0]
        if about and about not in lines:
            lines.append(about)
        lines.append(format_tool_call(each.tool, each.arguments))
    return escape_controls("\n".join(lines))


def _list_decision_arguments(calls: Sequence[ReviewedCall]) -> Iterator[tuple[str, ...]]:
    """Yield the arguments of `echelons answer` for each decision that all calls take."""
    for kind in calls[0].allowed:
        if kind in ("approve", "reject") and all(kind in each.allowed for each in calls):
            yield (kind,)
        elif len(calls) == 1 and kind == "respond":
            yield kind, "--message", "TEXT"
        elif len(calls) == 1:
            yield "--json-value", json.dumps(_build_example(calls[0], kind), default=str)
    if len(calls) == 1 and calls[0].can_be_standing:
        yield "--json-value", json.dumps({"type": "approve", "scope": "thread"})
    if len(calls) > 1:
        each_one = [_build_example(each, each.allowed[0]) for each in calls]
        yield "--json-value", json.dumps(each_one, default=str)


def _build_example(call: ReviewedCall, kind: str) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "edit": {"edited_action": {"name": call.tool, "args": call.arguments}},
        "respond": {"message": "TEXT"},
    }
    return {"type": kind, **fields.get(kind, {})}


def question_to_json(question: Question, thread: str) -> dict[str, Any]:
    """Return a question as a JSON object."""
    return {
        "id": question.id,
        "value": question.value,
        "path": PATH_SEPARATOR.join(question.path),
        "agent_thread_id": question.thread_id,
        "asked_at": question.asked_at,
        "schema": question.schema,
        "thread": thread,
        "choices": [*question.choices],
        "urgent": question.urgent,
        "deadline": question.deadline,
        "default": question.default,
        "addressee": question.addressee,
        "asker": question.asker,
        "reviewed_calls": [asdict(each) for each in question.reviewed_calls],
    }


def match_answer(
    questions: Sequence[Question], first: str | None, second: str | None, database: str
) -> tuple[Question, str]:
    """Return the question that is answered, and the answer.

    Of two words, the first is the id or its beginning; one word is the answer.

    Raises:
        BadParameter: There is no answer.
        ThreadError: There is no question.
        QuestionError: There are several, and no id is given; the id is that of no open question, or
            its beginning of several.
    """
    pending = {question.id: question for question in questions}
    if first is None or (second is None and first in pending):
        whole = build_command_line("answer", first or "QUESTION_ID", "VALUE")
        raise typer.BadParameter(f"give the answer: {whole}")
    if second is not None:
        begun = [each for each in pending if each.startswith(first)]
        if first not in pending and (len(begun) != 1 or len(first) < SHORTEST_PREFIX):
            raise unknown_question(first, list(pending))
        return pending[first if first in pending else begun[0]], second
    if not pending:
        raise no_open_thread(database, "asks anything")
    if len(pending) > 1:
        raise QuestionError(
            f"{len(pending)} questions are pending; name one of {{pending}} (`echelons inbox` "
            "shows them)",
            code="question_not_named",
            pending=tuple(pending),
        )
    return questions[0], first
