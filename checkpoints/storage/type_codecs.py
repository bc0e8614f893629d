"""`TypeCodec`: how a type is written to bytes, and rebuilt from them.

The bytes are in LangGraph's format, so its tools can read them: a msgpack extension with the
module and name of a type, and its parts. A stored name only selects from this table; nothing
is imported by a name that was read from a file.
"""

from __future__ import annotations

import dataclasses
import ipaddress
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from operator import attrgetter, methodcaller
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

from langchain_core import messages
from langchain_core.documents import Document
from langgraph.types import Interrupt, Overwrite, Send, TimeoutPolicy

from echelons.delegation.request import omit_result, restore_result

SINGLE, POSITIONAL, KEYWORD, METHOD, MODEL, SNAPSHOT = 0, 1, 2, 3, 5, 7
"""LangGraph's extension codes; 4 (pydantic 1) and 6 (arrays) are never read."""

Conversion = Callable[[Any], Any]
CodecKey = tuple[int, str, str]


class TypeCodec(NamedTuple):
    """Encodes and decodes the values of one type.

    Attributes:
        code: The extension code.
        module: The module of the type in the bytes.
        name: The name of the type in the bytes.
        to_parts: Returns the parts of a value that are stored.
        from_parts: Rebuilds the value from its parts; may raise any error if they are invalid.
        method: For some codes the method that LangGraph calls, as stored: one name or none.
        given: Whether the type is a user's. Then the round trip of each value is checked
            before it is stored.
    """

    code: int
    module: str
    name: str
    to_parts: Conversion
    from_parts: Conversion
    method: list[str] = []  # noqa: RUF012  compared with what was read, and never changed
    given: bool = False

    @property
    def key(self) -> CodecKey:
        """The key by which the bytes are recognised."""
        return self.code, self.module, self.name


def make_codec(code: int, kind: type[Any], parts: Conversion, make: Conversion) -> TypeCodec:
    """Return the codec of a type, under its own name or the one it gives in `__stored_as__`.

    A type that is moved or renamed keeps its first module and name there, so that old files can
    be read by new code and new files by old code. Subclasses do not inherit it.
    """
    stored_as = vars(kind).get("__stored_as__", f"{kind.__module__}.{kind.__name__}")
    module, _, name = stored_as.rpartition(".")
    return TypeCodec(code, module, name, parts, make)


def make_model_codec(kind: type[Any]) -> TypeCodec:
    """Return the codec of a pydantic model."""
    form = make_codec(MODEL, kind, lambda value: value.model_dump(), _call_with_keywords(kind))
    return form._replace(method=["model_validate_json"])


def make_message_codec(kind: type[messages.BaseMessage]) -> TypeCodec:
    """Return the codec of a message: its fields but those that have their default.

    Older rows, and those of LangGraph's own saver, have all fields.
    """
    given = {name: each for name, each in kind.model_fields.items() if not each.is_required()}
    defaults = {name: each.get_default(call_default_factory=True) for name, each in given.items()}
    # By identity: an artifact may be anything, also what cannot be compared with `None`.
    nulls = {name for name, default in defaults.items() if default is None}
    others = {name: default for name, default in defaults.items() if default is not None}

    def take_fields(value: messages.BaseMessage) -> dict[str, Any]:
        return {
            name: each
            for name, each in value.model_dump().items()
            if (each is not None or name not in nulls)
            and (name not in others or each != others[name])
        }

    if kind is not messages.ToolMessage:
        return make_model_codec(kind)._replace(to_parts=take_fields)

    def take_tool_fields(value: messages.BaseMessage) -> dict[str, Any]:
        parts = take_fields(value)
        if "artifact" in parts:
            parts["artifact"] = omit_result(parts["artifact"], parts["content"])
        return parts

    def make(parts: Mapping[str, Any]) -> messages.BaseMessage:
        if "artifact" in parts:
            parts = {**parts, "artifact": restore_result(parts["artifact"], parts["content"])}
        return kind(**parts)

    return make_model_codec(kind)._replace(to_parts=take_tool_fields, from_parts=make)


def make_dataclass_codec(kind: Any) -> TypeCodec:
    """Return the codec of a dataclass."""
    names = tuple(field.name for field in dataclasses.fields(kind))

    def make(parts: Mapping[str, Any]) -> Any:
        # Some constructors ignore unknown keywords.
        if unknown := parts.keys() - set(names):
            raise ValueError(f"unknown fields {sorted(unknown)}")
        return kind(**parts)

    return make_codec(KEYWORD, kind, _take_attributes(*names), make)


def make_named_tuple_codec(kind: Any) -> TypeCodec:
    """Return the codec of a named tuple."""
    return make_codec(KEYWORD, kind, lambda value: value._asdict(), _call_with_keywords(kind))


def _take_attributes(*names: str) -> Conversion:
    return lambda value: {name: getattr(value, name) for name in names}


def _call_with_keywords(kind: Callable[..., Any]) -> Conversion:
    return lambda parts: kind(**parts)


def _call_with_positions(kind: Callable[..., Any]) -> Conversion:
    return lambda parts: kind(*parts)


def _require_type(expected: type[Any], make: Conversion) -> Conversion:
    def checked(parts: Any) -> Any:
        if not isinstance(parts, expected):
            raise TypeError(f"{type(parts).__name__} in place of {expected.__name__}")
        return make(parts)

    return checked


def _take_send_apart(value: Send) -> tuple[Any, ...]:
    return (value.node, value.arg, *((value.timeout,) if value.timeout else ()))


def _make_send(parts: Any) -> Send:
    node, arg, *timeout = parts
    if not isinstance(node, str) or len(timeout) > 1:
        raise ValueError("no node with its argument")
    return Send(node, arg, timeout=timeout[0] if timeout else None)


def _list_message_types() -> Iterator[type[Any]]:
    for name in ("Human", "AI", "System", "Tool", "Chat", "Function"):
        yield getattr(messages, f"{name}Message")
        yield getattr(messages, f"{name}MessageChunk")
    yield messages.RemoveMessage


def _list_plain_types() -> Iterator[tuple[int, Any, Conversion, Conversion]]:
    """Yield the arguments of `make_codec` for types that are neither models nor dataclasses."""
    for kind in (set, frozenset, deque):
        yield SINGLE, kind, tuple, _require_type(list, kind)
    names = [f"IPv{v}{part}" for v in (4, 6) for part in ("Address", "Interface", "Network")]
    for kind in (Decimal, *(getattr(ipaddress, name) for name in names)):
        yield SINGLE, kind, str, _require_type(str, kind)
    yield SINGLE, UUID, attrgetter("hex"), _require_type(str, UUID)
    yield SINGLE, ZoneInfo, attrgetter("key"), _require_type(str, ZoneInfo)
    yield POSITIONAL, date, attrgetter("year", "month", "day"), _call_with_positions(date)
    span = attrgetter("days", "seconds", "microseconds")
    yield POSITIONAL, timedelta, span, _call_with_positions(timedelta)
    yield POSITIONAL, timezone, methodcaller("__getinitargs__"), _call_with_positions(timezone)
    yield POSITIONAL, type(Path()), attrgetter("parts"), _call_with_positions(Path)
    yield POSITIONAL, Send, _take_send_apart, _make_send
    clock = _take_attributes("hour", "minute", "second", "microsecond", "tzinfo", "fold")
    yield KEYWORD, time, clock, _call_with_keywords(time)


def _make_builtin_codecs() -> Iterator[tuple[type[Any], TypeCodec]]:
    yield from ((kind, make_message_codec(kind)) for kind in _list_message_types())
    yield Document, make_model_codec(Document)
    dataclasses_: tuple[type[Any], ...] = (Interrupt, Overwrite, TimeoutPolicy)
    yield from ((kind, make_dataclass_codec(kind)) for kind in dataclasses_)
    yield from ((parts[1], make_codec(*parts)) for parts in _list_plain_types())
    from_text = _require_type(str, datetime.fromisoformat)
    moment = make_codec(METHOD, datetime, datetime.isoformat, from_text)
    yield datetime, moment._replace(method=["fromisoformat"])


CODECS_BY_TYPE: Mapping[type[Any], TypeCodec] = dict(_make_builtin_codecs())
"""Codecs by the exact type of a value, for writing: a subclass is another type."""


def _make_foreign_path_codecs() -> Iterator[TypeCodec]:
    # Other systems and versions of Python name the path classes differently.
    path = CODECS_BY_TYPE[type(Path())]
    for module in ("pathlib", "pathlib._local"):
        for name in ("Path", "PosixPath", "WindowsPath"):
            yield path._replace(module=module, name=name)


def index_by_key(forms: Iterable[TypeCodec]) -> dict[CodecKey, TypeCodec]:
    """Return codecs by their keys."""
    return {form.key: form for form in forms}


CODECS_BY_KEY: Mapping[CodecKey, TypeCodec] = index_by_key(
    [*CODECS_BY_TYPE.values(), *_make_foreign_path_codecs()]
)
"""Codecs by key, for reading."""
