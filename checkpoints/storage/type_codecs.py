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
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

from langchain_core import messages
from langchain_core.documents import Document
from langgraph.types import Interrupt, Overwrite, Send, TimeoutPolicy

SINGLE, POSITIONAL, KEYWORD, METHOD, MODEL, SNAPSHOT = 0, 1, 2, 3, 5, 7
"""LangGraph's extension codes; 4 (pydantic 1) and 6 (arrays) are never read."""

Parts = Callable[[Any], Any]
Key = tuple[int, str, str]


class Form(NamedTuple):
    """Encodes and decodes the values of one type.

    Attributes:
        code: The extension code.
        module: The module of the type in the bytes.
        name: The name of the type in the bytes.
        parts: Returns the parts of a value that are stored.
        make: Rebuilds the value from its parts; may raise any error if they are invalid.
        method: For some codes the method that LangGraph calls, as stored: one name or none.
        given: Whether the type is a user's. Then the round trip of each value is checked
            before it is stored.
    """

    code: int
    module: str
    name: str
    parts: Parts
    make: Parts
    method: list[str] = []  # noqa: RUF012  compared with what was read, and never changed
    given: bool = False

    @property
    def key(self) -> Key:
        """The key by which the bytes are recognised."""
        return self.code, self.module, self.name


def form_of(code: int, kind: type[Any], parts: Parts, make: Parts) -> Form:
    """Return the codec of a type, under its own name or the one it gives in `__stored_as__`.

    A type that is moved or renamed keeps its first module and name there, so that old files can
    be read by new code and new files by old code. Subclasses do not inherit it.
    """
    stored_as = vars(kind).get("__stored_as__", f"{kind.__module__}.{kind.__name__}")
    module, _, name = stored_as.rpartition(".")
    return Form(code, module, name, parts, make)


def model_form(kind: type[Any]) -> Form:
    """Return the codec of a pydantic model."""
    form = form_of(MODEL, kind, lambda value: value.model_dump(), _keywords(kind))
    return form._replace(method=["model_validate_json"])


def dataclass_form(kind: Any) -> Form:
    """Return the codec of a dataclass."""
    names = tuple(field.name for field in dataclasses.fields(kind))

    def make(parts: Mapping[str, Any]) -> Any:
        # Some constructors ignore unknown keywords.
        if unknown := parts.keys() - set(names):
            raise ValueError(f"unknown fields {sorted(unknown)}")
        return kind(**parts)

    return form_of(KEYWORD, kind, _attributes(*names), make)


def named_tuple_form(kind: Any) -> Form:
    """Return the codec of a named tuple."""
    return form_of(KEYWORD, kind, lambda value: value._asdict(), _keywords(kind))


def _attributes(*names: str) -> Parts:
    return lambda value: {name: getattr(value, name) for name in names}


def _in_order(*names: str) -> Parts:
    return lambda value: tuple(getattr(value, name) for name in names)


def _keywords(kind: Callable[..., Any]) -> Parts:
    return lambda parts: kind(**parts)


def _positions(kind: Callable[..., Any]) -> Parts:
    return lambda parts: kind(*parts)


def _only(expected: type[Any], make: Parts) -> Parts:
    def checked(parts: Any) -> Any:
        if not isinstance(parts, expected):
            raise TypeError(f"{type(parts).__name__} in place of {expected.__name__}")
        return make(parts)

    return checked


def _sent(value: Send) -> tuple[Any, ...]:
    return (value.node, value.arg, *((value.timeout,) if value.timeout else ()))


def _send(parts: Any) -> Send:
    node, arg, *timeout = parts
    if not isinstance(node, str) or len(timeout) > 1:
        raise ValueError("no node with its argument")
    return Send(node, arg, timeout=timeout[0] if timeout else None)


def _messages() -> Iterator[type[Any]]:
    for name in ("Human", "AI", "System", "Tool", "Chat", "Function"):
        yield getattr(messages, f"{name}Message")
        yield getattr(messages, f"{name}MessageChunk")
    yield messages.RemoveMessage


def _singles() -> Iterator[tuple[type[Any], Form]]:
    for kind in (set, frozenset, deque):
        yield kind, form_of(SINGLE, kind, tuple, _only(list, kind))
    names = [f"IPv{v}{part}" for v in (4, 6) for part in ("Address", "Interface", "Network")]
    for kind in (Decimal, *(getattr(ipaddress, name) for name in names)):
        yield kind, form_of(SINGLE, kind, str, _only(str, kind))
    yield UUID, form_of(SINGLE, UUID, lambda value: value.hex, _only(str, UUID))
    yield ZoneInfo, form_of(SINGLE, ZoneInfo, lambda value: value.key, _only(str, ZoneInfo))


def _times() -> Iterator[tuple[type[Any], Form]]:
    moment = form_of(METHOD, datetime, datetime.isoformat, _only(str, datetime.fromisoformat))
    yield datetime, moment._replace(method=["fromisoformat"])
    yield date, form_of(POSITIONAL, date, _in_order("year", "month", "day"), _positions(date))
    parts = _in_order("days", "seconds", "microseconds")
    yield timedelta, form_of(POSITIONAL, timedelta, parts, _positions(timedelta))
    zone: Any = timezone
    yield zone, form_of(POSITIONAL, zone, lambda value: value.__getinitargs__(), _positions(zone))
    clock = _attributes("hour", "minute", "second", "microsecond", "tzinfo", "fold")
    yield time, form_of(KEYWORD, time, clock, _keywords(time))


def _built_in() -> Iterator[tuple[type[Any], Form]]:
    models: tuple[type[Any], ...] = (*_messages(), Document)
    yield from ((kind, model_form(kind)) for kind in models)
    dataclasses_: tuple[type[Any], ...] = (Interrupt, Overwrite, TimeoutPolicy)
    yield from ((kind, dataclass_form(kind)) for kind in dataclasses_)
    yield Send, form_of(POSITIONAL, Send, _sent, _send)
    yield from _singles()
    yield from _times()
    here = type(Path())
    yield here, form_of(POSITIONAL, here, lambda value: value.parts, _positions(Path))


BY_TYPE: Mapping[type[Any], Form] = dict(_built_in())
"""Codecs by the exact type of a value, for writing: a subclass is another type."""


def _elsewhere() -> Iterator[Form]:
    # Other systems and versions of Python name the path classes differently.
    path = BY_TYPE[type(Path())]
    for module in ("pathlib", "pathlib._local"):
        for name in ("Path", "PosixPath", "WindowsPath"):
            yield path._replace(module=module, name=name)


def by_key(forms: Iterable[Form]) -> dict[Key, Form]:
    """Return codecs by their keys."""
    return {form.key: form for form in forms}


BY_KEY: Mapping[Key, Form] = by_key([*BY_TYPE.values(), *_elsewhere()])
"""Codecs by key, for reading."""
