"""JSON Schemas that come from outside: checks of a schema itself, and of a value by it. Pure.

No schema is ever fetched: one may only refer to its own parts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonschema.protocols import Validator


def find_schema_fault(schema: object) -> str:
    """Return why a value is no JSON Schema that can be used; empty if it is one.

    Examples:
        >>> find_schema_fault({"type": "string"}), find_schema_fault({"type": "text"})
        ('', "'text' is not valid under any of the given schemas")
    """
    if not isinstance(schema, Mapping):
        return "a schema is a JSON object"
    validator = _build_validator(schema)
    # The library takes a tenth of a second to load.
    from jsonschema import SchemaError
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    try:
        validator.check_schema(dict(schema))
        registry: Registry[Any] = Registry()
        resolver = registry.resolver_with_root(DRAFT202012.create_resource(schema))
        for reference in _iterate_references(schema):
            resolver.lookup(reference)
        validator.is_valid(None)
        validator.is_valid({})  # only in an object, the schemas of its fields are looked at
    except SchemaError as error:
        return str(error.message)
    except Unresolvable as error:
        return f"the reference {error.ref!r} leads to no part of it"
    except RecursionError:
        return "it refers to itself without an end"
    return ""


def find_mismatch(value: Any, schema: Mapping[str, Any]) -> str:
    """Return why a value does not fit a schema; empty if it does, or if the schema is no valid one.

    Examples:
        >>> find_mismatch(3, {"type": "string"})
        "3 is not of type 'string'"
    """
    validator = _build_validator(schema)
    from jsonschema import SchemaError
    from jsonschema.exceptions import best_match
    from referencing.exceptions import Unresolvable

    try:
        _check_schema(type(validator), json.dumps(dict(schema), default=str))
        error = best_match(validator.iter_errors(value))
    except (SchemaError, Unresolvable, RecursionError, ValueError):
        return ""  # a mistake in the question, not in the answer
    return str(error.message) if error else ""


@lru_cache(maxsize=128)  # a check takes many times as long as a look at a value
def _check_schema(kind: type[Validator], schema: str) -> None:
    kind.check_schema(json.loads(schema))


def find_recursion(schema: Mapping[str, Any]) -> str:
    """Return the name of a definition of a schema that contains itself; empty if none does."""
    known: Mapping[str, Any] = schema.get("$defs") or {}
    uses = {
        name: {each.rpartition("/")[2] for each in _iterate_references(part)}
        for name, part in known.items()
    }
    for name, used in uses.items():
        reached, left = set[str](), [*used]
        while left:
            if (one := left.pop()) not in reached:
                reached.add(one)
                left += uses.get(one, ())
        if name in reached:
            return name
    return ""


def inline_references(schema: Mapping[str, Any], limit: int) -> dict[str, Any]:
    """Return a schema with its definitions in place of the references: not all models follow one.

    Raises:
        ValueError: It would have more parts than the limit.
    """
    known, parts = schema.get("$defs") or {}, 0

    def inline(part: Any) -> Any:
        nonlocal parts
        parts += 1
        # Each definition may use another twice, and so on.
        if parts > limit:
            raise ValueError(f"without references it has more than {limit} parts")
        if isinstance(part, list):
            return [inline(each) for each in part]
        if not isinstance(part, Mapping):
            return part
        own = {key: inline(each) for key, each in part.items() if key not in ("$ref", "$defs")}
        reference = part.get("$ref")
        if isinstance(reference, str):
            return {**inline(known[reference.rpartition("/")[2]]), **own}
        return own

    whole: dict[str, Any] = inline(schema)
    return whole


def build_example(schema: Mapping[str, Any]) -> Any:
    """Return a value that a schema without references describes, with the fields that it requires.

    Not all that a schema can say is honoured: it does not make a text of a pattern.

    Examples:
        >>> build_example({"type": "object", "properties": {"n": {"minimum": 3, "type": "integer"}},
        ...     "required": ["n"]})
        {'n': 3}
    """
    for key in ("default", "const"):
        if key in schema:
            return schema[key]
    for key in ("examples", "enum", "anyOf", "oneOf", "allOf"):
        if isinstance(given := schema.get(key), list) and given:
            return given[0] if key in ("examples", "enum") else build_example(given[0])
    build = _BUILDERS.get(str(schema.get("type")))
    return build(schema) if build else "example"


def _build_object(schema: Mapping[str, Any]) -> dict[str, Any]:
    fields: Mapping[str, Any] = schema.get("properties") or {}
    return {name: build_example(fields.get(name, {})) for name in schema.get("required", ())}


def _build_array(schema: Mapping[str, Any]) -> list[Any]:
    items = [*schema.get("prefixItems", ())]
    items += [schema.get("items") or {}] * (schema.get("minItems", len(items)) - len(items))
    return [build_example(each) for each in items]


def _build_text(schema: Mapping[str, Any]) -> str:
    text = _FORMATS.get(schema.get("format", ""), "example")
    return text.ljust(schema.get("minLength", 0), "x")[: schema.get("maxLength")]


_FORMATS = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "time": "12:00:00",
    "duration": "PT1H",
    "email": "ann@example.org",
    "uri": "https://example.org/",
    "uuid": "8f1d0a52-6a5e-5c0b-9d55-0c2b5a1f6e11",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
}


def _build_number(schema: Mapping[str, Any], step: float) -> float:
    """Return the lowest number of a schema, or the highest, or the step."""
    multiple = schema.get("multipleOf", step)
    if "minimum" in schema:
        lowest = schema["minimum"]
    elif "exclusiveMinimum" in schema:
        lowest = schema["exclusiveMinimum"] + step
    elif "maximum" in schema:
        return schema["maximum"] // multiple * multiple  # type: ignore[no-any-return]
    elif "exclusiveMaximum" in schema:
        lowest = schema["exclusiveMaximum"] - step
    else:
        return multiple  # type: ignore[no-any-return]
    return -(-lowest // multiple) * multiple if "multipleOf" in schema else lowest  # type: ignore[no-any-return]


_BUILDERS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "object": _build_object,
    "array": _build_array,
    "string": _build_text,
    "integer": lambda schema: _build_number(schema, 1),
    "number": lambda schema: _build_number(schema, 0.5),
    "boolean": lambda _: False,
    "null": lambda _: None,
}


def _build_validator(schema: Mapping[str, Any]) -> Validator:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for
    from referencing import Registry

    # It would take any other value for a text.
    named = schema if isinstance(schema.get("$schema"), str) else {}
    kind = validator_for(named, default=Draft202012Validator)
    # Without a registry of its own, a validator fetches the addresses that a schema names.
    return kind(schema, registry=Registry())


def _iterate_references(part: object) -> Iterator[str]:
    if isinstance(part, Mapping):
        for key, value in part.items():
            if key in ("$ref", "$dynamicRef") and isinstance(value, str):
                yield value
            else:
                yield from _iterate_references(value)
    elif isinstance(part, list):
        for each in part:
            yield from _iterate_references(each)
