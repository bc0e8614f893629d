"""Questions as text and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from echelons.cli.output import build_command_line, escape_controls, format_tool_call
from echelons.delegation.questions import is_human_request

if TYPE_CHECKING:
    from echelons.checkpoints.threads.pending_work import Question
    from echelons.delegation.approvals import ReviewedCall

_PLAIN = str | int | float


def format_questions(
    questions: Sequence[Question], db: Path | None, aliases: Mapping[str, str] | None = None
) -> str:
    """Return questions as text, each with the commands that answer it.

    `aliases` are the names for people of the agents that ask, by their paths.
    """
    blocks: list[str] = []
    for question in questions:
        ways = _list_answer_arguments(question)
        answers = [build_command_line("answer", question.id, *way, db=db) for way in ways]
        how = "with one of:\n  " if len(answers) > 1 else "with: "
        alias = (aliases or {}).get(question.path, "")
        heading = format_asker_and_question(question, alias)
        blocks.append(f"{heading}\nAnswer it {how}" + "\n  ".join(answers))
    return "\n\n".join(blocks)


def format_asker_and_question(question: Question, alias: str = "") -> str:
    """Return who asks what, and until when, as text; `alias` is the asker's name for people."""
    calls = question.reviewed_calls
    words = _format_calls(calls) if calls else format_question(question.value, question.schema)
    words = words.replace("\n", "\n  ")
    named = f" ({escape_controls(alias)})" if alias else ""
    asks = f"{question.path}{named} asks"
    if is_human_request(question.schema):
        asks = f"{question.path.parent} asks {question.addressee}"
    urgently = " urgently" * question.urgent
    until = ""
    if question.deadline is not None:
        then = "" if question.default is None else f", then {_to_json(question.default)} is taken"
        until = "\n" + escape_controls(f"It waits until {question.deadline}{then}.")
    return f"{asks}{urgently}:\n  {words}{until}"


def _list_answer_arguments(question: Question) -> Iterator[tuple[str, ...]]:
    """Yield the arguments of `echelons answer` for each way to answer a question."""
    from echelons.delegation.effects import is_outcome_question

    schema = question.schema
    if question.reviewed_calls:
        yield from _list_decision_arguments(question.reviewed_calls)
    elif is_outcome_question(question.value):
        yield from (("happened", "--result", "TEXT"), ("not_happened",), ("run_again",))
    elif is_human_request(schema):
        yield ("VALUE",)
        yield "--json-value", json.dumps({"status": "unable", "reason": "TEXT"})
    elif choices := list_choices(question.value, schema):
        for choice in choices:
            is_word = isinstance(choice, str) and choice.strip() and not choice.startswith("-")
            yield (choice,) if is_word else ("--json-value", json.dumps(choice))
    elif schema is None or schema.get("type") == "string":
        yield ("VALUE",)
    else:
        yield "--json-value", "VALUE"


def format_question(value: Any, schema: Mapping[str, Any] | None = None) -> str:
    r"""Return the whole text of a question: what it asks, and by its schema, what it takes.

    >>> format_question({"question": "Book it?", "people": 2, "choices": ["yes", "no"]})
    'Book it?\npeople: 2\nchoices: yes, no'
    >>> format_question("How many nights?", {"enum": [1, 2]})
    'How many nights?\nchoices: 1, 2'
    >>> format_question({"type": "tool_approval", "name": "mail", "args": {"to": "Ann"}})
    "run mail(to='Ann')?"
    """
    from echelons.delegation.approvals import find_review
    from echelons.delegation.effects import is_outcome_question

    if is_outcome_question(value):
        call = format_tool_call(str(value["tool"]), value["arguments"])
        return escape_controls(f"{value['question']}\n{call}")
    if review := find_review(value):
        calls = (format_tool_call(call.tool, call.arguments) for call in review.calls)
        words = f"run {' and '.join(calls)}?"
    elif isinstance(value, Mapping) and isinstance(value.get("question"), str):
        facts = (
            f"{key}: {_format_fact(fact)}"
            for key, fact in value.items()
            if key != "question" and fact is not None
        )
        words = "\n".join([value["question"], *facts])
    else:
        words = value if isinstance(value, str) else _to_json(value)
    if schema is None or is_human_request(schema) or find_review(value, schema):
        return escape_controls(words)
    if schema.get("type") == "string" and schema.keys() <= {"type", "title"}:
        return escape_controls(words)
    choices = list_choices(value, schema)
    takes = f"choices: {', '.join(map(str, choices))}" if choices else f"answer: {_to_json(schema)}"
    return escape_controls(f"{words}\n{takes}")


def _format_fact(fact: Any) -> str:
    if isinstance(fact, list) and not any(isinstance(part, list | Mapping) for part in fact):
        return ", ".join(map(str, fact))
    return fact if isinstance(fact, str) else _to_json(fact)


def list_choices(value: Any, schema: Mapping[str, Any] | None) -> list[Any]:
    """Return the answers that a question offers, by its schema or its value; none if any will do.

    A value offers a list of texts or numbers as its `choices` or `options`.
    """
    if schema is not None:
        return _list_schema_choices(schema)
    facts = value if isinstance(value, Mapping) else {}
    offered = facts.get("choices") or facts.get("options")
    if isinstance(offered, list) and all(isinstance(choice, _PLAIN) for choice in offered):
        return [*offered]
    return []


def _list_schema_choices(schema: Mapping[str, Any]) -> list[Any]:
    match schema:
        case {"enum": [*values]} if all(isinstance(value, _PLAIN) for value in values):
            return values
        case {"const": str() | int() | float() as only}:
            return [only]
        case {"type": "boolean"}:
            return [True, False]
        case {"anyOf": [*ways]} | {"oneOf": [*ways]}:
            offers = [_list_schema_choices(way) for way in ways if isinstance(way, Mapping)]
            return [choice for offer in offers for choice in offer] if all(offers) else []
    return []


def _to_json(value: Any) -> str:
    return json.dumps(value, default=str)


def _format_calls(calls: Sequence[ReviewedCall]) -> str:
    lines: list[str] = []
    for call in calls:
        # LangChain's own description goes on with the tool and its arguments.
        about = call.description.partition("\n\nTool: ")[0]
        if about and about not in lines:
            lines.append(about)
        lines.append(format_tool_call(call.tool, call.arguments))
    return escape_controls("\n".join(lines))


def _list_decision_arguments(calls: Sequence[ReviewedCall]) -> Iterator[tuple[str, ...]]:
    """Yield the arguments of `echelons answer` for each decision that all calls take."""
    for kind in calls[0].allowed:
        if kind in ("approve", "reject") and all(kind in call.allowed for call in calls):
            yield (kind,)
        elif len(calls) == 1 and kind == "respond":
            yield kind, "--message", "TEXT"
        elif len(calls) == 1:
            yield "--json-value", _to_json(_build_example(calls[0], kind))
    if len(calls) == 1 and calls[0].can_be_standing:
        yield "--json-value", _to_json({"type": "approve", "scope": "thread"})
    if len(calls) > 1:
        yield "--json-value", _to_json([_build_example(call, call.allowed[0]) for call in calls])


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
        "path": question.path,
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
        "reviewed_calls": [asdict(call) for call in question.reviewed_calls],
    }
