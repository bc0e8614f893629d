"""Calls that are refused or repeated without a new result: counted, until they end their agent."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall, ToolMessage

from echelons.delegation.calls import NamesBelow, SubordinateCall, iterate_requests
from echelons.delegation.request import DelegationResponse, Status
from echelons.guards.gate import Halt
from echelons.identity.lineage import (
    ASIDE_KEY,
    NOTICES_KEY,
    REFUSED_KEY,
    USER_ANSWERS_KEY,
    Identity,
    derive_message_id,
    derive_request_id,
)
from echelons.models.notices import build_aside
from echelons.text.input_limits import shorten_repr
from echelons.tree.names import DELEGATING_TOOLS, SEND_MESSAGE

RefusedCall: TypeAlias = tuple[str | None, Any]
"""The name and the arguments of a refused call."""

MAX_REASON = 300
"""Characters of the last refusal in the reason with which an agent ends."""
CUT_OFF = "cut_off"
"""The mark of a call that was cut off: how much of its arguments is left differs each time."""
OUTPUT = "output"
"""The mark of a report whose result is not of the agent's contract."""
REFUSED = "refused"
"""The mark of every other refused call."""


def mark_refused(
    answer: ToolMessage, mark: str = REFUSED, *, is_notice: bool = True
) -> ToolMessage:
    """Return the answer to a call, marked as a refusal, and as a notice if all of it is one."""
    metadata = {**answer.response_metadata, REFUSED_KEY: mark}
    if is_notice:
        metadata.setdefault(NOTICES_KEY, True)
    return answer.model_copy(update={"response_metadata": metadata})


def build_error_update(call: ToolCall, why: str) -> dict[str, Any]:
    """Return the update that answers a call of a built-in tool with an error."""
    answer = ToolMessage(
        f"Error: {why}", tool_call_id=call["id"] or "", name=call["name"], status="error"
    )
    return {"messages": [mark_refused(answer)]}


def find_refusal_halt(messages: Sequence[BaseMessage], limit: int | None) -> Halt | None:
    """Return the order that ends an agent whose call was refused too often in a row.

    Only replies are counted whose calls were all refused, from the last one back to a call that
    was run, or to the task. `limit` is the number of refusals; `None` for no limit.
    """
    replies = list(_iter_refused_replies(messages))
    if limit is None or len(replies) < limit:
        return None
    for call, why in replies[0]:
        count = sum(any(call == other for other, _ in reply) for reply in replies)
        if count >= limit:
            return Halt(
                "refused",
                f"the same call of {shorten_repr(call[0])} was refused {count} times in a row, "
                f"as often as max_refusals allows; the last answer was: {why}",
            )
    return None


def _iter_refused_replies(
    messages: Sequence[BaseMessage],
) -> Iterator[list[tuple[RefusedCall, str]]]:
    """Yield the calls of each reply, latest first, and their answers, while all were refused."""
    answers: dict[str, ToolMessage] = {}
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            answers[message.tool_call_id] = message
            continue
        if not isinstance(message, AIMessage):
            return
        reply: list[tuple[RefusedCall, str]] = []
        calls: list[Mapping[str, Any]] = [*message.tool_calls, *message.invalid_tool_calls]
        for call in calls:
            answer = answers.get(call["id"])
            mark = answer and answer.response_metadata.get(REFUSED_KEY)
            if not (answer and mark):
                return
            args = None if mark == CUT_OFF else call["args"]
            why = " ".join(answer.text.split())
            reply.append(((call["name"], args), why[:MAX_REASON]))
        if not reply:
            return
        yield reply
        answers = {}


FAILURE_MARK = " (failure "
"""What begins the reference of a failure in its text, which is another one each time."""
_UNCOUNTED = frozenset({REFUSED_KEY, USER_ANSWERS_KEY})
"""Marks of results that are not counted: of refused calls, which have a limit of their own, and of
those for which a person was asked."""


@dataclass(frozen=True, slots=True)
class RepeatRules:
    """How often one agent may make the same call with the same result.

    Attributes:
        limit: The number of calls at which the agent ends.
        exempt: Names of the tools whose calls are not counted.
    """

    limit: int
    exempt: Collection[str] = ()

    @property
    def warn_at(self) -> int:
        """The number of calls at which the agent is warned."""
        return max(self.limit // 2, 2)


@dataclass(frozen=True, slots=True)
class RepeatedCall:
    """A call that was repeated with the same result up to a warning, or the end.

    Attributes:
        tool: Name of the tool.
        count: How often the call was made.
        limit: How often it may be made.
        message_id: Id of the last reply that has made it.
    """

    tool: str
    count: int
    limit: int
    message_id: str

    @property
    def halt(self) -> Halt | None:
        """The order that ends the agent, `None` if it is only warned."""
        if self.count < self.limit:
            return None
        return Halt(
            "repeated",
            f"the same call of {self.tool!r} had the same result {self.count} times, as often as "
            "max_repeats allows",
        )

    def build_warning(self, identity: Identity) -> BaseMessage:
        """Return the warning to its agent, as a message for its model."""
        text = (
            f"You have called {self.tool} {self.count} times with the same arguments, and the "
            f"result was the same. At {self.limit} times you are ended. Do something else, or "
            "answer with what you have."
        )
        place = derive_message_id(identity.thread_id, f"repeated/{self.message_id}")
        return build_aside("repeated", text, place)


def find_loop(
    messages: Sequence[BaseMessage], max_refusals: int | None, rules: RepeatRules | None
) -> tuple[Halt | None, RepeatedCall | None]:
    """Return why an agent ends, as it makes the same call again and again.

    The second is the call about which it is warned now, if it does not end.
    """
    halt = None
    # Without a refusal nothing is counted: this comes before every call of the model.
    if messages and REFUSED_KEY in messages[-1].response_metadata:
        halt = find_refusal_halt(messages, max_refusals)
    repeated = find_repeated_call(messages, rules)
    if repeated and not halt:
        halt = repeated.halt
    return halt, repeated


def find_repeated_call(
    messages: Sequence[BaseMessage], rules: RepeatRules | None
) -> RepeatedCall | None:
    """Return the call of the last reply about which its agent is warned now, or ends.

    Args:
        messages: The conversation.
        rules: The limit; `None` for none.
    """
    if rules is None or len(messages) <= rules.warn_at:
        return None
    latest: list[ToolMessage] = []
    place = len(messages)
    # Middleware may add a reply without calls before each call of the model.
    while place and not (type(last := messages[place - 1]) is AIMessage and last.tool_calls):
        place -= 1
        result = messages[place]
        if _begins_request(messages, place):
            return None
        if (
            type(result) is ToolMessage
            and result.name not in rules.exempt
            and _UNCOUNTED.isdisjoint(result.response_metadata)
        ):
            latest.append(result)
    if not latest:
        return None
    start = place
    while start and not _begins_request(messages, start - 1):
        start -= 1
    request, reply = messages[start:], messages[place - 1]
    repeated: RepeatedCall | None = None
    for result in latest:
        same = _list_same_results(request, result)
        if len(same) < rules.warn_at:
            continue
        count, new = _count_calls(request, same, result, place - start)
        is_warned = count - new < rules.warn_at <= count
        if (is_warned or count >= rules.limit) and (repeated is None or count > repeated.count):
            repeated = RepeatedCall(str(result.name), count, rules.limit, reply.id or "")
    return repeated


def _begins_request(messages: Sequence[BaseMessage], place: int) -> bool:
    """Return whether a message is a task: no notice, and none that middleware adds to a step."""
    message = messages[place]
    if type(message) is not HumanMessage or ASIDE_KEY in message.response_metadata:
        return False
    before = messages[place - 1] if place else None
    return type(before) is not ToolMessage and not (type(before) is AIMessage and before.tool_calls)


def _list_same_results(messages: Sequence[BaseMessage], result: ToolMessage) -> list[BaseMessage]:
    """Return the results of a tool that are the same, but for the reference of a failure."""
    name, content = result.name, result.content
    if result.status != "error" or not isinstance(content, str):
        return [
            message
            for message in messages
            if type(message) is ToolMessage and message.content == content and message.name == name
        ]
    stem, failed, _ = content.partition(FAILURE_MARK)
    stem += failed
    return [
        message
        for message in messages
        if type(message) is ToolMessage
        and message.name == name
        and message.status == "error"
        and type(message.content) is str
        and (message.content.startswith(stem) if failed else message.content == stem)
    ]


def _count_calls(
    messages: Sequence[BaseMessage],
    results: Sequence[BaseMessage],
    result: ToolMessage,
    first: int,
) -> tuple[int, int]:
    """Return how many of some results are of the same call as one of them.

    The second number is how many of these stand at `first` or later.
    """
    wanted = set(map(id, results))
    # Some models give the same id to calls of several replies: the latest reply counts.
    calls: dict[str | None, Mapping[str, Any]] = {}
    placed: list[tuple[int, Mapping[str, Any] | None]] = []
    counted: Mapping[str, Any] | None = None
    for place, message in enumerate(messages):
        if type(message) is AIMessage:
            for call in message.tool_calls:
                calls[call["id"]] = call["args"]
        elif id(message) in wanted and type(message) is ToolMessage:
            arguments = calls.get(message.tool_call_id)
            placed.append((place, arguments))
            if message is result:
                counted = arguments
    if counted is None:
        return 0, 0
    places = [place for place, arguments in placed if arguments == counted]
    return len(places), sum(place >= first for place in places)


def find_answered(
    task: SubordinateCall, messages: Sequence[BaseMessage], thread: str
) -> dict[NamesBelow, Status]:
    """Return the paths of the agents that have answered a task in this turn, with their status.

    Only answers count since which nothing but this task was worked on: no tool was called and
    no other task delegated in a later message. Refused calls are no work.

    `fulfilled` is an answer, and so is an `unable` that the agent reported itself. Agents that
    did a part, asked a question or failed may be asked again. The task is compared word for word,
    with its context.

    Raises:
        UnreadableRecord: A stored request or its answer is damaged.
    """
    statuses: dict[NamesBelow, Status] = {}
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
                    statuses.setdefault(response.path.parts[1:], response.status)
            if _has_other_work(task, message, answers):
                break
            answers = {}
    return statuses


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
        request.message != task.message or request.context != task.context
        for request, _ in iterate_requests(message, run)
    )


def _iter_responses(
    task: SubordinateCall, message: AIMessage, answers: Mapping[str, ToolMessage], thread: str
) -> Iterator[DelegationResponse]:
    """Yield the responses to a message's requests for a task, each followed by its attempts."""
    calls = [call for call in message.tool_calls if call["name"] in DELEGATING_TOOLS]
    for sent, parted in iterate_requests(message, calls):
        answer = answers.get(parted.call_id if parted else sent.call_id)
        if sent.message != task.message or sent.context != task.context:
            continue
        if answer and answer.artifact is not None:
            request = derive_request_id(thread, message.id or "", sent.call_id)
            whole = DelegationResponse.load(answer.artifact)
            for joined in [whole] if parted is None else whole.subordinate_responses:
                if joined.request_id == request:
                    yield joined
                    yield from (
                        response
                        for response in joined.subordinate_responses
                        if response.request_id == request
                    )
