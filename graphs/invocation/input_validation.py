"""Validates the input of a tree before anything is stored.

`AgentGraph` calls it for every run, `Session` before it starts one. An input may contain human
messages, and the history that a caller without a checkpointer sends along; each message gets a
new id, so that none replaces an earlier one. A tree embedded in another graph gets that graph's
own state, which is not validated again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.types import Command, Overwrite

from echelons.checkpoints.delta_channels import MESSAGES, convert_messages, normalize_messages
from echelons.checkpoints.inherited_config import is_embedded
from echelons.errors import (
    InvalidInput,
    checkpoint_not_found,
    input_too_large,
    invalid_messages,
    invalid_option,
)
from echelons.identity.lineage import strip_own_metadata
from echelons.langgraph_internals import PRIVATE_PREFIX, STREAM_EVENTS_KEY
from echelons.run_context import CONTEXT_KEY
from echelons.text.content_blocks import measure_blocks
from echelons.text.input_limits import (
    INPUT_BYTES,
    MESSAGE_BYTES,
    check_id,
    check_label,
    measure_size,
    refuse_unreadable,
    shorten_repr,
)

_PLAIN = (str, int, float, list, tuple, dict)
ALLOWED_ROLES = ("user", "assistant", "tool")
"""Message roles that are accepted, as providers call them."""


def validate_input(given: Any, config: RunnableConfig | None) -> Any:
    """Return the validated input of a run; `None` and commands have no messages."""
    configurable = (config or {}).get("configurable") or {}
    embedded = is_embedded(configurable)
    if not embedded:
        with refuse_unreadable(
            lambda why: invalid_option("configurable", shorten_repr(configurable), why)
        ):
            _check_configurable(configurable)
    if given is None or issubclass(type(given), Command):
        return given
    if embedded:
        return normalize_messages(given)
    if configurable.get("thread_id") is not None:
        check_id(configurable["thread_id"], "thread_id")
    with refuse_unreadable(lambda why: invalid_messages(given, why)):
        messages = given.get(MESSAGES) if isinstance(given, Mapping) else None
        if messages is None:
            raise invalid_messages(given, "the input is no mapping with the key 'messages'")
        if isinstance(messages, Overwrite):
            raise invalid_messages(messages, "an input adds to the conversation")
        return {MESSAGES: validate_messages(convert_messages(messages))}


def _check_configurable(configurable: Mapping[str, Any]) -> None:
    for key, value in configurable.items():
        # LangGraph's server passes objects under names of LangGraph's.
        if key[:2] == "__" and (
            key.startswith(CONTEXT_KEY)
            or (
                (key.startswith(PRIVATE_PREFIX) and isinstance(value, _PLAIN))
                and (key, value) != (STREAM_EVENTS_KEY, True)
            )
        ):
            why = "names that begin like this are LangGraph's and ours; choose another"
            raise invalid_option("configurable", shorten_repr(key), why)
        # LangGraph's own savers store both with each checkpoint, and fail at half a character.
        for text in (key, value):
            if isinstance(text, str) and not text.isascii():
                measure_size(text, "configurable", 4 * len(text))
    for name in ("assistant_id", "graph_id"):
        # LangGraph takes their texts at the start of a run, whatever they are.
        if not isinstance(given := configurable.get(name), str | int | UUID | None):
            why = "an id is a text or a UUID; give one, or leave it out"
            raise invalid_option("configurable", f"{name}={shorten_repr(given)}", why)
    for name in ("thread_id", "assistant_id", "graph_id"):
        # Both are read of each, here where what they raise is named.
        str(configurable.get(name) or "")
    namespace, checkpoint_id = map(configurable.get, ("checkpoint_ns", "checkpoint_id"))
    if type(namespace) not in (str, type(None)):
        why = "a namespace of LangGraph's is a text; leave it out for the root's"
        raise invalid_option("configurable", f"checkpoint_ns={shorten_repr(namespace)}", why)
    if type(checkpoint_id) not in (str, type(None)):
        thread_id = str(configurable.get("thread_id"))
        raise checkpoint_not_found(checkpoint_id, thread_id, namespace or "")


def validate_messages(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return validated messages with new ids, ready to be stored."""
    calls: set[str | None] = set()
    size = 0
    for place, message in enumerate(messages, start=1):
        what = f"message {place} of the input"
        _check_message(message, what, calls)
        if isinstance(message, AIMessage):
            calls |= {
                accepted["id"] for accepted in (*message.tool_calls, *message.invalid_tool_calls)
            }
        size += _measure_message(message, what)
        if size > INPUT_BYTES:
            raise input_too_large("the input", size, INPUT_BYTES)
    # Our own metadata, such as the threads of calls, must not come from outside.
    return [
        accepted.model_copy(
            update={"id": str(uuid4()), "response_metadata": strip_own_metadata(accepted)}
        )
        for accepted in messages
    ]


def _check_message(message: BaseMessage, what: str, calls: set[str | None]) -> None:
    if not isinstance(message, (HumanMessage, AIMessage, ToolMessage)):
        role = message.role if isinstance(message, ChatMessage) else message.type
        raise InvalidInput(
            "{what} has the role {role!r}; an input may hold {allowed}. Instructions belong in "
            "Agent(prompt=...), and a history is changed with update_state",
            code="forbidden_role",
            what=what,
            role=role,
            allowed=tuple(ALLOWED_ROLES),
        )
    if isinstance(message, ToolMessage) and message.tool_call_id not in calls:
        raise InvalidInput(
            "{what} answers the call {call}, which stands in no message before it; send the "
            "message of the call too, or leave the answer out",
            code="answer_without_call",
            what=what,
            call=shorten_repr(message.tool_call_id),
        )
    for block in message.content if isinstance(message.content, list) else ():
        # LangChain looks the type up, and would fail at every later turn of the thread.
        if isinstance(block, Mapping) and not isinstance(block.get("type", ""), str):
            raise invalid_messages(block, f"the type of a block in {what} is no text")
    if message.name:
        check_label(message.name, f"name of the sender of {what}")


def _measure_message(message: BaseMessage, what: str) -> int:
    held = {**vars(message), **(message.__pydantic_extra__ or {})}
    artifact = held.pop("artifact", None)
    # An artifact may be any object; whether it can be stored, the saver decides.
    if artifact is not None:
        try:
            measure_size(artifact, what, MESSAGE_BYTES)
        except InvalidInput as error:
            if error.code != "invalid_value":
                raise
    size = measure_blocks(held.pop("content"), what) if isinstance(message.content, list) else 0
    return size + measure_size(held, what, MESSAGE_BYTES)
