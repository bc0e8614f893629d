"""Forms of servers, and questions of teams as forms."""

from __future__ import annotations

from typing import Any

import pytest

from echelons.checkpoints.threads.pending_work import Question
from echelons.delegation.questions import HUMAN_ANSWER_SCHEMA
from echelons.errors import InvalidSetting
from echelons.mcp import HttpServer, StdioServer
from echelons.mcp.elicitation import (
    build_form_schema,
    build_question_form,
    clean_form,
    describe_question,
    find_form_fault,
    read_form_answer,
)
from echelons.text.json_schema import find_mismatch
from echelons.tree.agent_path import AgentPath


def build_form(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields}


def ask(schema: Any = None, value: Any = "Which?", **more: Any) -> Question:
    return Question("id", value, AgentPath("head/clerk"), "thread", "2026-01-01", schema, **more)


@pytest.mark.parametrize(
    "field",
    [
        {"type": "string", "format": "date", "minLength": 1},
        {"type": "integer", "minimum": 1},
        {"type": "boolean", "default": False},
        {"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]},
        {"type": "string", "oneOf": [{"const": "a", "title": "A"}]},
    ],
)
def test_a_field_that_the_protocol_has_is_shown(field: Any) -> None:
    assert find_form_fault(clean_form(build_form(one=field))) == ""


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"type": "array"},
        build_form(),
        {"type": "object", "properties": ["one"]},
        build_form(one="text"),
        build_form(one={"type": "object"}),
        build_form(one={"type": "array", "items": {"type": "string"}}),
        build_form(one={"type": ["string", "null"]}),
        build_form(one={"$ref": "#"}),
        build_form(one={"enum": [1, 2]}),
        build_form(one={"type": "string", "oneOf": ["a"]}),
        build_form(one={"type": "string", "oneOf": 3}),
        build_form(one={"type": "string", "enum": 3}),
        build_form(one={"type": "string", "minLength": "many"}),
        build_form(one={"type": "string", "description": "x" * 20_000}),
        {**build_form(one={"type": "string"}), "required": "one"},
    ],
)
def test_a_form_that_cannot_be_is_refused(form: Any) -> None:
    assert find_form_fault(clean_form(form))


def test_an_answer_is_a_filled_in_form_or_a_refusal() -> None:
    form = build_form(day={"type": "string"}, seats={"type": "integer"})
    schema = build_form_schema(form)

    for given, meant in (
        ({"day": "Friday"}, ("accept", {"day": "Friday"})),
        ({}, ("accept", {})),
        ({"action": "decline"}, ("decline", None)),
        ({"action": "cancel"}, ("cancel", None)),
    ):
        assert find_mismatch(given, schema) == ""
        assert read_form_answer(given, form) == meant
    for wrong in ("Friday", None, {"seats": "two"}, {"more": 1}, {"action": "accept"}):
        assert find_mismatch(wrong, schema)
    assert read_form_answer({"seats": "two"}, form) == ("cancel", None)
    assert read_form_answer("Friday", form) == ("cancel", None)


def test_a_form_with_a_field_called_action_is_filled_in() -> None:
    form = build_form(action={"type": "string", "enum": ["pay", "decline"]})
    assert read_form_answer({"action": "pay"}, form) == ("accept", {"action": "pay"})


@pytest.mark.parametrize(
    ("schema", "field"),
    [
        (None, {"type": "string"}),
        (dict(HUMAN_ANSWER_SCHEMA), {"type": "string"}),
        ({"type": "number", "maximum": 3}, {"type": "number", "maximum": 3}),
        ({"enum": ["a", "b"]}, {"enum": ["a", "b"], "type": "string"}),
        ({"type": "string", "pattern": "a"}, {"type": "string"}),
    ],
)
def test_a_question_with_a_primitive_answer_is_a_form(schema: Any, field: Any) -> None:
    form = build_question_form(ask(schema))
    assert form is not None
    assert form["properties"] == {"answer": field}


def test_a_question_with_choices_is_a_form() -> None:
    form = build_question_form(ask({"enum": ["a", "b"]}, choices=("a", "b")))
    assert form is not None
    assert form["properties"]["answer"]["enum"] == ["a", "b"]


@pytest.mark.parametrize(
    "schema", [{"type": "array"}, {"type": "object"}, {"enum": [1, 2]}, {"anyOf": []}, {}]
)
def test_a_question_for_more_is_no_form(schema: Any) -> None:
    assert build_question_form(ask(schema)) is None


def test_a_question_of_any_value_is_described() -> None:
    value = {"question": "Where?", "kind": "x", "seats": 2, "when": "now"}
    assert describe_question(ask(value=value))["question"] == "Where?\nseats: 2\nwhen: now"
    assert describe_question(ask(value=[1, object]))["question"].startswith("[1, ")


def test_one_text_in_place_of_a_list_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="args"):
        StdioServer("python", "server.py")
    with pytest.raises(InvalidSetting, match="tools"):
        HttpServer("http://127.0.0.1/mcp", tools="price")


def test_what_may_be_a_key_is_not_shown() -> None:
    assert "hunter2" not in repr(StdioServer("python", env={"KEY": "hunter2"}))
    assert "hunter2" not in repr(HttpServer("http://x", headers={"X": "hunter2"}))
