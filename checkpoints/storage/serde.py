"""The serializer of checkpoints: an allowlist of types, so that loading never runs stored code."""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import math
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from operator import attrgetter, methodcaller
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import ormsgpack
from langchain_core import messages
from langchain_core.documents import Document
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.types import Interrupt, Overwrite, Send, TimeoutPolicy
from pydantic import BaseModel

from echelons.delegation.request import omit_result, restore_result
from echelons.errors import CheckpointTampered, ConfigurationError, NotStorable
from echelons.langgraph_internals import DeltaSnapshot
from echelons.text.error_lines import (
    MAX_SANITIZED_DEPTH,
    MAX_TEXT_LENGTH,
    redact_secrets,
    sanitize_value,
)
from echelons.text.input_limits import list_items, refuse_unreadable, shorten_repr

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
    optional = {name: field for name, field in kind.model_fields.items() if not field.is_required()}
    defaults = {
        name: field.get_default(call_default_factory=True) for name, field in optional.items()
    }
    # By identity: an artifact may be anything, also what cannot be compared with `None`.
    nulls = {name for name, default in defaults.items() if default is None}
    others = {name: default for name, default in defaults.items() if default is not None}

    def take_fields(value: messages.BaseMessage) -> dict[str, Any]:
        return {
            name: item
            for name, item in value.model_dump().items()
            if (item is not None or name not in nulls)
            and (name not in others or item != others[name])
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


MAX_VALUE_DEPTH = 64
"""Maximum nesting of extension values; deeper ones would exhaust Python's stack."""

_WRITE_OPTIONS = (
    ormsgpack.OPT_NON_STR_KEYS
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_UUID
    | ormsgpack.OPT_REPLACE_SURROGATES
)
_END_MARK = os.urandom(16)
_END_BYTES = b"\xc4\x10" + _END_MARK
"""Appended to the bytes that are read, because msgpack ignores surplus bytes."""


class AllowlistSerializer(SerializerProtocol):
    """Writes and reads values in LangGraph's format, but only those of allowed types.

    Args:
        types: The user's own types: pydantic models, dataclasses, named tuples, enumerations.

    Raises:
        ConfigurationError: A type is none of these, or has the module and name of another.
    """

    def __init__(self, types: Iterable[type[Any]] = ()) -> None:
        with refuse_unreadable(lambda why: _invalid_type(shorten_repr(types), why)):
            if not isinstance(types, Iterable):
                raise _invalid_type(shorten_repr(types), "it is no list of types")
            codecs = {kind: _build_codec(kind) for kind in list_items(types)}
        self._by_type = {**CODECS_BY_TYPE, **codecs}
        self._by_key: Mapping[CodecKey, TypeCodec] = {
            **index_by_key(self._by_type.values()),
            **CODECS_BY_KEY,
        }
        for kind, form in self._by_type.items():
            if self._by_key[form.key] != form:
                raise _invalid_type(
                    _qualified_name(kind), "another type has the same module and name"
                )

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Return the type tag and the bytes of a value.

        Raises:
            NotStorable: It could not be read back.
        """
        if obj is None:
            return "null", b""
        kind = type(obj)
        if kind is bytes or kind is bytearray:
            return kind.__name__, bytes(obj)
        return "msgpack", _ValueWriter(self._by_type, self._by_key).pack(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Return the value of a type tag and bytes.

        Raises:
            CheckpointTampered: They are damaged, or hold a type that is not allowed.
        """
        tag, stored = data
        if not isinstance(stored, (bytes, bytearray)):
            raise _tampered_error(f"it holds {type(stored).__name__} in place of bytes")
        if tag == "msgpack":
            return _ValueReader(self._by_key).unpack(bytes(stored))
        if tag == "bytes":
            return bytes(stored)
        if tag == "bytearray":
            return bytearray(stored)
        if tag == "null" and not stored:
            return None
        raise _tampered_error(f"it says that it is of type {tag!r}, which is never stored")


class _ValueWriter:
    """Writes one value. `_wrong` keeps the error of a callback, which ormsgpack would hide."""

    __slots__ = ("_by_key", "_by_type", "_depth", "_wrong")

    def __init__(
        self, by_type: Mapping[type[Any], TypeCodec], by_key: Mapping[CodecKey, TypeCodec]
    ) -> None:
        self._by_type = by_type
        self._by_key = by_key
        self._depth = 0
        self._wrong: NotStorable | None = None

    def pack(self, value: Any) -> bytes:
        try:
            return ormsgpack.packb(value, default=self._encode_extension, option=_WRITE_OPTIONS)
        except (TypeError, ValueError, RecursionError) as error:
            raise self._wrong or NotStorable(_qualified_name(type(value)), str(error)) from None

    def _encode_extension(self, value: Any) -> Any:
        try:
            kind = type(value)
            form = self._by_type.get(kind)
            if form is not None:
                parts = (form.module, form.name, form.to_parts(value), *form.method)
                packed = self._pack_nested(parts)
                if form.given:
                    self._check_round_trip(form, value, packed)
                return ormsgpack.Ext(form.code, packed)
            if kind is DeltaSnapshot:
                return ormsgpack.Ext(SNAPSHOT, self._pack_nested(value.value))
            return _encode_error(value)
        except NotStorable as error:
            self._wrong = error
            raise

    def _pack_nested(self, parts: Any) -> bytes:
        self._depth += 1
        if self._depth >= MAX_VALUE_DEPTH:
            raise NotStorable(
                _qualified_name(type(parts)), f"values stand more than {MAX_VALUE_DEPTH} deep in it"
            )
        packed = self.pack(parts)
        self._depth -= 1
        return packed

    def _check_round_trip(self, form: TypeCodec, value: Any, packed: bytes) -> None:
        """Check that a value of a user's type survives the round trip, before it is stored."""
        try:
            again = _ValueReader(self._by_key).decode_extension(form.code, packed)
            before, after = form.to_parts(value), form.to_parts(again)
            same = before == after or self.pack(before) == self.pack(after)
        except Exception as error:
            why = error.why if isinstance(error, CheckpointTampered) else _error_line(error)
            raise NotStorable(
                _qualified_name(type(value)), f"it cannot be made again: {why}"
            ) from error
        if not same:
            raise NotStorable(_qualified_name(type(value)), "made again, it is not the same")


class _ValueReader:
    """Reads one value."""

    __slots__ = ("_by_key", "_depth", "_wrong")

    def __init__(self, by_key: Mapping[CodecKey, TypeCodec]) -> None:
        self._by_key = by_key
        self._depth = 0
        self._wrong: CheckpointTampered | None = None

    def unpack(self, stored: bytes) -> Any:
        try:
            # Read as the first item of a pair whose second marks the end of the bytes.
            value, end = ormsgpack.unpackb(
                b"\x92" + stored + _END_BYTES,
                ext_hook=self._decode_hook,
                option=ormsgpack.OPT_NON_STR_KEYS,
            )
        except (ValueError, TypeError, RecursionError, MemoryError) as error:
            raise self._wrong or _tampered_error(f"its bytes are damaged ({error})") from None
        if end != _END_MARK:
            raise _tampered_error("there are bytes behind its end")
        return value

    def _decode_hook(self, code: int, stored: bytes) -> Any:
        try:
            return self.decode_extension(code, stored)
        except CheckpointTampered as error:
            self._wrong = error
            raise

    def decode_extension(self, code: int, stored: bytes) -> Any:
        """Return the value of an extension."""
        self._depth += 1
        if self._depth > MAX_VALUE_DEPTH:
            raise _tampered_error(f"values stand more than {MAX_VALUE_DEPTH} deep in it")
        parts = self.unpack(stored)
        self._depth -= 1
        if code == SNAPSHOT:
            return DeltaSnapshot(parts)
        if not isinstance(parts, list) or not 3 <= len(parts) <= 4:
            raise _tampered_error(f"it holds a value of an unknown form, number {code}")
        module, name, _, *method = parts
        form = self._by_key.get((code, module, name)) if type(module) is type(name) is str else None
        if form is None or method != form.method:
            raise _tampered_error(
                f"it holds a {module}.{name} (form {code}), which may not be loaded; if the type "
                "is yours, name it in SqliteCheckpointer(..., allowed_types=[...])"
            )
        try:
            return form.from_parts(parts[2])
        except Exception as error:  # noqa: BLE001  whatever a damaged part makes a constructor do
            raise _tampered_error(
                f"its {form.name} cannot be made again ({_error_line(error)})"
            ) from None


def _encode_error(value: Any) -> str:
    # LangGraph stores the error of a failed task as text, for display.
    if isinstance(value, BaseException):
        return redact_secrets(repr(value))
    kind = type(value)
    raise NotStorable(
        _qualified_name(kind),
        "it could not be read back. Name a pydantic model, dataclass, named tuple or enumeration "
        f"of yours in SqliteCheckpointer(..., allowed_types=[{kind.__name__}]), or keep plain "
        "values in the state",
    )


def _build_codec(kind: Any) -> TypeCodec:
    if not issubclass(type(kind), type):
        raise _invalid_type(shorten_repr(kind), "it is no type")
    if kind in CODECS_BY_TYPE:
        return CODECS_BY_TYPE[kind]
    if issubclass(kind, BaseModel):
        form = make_model_codec(kind)
    elif issubclass(kind, Enum):
        form = make_codec(SINGLE, kind, lambda value: value.value, kind)
    elif dataclasses.is_dataclass(kind):
        form = make_dataclass_codec(kind)
    elif issubclass(kind, tuple) and hasattr(kind, "_asdict"):
        form = make_named_tuple_codec(kind)
    else:
        raise _invalid_type(_qualified_name(kind), "it is none of these")
    return form._replace(given=True)


def _tampered_error(why: str) -> CheckpointTampered:
    return CheckpointTampered("a stored value", why)


def _error_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"


def _qualified_name(kind: type[Any]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _invalid_type(kind: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        "{kind} cannot be in allowed_types: {why}; name pydantic models, dataclasses, named "
        "tuples and enumerations, each under a name of its own",
        code="invalid_allowed_type",
        kind=kind,
        why=why,
    )


_ENCODER = json.JSONEncoder(ensure_ascii=False, default=str, allow_nan=False)
_STRICT_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
_find_long_number = re.compile(r"\d{19}").search


def to_json_text(value: Any) -> str:
    """Return a value as JSON text; values that JSON does not have become strings.

    Examples:
        >>> to_json_text({(1, 2): float("inf"), "name": "caf\u00e9"})
        '{"(1, 2)": "inf", "name": "café"}'
    """
    try:
        text = _encode(_ENCODER, value)
    except (TypeError, ValueError):
        text = _encode(_ENCODER, _make_serializable(value))
    # A lone surrogate cannot be encoded in UTF-8.
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def to_sanitized_json(value: Any) -> str:
    r"""Return a value as JSON text, sanitized as `sanitize_value` does it.

    Nearly all values need no change, as their text shows; they are not copied.

    Examples:
        >>> to_sanitized_json({"to": "Rome \ud83d", "sum": 2**64})
        '{"to": "Rome �", "sum": "18446744073709551616"}'
    """
    try:
        text = _encode(_STRICT_ENCODER, value)
        if not text.isascii():
            text.encode()
    except (TypeError, ValueError, RecursionError):
        return to_json_text(sanitize_value(value))
    is_deep = text.count("{") + text.count("[") >= MAX_SANITIZED_DEPTH
    if is_deep or len(text) > MAX_TEXT_LENGTH or _find_long_number(text):
        return to_json_text(sanitize_value(value))
    return text


def _encode(encoder: json.JSONEncoder, value: Any) -> str:
    # As `encode` does it, without the checks: the encoder in C returns a tuple of texts.
    return "".join(encoder.iterencode(value, _one_shot=True))


def _make_serializable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _make_serializable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_make_serializable(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
