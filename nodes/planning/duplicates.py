"""The same task to the same agent twice in a turn: what is answered is not asked again. Pure.

An agent that asks for what it has been told goes round in circles, each time with the same
conversation before its eyes. ``reason`` refuses it, so that it sees what it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from echelons.delegation.calls import requests_of
from echelons.delegation.candidates import Way
from echelons.delegation.request import DelegationResponse, Status
from echelons.identity.lineage import request_id
from echelons.tree.names import DELEGATING_TOOLS


def answered(task: str, messages: Sequence[BaseMessage], thread: str) -> dict[Way, Status]:
    """Return who has answered a task in this turn, as the ways to them, and how.

    Fulfilled is answered, and so is an honest "unable". Who did a part may go on, who has a
    question may be asked again with the answer, and who has failed may be tried again.

    Args:
        task: The task, word for word.
        messages: The superior's conversation before it.
        thread: The superior's thread.

    Raises:
        UnreadableRecord: What is stored of an earlier request, or its answer, is damaged.
    """
    known: dict[Way, Status] = {}
    answers: dict[str, ToolMessage] = {}
    for message in reversed(messages):
        if isinstance(message, HumanMessage):
            break
        if isinstance(message, ToolMessage):
            answers[message.tool_call_id] = message
        elif isinstance(message, AIMessage):
            for each in _came_of(task, message, answers, thread):
                if _is_answer(each):
                    # Its path is that of who has answered, not of those who passed the task on.
                    known.setdefault(each.path[1:], each.status)
            answers = {}
    return known


def _came_of(
    task: str, message: AIMessage, answers: Mapping[str, ToolMessage], thread: str
) -> Iterator[DelegationResponse]:
    """Yield what a message's requests for a task came to, each with its attempts one by one."""
    calls = [call for call in message.tool_calls if call["name"] in DELEGATING_TOOLS]
    for asked, parted in requests_of(message, calls):
        answer = answers.get(parted.call_id if parted else asked.call_id)
        if asked.message == task and answer and answer.artifact is not None:
            request = request_id(thread, message.id or "", asked.call_id)
            whole = DelegationResponse.load(answer.artifact)
            for own in _of(request, [whole] if parted is None else whole.subordinate_responses):
                yield own
                yield from _of(request, own.subordinate_responses)


def _of(request: str, responses: Sequence[DelegationResponse]) -> Iterator[DelegationResponse]:
    return (each for each in responses if each.request_id == request)


def _is_answer(response: DelegationResponse) -> bool:
    honest = response.status is Status.UNABLE and not response.failed
    return honest or response.status is Status.FULFILLED
