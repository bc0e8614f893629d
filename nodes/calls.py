"""The calls in a model's message: numbered, sorted by who does them, answered at once if wrong.

Pure. ``reason`` calls ``sort`` on each reply; what comes out is the whole of what the
level does next.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

from langchain_core.messages import AIMessage, BaseMessage, ToolCall, ToolMessage
from pydantic import BaseModel, ValidationError

from echelons.names import CALL_SUBORDINATE, REPORT
from echelons.nodes.tools import CallSubordinate, Report

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Delegation:
    """A valid call of a subordinate.

    Attributes:
        call_id: The call.
        subordinate: Whom it names; empty if it names nobody, and the task is to be routed.
        message: The task.
        reset: Whether it begins a conversation anew.
    """

    call_id: str
    subordinate: str
    message: str
    reset: bool


@dataclass(frozen=True, slots=True)
class Sorted:
    """What a reply asks for.

    Attributes:
        delegations: Calls of subordinates, in order.
        answers: Tool messages for calls that are answered already: reports and mistakes.
        report: The report, if there is a valid one.
    """

    delegations: tuple[Delegation, ...] = ()
    answers: tuple[ToolMessage, ...] = ()
    report: Report | None = None


@dataclass(frozen=True, slots=True)
class Abilities:
    """What an agent may call.

    Attributes:
        tools: Names of its own tools.
        subordinates: Names of its direct subordinates.
        reports: Whether it has a superior agent to report to.
        width: Calls that it may make side by side in one message; ``None`` for any number.
    """

    tools: Collection[str] = ()
    subordinates: Sequence[str] = ()
    reports: bool = False
    width: int | None = None

    @property
    def callable(self) -> tuple[str, ...]:
        """Names of all tools that the model was shown."""
        built_in = [CALL_SUBORDINATE] * bool(self.subordinates) + [REPORT] * self.reports
        return (*self.tools, *built_in)


def number(message: AIMessage) -> AIMessage:
    """Return the message with ids on all calls, none of them twice.

    Some models leave ids out or repeat them; every answer needs one of its own.
    """
    every = (*message.tool_calls, *message.invalid_tool_calls)
    given = {call["id"] for call in every}
    used: set[str] = set()

    def unique(call: Mapping[str, Any]) -> dict[str, Any]:
        own = call.get("id") or ""
        stem, first = (own, 2) if own else ("call", 1)
        # An id made here must not be one that another call has brought.
        made = (each for n in count(first) if (each := f"{stem}-{n}") not in used | given)
        fresh = own if own and own not in used else next(made)
        used.add(fresh)
        return {**call, "id": fresh}

    calls = [unique(call) for call in message.tool_calls]
    broken = [unique(call) for call in message.invalid_tool_calls]
    if used == given:
        return message
    return message.model_copy(update={"tool_calls": calls, "invalid_tool_calls": broken})


def sort(message: AIMessage, abilities: Abilities) -> Sorted:
    """Sort the calls of a numbered message."""
    out = _Sorting(abilities)
    for call in message.tool_calls:
        out.take(call)
    for broken in message.invalid_tool_calls:
        why = broken.get("error") or "the arguments are no valid JSON object"
        out.refuse(broken.get("id") or "", broken.get("name") or "unknown", why)
    return Sorted(tuple(out.delegations), tuple(out.answers), out.report)


def unanswered(messages: Sequence[BaseMessage]) -> tuple[AIMessage | None, list[ToolCall]]:
    """Return the last model message and those of its calls that have no answer yet."""
    answered: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
        elif isinstance(message, AIMessage):
            return message, [call for call in message.tool_calls if call["id"] not in answered]
    return None, []


def close(messages: Iterable[BaseMessage]) -> list[BaseMessage]:
    """Return a conversation in which every call is answered.

    A segment that was cut short may end with open calls; providers refuse such a history,
    so each gets the answer that it was not run.
    """
    closed: list[BaseMessage] = []
    pending: dict[str, ToolCall] = {}

    def flush() -> None:
        closed.extend(
            ToolMessage("not run", tool_call_id=call_id, name=call["name"], status="error")
            for call_id, call in pending.items()
        )
        pending.clear()

    for message in messages:
        if isinstance(message, ToolMessage):
            pending.pop(message.tool_call_id, None)
        elif pending:
            flush()
        closed.append(message)
        if isinstance(message, AIMessage) and message.tool_calls:
            pending.update({call["id"] or "": call for call in message.tool_calls})
    flush()
    return closed


@dataclass
class _Sorting:
    abilities: Abilities
    delegations: list[Delegation] = field(default_factory=list)
    answers: list[ToolMessage] = field(default_factory=list)
    report: Report | None = None
    begun: int = 0

    def take(self, call: ToolCall) -> None:
        name, call_id = call["name"], call["id"] or ""
        works = name in self.abilities.tools or name == CALL_SUBORDINATE
        if works and self.begun == self.abilities.width:
            side_by_side = f"limit: {self.begun} of {self.begun} calls side by side in one message"
            self.refuse(call_id, name, f"{side_by_side}; make the others in a later one")
        elif name == CALL_SUBORDINATE and self.abilities.subordinates:
            self._delegate(call_id, call["args"])
        elif name == REPORT and self.abilities.reports:
            self._report(call_id, call["args"])
        elif name not in self.abilities.tools:
            known = ", ".join(self.abilities.callable) or "none"
            self.refuse(call_id, name, f"there is no such tool; the tools are: {known}")
        else:
            self.begun += 1

    def refuse(self, call_id: str, name: str, why: str) -> None:
        self.answers.append(
            ToolMessage(f"Error: {why}", tool_call_id=call_id, name=name, status="error")
        )

    def _delegate(self, call_id: str, args: Mapping[str, Any]) -> None:
        choices = self.abilities.subordinates
        wanted = _validated(CallSubordinate, args)
        if isinstance(wanted, str):
            self.refuse(call_id, CALL_SUBORDINATE, wanted)
            return
        name = wanted.subordinate or (choices[0] if len(choices) == 1 else "")
        if name and name not in choices:
            why = f"no subordinate is called {name!r}; name one of: {', '.join(choices)}"
            self.refuse(call_id, CALL_SUBORDINATE, why)
            return
        self.begun += 1
        self.delegations.append(Delegation(call_id, name, wanted.message, wanted.reset))

    def _report(self, call_id: str, args: Mapping[str, Any]) -> None:
        report = _validated(Report, args)
        if isinstance(report, str):
            self.refuse(call_id, REPORT, report)
        elif self.report is not None:
            self.refuse(call_id, REPORT, "reported already in this message")
        else:
            self.report = report
            self.answers.append(ToolMessage("reported", tool_call_id=call_id, name=REPORT))


def _validated(model: type[M], args: Mapping[str, Any]) -> M | str:
    try:
        return model.model_validate(args)
    except ValidationError as error:
        return "; ".join(
            f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}"
            for each in error.errors(include_url=False, include_context=False)
        )
