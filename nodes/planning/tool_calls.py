"""Parses the calls of a model's reply: ids, validation, and answers to invalid calls.

Pure. `reason` parses each reply with it; the result is all that the level does next.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from sys import maxsize
from typing import Any, TypeVar

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
)
from pydantic import BaseModel, ValidationError

from echelons.delegation.calls import FanOutCall, SubordinateCall, build_part_id
from echelons.delegation.join_policies import parse_join
from echelons.errors import DelegationError, InvalidJoin, TooWide
from echelons.nodes.messages import find_cut_off
from echelons.nodes.planning.refused_calls import CUT_OFF, REFUSED, mark_refused
from echelons.nodes.planning.tool_schemas import CallSubordinateArgs, DelegateManyArgs, ReportArgs
from echelons.tree.names import CALL_SUBORDINATE, DELEGATE_MANY, REPORT

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """The parsed calls of a reply.

    Attributes:
        requests: The delegations, in order: calls with one request, and calls with several.
        answers: Tool messages for calls that are answered at once: reports and errors.
        report: The report, if there is a valid one.
        refused: Delegations that are not sent, each with the reason.
        remaining_width: How many more calls may run in parallel with these.
    """

    requests: tuple[SubordinateCall | FanOutCall, ...] = ()
    answers: tuple[ToolMessage, ...] = ()
    report: ReportArgs | None = None
    refused: tuple[tuple[SubordinateCall, DelegationError], ...] = ()
    remaining_width: int = maxsize


@dataclass(frozen=True, slots=True)
class CallableTools:
    """The tools and subordinates that an agent may call.

    Attributes:
        tools: Names of its own tools.
        subordinates: Names of its direct subordinates.
        can_report: Whether it has a superior agent to report to.
        width: Most parallel calls in one message; `None` for no limit.
        has_deeper_levels: Whether a subordinate has subordinates of its own.
    """

    tools: Collection[str] = ()
    subordinates: Sequence[str] = ()
    can_report: bool = False
    width: int | None = None
    has_deeper_levels: bool = False

    @property
    def only_subordinate(self) -> str:
        """Name of the only subordinate; empty if there is none, or several."""
        return self.subordinates[0] if len(self.subordinates) == 1 else ""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all tools that are bound to the model."""
        delegating = (CALL_SUBORDINATE, DELEGATE_MANY)[: len(self.subordinates)]
        return (*self.tools, *delegating, *[REPORT] * self.can_report)


def assign_call_ids(message: AIMessage) -> AIMessage:
    """Return the message with a unique id on every call.

    Some models leave ids out or repeat them; every answer needs the id of one call.
    """
    every = (*message.tool_calls, *message.invalid_tool_calls)
    given = {call["id"] for call in every}
    used: set[str] = set()

    def assign_id(call: Mapping[str, Any]) -> dict[str, Any]:
        own = call.get("id") or ""
        stem, first = (own, 2) if own else ("call", 1)
        # A generated id must not be the id of another call.
        made = (each for n in count(first) if (each := f"{stem}-{n}") not in used | given)
        fresh = own if own and own not in used else next(made)
        used.add(fresh)
        return {**call, "id": fresh}

    calls = [assign_id(call) for call in message.tool_calls]
    broken = [assign_id(call) for call in message.invalid_tool_calls]
    if used == given:
        return message
    return message.model_copy(update={"tool_calls": calls, "invalid_tool_calls": broken})


def parse_calls(message: AIMessage, callable_tools: CallableTools) -> ParsedReply:
    """Return the parsed calls of a message whose calls all have unique ids.

    Of a reply that was cut off, no call is accepted: any may have lost a part of its arguments.
    """
    width = callable_tools.width
    out = _CallParser(callable_tools, maxsize if width is None else width)
    calls = (*message.tool_calls, *message.invalid_tool_calls)
    if calls and (cut_off := find_cut_off(message)):
        why = (
            f"your reply was cut off ({cut_off}), so none of its calls has been run; make them "
            "again, with shorter arguments or fewer in one message"
        )
        for each in calls:
            out.add_error(each["id"] or "", each["name"] or "unknown", why, CUT_OFF)
        return ParsedReply(answers=tuple(out.answers), remaining_width=out.remaining_width)
    for call in message.tool_calls:
        out.add_call(call)
    for broken in message.invalid_tool_calls:
        why = broken.get("error") or "the arguments are no valid JSON object"
        out.add_error(broken.get("id") or "", broken.get("name") or "unknown", why)
    return ParsedReply(
        tuple(out.requests), tuple(out.answers), out.report, tuple(out.refused), out.remaining_width
    )


def find_unanswered(messages: Sequence[BaseMessage]) -> tuple[AIMessage | None, list[ToolCall]]:
    """Return the last model message and its calls that have no answer yet."""
    answered: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
        elif isinstance(message, AIMessage):
            return message, [call for call in message.tool_calls if call["id"] not in answered]
    return None, []


def answer_open_calls(messages: Iterable[BaseMessage]) -> list[BaseMessage]:
    """Return a conversation in which every call has an answer.

    An interrupted segment may end with open calls; providers reject such a history, so each
    open call is answered with `not run`.
    """
    given: list[Any] = [*messages]
    pending: Sequence[ToolCall] = ()
    open_calls: list[tuple[int, Sequence[ToolCall]]] = []
    # A thread may have thousands of messages, so nothing is called for an ordinary one.
    for place, message in enumerate(given):
        kind = type(message)
        if kind is ToolMessage or (kind not in _OTHER_KINDS and isinstance(message, ToolMessage)):
            answered = message.tool_call_id
            if pending and pending[0]["id"] == answered and not pending[1:]:
                pending = ()
            elif pending:
                pending = [call for call in pending if (call["id"] or "") != answered]
            continue
        if pending:
            open_calls.append((place, pending))
            pending = ()
        if kind is AIMessage or (kind not in _OTHER_KINDS and isinstance(message, AIMessage)):
            pending = message.tool_calls
    if pending:
        open_calls.append((len(given), pending))
    for place, calls in reversed(open_calls):
        named = {call["id"] or "": call["name"] for call in calls}
        given[place:place] = [
            ToolMessage("not run", tool_call_id=call_id, name=name, status="error")
            for call_id, name in named.items()
        ]
    return given


_OTHER_KINDS = frozenset({AIMessage, HumanMessage, SystemMessage})
"""Kinds of messages of which none is a tool message; any other kind may be a subclass."""


@dataclass
class _CallParser:
    callable_tools: CallableTools
    remaining_width: int
    requests: list[SubordinateCall | FanOutCall] = field(default_factory=list)
    answers: list[ToolMessage] = field(default_factory=list)
    report: ReportArgs | None = None
    refused: list[tuple[SubordinateCall, DelegationError]] = field(default_factory=list)

    def add_call(self, call: ToolCall) -> None:
        name, call_id = call["name"], call["id"] or ""
        if name == CALL_SUBORDINATE and self.callable_tools.subordinates:
            self._add_delegation(call_id, call["args"])
        elif name == DELEGATE_MANY and len(self.callable_tools.subordinates) > 1:
            self._add_fan_out(call_id, call["args"])
        elif name == REPORT and self.callable_tools.can_report:
            self._add_report(call_id, call["args"])
        elif name in self.callable_tools.tools:
            if too_wide := self._reserve_width(1):
                self.add_error(call_id, name, too_wide.reason)
        else:
            known = ", ".join(self.callable_tools.names) or "none"
            self.add_error(call_id, name, f"there is no such tool; the tools are: {known}")

    def add_error(self, call_id: str, name: str, why: str, mark: str = REFUSED) -> None:
        answer = ToolMessage(f"Error: {why}", tool_call_id=call_id, name=name, status="error")
        self.answers.append(mark_refused(answer, mark))

    def _reserve_width(self, wanted: int) -> TooWide | None:
        """Reserve room for parallel calls; return the error if there is not enough."""
        if wanted > self.remaining_width:
            width = self.callable_tools.width or 0
            return TooWide(wanted, width - self.remaining_width, width)
        self.remaining_width -= wanted
        return None

    def _add_delegation(self, call_id: str, args: Mapping[str, Any]) -> None:
        wanted = _validate_args(CallSubordinateArgs, args)
        why = wanted if isinstance(wanted, str) else self._check_subordinate(wanted)
        if isinstance(wanted, str) or why:
            self.add_error(call_id, CALL_SUBORDINATE, why)
            return
        request = self._build_subordinate_call(call_id, wanted)
        if too_wide := self._reserve_width(1):
            self.refused.append((request, too_wide))
        else:
            self.requests.append(request)

    def _add_fan_out(self, call_id: str, args: Mapping[str, Any]) -> None:
        wanted = _validate_args(DelegateManyArgs, args)
        if isinstance(wanted, str):
            self.add_error(call_id, DELEGATE_MANY, wanted)
            return
        try:
            join = parse_join(wanted.join, wanted.n, len(wanted.requests))
        except InvalidJoin as error:
            self.add_error(call_id, DELEGATE_MANY, str(error))
            return
        if wrong := next(filter(None, map(self._check_subordinate, wanted.requests)), ""):
            self.add_error(call_id, DELEGATE_MANY, wrong)
        elif too_wide := self._reserve_width(len(wanted.requests)):
            self.refused.append((SubordinateCall(call_id, "", "", reset=False), too_wide))
        else:
            parts = (
                self._build_subordinate_call(build_part_id(call_id, n), each, n)
                for n, each in enumerate(wanted.requests, start=1)
            )
            self.requests.append(FanOutCall(call_id, join, tuple(parts)))

    def _check_subordinate(self, wanted: CallSubordinateArgs) -> str:
        """Return the error text for an unknown subordinate; empty if the name is valid."""
        name, choices = wanted.subordinate, self.callable_tools.subordinates
        if not name or name in choices:
            return ""
        return f"no subordinate is called {name!r}; name one of: {', '.join(choices)}"

    def _build_subordinate_call(
        self, call_id: str, wanted: CallSubordinateArgs, group: int = 1
    ) -> SubordinateCall:
        # With only one possible target, no routing is needed.
        name = wanted.subordinate or (
            "" if self.callable_tools.has_deeper_levels else self.callable_tools.only_subordinate
        )
        given = wanted.context or {}
        return SubordinateCall(call_id, name, wanted.message, wanted.reset, group, given)

    def _add_report(self, call_id: str, args: Mapping[str, Any]) -> None:
        report = _validate_args(ReportArgs, args)
        if isinstance(report, str):
            self.add_error(call_id, REPORT, report)
        elif self.report is not None:
            self.add_error(call_id, REPORT, "reported already in this message")
        else:
            self.report = report
            self.answers.append(ToolMessage("reported", tool_call_id=call_id, name=REPORT))


def _validate_args(model: type[M], args: Mapping[str, Any]) -> M | str:
    try:
        return model.model_validate(args)
    except ValidationError as error:
        return "; ".join(
            f"{'.'.join(str(part) for part in each['loc'])}: "
            f"{each['msg'].removeprefix('Value error, ')}"
            for each in error.errors(include_url=False, include_context=False)
        )
