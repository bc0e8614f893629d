"""The arguments of calls: fields that features add, and values that are mended."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from typing import Any, TypeVar

from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool
from pydantic import BaseModel, ValidationError, create_model

from echelons.delegation.contract import describe_faults
from echelons.errors import InvalidInput
from echelons.features.feature import BuiltIn, RequestField
from echelons.text.input_limits import shorten_repr
from echelons.text.json_schema import (
    build_example,
    find_mismatch,
    inline_references,
    match_name,
    mend_arguments,
    parse_json,
)

M = TypeVar("M", bound=BaseModel)

MAX_EXCERPT = 600
"""Most characters of a schema, or of an example, in an error for a model."""
_PARTS_LIMIT = 10_000
"""Most parts of a schema whose references are written out for an example."""


def validate_arguments(model: type[M], arguments: Mapping[str, Any]) -> M | str:
    """Return the arguments of a built-in tool, or why they are refused and what to send."""
    try:
        return model.model_validate(arguments)
    except ValidationError as refused:
        mended = mend_arguments(arguments, _get_schema(model))
        try:
            return model.model_validate(mended)
        except ValidationError:
            return describe_refusal(refused, arguments, _get_schema(model))


def mend_built_in(model: type[BaseModel], arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the arguments that are meant by a call of a built-in tool, `None` if as they came."""
    return mend(arguments, _get_schema(model), model.model_validate)


def mend_name(
    arguments: Any, key: str, names: Iterable[str], find_more: Callable[[], Iterable[str]]
) -> dict[str, Any] | None:
    """Return arguments with the name of the agent that one of them means.

    `None` if they need none. `find_more` returns names beside those that are known.
    """
    value = arguments.get(key) if isinstance(arguments, Mapping) else None
    if not isinstance(value, str) or not value or value in names:
        return None
    more = {*names, *find_more()}
    meant = None if value in more else match_name(value, more)
    return {**arguments, key: meant} if meant else None


def adopt_written_arguments(message: AIMessage) -> AIMessage:
    """Return a reply whose calls have objects as arguments where they came as texts with one.

    Some models write the JSON of the arguments into a text once more.
    """
    if not message.invalid_tool_calls:
        return message
    calls, broken = [*message.tool_calls], list[Any]()
    for call in message.invalid_tool_calls:
        if (arguments := _read_object(call.get("args"))) is None:
            broken.append(call)
        else:
            named = call.get("name") or ""
            whole: Any = {**call, "name": named, "type": "tool_call", "args": arguments}
            del whole["error"]
            calls.append(whole)
    if len(broken) == len(message.invalid_tool_calls):
        return message
    return message.model_copy(update={"tool_calls": calls, "invalid_tool_calls": broken})


def _read_object(written: Any) -> dict[str, Any] | None:
    try:
        value = json.loads(written) if isinstance(written, str) else written
    except (ValueError, RecursionError):
        return None
    value = parse_json(value) if isinstance(value, str) else value
    return value if isinstance(value, dict) else None


class ToolArguments:
    """The arguments of one of an agent's own tools.

    Args:
        tool: The tool.
    """

    def __init__(self, tool: BaseTool) -> None:
        self._tool = tool

    def mend(self, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the arguments that are meant, `None` if they are taken as they came."""
        model, schema = self._model, self._schema
        if model is not None:
            return mend(arguments, schema, model.model_validate)
        return mend(arguments, schema, build_check(schema)) if schema else None

    def find_misfit(self, arguments: Mapping[str, Any]) -> str:
        """Return why arguments do not fit a tool that checks them itself; empty if they do."""
        schema = self._tool.args_schema
        return find_mismatch(arguments, schema) if isinstance(schema, Mapping) else ""

    def describe(self) -> str:
        """Return what arguments the tool takes, for a model whose call was refused."""
        keys = ("required", "properties", "$defs")
        schema = {key: self._schema[key] for key in keys if key in self._schema}
        return _shorten(json.dumps(schema, ensure_ascii=False)) if schema else ""

    @cached_property
    def _model(self) -> type[BaseModel] | None:
        # Without what LangChain injects. It makes the class anew each time.
        try:
            model: Any = self._tool.tool_call_schema
        except Exception:  # noqa: BLE001  LangChain says so itself when the tool is called
            return None
        return model if isinstance(model, type) and issubclass(model, BaseModel) else None

    @cached_property
    def _schema(self) -> Mapping[str, Any]:
        try:
            schema: Any = self._tool.args_schema
            return (
                schema
                if isinstance(schema, Mapping)
                else (self._model.model_json_schema() if self._model else {})
            )
        except Exception:  # noqa: BLE001  a type of the tool's may have no JSON Schema
            return {}


def build_check(schema: Mapping[str, Any]) -> Callable[[Any], None]:
    """Return a check of a value by a JSON Schema, which raises `ValueError`."""

    def check(value: Any) -> None:
        if fault := find_mismatch(value, schema):
            raise ValueError(fault)

    return check


def mend(
    arguments: Mapping[str, Any], schema: Mapping[str, Any], check: Callable[[Any], Any]
) -> dict[str, Any] | None:
    """Return mended arguments that pass a check, `None` if they pass as they came, or never."""
    try:
        check(arguments)
    except (ValueError, InvalidInput):
        pass
    except Exception:  # noqa: BLE001  code of others, which the call itself will meet again
        return None
    else:
        return None
    try:
        mended = mend_arguments(arguments, schema)
        check(mended)
    except Exception:  # noqa: BLE001  as above: the call is refused as it came
        return None
    return mended


def describe_refusal(
    error: ValidationError, arguments: Mapping[str, Any], schema: Mapping[str, Any]
) -> str:
    """Return why arguments are refused, what came, and what to send instead."""
    faults = error.errors(include_url=False, include_context=False)
    came = {
        str(fault["loc"][0]): fault["input"]
        for fault in faults
        if fault["loc"] and fault["type"] != "missing" and fault["loc"][0] in arguments
    }
    text = describe_faults(error)
    if came:
        text += (
            f"; came: {', '.join(f'{key}={shorten_repr(value)}' for key, value in came.items())}"
        )
    try:
        whole = inline_references(schema, _PARTS_LIMIT)
        fields: Mapping[str, Any] = whole.get("properties") or {}
        wrong = {str(fault["loc"][0]) for fault in faults if fault["loc"]} & fields.keys()
        kept = {key: value for key, value in arguments.items() if key in fields.keys() - wrong}
        example = {**kept, **{key: build_example(fields[key]) for key in sorted(wrong)}}
        shown = json.dumps(example, ensure_ascii=False, default=str)
    except (ValueError, KeyError, TypeError, RecursionError):
        return text
    return f"{text}; send arguments such as {_shorten(shown)}"


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_EXCERPT else f"{text[: MAX_EXCERPT - 1]}…"


@cache
def _get_schema(model: type[BaseModel]) -> Mapping[str, Any]:
    return model.model_json_schema()


@lru_cache(64)
def extend_arguments(model: type[M], fields: tuple[RequestField, ...]) -> type[M]:
    """Return a model of arguments with further parameters of requests."""
    more: dict[str, Any] = {added.name: (added.kind, None) for added in fields}
    return create_model(model.__name__, __base__=model, **more)


def store_fields(wanted: BaseModel, fields: Sequence[RequestField]) -> dict[str, Any]:
    """Return what a call gives a request by further parameters, as it is stored with it."""
    values = ((added, getattr(wanted, added.name)) for added in fields)
    return {added.name: added.store(value) for added, value in values if value}


class DelegatingTool(BuiltIn):
    """A tool whose calls become requests.

    Attributes:
        fields: The parameters that features add to its requests.
    """

    is_executed = False
    fields: tuple[RequestField, ...] = ()

    def add_fields(self, fields: Sequence[RequestField]) -> None:
        """Take further parameters of requests."""
        self.fields = (*fields,)
        self.arguments = extend_arguments(self.arguments, self.fields)

    def _show_fields(self) -> dict[str, Any]:
        """Return the further parameters that a model is shown."""
        return {added.name: added.schema for added in self.fields if added.schema is not None}
