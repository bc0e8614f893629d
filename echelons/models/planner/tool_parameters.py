"""The parameters of a tool, read from its JSON schema.

`toolbox` reads them, `arguments` fills them. Schemas come from anywhere: an unknown construct is
read as a plain string parameter or left out, and never raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from echelons.text.stemming import stem, words

DEEPEST: Final = 8
"""Depth to which references and objects are followed, as a schema may refer to itself."""


@dataclass(frozen=True)
class Parameter:
    """One argument that a tool takes.

    Attributes:
        name: Its name.
        type: "string", "integer", "number", "boolean", "array" or "object".
        description: Its description.
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
    bounds: tuple[float, float] = (float("-inf"), float("inf"))
    inner: tuple[Parameter, ...] = ()

    @cached_property
    def name_words(self) -> tuple[str, ...]:
        """The words of its name: `check_in` has two."""
        return tuple(words(self.name))

    @cached_property
    def stems(self) -> frozenset[str]:
        """The stems of its name."""
        return frozenset(stem(word) for word in self.name_words)


def parameters(schema: object) -> tuple[Parameter, ...]:
    """Return the parameters of an object schema, in order."""
    root = schema if isinstance(schema, Mapping) else {}
    return _properties(root, root, 0)


def _properties(
    schema: Mapping[str, Any], root: Mapping[str, Any], depth: int
) -> tuple[Parameter, ...]:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or depth > DEEPEST:
        return ()
    required = schema.get("required")
    needed = set(map(str, required)) if isinstance(required, list | tuple) else set()
    return tuple(
        _parameter(str(name), part, root, (str(name) in needed, depth))
        for name, part in properties.items()
    )


def _parameter(
    name: str, written: object, root: Mapping[str, Any], place: tuple[bool, int]
) -> Parameter:
    required, depth = place
    schema = _resolved(written, root, 0)
    kind = _type(schema)
    inner: tuple[Parameter, ...] = ()
    if kind == "object":
        inner = _properties(schema, root, depth + 1)
    elif kind == "array" and depth < DEEPEST:
        inner = (_parameter(name, schema.get("items"), root, (False, depth + 1)),)
    return Parameter(
        name=name,
        type=kind,
        description=str(schema.get("description") or ""),
        required=required,
        choices=_choices(schema),
        format=str(schema.get("format") or ""),
        bounds=(_bound(schema, "inimum", float("-inf")), _bound(schema, "aximum", float("inf"))),
        inner=inner,
    )


def _resolved(written: object, root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    """Return the schema with references resolved and unions cut to the first non-null option."""
    schema = dict(written) if isinstance(written, Mapping) else {}
    if depth > DEEPEST:
        return schema
    if isinstance(schema.get("$ref"), str):
        return {**_resolved(_referred(schema.pop("$ref"), root), root, depth + 1), **schema}
    for union in ("anyOf", "oneOf", "allOf"):
        options = schema.pop(union, None)
        if isinstance(options, list | tuple):
            read = [_resolved(option, root, depth + 1) for option in options]
            meant = [option for option in read if option.get("type") != "null"]
            used = meant if union == "allOf" else meant[:1]
            for option in used:
                schema = {**option, **schema}
    return schema


def _referred(reference: str, root: Mapping[str, Any]) -> object:
    found: object = root
    for step in reference.removeprefix("#").strip("/").split("/"):
        found = found.get(step) if isinstance(found, Mapping) else None
    return found


def _type(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list | tuple):
        kind = next((option for option in kind if option != "null"), None)
    if isinstance(kind, str) and kind != "null":
        return kind
    return "object" if isinstance(schema.get("properties"), Mapping) else "string"


def _choices(schema: Mapping[str, Any]) -> tuple[Any, ...]:
    if "const" in schema:
        return (schema["const"],)
    listed = schema.get("enum")
    return tuple(listed) if isinstance(listed, list | tuple) else ()


def _bound(schema: Mapping[str, Any], name: str, default: float) -> float:
    """Return the bound in `minimum` or `exclusiveMinimum` (treated alike), or the maximum."""
    for key in (f"m{name}", f"exclusiveM{name}"):
        value = schema.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    return default
