"""JSON Schemas that come from outside: checks of a schema itself, and of a value by it. Pure.

No schema is ever fetched: one may only refer to its own parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
        validator.check_schema(dict(schema))
        error = best_match(validator.iter_errors(value))
    except (SchemaError, Unresolvable, RecursionError):
        return ""  # a mistake of whoever asks, not of the answer
    return str(error.message) if error else ""


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
