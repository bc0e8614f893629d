"""Counts calls that are made again and again with the same result, and ends their agent. Pure.

The calls are counted in the stored conversation of a request, so that a resume, another process and
a fork count the same. It is looked at before each call of a model, so nothing is called for each
message.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from echelons.guards.gate import Halt
from echelons.identity.lineage import (
    MAIL_KEY,
    REFUSED_KEY,
    USER_ANSWERS_KEY,
    Identity,
    derive_message_id,
)
from echelons.messaging.mail import LIMITS, Mail, render_mail
from echelons.nodes.planning.refused_calls import find_refusal_halt

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
        return HumanMessage(
            render_mail(LIMITS, text, "repeated"),
            id=derive_message_id(identity.thread_id, f"repeated/{self.message_id}"),
            response_metadata={MAIL_KEY: Mail(0, LIMITS, "", "", "repeated").to_metadata()},
        )


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
    found: RepeatedCall | None = None
    for result in latest:
        same = _list_same_results(request, result)
        if len(same) < rules.warn_at:
            continue
        count, new = _count_calls(request, same, result, place - start)
        is_told = count - new < rules.warn_at <= count
        if (is_told or count >= rules.limit) and (found is None or count > found.count):
            found = RepeatedCall(str(result.name), count, rules.limit, reply.id or "")
    return found


def _begins_request(messages: Sequence[BaseMessage], place: int) -> bool:
    """Return whether a message is a task: no notice, and none that middleware adds to a step."""
    message = messages[place]
    if type(message) is not HumanMessage or MAIL_KEY in message.response_metadata:
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
    found: list[tuple[int, Mapping[str, Any] | None]] = []
    own: Mapping[str, Any] | None = None
    for place, message in enumerate(messages):
        if type(message) is AIMessage:
            for call in message.tool_calls:
                calls[call["id"]] = call["args"]
        elif id(message) in wanted and type(message) is ToolMessage:
            arguments = calls.get(message.tool_call_id)
            found.append((place, arguments))
            if message is result:
                own = arguments
    if own is None:
        return 0, 0
    places = [place for place, arguments in found if arguments == own]
    return len(places), sum(place >= first for place in places)
