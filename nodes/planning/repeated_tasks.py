"""Finds tasks that have been answered earlier in the same turn, with nothing done since. Pure.

An agent that repeats an answered request loops, each time with the same conversation as
input. `reason` refuses the repetition, so that the model notices the answer that it has. Once
anything else was done, the answer may be another: "run the tests", "fix it", "run the tests".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from echelons.delegation.calls import AgentPath, SubordinateCall, iterate_requests
from echelons.delegation.request import DelegationResponse, Status
from echelons.identity.lineage import REFUSED_KEY, derive_request_id
from echelons.tree.names import DELEGATING_TOOLS, SEND_MESSAGE


def find_answered(
    task: SubordinateCall, messages: Sequence[BaseMessage], thread: str
) -> dict[AgentPath, Status]:
    """Return the paths of the agents that have answered a task in this turn, with their status.

    Only answers count since which nothing but this task was worked on: no tool was called and
    no other task delegated in a later message. Refused calls are no work.

    `fulfilled` is an answer, and so is an `unable` that the agent reported itself. Agents that
    did a part, asked a question or failed may be asked again. The task is compared word for word,
    with its context.

    Raises:
        UnreadableRecord: A stored request or its answer is damaged.
    """
    known: dict[AgentPath, Status] = {}
    answers: dict[str, ToolMessage] = {}
    for message in reversed(messages):
        # A message from outside may change the answer.
        if isinstance(message, HumanMessage):
            break
        if isinstance(message, ToolMessage):
            answers[message.tool_call_id] = message
        elif isinstance(message, AIMessage):
            for response in _iter_responses(task, message, answers, thread):
                honest = response.status is Status.UNABLE and not response.failed
                if honest or response.status is Status.FULFILLED:
                    # The path leads to the agent that answered, not to those that relayed the task.
                    known.setdefault(response.path[1:], response.status)
            if _has_other_work(task, message, answers):
                break
            answers = {}
    return known


def _has_other_work(
    task: SubordinateCall, message: AIMessage, answers: Mapping[str, ToolMessage]
) -> bool:
    """Return whether anything but a task was worked on for a message's calls."""
    run = [
        call
        for call in message.tool_calls
        if (answer := answers.get(call["id"] or "")) and REFUSED_KEY not in answer.response_metadata
    ]
    if any(call["name"] not in (*DELEGATING_TOOLS, SEND_MESSAGE) for call in run):
        return True
    return any(
        asked.message != task.message or asked.context != task.context
        for asked, _ in iterate_requests(message, run)
    )


def _iter_responses(
    task: SubordinateCall, message: AIMessage, answers: Mapping[str, ToolMessage], thread: str
) -> Iterator[DelegationResponse]:
    """Yield the responses to a message's requests for a task, each followed by its attempts."""
    calls = [call for call in message.tool_calls if call["name"] in DELEGATING_TOOLS]
    for asked, parted in iterate_requests(message, calls):
        answer = answers.get(parted.call_id if parted else asked.call_id)
        if asked.message != task.message or asked.context != task.context:
            continue
        if answer and answer.artifact is not None:
            request = derive_request_id(thread, message.id or "", asked.call_id)
            whole = DelegationResponse.load(answer.artifact)
            for own in [whole] if parted is None else whole.subordinate_responses:
                if own.request_id == request:
                    yield own
                    yield from (
                        response
                        for response in own.subordinate_responses
                        if response.request_id == request
                    )
