"""Schemas: what tools declare in all the ways that JSON schema has."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelons.models.planner.tool_parameters import ToolParameter, read_parameters

json = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5) | st.just("#/$defs/a"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "properties",
                    "anyOf",
                    "allOf",
                    "$ref",
                    "$defs",
                    "items",
                    "enum",
                    "required",
                ]
            )
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


def one(schema: dict[str, Any], **root: Any) -> ToolParameter:
    (read,) = read_parameters({"properties": {"x": schema}, **root})
    return read


def test_an_optional_parameter_is_what_it_is_besides_null() -> None:
    read = one({"anyOf": [{"type": "null"}, {"type": "integer", "minimum": 1}]})
    assert read.type == "integer"
    assert read.bounds[0] == 1
    assert one({"type": ["null", "boolean"]}).type == "boolean"


def test_references_are_followed() -> None:
    defs = {"a": {"enum": ["x", "y"]}, "b": {"$ref": "#/$defs/a"}}
    assert one({"$ref": "#/$defs/b"}, **{"$defs": defs}).choices == ("x", "y")
    assert one({"$ref": "#/nowhere"}).type == "string"


def test_parts_of_a_whole_are_put_together() -> None:
    parts = [{"type": "integer"}, {"maximum": 9}]
    assert one({"allOf": parts}).bounds[1] == 9


def test_objects_and_lists_have_parameters_inside() -> None:
    guest = {"properties": {"name": {"type": "string"}}, "required": ["name"]}
    read = one({"type": "array", "items": guest})
    assert read.inner[0].type == "object"
    assert read.inner[0].inner == (ToolParameter("name", required=True),)


def test_a_schema_that_refers_to_itself_comes_to_an_end() -> None:
    tree = {"properties": {"next": {"$ref": "#/$defs/t"}}}
    read = one({"$ref": "#/$defs/t"}, **{"$defs": {"t": tree}})
    depth = 0
    while read.inner:
        read, depth = read.inner[0], depth + 1
    assert 1 < depth < 20
    assert one({"$ref": "#/$defs/t"}, **{"$defs": {"t": {"$ref": "#/$defs/t"}}}).type == "string"


@pytest.mark.parametrize("odd", [None, 3, "x", [], {"properties": 1}, {"properties": {"x": None}}])
def test_an_odd_schema_raises_nothing(odd: object) -> None:
    assert len(read_parameters(odd)) <= 1


@given(json)
def test_any_json_is_read_as_some_parameters(schema: Any) -> None:
    read_parameters(schema)
    read_parameters({"properties": {"x": schema}, "$defs": {"a": schema}})
