"""The ledger's records, JSON that is read back unchanged, and the names they are kept under.

Every ledger stores the texts that `encode_record` makes. So all of them accept and refuse the same
values, and a stored value does not change with the object that it was made of. A `RecordKind` reads
the records of one kind, and names what is damaged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache
from typing import Any, Final, Generic, TypeAlias, TypeVar

from pydantic import TypeAdapter, ValidationError

from echelons.errors import LedgerDamaged, LedgerError

T = TypeVar("T")
Json: TypeAlias = dict[str, Any] | list[Any] | str | int | float | bool | None

MAX_RECORD_SIZE = 8 * 1024 * 1024
"""Bytes of JSON in UTF-8 that a record or value may have, unless a ledger is made with another
limit: above the largest results of tools, far below what SQLite keeps in a row."""
MAX_NESTING = 100
"""Levels of nested lists and objects; Python and SQLite both give up near 1,000."""
MAX_NAME_SIZE = 4096
"""Bytes of UTF-8 that a name may have: ids, and the path of an agent 32 levels down."""

_TEXT = frozenset({str})
_SCALARS = frozenset({str, int, float, bool, type(None)})
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def encode_record(
    where: str, value: Json, limit: int = MAX_RECORD_SIZE, *, is_plain: bool = False
) -> str:
    """Return a value as JSON.

    Args:
        where: The stream or key, for the errors.
        value: The value.
        limit: The largest size, in bytes of UTF-8.
        is_plain: Whether it is known to have texts as keys, no tuples, and little depth.

    Raises:
        LedgerError: It would be read back as another value, or not at all; it is larger than the
            limit.
    """
    try:
        # As `encode` does it, without its checks.
        text = "".join(_ENCODER.iterencode(value, _one_shot=True))
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise _not_json(where, str(error)) from error
    if size > limit:
        raise LedgerError(
            "what was given for {where!r} has {size} bytes as JSON, and the limit is {limit}; "
            "store it elsewhere and keep its address here. Nothing was changed",
            code="record_too_large",
            where=where,
            size=size,
            limit=limit,
        )
    # Most values are flat, of scalars that JSON has.
    if is_plain or (
        type(value) is dict
        and _TEXT.issuperset(map(type, value))
        and _SCALARS.issuperset(map(type, value.values()))
    ):
        return text
    # Few brackets cannot nest deeply, so most values need no walk.
    if text.count("[") + text.count("{") > MAX_NESTING and _is_deeper(value, MAX_NESTING):
        raise _not_json(where, f"it is nested more than {MAX_NESTING} deep")
    if json.loads(text) != value:
        raise _not_json(
            where, "a tuple, or a key that is no text, would come back as another value"
        )
    return text


class RecordKind(Generic[T]):
    """A kind of record, and the shape that its records have.

    Fields that the shape does not have are passed over: a newer version may write more of them.

    Examples:
        >>> RecordKind("race", list[int]).decode("thread/trip/race/1", "[2, 1]")
        [2, 1]
    """

    def __init__(self, name: str, shape: type[T]) -> None:
        self.name = name
        self._shape = shape

    def decode(self, where: str, text: str | bytes) -> T:
        """Return a record that was stored as JSON.

        Raises:
            LedgerDamaged: It is no JSON, or has another shape.
        """
        try:
            return self._validate_json(text, strict=True)
        except ValidationError as error:
            # Without what was stored, which may be long or secret.
            fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
            why = ": ".join((*map(str, fault["loc"]), fault["msg"]))
            raise LedgerDamaged(where, why, self.name) from None

    @cached_property
    def _validate_json(self) -> Callable[..., T]:
        # When it is first needed: a command reads only some of the kinds.
        return TypeAdapter(self._shape).validator.validate_json


ANY_RECORD: Final[RecordKind[Any]] = RecordKind("record", object)
"""The kind of records that may be any JSON."""


def validate_name(name: object) -> str:
    """Return a name, if every ledger can store it.

    Raises:
        LedgerError: It is no text, empty, too long, or has a NUL or a lone surrogate.
    """
    if not isinstance(name, str):
        raise _invalid_name(repr(name)[:80], "it is no text")
    return _validate_text(name)


@lru_cache(maxsize=1024)
def _validate_text(name: str) -> str:
    if not name:
        raise _invalid_name(name, "it is empty")
    if "\0" in name:
        raise _invalid_name(name[:80], "it holds a NUL")
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise _invalid_name(ascii(name[:80]), "it holds half a character") from error
    if size > MAX_NAME_SIZE:
        raise _invalid_name(name[:80], f"it has {size} bytes, and the limit is {MAX_NAME_SIZE}")
    return name


def _is_deeper(value: Json, limit: int) -> bool:
    level = _list_containers([value])
    for _ in range(limit):
        level = [
            inner
            for outer in level
            for inner in _list_containers(outer.values() if isinstance(outer, dict) else outer)
        ]
    return bool(level)


def _list_containers(values: Iterable[Any]) -> list[dict[str, Any] | list[Any]]:
    return [container for container in values if isinstance(container, (dict, list))]


def _invalid_name(name: str, why: str) -> LedgerError:
    return LedgerError(
        "{name!r} is no name for the ledger: {why}; nothing was changed",
        code="invalid_ledger_name",
        name=name,
        why=why,
    )


def _not_json(where: str, why: str) -> LedgerError:
    return LedgerError(
        "what was given for {where!r} is no JSON: {why}; give null, booleans, finite numbers, "
        "texts, lists, and objects with text keys. Nothing was changed",
        code="not_json",
        where=where,
        why=why,
    )
