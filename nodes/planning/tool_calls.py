"""Parses the calls of a model's reply: ids, validation, and answers to invalid calls.

Pure. `reason` parses each reply with it; the result is all that the level does next.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from sys import maxsize
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
)
from pydantic import BaseModel

from echelons.delegation.calls import (
    FanOutCall,
    MendedCall,
    SubordinateCall,
    build_part_id,
    build_typed_call,
)
from echelons.delegation.contract import Contract
from echelons.delegation.join_policies import parse_join
from echelons.delegation.request import Status
from echelons.errors import DelegationError, InvalidInput, SpawnRefused, too_wide
from echelons.identity.lineage import NOTICES_KEY, PAGE_KEY
from echelons.identity.thread_history import Head
from echelons.messaging.agent_question import AgentQuestion, build_question_id
from echelons.models.reply_end import read_reply_end
from echelons.nodes.model_call.long_results import ResultPage
from echelons.nodes.planning.final_answer import build_report_answer
from echelons.nodes.planning.outgoing_mail import SUPERIOR, MessageCall
from echelons.nodes.planning.refused_calls import CUT_OFF, OUTPUT, REFUSED, mark_refused
from echelons.nodes.planning.spawn_plan import SpawnPlan
from echelons.nodes.planning.tolerant_arguments import (
    ToolArguments,
    mend_call,
    mend_names,
    validate_arguments,
)
from echelons.nodes.planning.tool_schemas import (
    MAX_SHOWN_SIBLINGS,
    AskArgs,
    AskLaterArgs,
    AskSuperiorArgs,
    AskUserArgs,
    CallSubordinateArgs,
    DelegateManyArgs,
    DismissSubordinateArgs,
    ReadResultArgs,
    ReportArgs,
    SendMessageArgs,
    SpawnSubordinateArgs,
)
from echelons.tree.names import (
    ASK,
    ASK_LATER,
    ASK_SUPERIOR,
    ASK_USER,
    CALL_SUBORDINATE,
    DELEGATE_MANY,
    DISMISS_SUBORDINATE,
    EARLIER_TOOLS,
    PATH_SEPARATOR,
    PIN,
    READ_RESULT,
    REPORT,
    SEND_MESSAGE,
    SPAWN_SUBORDINATE,
)

M = TypeVar("M", bound=BaseModel)
_SILENT_TOOLS = frozenset({PIN, "note_write", "note_read", "note_list"})
"""Tools whose results a report need not wait for, beside messages to others."""
NO_HEADS: Mapping[str, Head] = MappingProxyType({})
FindSiblings: TypeAlias = Callable[[], Collection[str]]
"""Returns the names of the agents beside one that were made at run time."""
ReadResult: TypeAlias = Callable[[str, int], ResultPage]
"""Returns the text of a long result, by its id, from a place on; raises `LookupError`."""


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """The parsed calls of a reply.

    Attributes:
        requests: The delegations, in order: calls with one request, and calls with several.
        answers: Tool messages for calls that are answered at once: reports and errors.
        report: The report, if there is a valid one.
        questions: The questions to a superior agent, with which the segment ends.
        messages: The messages to its superior and its siblings.
        waits: How long questions to the user may wait, in seconds, by call id.
        refused: Delegations that are not sent, each with the reason.
        remaining_width: How many more calls may run in parallel with these.
        output_fault: Why the result of a report is not of the agent's contract; empty if it is.
        mended: The arguments that are meant by calls that say them otherwise, by call id.
        has_asked: Whether it has calls of the library's `ask`.
    """

    requests: tuple[SubordinateCall | FanOutCall, ...] = ()
    answers: tuple[ToolMessage, ...] = ()
    report: ReportArgs | None = None
    refused: tuple[tuple[SubordinateCall, DelegationError], ...] = ()
    remaining_width: int = maxsize
    questions: tuple[AgentQuestion, ...] = ()
    messages: tuple[MessageCall, ...] = ()
    waits: Mapping[str, float] = field(default_factory=dict)
    output_fault: str = ""
    mended: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    has_asked: bool = False


@dataclass(frozen=True, slots=True)
class CallableTools:
    """The tools and subordinates that an agent may call.

    Attributes:
        tools: Names of its own tools.
        subordinates: Names of its direct subordinates.
        can_report: Whether it has a superior agent to report to.
        can_ask: Whether it may ask its superior, and send messages; `act` asks a superior that is
            no agent.
        can_contact_user: Whether it may ask the user past its superior.
        can_ask_later: Whether it may ask the user without waiting for the answer.
        width: Most parallel calls in one message; `None` for no limit.
        has_deeper_levels: Whether a subordinate has subordinates of its own.
        built_in: Names of the built-in tools that its model is shown.
        name: Its own name.
        siblings: Names of the agents with the same superior, its own included.
        may_spawn: Whether it may make subordinates at run time.
        inputs: The contracts of the subordinates that have an input, by name.
        output: The agent's own contract, if it has an output.
        arguments: What is known of the arguments of its own tools, by name.
        is_person: Returns whether a person works on the tasks for a subordinate and a target
            below it, given as a path.
    """

    tools: Collection[str] = ()
    subordinates: Sequence[str] = ()
    can_report: bool = False
    width: int | None = None
    has_deeper_levels: bool = False
    can_ask: bool = False
    built_in: Sequence[str] = ()
    name: str = ""
    siblings: Sequence[str] = ()
    can_contact_user: bool = False
    can_ask_later: bool = False
    may_spawn: bool = False
    inputs: Mapping[str, Contract] = field(default_factory=dict)
    output: Contract | None = None
    arguments: Mapping[str, ToolArguments] = field(default_factory=dict)
    is_person: Callable[[str, str], bool] = lambda *_: False

    @property
    def only_subordinate(self) -> str:
        """Name of the only subordinate; empty if there is none, or several."""
        return self.subordinates[0] if len(self.subordinates) == 1 else ""

    @property
    def has_own_ask(self) -> bool:
        """Whether a tool or a subordinate of the agent's own is called `ask`."""
        return ASK in self.tools or ASK in self.inputs

    def has_sibling(self, name: str) -> bool:
        """Return whether another agent of a name has the same superior."""
        return name != self.name and name in self.siblings

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all tools that are bound to the model."""
        return (*self.tools, *self.inputs, *self.built_in)


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


def parse_calls(
    message: AIMessage,
    callable_tools: CallableTools,
    heads: Mapping[str, Head] = NO_HEADS,
    spawns: SpawnPlan | None = None,
    find_beside: FindSiblings = frozenset,
    read_result: ReadResult | None = None,
) -> ParsedReply:
    """Return the parsed calls of a message whose calls all have unique ids.

    Of a reply that was cut off, no call is accepted: any may have lost a part of its arguments.
    `heads` are the threads of the subordinates, whose questions a call may answer; `spawns` has
    those that were made at run time, and takes those that the message makes. `find_beside`
    returns the agents beside this one that were made so, and `read_result` a part of a result.
    """
    width = callable_tools.width
    most = maxsize if width is None else width
    out = _CallParser(callable_tools, most, heads, message.id or "", spawns, find_beside)
    out.read_result = read_result
    calls = (*message.tool_calls, *message.invalid_tool_calls)
    if calls and (end := read_reply_end(message)).kind in ("length", "filtered", "refused"):
        why = (
            f"your reply was cut off ({end.why}), so none of its calls has been run; make them "
            "again, with shorter arguments or fewer in one message"
        )
        for each in calls:
            out.add_error(each["id"] or "", each["name"] or "unknown", why, CUT_OFF)
        return ParsedReply(answers=tuple(out.answers), remaining_width=out.remaining_width)
    for call in message.tool_calls:
        out.add_call(out.mend(call))
    out.refuse_busy()
    for broken in message.invalid_tool_calls:
        why = broken.get("error") or "the arguments are no valid JSON object"
        out.add_error(broken.get("id") or "", broken.get("name") or "unknown", why)
    out.settle_reports(str(message.text))
    return ParsedReply(
        tuple(out.requests),
        tuple(out.answers),
        out.report,
        tuple(out.refused),
        out.remaining_width,
        tuple(out.questions),
        tuple(out.messages),
        out.waits,
        out.output_fault,
        out.mended,
        out.has_asked,
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
    # A thread may have thousands of messages, so nothing is called for an ordinary one.
    kinds: list[type[Any]] = [*map(type, given)]
    if not _ORDINARY_KINDS.issuperset(kinds):
        kinds = [_find_base_kind(each) for each in kinds]
    callers = [n for n, kind in enumerate(kinds) if kind is AIMessage and given[n].tool_calls]
    kinds.append(BaseMessage)  # the end answers nothing
    open_calls: list[tuple[int, Sequence[ToolCall]]] = []
    for place in callers:
        pending: Sequence[ToolCall] = given[place].tool_calls
        after = place + 1
        while kinds[after] is ToolMessage and pending:
            answered = given[after].tool_call_id
            if pending[0]["id"] == answered and not pending[1:]:
                pending = ()
            else:
                pending = [call for call in pending if (call["id"] or "") != answered]
            after += 1
        if pending:
            open_calls.append((after, pending))
    for place, calls in reversed(open_calls):
        named = {call["id"] or "": call["name"] for call in calls}
        given[place:place] = [
            ToolMessage("not run", tool_call_id=call_id, name=name, status="error")
            for call_id, name in named.items()
        ]
    return given


_ORDINARY_KINDS = frozenset({AIMessage, HumanMessage, SystemMessage, ToolMessage})
"""The usual kinds of messages; any other may be a subclass of one."""


def _find_base_kind(kind: type[Any]) -> type[Any]:
    return next((each for each in (ToolMessage, AIMessage) if issubclass(kind, each)), kind)


@dataclass
class _CallParser:
    callable_tools: CallableTools
    remaining_width: int
    heads: Mapping[str, Head]
    message_id: str = ""
    spawns: SpawnPlan | None = None
    find_beside: FindSiblings = frozenset
    read_result: ReadResult | None = None
    requests: list[SubordinateCall | FanOutCall] = field(default_factory=list)
    answers: list[ToolMessage] = field(default_factory=list)
    report: ReportArgs | None = None
    refused: list[tuple[SubordinateCall, DelegationError]] = field(default_factory=list)
    questions: list[AgentQuestion] = field(default_factory=list)
    messages: list[MessageCall] = field(default_factory=list)
    waits: dict[str, float] = field(default_factory=dict)
    output_fault: str = ""
    dismissals: dict[str, str] = field(default_factory=dict)
    reports: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    tool_calls: list[str] = field(default_factory=list)
    has_waiting_report: bool = False
    asks: bool = False
    mended: dict[str, dict[str, Any]] = field(default_factory=dict)
    has_asked: bool = False

    def mend(self, call: ToolCall) -> ToolCall:
        """Return a call with the arguments that are meant."""
        able = self.callable_tools
        mended = mend_call(call, able.inputs, able.arguments)
        if mended is not None:
            call = MendedCall.build(call, mended)
        mended = mend_names(call, *self._list_names(call["name"])) or mended
        if mended is None:
            return call
        self.mended[call["id"] or ""] = mended
        return MendedCall.build(call, mended)

    def _list_names(self, tool: str) -> tuple[Collection[str], FindSiblings]:
        """Return the names of the agents that a call may name, and what finds those made since."""
        able = self.callable_tools
        if tool == SEND_MESSAGE:
            return (*able.siblings, SUPERIOR), self.find_beside
        return able.subordinates, lambda: self.spawns.living if self.spawns else ()

    def add_call(self, call: ToolCall) -> None:
        name, call_id = call["name"], call["id"] or ""
        able = self.callable_tools
        if name == CALL_SUBORDINATE and (able.subordinates or able.may_spawn):
            self._add_delegation(call_id, call["args"])
        elif name == DELEGATE_MANY and (len(able.subordinates) > 1 or able.may_spawn):
            self._add_fan_out(call_id, call["args"])
        elif name in (SPAWN_SUBORDINATE, DISMISS_SUBORDINATE) and able.may_spawn:
            add = self._add_spawning if name == SPAWN_SUBORDINATE else self._add_dismissal
            add(call_id, call["args"])
        elif name == REPORT and self.callable_tools.can_report:
            self.reports.append((call_id, call["args"]))
        elif name == SEND_MESSAGE and self.callable_tools.can_ask:
            self._add_message(call_id, call["args"])
        elif name in (ASK, *EARLIER_TOOLS) and self._add_any_question(name, call_id, call["args"]):
            pass
        elif name in self.callable_tools.inputs:
            self._add_typed_call(call_id, name, call["args"])
        else:
            self._add_tool_call(call_id, name, call["args"])

    def _add_tool_call(self, call_id: str, name: str, args: Mapping[str, Any]) -> None:
        if name == READ_RESULT and self.read_result:
            self._add_reading(call_id, args, self.read_result)
        elif name not in self.callable_tools.tools:
            known = ", ".join(self.callable_tools.names) or "none"
            self.add_error(call_id, name, f"there is no such tool; the tools are: {known}")
        elif refusal := self._reserve_width(1):
            self.add_error(call_id, name, refusal.reason)
        elif name not in _SILENT_TOOLS:
            self.tool_calls.append(name)

    def add_error(self, call_id: str, name: str, why: str, mark: str = REFUSED) -> None:
        answer = ToolMessage(f"Error: {why}", tool_call_id=call_id, name=name, status="error")
        self.answers.append(mark_refused(answer, mark))

    def _reserve_width(self, wanted: int) -> DelegationError | None:
        """Reserve room for parallel calls; return the error if there is not enough."""
        if wanted > self.remaining_width:
            width = self.callable_tools.width or 0
            return too_wide(wanted, width - self.remaining_width, width)
        self.remaining_width -= wanted
        return None

    def _add_delegation(self, call_id: str, args: Mapping[str, Any]) -> None:
        wanted = validate_arguments(CallSubordinateArgs, args)
        if not isinstance(wanted, str) and wanted.profile and not wanted.subordinate:
            given = {"role": wanted.profile, "message": wanted.message, "profile": wanted.profile}
            more = {"kind": "mortal", "budget": wanted.budget}
            made = validate_arguments(SpawnSubordinateArgs, {**given, **more})
            self._add_spawned(call_id, CALL_SUBORDINATE, made)
            return
        why = wanted if isinstance(wanted, str) else self._check_subordinate(wanted)
        if isinstance(wanted, str) or why:
            self.add_error(call_id, CALL_SUBORDINATE, why)
            return
        request = self._build_subordinate_call(call_id, wanted)
        if refusal := self._reserve_width(1):
            self.refused.append((request, refusal))
        else:
            self.requests.append(request)

    def _add_spawning(self, call_id: str, args: Mapping[str, Any]) -> None:
        wanted = validate_arguments(SpawnSubordinateArgs, args)
        self._add_spawned(call_id, SPAWN_SUBORDINATE, wanted)

    def _add_spawned(self, call_id: str, tool: str, wanted: SpawnSubordinateArgs | str) -> None:
        """Add the request with which a new subordinate begins."""
        if isinstance(wanted, str):
            self.add_error(call_id, tool, wanted)
            return
        if self.spawns is None:
            self.add_error(call_id, tool, "profile: you may spawn no subordinates; leave it out")
            return
        request = SubordinateCall(call_id, "", wanted.message, reset=True, tool=tool, is_new=True)
        if refusal := self._reserve_width(1):
            self.refused.append((request, refusal))
            return
        try:
            spec = self.spawns.spawn(call_id, self.message_id, wanted)
        except SpawnRefused as error:
            self.remaining_width += 1
            self.add_error(call_id, tool, str(error))
        else:
            self.requests.append(replace(request, subordinate=spec.name, budget=wanted.budget))

    def _add_dismissal(self, call_id: str, args: Mapping[str, Any]) -> None:
        wanted = validate_arguments(DismissSubordinateArgs, args)
        if isinstance(wanted, str):
            self.add_error(call_id, DISMISS_SUBORDINATE, wanted)
        elif why := self._find_undismissable(wanted.name):
            self.add_error(call_id, DISMISS_SUBORDINATE, why)
        elif refusal := self._reserve_width(1):
            self.add_error(call_id, DISMISS_SUBORDINATE, refusal.reason)
        else:
            self.dismissals[call_id] = wanted.name

    def _find_undismissable(self, name: str) -> str:
        """Return why a subordinate cannot be dismissed; empty if it can."""
        if name == self.callable_tools.name:
            return "you cannot dismiss yourself; end your task with an answer instead"
        if self.spawns and name in self.spawns.dismissed:
            return f"{name!r} was dismissed already"
        return "" if name in self.callable_tools.subordinates else self._find_unknown(name)

    def refuse_busy(self) -> None:
        """Refuse to dismiss those that the same message calls."""
        if not self.dismissals:
            return
        parts = [each.parts if isinstance(each, FanOutCall) else (each,) for each in self.requests]
        called = {each.subordinate for each in chain.from_iterable(parts)}
        for call_id, name in self.dismissals.items():
            if name in called:
                why = f"this message gives {name!r} a task; dismiss it when it has answered"
                self.add_error(call_id, DISMISS_SUBORDINATE, why)

    def _add_typed_call(self, call_id: str, name: str, args: Mapping[str, Any]) -> None:
        try:
            self.callable_tools.inputs[name].read_input(args)
        except InvalidInput as error:
            self.add_error(call_id, name, str(error))
            return
        request = build_typed_call(call_id, name, args)
        if refusal := self._reserve_width(1):
            self.refused.append((request, refusal))
        else:
            self.requests.append(request)

    def _add_fan_out(self, call_id: str, args: Mapping[str, Any]) -> None:
        wanted = validate_arguments(DelegateManyArgs, args)
        if isinstance(wanted, str):
            self.add_error(call_id, DELEGATE_MANY, wanted)
            return
        try:
            join = parse_join(wanted.join, wanted.n, len(wanted.requests))
        except DelegationError as error:
            self.add_error(call_id, DELEGATE_MANY, str(error))
            return
        if any(each.budget for each in wanted.requests):
            wrong = "budget: all requests of a call share one; give it beside them"
        else:
            wrong = next(filter(None, map(self._check_subordinate, wanted.requests)), "")
        if wrong:
            self.add_error(call_id, DELEGATE_MANY, wrong)
        elif refusal := self._reserve_width(len(wanted.requests)):
            self.refused.append((SubordinateCall(call_id, "", "", reset=False), refusal))
        else:
            parts = (
                replace(
                    self._build_subordinate_call(build_part_id(call_id, n), each, n),
                    budget=wanted.budget,
                )
                for n, each in enumerate(wanted.requests, start=1)
            )
            self.requests.append(FanOutCall(call_id, join, tuple(parts)))

    def _check_subordinate(self, wanted: CallSubordinateArgs) -> str:
        """Return the error text for a call to an unknown subordinate; empty if it is valid."""
        name, choices = wanted.subordinate, self.callable_tools.subordinates
        if wanted.profile:
            return "profile: it makes a new subordinate; leave it out, or the name and the others"
        if name and name not in choices and (fault := self._find_unknown(name)):
            return fault
        if wanted.answers is None:
            return self._check_input(wanted)
        thread = self._find_asking_thread(wanted.answers)
        if not thread:
            return f"answers: no question and no conversation has the id {wanted.answers!r}"
        if name and name != self.heads[thread]["agent"]:
            asking = self.heads[thread]["agent"]
            return f"answers: the id {wanted.answers!r} is one of {asking!r}, not of {name!r}"
        return "answers: it goes on with a conversation; leave reset out" if wanted.reset else ""

    def _find_unknown(self, name: str) -> str:
        """Return why no subordinate can be called by a name; empty if a spawned one can."""
        choices = [*self.callable_tools.subordinates]
        if self.spawns:
            if name in self.spawns.known:
                return self.spawns.find_fault(name)
            choices += self.spawns.living
        return f"no subordinate is called {name!r}; name one of: {', '.join(choices) or 'none'}"

    def _check_input(self, wanted: CallSubordinateArgs) -> str:
        """Return the error text for a task that is not of the subordinate's contract."""
        name = self._get_target(wanted)
        contract = self.callable_tools.inputs.get(name)
        if contract is None:
            if wanted.input is None:
                return ""
            typed = ", ".join(self.callable_tools.inputs) or "none"
            who = f"{name!r} takes" if name else "a task that names no subordinate has"
            return f"input: {who} no input but a message; those with an input are: {typed}"
        try:
            if wanted.input is not None:
                contract.read_input(wanted.input)
            elif wanted.reset or not self._goes_on(name):
                contract.read_task(wanted.message)
        except InvalidInput as error:
            return f"{name!r} has an input, and this is none: {error}; call its own tool {name!r}"
        return ""

    def _get_target(self, wanted: CallSubordinateArgs) -> str:
        """Return the name of the subordinate that is meant; empty if the task is to be routed."""
        # With only one possible target, no routing is needed.
        able = self.callable_tools
        if wanted.subordinate or able.has_deeper_levels:
            return wanted.subordinate or ""
        if self.spawns and self.spawns.living:
            names = [*able.subordinates, *self.spawns.living]
            return names[0] if len(names) == 1 else ""
        return able.only_subordinate

    def _goes_on(self, name: str) -> bool:
        """Return whether a task for a subordinate goes on with its latest conversation."""
        calls = (each for each in self.requests if isinstance(each, SubordinateCall))
        if any(each.subordinate == name for each in calls):
            return False
        return any(head["agent"] == name for head in self.heads.values() if "side" not in head)

    def _find_asking_thread(self, question: str) -> str:
        """Return the id of the subordinate's thread that asked a question, empty for none."""
        found = [each for each in self.heads if build_question_id(each) == question]
        return found[0] if found else ""

    def _build_subordinate_call(
        self, call_id: str, wanted: CallSubordinateArgs, group: int = 1
    ) -> SubordinateCall:
        call = SubordinateCall(
            call_id,
            self._get_target(wanted),
            wanted.message,
            wanted.reset,
            group,
            wanted.context or {},
        )
        if wanted.input is not None:
            call = replace(call, input=wanted.input)
        if wanted.budget:
            call = replace(call, budget=wanted.budget)
        if wanted.answers is None:
            return call
        thread = self._find_asking_thread(wanted.answers)
        head = self.heads[thread]
        below = tuple(filter(None, head.get("way", "").split(PATH_SEPARATOR)))
        return replace(call, subordinate=head["agent"], thread_id=thread, route=below)

    def settle_reports(self, text: str) -> None:
        """Take the report of the message, whose text is `text`, if its other calls let it.

        One beside a task or a question came before the answers, and is not taken; beside other
        tools it waits for their results.
        """
        has_failed = any(answer.status == "error" for answer in self.answers)
        asks = self.requests or self.refused or self.dismissals or self.asks
        for call_id, args in self.reports:
            if asks:
                why = "not reported: read the answers of your other calls, then report"
                self.add_error(call_id, REPORT, why)
            elif has_failed:
                why = (
                    "not reported: another call of this message was refused; read why, then report"
                )
                self.add_error(call_id, REPORT, why)
            else:
                self._add_report(call_id, args, text)

    def _add_report(self, call_id: str, args: Mapping[str, Any], text: str) -> None:
        contract = self.callable_tools.output
        if contract and isinstance(args.get("result"), (Mapping, list)):
            args = {**args, "result": json.dumps(args["result"], ensure_ascii=False)}
        report = validate_arguments(ReportArgs, args)
        if isinstance(report, ReportArgs) and not report.result.strip() and text.strip():
            report = report.model_copy(update={"result": text})
        if contract and isinstance(report, ReportArgs) and report.status is Status.FULFILLED:
            try:
                contract.read_output(report.result)
            except InvalidInput as error:
                self.output_fault = str(error)
                self.add_error(call_id, REPORT, f"result: {error}", OUTPUT)
                return
        if isinstance(report, str):
            self.add_error(call_id, REPORT, report)
        elif self.report or self.has_waiting_report:
            self.add_error(call_id, REPORT, "reported already in this message")
        elif self.tool_calls:
            self.has_waiting_report = True
            stored = report.model_dump(mode="json", exclude_none=True)
            self.answers.append(build_report_answer(call_id, stored))
        else:
            self.report = report
            self.answers.append(build_report_answer(call_id))

    def _add_any_question(self, name: str, call_id: str, args: Mapping[str, Any]) -> bool:
        """Take a call that asks, unless the agent may not ask so; return whether it may."""
        able = self.callable_tools
        ways = {
            ASK: (able.can_ask and not able.has_own_ask, self._add_ask),
            ASK_SUPERIOR: (able.can_ask, self._add_question),
            ASK_USER: (able.can_contact_user, self._add_user_question),
            ASK_LATER: (able.can_ask_later, self._add_later_question),
        }
        may, add = ways[name]
        if may:
            add(call_id, args)
        return may

    def _add_ask(self, call_id: str, args: Mapping[str, Any]) -> None:
        self.has_asked = True
        asked = validate_arguments(AskArgs, args)
        self.asks |= isinstance(asked, str) or asked.wait
        if isinstance(asked, str):
            self.add_error(call_id, ASK, asked)
        elif why := self._find_ask_fault(asked):
            self.add_error(call_id, ASK, why)
        elif asked.is_for_user or not self.callable_tools.can_report:
            self._add_kept_question(call_id, ASK, asked)
        else:
            self._add_superior_question(call_id, ASK, asked)

    def _find_ask_fault(self, asked: AskArgs) -> str:
        """Return why an agent cannot ask so; empty if it can."""
        able = self.callable_tools
        if not asked.wait and asked.deadline_seconds is not None:
            return "deadline_seconds: it is for an answer that you wait for; leave out one of both"
        if not able.can_report:
            return ""
        if asked.is_for_user:
            why = "you may not ask the user yourself; leave out to, wait and deadline_seconds"
            return "" if able.can_contact_user else why
        if not asked.wait or asked.deadline_seconds is not None:
            return "wait, deadline_seconds: only a question to the user has them; leave them out"
        return ""

    def _add_question(self, call_id: str, args: Mapping[str, Any]) -> None:
        asked = validate_arguments(AskSuperiorArgs, args)
        self.asks = True
        if isinstance(asked, str):
            self.add_error(call_id, ASK_SUPERIOR, asked)
        elif not self.callable_tools.can_report:
            if refusal := self._reserve_width(1):
                self.add_error(call_id, ASK_SUPERIOR, refusal.reason)
        else:
            self._add_superior_question(call_id, ASK_SUPERIOR, asked)

    def _add_superior_question(self, call_id: str, name: str, asked: AskSuperiorArgs) -> None:
        self.questions.append(asked.build_question())
        text = "asked: the next message is the answer"
        self.answers.append(ToolMessage(text, tool_call_id=call_id, name=name))

    def _add_message(self, call_id: str, args: Mapping[str, Any]) -> None:
        wanted = validate_arguments(SendMessageArgs, args)
        if isinstance(wanted, str):
            self.add_error(call_id, SEND_MESSAGE, wanted)
        elif not (
            wanted.to == SUPERIOR
            or self.callable_tools.has_sibling(wanted.to)
            or wanted.to in (beside := self.find_beside())
        ):
            shown = [*self.callable_tools.siblings, *sorted(beside)][:MAX_SHOWN_SIBLINGS]
            own = self.callable_tools.name
            known = ", ".join((SUPERIOR, *(each for each in shown if each != own)))
            why = f"no agent beside you is called {wanted.to!r}; name one of: {known}"
            self.add_error(call_id, SEND_MESSAGE, why)
        else:
            self.messages.append(MessageCall(call_id, wanted.to, wanted.message))

    def _add_user_question(self, call_id: str, args: Mapping[str, Any]) -> None:
        asked = validate_arguments(AskUserArgs, args)
        self.asks = True
        if isinstance(asked, str):
            self.add_error(call_id, ASK_USER, asked)
        else:
            self._add_kept_question(call_id, ASK_USER, asked)

    def _add_kept_question(self, call_id: str, name: str, asked: AskUserArgs) -> None:
        """Leave a question to the user to `act`."""
        if refusal := self._reserve_width(1):
            self.add_error(call_id, name, refusal.reason)
        elif asked.deadline_seconds is not None:
            self.waits[call_id] = asked.deadline_seconds

    def _add_later_question(self, call_id: str, args: Mapping[str, Any]) -> None:
        asked = validate_arguments(AskLaterArgs, args)
        if isinstance(asked, str):
            self.add_error(call_id, ASK_LATER, asked)
        elif refusal := self._reserve_width(1):
            self.add_error(call_id, ASK_LATER, refusal.reason)

    def _add_reading(self, call_id: str, args: Mapping[str, Any], read: ReadResult) -> None:
        wanted = validate_arguments(ReadResultArgs, args)
        if isinstance(wanted, str):
            self.add_error(call_id, READ_RESULT, wanted)
            return
        try:
            page = read(wanted.id, wanted.offset)
        except LookupError as error:
            self.add_error(call_id, READ_RESULT, str(error.args[0]))
            return
        answer = ToolMessage(page.text, tool_call_id=call_id, name=READ_RESULT)
        answer.response_metadata = {PAGE_KEY: wanted.id, NOTICES_KEY: [page.note]}
        self.answers.append(answer)
