"""The serializer of checkpoints: an allowlist of types, so that loading never runs stored code.

LangGraph's own serializer imports the type that a row names, or returns the raw parts of an
unknown one; its default depends on an environment variable. This one reads the same bytes with
its own table of types: an unknown or damaged value is an error. A value that could not be read
back is not written.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

import ormsgpack
from langgraph.checkpoint.serde.base import SerializerProtocol
from pydantic import BaseModel

from echelons.checkpoints.storage.type_codecs import (
    CODECS_BY_KEY,
    CODECS_BY_TYPE,
    SINGLE,
    SNAPSHOT,
    CodecKey,
    TypeCodec,
    index_by_key,
    make_codec,
    make_dataclass_codec,
    make_model_codec,
    make_named_tuple_codec,
)
from echelons.errors import CheckpointTampered, ConfigurationError, NotStorable
from echelons.langgraph_internals import DeltaSnapshot
from echelons.text.error_lines import redact_secrets
from echelons.text.input_limits import list_items, refuse_unreadable, shorten_repr

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
            own = {kind: _build_codec(kind) for kind in list_items(types)}
        self._by_type = {**CODECS_BY_TYPE, **own}
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
        form = self._find_codec(code, parts)
        try:
            return form.from_parts(parts[2])
        except Exception as error:  # noqa: BLE001  whatever a damaged part makes a constructor do
            raise _tampered_error(
                f"its {form.name} cannot be made again ({_error_line(error)})"
            ) from None

    def _find_codec(self, code: int, parts: Any) -> TypeCodec:
        if not isinstance(parts, list) or not 3 <= len(parts) <= 4:
            raise _tampered_error(f"it holds a value of an unknown form, number {code}")
        module, name, _, *method = parts
        form = self._by_key.get((code, module, name)) if type(module) is type(name) is str else None
        if form is None or method != form.method:
            raise _tampered_error(
                f"it holds a {module}.{name} (form {code}), which may not be loaded; if the type "
                "is yours, name it in SqliteCheckpointer(..., allowed_types=[...])"
            )
        return form


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
