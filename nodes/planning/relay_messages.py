"""The messages with which a level relays a request, or passes on a task, without calling a model.

Its thread then reads like any other: a task, a call, the answer, and a final message. That of a
relayed request is the subordinate's answer; that of a task which a user has addressed to an agent
further down is the model's reply. Pure; `reason` calls it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolCall, ToolMessage

from echelons.delegation.calls import RelayedRequest, build_request, iterate_requests, request_diff
from echelons.delegation.request import DelegationResponse
from echelons.identity.lineage import (
    ADDRESSEE_KEY,
    FORWARDED_KEY,
    REQUEST_CONTEXT_KEY,
    REQUESTS_KEY,
    Identity,
    derive_message_id,
)
from echelons.tree.names import CALL_SUBORDINATE

RELAY_CALL_ID = "forward"
RELAYED_RESPONSE_KEY = "passed"
"""Key of a level's response under which it relays a subordinate's response."""


def is_relay_message(message: BaseMessage) -> bool:
    """Return whether a level wrote a message to relay a request."""
    return bool(message.response_metadata and message.response_metadata.get(FORWARDED_KEY))


def build_relay_call(forward: RelayedRequest, identity: Identity) -> AIMessage:
    """Return the message with which a level calls the next agent on the route."""
    request, name, reset = forward.request, forward.next_agent, forward.reset
    args = {"message": request.task, "subordinate": name, "reset": reset}
    message = AIMessage(
        "",
        id=derive_message_id(identity.thread_id, f"forward/{identity.request_id}"),
        name=identity.agent,
        tool_calls=[ToolCall(name=CALL_SUBORDINATE, args=args, id=RELAY_CALL_ID, type="tool_call")],
    )
    [(asked, _)] = iterate_requests(message, message.tool_calls)
    known = build_request(asked, None, message, identity.agent, identity.thread_id)
    note = request_diff(forward.build_next_request(known.id).stored(), known)
    metadata = {FORWARDED_KEY: True, REQUESTS_KEY: {RELAY_CALL_ID: note}}
    return message.model_copy(update={"response_metadata": metadata})


def build_addressed_call(messages: Sequence[BaseMessage], identity: Identity) -> AIMessage | None:
    """Return the message that passes a level's task on to the agent that a user has addressed.

    `None` if the task is for the agent itself, or has been passed on already.
    """
    if not messages or ADDRESSEE_KEY not in messages[-1].response_metadata:
        return None
    task, metadata = messages[-1], messages[-1].response_metadata
    name, *below = metadata[ADDRESSEE_KEY]
    args: dict[str, Any] = {"message": str(task.text), "subordinate": name}
    if context := metadata.get(REQUEST_CONTEXT_KEY):
        args["context"] = context
    # Providers refuse a conversation in which two calls have the same id.
    own = derive_message_id(identity.thread_id, f"addressed/{task.id}")
    return AIMessage(
        "",
        id=own,
        name=identity.agent,
        tool_calls=[ToolCall(name=CALL_SUBORDINATE, args=args, id=own, type="tool_call")],
        response_metadata={
            FORWARDED_KEY: True,
            **({REQUESTS_KEY: {own: {"addressee": below}}} if below else {}),
        },
    )


def build_relay_answer(
    messages: Sequence[BaseMessage], identity: Identity
) -> dict[str, Any] | None:
    """Return the update that ends a level which has relayed a request; `None` before its call."""
    if not any(is_relay_message(message) for message in messages if isinstance(message, AIMessage)):
        return None
    answer = next(message for message in reversed(messages) if isinstance(message, ToolMessage))
    response = DelegationResponse.load(answer.artifact)
    last = AIMessage(
        response.result or response.reason,
        id=derive_message_id(identity.thread_id, f"forwarded/{identity.request_id}"),
        name=identity.agent,
        response_metadata={FORWARDED_KEY: True},
    )
    said = {"status": str(response.status), RELAYED_RESPONSE_KEY: response.stored()}
    return {"messages": [last], "response": said}
