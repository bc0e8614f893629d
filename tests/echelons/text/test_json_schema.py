"""Schemas from outside are checked, and never fetched."""

from __future__ import annotations

from typing import Any

import pytest

from echelons.text.json_schema import find_mismatch, find_schema_fault

TREE: dict[str, Any] = {
    "type": "object",
    "properties": {"below": {"type": "array", "items": {"$ref": "#"}}},
}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "string", "pattern": "^a"},
        {"properties": {"$ref": {"type": "string"}}},
        {"properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"type": "integer"}}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "array"},
        {"$schema": "https://nowhere.example/unknown", "type": "array"},
        TREE,
    ],
)
def test_a_schema_that_can_be_used_has_no_fault(schema: dict[str, Any]) -> None:
    assert find_schema_fault(schema) == ""


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("string", "a JSON object"),
        ({"type": "text"}, "'text' is not valid"),
        ({"$schema": 3}, "3 is not of type 'string'"),
        ({"pattern": "("}, "'(' is not a 'regex'"),
        ({"$ref": "#"}, "refers to itself without an end"),
        ({"$ref": "https://a.example/b.json"}, "leads to no part of it"),
        ({"items": [{"$ref": "#/nowhere"}], "type": "object"}, ""),
        ({"properties": {"a": {"$ref": "#/nowhere"}}}, "leads to no part of it"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_with_the_reason(schema: Any, why: str) -> None:
    fault = find_schema_fault(schema)

    assert fault
    assert why in fault


def test_a_value_is_compared_with_a_schema() -> None:
    assert find_mismatch({"below": [{}]}, TREE) == ""
    assert find_mismatch({"below": [3]}, TREE) == "3 is not of type 'object'"


@pytest.mark.parametrize(
    "schema", [{"type": "text"}, {"$ref": "#"}, {"$ref": "https://a.example/b.json"}]
)
def test_no_value_is_refused_for_a_schema_that_cannot_be_used(schema: dict[str, Any]) -> None:
    assert find_mismatch("anything", schema) == ""
