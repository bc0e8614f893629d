"""The same task to the same agent twice in a turn: what is answered is not asked again. Pure.

An agent that asks for what it has been told goes round in circles, each time with the same
conversation before its eyes. ``reason`` refuses it, so that it sees what it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from echelons.delegation import DelegationResponse, Status
from echelons.lineage import ROUTES_KEY, THREADS_KEY, request_id
from echelons.names import DELEGATING_TOOLS
from echelons.parting import Delegation, requests_of
from echelons.ways import Ways


def is_answered(request: Delegation, messages: Sequence[BaseMessage], thread: str) -> bool:
    """Return whether the agent that a request names has answered its task in this turn.

    Fulfilled is answered, and so is an honest "unable". Who did a part may go on, who has a
    question may be asked again with the answer, and who has failed may be tried again.

    Args:
        request: The request, which names an agent.
        messages: The superior's conversation before it.
        thread: The superior's thread.

    Raises:
        UnreadableRecord: What is stored of the earlier request, or its answer, is damaged.
    """
    answers: dict[str, ToolMessage] = {}
    for message in reversed(messages):
        if isinstance(message, HumanMessage):
            return False
        if isinstance(message, ToolMessage):
            answers[message.tool_call_id] = message
        elif isinstance(message, AIMessage):
            if _answered_by(request, message, answers, thread):
                return True
            answers = {}
    return False


def _answered_by(
    request: Delegation, message: AIMessage, answers: Mapping[str, ToolMessage], thread: str
) -> bool:
    calls = [call for call in message.tool_calls if call["name"] in DELEGATING_TOOLS]
    for earlier, parted in requests_of(message, calls):
        if earlier.message == request.message and _was_for(request.subordinate, earlier, message):
            answer = answers.get(parted.call_id if parted else earlier.call_id)
            wanted = request_id(thread, message.id or "", earlier.call_id)
            if answer and _settles(answer.artifact, wanted):
                return True
    return False


def _was_for(agent: str, earlier: Delegation, message: AIMessage) -> bool:
    """Return whether an agent was asked first, also where nobody was named."""
    routes: Mapping[str, Any] = message.response_metadata.get(ROUTES_KEY) or {}
    ahead = Ways.load(routes.get(earlier.call_id, {})).ahead
    if earlier.subordinate or ahead:
        return (earlier.subordinate or ahead[0][0]) == agent
    # Neither named nor found, and yet asked: the only subordinate that there is.
    return earlier.call_id in (message.response_metadata.get(THREADS_KEY) or {})


def _settles(artifact: object, request: str) -> bool:
    if artifact is None:
        return False
    whole = DelegationResponse.load(artifact)
    for answer in (whole, *whole.subordinate_responses):
        if answer.request_id == request:
            honest = answer.status is Status.UNABLE and not answer.failed
            return honest or answer.status is Status.FULFILLED
    return False
