"""The conversation as the hooks of a middleware see it: the whole chained thread.

What a hook takes out of an earlier segment, or changes there, stays in that segment: the present
one then holds all that is left of the conversation, and says that it cuts off what was before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage, convert_to_messages
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages
from langgraph.types import Command

from echelons.identity.lineage import RETURNED_KEY
from echelons.identity.thread_history import Past
from echelons.nodes.incoming_content import accept_message
from echelons.nodes.planning.tool_calls import assign_call_ids
from echelons.nodes.tool_execution.current_request import find_payload
from echelons.run_context import get_context
from echelons.tree.names import PRIVATE_KEYS


def build_hook_state(
    past: Past, state: Mapping[str, Any], config: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a level's state as a hook sees it: all messages of the thread, and its input."""
    shown = {key: value for key, value in state.items() if key not in PRIVATE_KEYS}
    payload = find_payload(config, state["messages"])
    # A text that is no input, which a graph around the tree may give, has none.
    if payload is not None or get_context(config).contract:
        shown["payload"] = payload
    return {**shown, "messages": [*past.messages, *state["messages"]]}


def find_foreign_key(update: Mapping[str, Any], keys: frozenset[str]) -> str:
    """Return the first key of an update that others must not write; empty if there is none."""
    return next((str(key) for key in update if key in PRIVATE_KEYS or key not in keys), "")


def change_conversation(
    messages: Any, past: Past, state: Mapping[str, Any], added: Sequence[BaseMessage] = ()
) -> dict[str, Any]:
    """Return the update of a level for what a hook has returned under `messages`.

    Raises:
        NotImplementedError, ValueError: LangChain cannot convert it to messages.
    """
    before = [*past.messages, *state["messages"], *added]
    ids = {message.id for message in before}
    new = [_complete(message, ids) for message in convert_to_messages(_list_messages(messages))]
    removes = any(isinstance(message, RemoveMessage) for message in new)
    earlier = {message.id for message in past.messages}
    if not removes and earlier.isdisjoint(message.id for message in new):
        return {"messages": [*added, *new]}
    held = {message.id for message in (*before, *new)} | {REMOVE_ALL_MESSAGES}
    # LangGraph refuses to remove a message that is not there.
    real = [
        message for message in new if not isinstance(message, RemoveMessage) or message.id in held
    ]
    after: list[Any] = [*cast("list[Any]", add_messages(cast("Any", before), cast("Any", real)))]
    left = {message.id for message in after}
    gone = sum(message.id not in left for message in before)
    cut = state.get("cut") or {}
    is_past_kept = after[: len(past.messages)] == list(past.messages)
    noted = {
        "removed": int(cut.get("removed", 0)) + gone,
        "past": bool(cut.get("past")) or not is_past_kept,
    }
    if is_past_kept:
        return {"messages": [*added, *new], "cut": noted}
    return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), *after], "cut": noted}


def get_command_update(command: Command[Any]) -> Mapping[str, Any] | None:
    """Return the update of a command that only updates the state, `None` of any other."""
    if command.graph or command.goto or command.resume is not None:
        return None
    update = command.update
    return {} if update is None else update if isinstance(update, Mapping) else None


def _list_messages(messages: Any) -> list[Any]:
    """Return what a hook gives as messages as a list; a pair of a role and a text is one."""
    is_pair = isinstance(messages, tuple) and len(messages) == 2 and isinstance(messages[0], str)
    return [*messages] if isinstance(messages, list | tuple) and not is_pair else [messages]


def mark_returned(message: AIMessage) -> AIMessage:
    """Return a message of an agent with the mark that no model has written it."""
    metadata = {**message.response_metadata, RETURNED_KEY: True}
    return message.model_copy(update={"response_metadata": metadata})


def _complete(message: BaseMessage, ids: Collection[str | None]) -> BaseMessage:
    whole = accept_message(message, {})
    if not isinstance(whole, AIMessage):
        return whole
    whole = assign_call_ids(whole)
    return whole if whole.id in ids else mark_returned(whole)
