"""Mends the arguments of a call by their JSON Schema, once, where they were refused as they came.

Models fill optional arguments with null, write JSON into texts, and names with other capitals. What
they mean is plain, and an error about it costs a model call or the whole work. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

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

    Examples:
        >>> fields = {"size": {"enum": ["small", "large"]}, "tags": {"type": "array"}}
        >>> schema = {"type": "object", "properties": {**fields, "n": {"type": "integer"}}}
        >>> mend_arguments({"size": " Large", "tags": '["a"]', "n": None}, schema)
        {'size': 'large', 'tags': ['a']}
    """
    parts = {**(schema.get("definitions") or {}), **(schema.get("$defs") or {})}
    mended: dict[str, Any] = _Mender(parts).mend_object(arguments, schema)
    return mended


def match_name(given: str, names: Iterable[str]) -> str | None:
    """Return the only name that is the same without regard to case and outer spaces.

    Examples:
        >>> match_name(" Hotels", ["hotels", "flights"]), match_name("a", ["A", "a "])
        ('hotels', None)
    """
    plain = given.strip().casefold()
    same = {each for each in names if each.strip().casefold() == plain}
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
            return self._mend_option(value, [self._resolve(each) for each in options])
        choices = _list_choices(schema)
        if choices and isinstance(value, str) and value not in choices:
            name = match_name(value, (each for each in choices if isinstance(each, str)))
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
            return [self.mend(each, items) for each in value]
        return value

    def mend_object(self, value: Mapping[str, Any], schema: _Schema) -> dict[str, Any]:
        fields, required = self._collect_fields(schema)
        missing = fields.keys() - value.keys()
        more = schema.get("additionalProperties")
        mended: dict[str, Any] = {}
        for given, each in value.items():
            name = given
            if given not in fields and (known := match_name(given, missing)):
                name = known
                missing.discard(known)
            part = fields.get(name, more if isinstance(more, Mapping) else {})
            if each is None and name in fields and name not in required:
                if self._takes_null(part):
                    mended[name] = None
                continue
            mended[name] = self.mend(each, part)
        return mended

    def _mend_option(self, value: Any, options: list[_Schema]) -> Any:
        """Mend a value by the first of some schemas that it fits, or can be made to fit."""
        for each in options:
            if self._fits(value, each):
                return self.mend(value, each)
        for each in options:
            if self._fits(mended := self.mend(value, each), each):
                return mended
        return value

    def _fits(self, value: Any, schema: _Schema) -> bool:
        """Return whether a value is of a schema, by its kind and the names of its fields."""
        if options := schema.get("anyOf") or schema.get("oneOf"):
            return any(self._fits(value, self._resolve(each)) for each in options)
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
        for each in schema.get("allOf") or ():
            more, needed = self._collect_fields(self._resolve(each))
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
            schema = {**part, **{key: each for key, each in schema.items() if key != "$ref"}}
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
    return any(isinstance(value, _TYPES.get(each, (object,))) for each in kinds)
