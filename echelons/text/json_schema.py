"""JSON schemas: what a value of one looks like, and arguments mended to fit theirs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonschema.protocols import Validator


def find_schema_fault(schema: object) -> str:
    """Return why a value is no JSON Schema that can be used; empty if it is one."""
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
    """Return why a value does not fit a schema; empty if it does, or if the schema is invalid."""
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
    definitions: Mapping[str, Any] = schema.get("$defs") or {}
    uses = {
        name: {item.rpartition("/")[2] for item in _iterate_references(part)}
        for name, part in definitions.items()
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
    definitions, parts = schema.get("$defs") or {}, 0

    def inline(part: Any) -> Any:
        nonlocal parts
        parts += 1
        # Each definition may use another twice, and so on.
        if parts > limit:
            raise ValueError(f"without references it has more than {limit} parts")
        if isinstance(part, list):
            return [inline(stem) for stem in part]
        if not isinstance(part, Mapping):
            return part
        fields = {key: inline(item) for key, item in part.items() if key not in ("$ref", "$defs")}
        reference = part.get("$ref")
        if isinstance(reference, str):
            return {**inline(definitions[reference.rpartition("/")[2]]), **fields}
        return fields

    whole: dict[str, Any] = inline(schema)
    return whole


def build_example(schema: Mapping[str, Any]) -> Any:
    """Return a value that a schema without references describes, with the fields that it requires.

    Not all that a schema can say is honoured: it does not make a text of a pattern.
    """
    for key in ("default", "const"):
        if key in schema:
            return schema[key]
    for key in ("examples", "enum", "anyOf", "oneOf", "allOf"):
        if isinstance(values := schema.get(key), list) and values:
            return values[0] if key in ("examples", "enum") else build_example(values[0])
    build = _BUILDERS.get(str(schema.get("type")))
    return build(schema) if build else "example"


def _build_object(schema: Mapping[str, Any]) -> dict[str, Any]:
    fields: Mapping[str, Any] = schema.get("properties") or {}
    return {name: build_example(fields.get(name, {})) for name in schema.get("required", ())}


def _build_array(schema: Mapping[str, Any]) -> list[Any]:
    items = [*schema.get("prefixItems", ())]
    items += [schema.get("items") or {}] * (schema.get("minItems", len(items)) - len(items))
    return [build_example(item) for item in items]


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
        for stem in part:
            yield from _iterate_references(stem)


_Schema = Mapping[str, Any]
_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}


def mend_arguments(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments as their schema wants them, as far as it is plain what was meant.

    Null for an optional argument that does not take it is left out. JSON in a text becomes an
    object or a list where one is wanted, and an object becomes JSON where a text is.
    Names and choices match without regard to case and outer spaces, if only one does.
    """
    parts = {**(schema.get("definitions") or {}), **(schema.get("$defs") or {})}
    mended: dict[str, Any] = _Mender(parts).mend_object(arguments, schema)
    return mended


def match_name(values: str, names: Iterable[str]) -> str | None:
    """Return the only name that is the same without regard to case and outer spaces."""
    plain = values.strip().casefold()
    same = {name for name in names if name.strip().casefold() == plain}
    return same.pop() if len(same) == 1 else None


def parse_json(text: str) -> Any:
    """Return the object or the list that a text is as JSON; `None` for any other text."""
    stripped = text.strip()
    if not stripped.startswith(("{", "[")):
        return None
    try:
        value = json.loads(stripped)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, (dict, list)) else None


class _Mender:
    """Mends values by the parts of one schema."""

    def __init__(self, parts: _Schema) -> None:
        self._parts = parts

    def mend(self, value: Any, schema: Any) -> Any:
        schema = self._resolve(schema)
        if options := schema.get("anyOf") or schema.get("oneOf"):
            return self._mend_option(value, [self._resolve(option) for option in options])
        choices = _list_choices(schema)
        if choices and isinstance(value, str) and value not in choices:
            name = match_name(value, (choice for choice in choices if isinstance(choice, str)))
            return value if name is None else name
        kinds = _list_kinds(schema)
        if isinstance(value, str) and kinds and not kinds & {"string", "any"}:
            parsed = parse_json(value)
            wanted = (isinstance(parsed, dict) and "object" in kinds) or (
                isinstance(parsed, list) and "array" in kinds
            )
            value = parsed if wanted else value
        if isinstance(value, dict) and "string" in kinds and not _has_kind(value, kinds):
            return json.dumps(value, ensure_ascii=False)
        if isinstance(value, Mapping):
            return self.mend_object(value, schema)
        if isinstance(value, list) and isinstance(items := schema.get("items"), Mapping):
            return [self.mend(item, items) for item in value]
        return value

    def mend_object(self, value: Mapping[str, Any], schema: _Schema) -> dict[str, Any]:
        fields, required = self._collect_fields(schema)
        missing = fields.keys() - value.keys()
        more = schema.get("additionalProperties")
        mended: dict[str, Any] = {}
        for values, item in value.items():
            name = values
            if values not in fields and (definitions := match_name(values, missing)):
                name = definitions
                missing.discard(definitions)
            part = fields.get(name, more if isinstance(more, Mapping) else {})
            if item is None and name in fields and name not in required:
                if self._takes_null(part):
                    mended[name] = None
                continue
            mended[name] = self.mend(item, part)
        return mended

    def _mend_option(self, value: Any, options: list[_Schema]) -> Any:
        """Mend a value by the first of some schemas that it fits, or can be made to fit."""
        for option in options:
            if self._fits(value, option):
                return self.mend(value, option)
        for option in options:
            if self._fits(mended := self.mend(value, option), option):
                return mended
        return value

    def _fits(self, value: Any, schema: _Schema) -> bool:
        """Return whether a value is of a schema, by its kind and the names of its fields."""
        if options := schema.get("anyOf") or schema.get("oneOf"):
            return any(self._fits(value, self._resolve(option)) for option in options)
        if (choices := _list_choices(schema)) and value not in choices:
            return False
        kinds = _list_kinds(schema)
        if kinds and not _has_kind(value, kinds):
            return False
        required = self._collect_fields(schema)[1]
        return not isinstance(value, Mapping) or required <= value.keys()

    def _takes_null(self, schema: Any) -> bool:
        schema = self._resolve(schema)
        if options := schema.get("anyOf") or schema.get("oneOf"):
            return any(map(self._takes_null, options))
        if choices := _list_choices(schema):
            return None in choices
        kinds = _list_kinds(schema)
        return not kinds or "null" in kinds

    def _collect_fields(self, schema: _Schema) -> tuple[dict[str, Any], set[str]]:
        fields = dict(schema.get("properties") or {})
        required: set[str] = set(schema.get("required") or ())
        for item in schema.get("allOf") or ():
            more, needed = self._collect_fields(self._resolve(item))
            fields |= more
            required |= needed
        return fields, required

    def _resolve(self, schema: Any) -> _Schema:
        if not isinstance(schema, Mapping):
            return {}
        # A reference may lead to another, and in a circle.
        for _ in range(8):
            name = schema.get("$ref")
            part = self._parts.get(name.rpartition("/")[2]) if isinstance(name, str) else None
            if not isinstance(part, Mapping):
                break
            schema = {**part, **{key: item for key, item in schema.items() if key != "$ref"}}
        only = schema.get("allOf")
        if isinstance(only, list) and len(only) == 1 and "$ref" in only[0]:
            return {**schema, **self._resolve(only[0])}
        whole: _Schema = schema
        return whole


def _list_choices(schema: _Schema) -> list[Any]:
    choices = schema.get("enum")
    return (
        [*choices] if isinstance(choices, list) else [schema["const"]] if "const" in schema else []
    )


def _list_kinds(schema: _Schema) -> set[str]:
    kinds = schema.get("type")
    if isinstance(kinds, str):
        return {kinds}
    if isinstance(kinds, list):
        return set(kinds)
    return {"object"} if "properties" in schema else set()


def _has_kind(value: Any, kinds: Iterable[str]) -> bool:
    if isinstance(value, bool):
        return "boolean" in kinds
    return any(isinstance(value, _TYPES.get(kind, (object,))) for kind in kinds)
