"""What a caller gives the root of a tree to do, checked before anything is stored.

`AgentGraph` calls it for every run, `Session` before it makes one. Of the messages of an
input only people's, and the history that a caller without a checkpointer sends along, may come
in; each gets an id of ours, so that none takes the place of an earlier one. A tree embedded in
another graph is given that graph's own state: its host has taken it in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import uuid4

from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig, ensure_config
from langgraph.types import Command, Overwrite

from echelons.checkpoints.delta_channels import MESSAGES, with_messages
from echelons.checkpoints.inherited_config import is_embedded
from echelons.errors import (
    AnswerWithoutCall,
    ForbiddenRole,
    InputTooLarge,
    InvalidMessages,
    InvalidValue,
)
from echelons.identity.lineage import foreign
from echelons.text.input_limits import (
    INPUT_BYTES,
    MESSAGE_BYTES,
    check_id,
    check_label,
    shortened,
    weigh,
)

ALLOWED = ("user", "assistant", "tool")
"""Roles of messages that may come in, as providers call them."""


def admitted(given: Any, config: RunnableConfig | None) -> Any:
    """Return the input of a run as it may be stored.

    Args:
        given: The input. `None` and commands go on with a run: they bring no messages.
        config: The run's config.

    Raises:
        InvalidInput: It, or the thread's id, is refused; each reason has an error of its own.
    """
    if given is None or isinstance(given, Command):
        return given
    configurable = ensure_config(config).get("configurable") or {}
    if is_embedded(configurable):
        return with_messages(given)
    if configurable.get("thread_id") is not None:
        check_id(configurable["thread_id"], "thread_id")
    if not isinstance(given, Mapping) or given.get(MESSAGES) is None:
        raise InvalidMessages(given, "the input is no mapping with the key 'messages'")
    if isinstance(given[MESSAGES], Overwrite):
        raise InvalidMessages(given[MESSAGES], "an input adds to the conversation")
    return {MESSAGES: taken_in(with_messages({MESSAGES: given[MESSAGES]})[MESSAGES])}


def taken_in(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return messages from outside as they may be stored.

    Raises:
        InvalidInput: One is refused.
    """
    calls: set[str | None] = set()
    size = 0
    for place, message in enumerate(messages, start=1):
        what = f"message {place} of the input"
        _check(message, what, calls)
        calls.update(_calls_of(message))
        size += _weighed(message, what)
        if size > INPUT_BYTES:
            raise InputTooLarge("the input", size, INPUT_BYTES)
    return [_renamed(message) for message in messages]


def _check(message: BaseMessage, what: str, calls: set[str | None]) -> None:
    if not isinstance(message, (HumanMessage, AIMessage, ToolMessage)):
        role = message.role if isinstance(message, ChatMessage) else message.type
        raise ForbiddenRole(what, role, ALLOWED)
    if isinstance(message, ToolMessage) and message.tool_call_id not in calls:
        raise AnswerWithoutCall(what, shortened(message.tool_call_id))
    for block in message.content if isinstance(message.content, list) else ():
        # LangChain looks it up, and would fail at every later turn of the thread.
        if isinstance(block, Mapping) and not isinstance(block.get("type", ""), str):
            raise InvalidMessages(block, f"the type of a block in {what} is no text")
    if message.name:
        check_label(message.name, f"name of the sender of {what}")


def _calls_of(message: BaseMessage) -> Iterator[str | None]:
    if isinstance(message, AIMessage):
        yield from (call["id"] for call in message.tool_calls)
        yield from (call["id"] for call in message.invalid_tool_calls)


def _weighed(message: BaseMessage, what: str) -> int:
    held = {**vars(message), **(message.__pydantic_extra__ or {})}
    artifact = held.pop("artifact", None)
    # A tool may have made any object; whether it can be stored, the store says.
    with suppress(InvalidValue):
        weigh(artifact, what, MESSAGE_BYTES)
    return weigh(held, what, MESSAGE_BYTES)


def _renamed(message: BaseMessage) -> BaseMessage:
    # Which threads its calls have is ours to say, and a run's own state says it.
    return message.model_copy(update={"id": str(uuid4()), "response_metadata": foreign(message)})
