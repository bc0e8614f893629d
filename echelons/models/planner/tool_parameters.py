"""The parameters of a tool, read from its JSON schema.

`toolbox` reads them, `arguments` fills them. Schemas come from anywhere: an unknown construct is
read as a plain string parameter or left out, and never raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any, Final

from echelons.text.stemming import extract_words, stem

MAX_DEPTH: Final = 8
"""Depth to which references and objects are followed, as a schema may refer to itself."""


@dataclass(frozen=True)
class ToolParameter:
    """One argument that a tool takes.

    Attributes:
        type: "string", "integer", "number", "boolean", "array" or "object".
        required: Whether every call needs it.
        choices: The only values allowed; empty if any value is.
        format: The schema's `format`, such as "date"; empty if there is none.
        bounds: The smallest and the largest number allowed.
        inner: The parameters of an object, or the one item of an array.
    """

    name: str
    type: str = "string"
    description: str = ""
    required: bool = False
    choices: tuple[Any, ...] = ()
    format: str = ""
    bounds: tuple[float, float] = (-inf, inf)
    inner: tuple[ToolParameter, ...] = ()

    @cached_property
    def name_words(self) -> tuple[str, ...]:
        """The words of its name: `check_in` has two."""
        return tuple(extract_words(self.name))

    @cached_property
    def stems(self) -> frozenset[str]:
        """The stems of its name."""
        return frozenset(stem(word) for word in self.name_words)


def read_parameters(schema: object) -> tuple[ToolParameter, ...]:
    """Return the parameters of an object schema, in order."""
    root = schema if isinstance(schema, Mapping) else {}
    return _read_properties(root, root, 0)


def _read_properties(
    schema: Mapping[str, Any], root: Mapping[str, Any], depth: int
) -> tuple[ToolParameter, ...]:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or depth > MAX_DEPTH:
        return ()
    required = schema.get("required")
    needed = set(map(str, required)) if isinstance(required, list | tuple) else set()
    return tuple(
        _read_parameter(str(name), part, root, depth, required=str(name) in needed)
        for name, part in properties.items()
    )


def _read_parameter(
    name: str, written: object, root: Mapping[str, Any], depth: int, required: bool = False
) -> ToolParameter:
    schema = _resolve_schema(written, root, 0)
    kind = _read_type(schema)
    inner: tuple[ToolParameter, ...] = ()
    if kind == "object":
        inner = _read_properties(schema, root, depth + 1)
    elif kind == "array" and depth < MAX_DEPTH:
        inner = (_read_parameter(name, schema.get("items"), root, depth + 1),)
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    return ToolParameter(
        name=name,
        type=kind,
        description=str(schema.get("description") or ""),
        required=required,
        choices=tuple(choices) if isinstance(choices, list | tuple) else (),
        format=str(schema.get("format") or ""),
        bounds=(_read_bound(schema, "inimum", -inf), _read_bound(schema, "aximum", inf)),
        inner=inner,
    )


def _resolve_schema(written: object, root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    """Return the schema with references resolved and unions cut to the first non-null option."""
    schema = dict(written) if isinstance(written, Mapping) else {}
    if depth > MAX_DEPTH:
        return schema
    if isinstance(schema.get("$ref"), str):
        found: object = root
        for step in schema.pop("$ref").removeprefix("#").strip("/").split("/"):
            found = found.get(step) if isinstance(found, Mapping) else None
        return {**_resolve_schema(found, root, depth + 1), **schema}
    for union in ("anyOf", "oneOf", "allOf"):
        options = schema.pop(union, None)
        if isinstance(options, list | tuple):
            read = [_resolve_schema(option, root, depth + 1) for option in options]
            meant = [option for option in read if option.get("type") != "null"]
            for option in meant if union == "allOf" else meant[:1]:
                schema = {**option, **schema}
    return schema


def _read_type(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list | tuple):
        kind = next((option for option in kind if option != "null"), None)
    if isinstance(kind, str) and kind != "null":
        return kind
    return "object" if isinstance(schema.get("properties"), Mapping) else "string"


def _read_bound(schema: Mapping[str, Any], name: str, default: float) -> float:
    """Return the bound in `minimum` or `exclusiveMinimum` (treated alike), or the maximum."""
    for key in (f"m{name}", f"exclusiveM{name}"):
        value = schema.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    return default
