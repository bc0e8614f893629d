"""Reads the calls of a model's reply: ids, what each tool makes of its calls, and refusals.

Pure. `reason` reads each reply with it; the result is all that the level does next.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from sys import maxsize
from typing import TYPE_CHECKING, Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
)
from langchain_core.runnables import RunnableConfig

from echelons.delegation.calls import FanOutCall, MendedCall, SubordinateCall, build_typed_call
from echelons.delegation.contract import Contract
from echelons.delegation.questions import AgentQuestion
from echelons.errors import DelegationError, InvalidInput, too_wide
from echelons.identity.thread_history import Head, Past
from echelons.models.replies import read_reply_end
from echelons.nodes.planning.call_arguments import ToolArguments, mend, mend_built_in
from echelons.nodes.planning.core_tools import ReportArgs, settle_reports
from echelons.nodes.planning.repeated_calls import CUT_OFF, REFUSED, mark_refused

if TYPE_CHECKING:
    from echelons.features.feature import AddedSubordinates, BuiltIn

_SILENT_TOOLS = frozenset({"note_write", "note_read", "note_list"})
"""Tools of an agent's own whose results a report need not wait for."""


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """The calls of a reply, after they were read.

    Attributes:
        requests: The delegations, in order: calls with one request, and calls with several.
        answers: Tool messages for calls that are answered at once: reports and errors.
        report: The report, if there is a valid one.
        questions: The questions to a superior agent, with which the segment ends.
        accepted: The accepted calls of built-in tools.
        refused: Delegations that are not sent, each with the reason.
        remaining_width: How many more calls may run in parallel with these.
        output_fault: Why the result of a report is not of the agent's contract; empty if it is.
        mended: The arguments that are meant by calls that say them otherwise, by call id.
        metadata: The entries that the reply keeps of its calls in its metadata.
    """

    requests: tuple[SubordinateCall | FanOutCall, ...] = ()
    answers: tuple[ToolMessage, ...] = ()
    report: ReportArgs | None = None
    refused: tuple[tuple[SubordinateCall, DelegationError], ...] = ()
    remaining_width: int = maxsize
    questions: tuple[AgentQuestion, ...] = ()
    accepted: tuple[ToolCall, ...] = ()
    output_fault: str = ""
    mended: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def list_calls(self, tool: str) -> list[ToolCall]:
        """Return the accepted calls of a built-in tool."""
        return [call for call in self.accepted if call["name"] == tool]


@dataclass(frozen=True, slots=True)
class CallableTools:
    """The tools and subordinates that an agent may call.

    Attributes:
        tools: Names of its own tools.
        subordinates: Names of its direct subordinates.
        built_in: The built-in tools that it may call, by name.
        shown: Names of those that its model is shown.
        can_report: Whether it has a superior agent to report to.
        width: Most parallel calls in one message; `None` for no limit.
        has_deeper_levels: Whether a subordinate has subordinates of its own.
        name: Its own name.
        inputs: The contracts of the subordinates that have an input, by name.
        output: The agent's own contract, if it has an output.
        arguments: The facts known of the arguments of its own tools, by name.
        is_person: Returns whether a person works on the tasks for a subordinate and a target
            below it, given as a path.
    """

    tools: Collection[str] = ()
    subordinates: Sequence[str] = ()
    built_in: Mapping[str, BuiltIn] = field(default_factory=dict)
    shown: Sequence[str] = ()
    can_report: bool = False
    width: int | None = None
    has_deeper_levels: bool = False
    name: str = ""
    inputs: Mapping[str, Contract] = field(default_factory=dict)
    output: Contract | None = None
    arguments: Mapping[str, ToolArguments] = field(default_factory=dict)
    is_person: Callable[[str, str], bool] = lambda *_: False

    @property
    def only_subordinate(self) -> str:
        """Name of the only subordinate; empty if there is none, or several."""
        return self.subordinates[0] if len(self.subordinates) == 1 else ""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all tools that are bound to the model."""
        return (*self.tools, *self.inputs, *self.shown)


def assign_call_ids(message: AIMessage) -> AIMessage:
    """Return the message with a unique id on every call.

    Some models leave ids out or repeat them; every answer needs the id of one call.
    """
    every = (*message.tool_calls, *message.invalid_tool_calls)
    ids = {call["id"] for call in every}
    used: set[str] = set()

    def assign_id(call: Mapping[str, Any]) -> dict[str, Any]:
        received = call.get("id") or ""
        stem, first = (received, 2) if received else ("call", 1)
        # A generated id must not be the id of another call.
        made = (made_id for n in count(first) if (made_id := f"{stem}-{n}") not in used | ids)
        fresh = received if received and received not in used else next(made)
        used.add(fresh)
        return {**call, "id": fresh}

    calls = [assign_id(call) for call in message.tool_calls]
    broken = [assign_id(call) for call in message.invalid_tool_calls]
    if used == ids:
        return message
    return message.model_copy(update={"tool_calls": calls, "invalid_tool_calls": broken})


def parse_calls(
    message: AIMessage,
    tools: CallableTools,
    scope: ReplyScope | None = None,
    added: AddedSubordinates | None = None,
) -> ParsedReply:
    """Return the calls of a message, which all have unique ids, after they were read.

    Of a reply that was cut off, no call is accepted: any may have lost a part of its arguments.
    """
    reply = ReplyCalls(message, tools, scope or ReplyScope(), added)
    calls = (*message.tool_calls, *message.invalid_tool_calls)
    if calls and (end := read_reply_end(message)).kind in ("length", "filtered", "refused"):
        why = (
            f"your reply was cut off ({end.why}), so none of its calls has been run; make them "
            "again, with shorter arguments or fewer in one message"
        )
        for call in calls:
            reply.refuse(call, why, CUT_OFF)
        return ParsedReply(answers=tuple(reply.answers), remaining_width=reply.remaining_width)
    for call in message.tool_calls:
        reply.add_call(call)
    for call, tool in reply.accepted:
        if why := tool.check_whole(call, reply):
            reply.refuse(call, why)
    for broken in message.invalid_tool_calls:
        reply.refuse(broken, broken.get("error") or "the arguments are no valid JSON object")
    settle_reports(reply, str(message.text))
    return ParsedReply(
        tuple(reply.requests),
        tuple(reply.answers),
        reply.report,
        tuple(reply.refused),
        reply.remaining_width,
        tuple(reply.questions),
        tuple([call for call, _ in reply.accepted]),
        reply.output_fault,
        reply.mended,
        reply.metadata,
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
    closed: list[Any] = [*messages]
    # A thread may have thousands of messages, so nothing is called for an ordinary one.
    kinds: list[type[Any]] = [*map(type, closed)]
    if not _ORDINARY_KINDS.issuperset(kinds):
        kinds = [
            next((base for base in (ToolMessage, AIMessage) if issubclass(message, base)), message)
            for message in kinds
        ]
    callers = [n for n, kind in enumerate(kinds) if kind is AIMessage and closed[n].tool_calls]
    kinds.append(BaseMessage)  # the end answers nothing
    open_calls: list[tuple[int, Sequence[ToolCall]]] = []
    for place in callers:
        pending: Sequence[ToolCall] = closed[place].tool_calls
        after = place + 1
        while kinds[after] is ToolMessage and pending:
            answered = closed[after].tool_call_id
            if pending[0]["id"] == answered and not pending[1:]:
                pending = ()
            else:
                pending = [call for call in pending if (call["id"] or "") != answered]
            after += 1
        if pending:
            open_calls.append((after, pending))
    for place, calls in reversed(open_calls):
        named = {call["id"] or "": call["name"] for call in calls}
        closed[place:place] = [
            ToolMessage("not run", tool_call_id=call_id, name=name, status="error")
            for call_id, name in named.items()
        ]
    return closed


_ORDINARY_KINDS = frozenset({AIMessage, HumanMessage, SystemMessage, ToolMessage})
"""The usual kinds of messages; any other may be a subclass of one."""


@dataclass(frozen=True, slots=True)
class ReplyScope:
    """The place of a reply.

    Attributes:
        past: The segments before it.
        state: The state of its level.
        config: The config of the task.
    """

    past: Past = field(default_factory=Past)
    state: Mapping[str, Any] = field(default_factory=dict)
    config: RunnableConfig = field(default_factory=RunnableConfig)


class ReplyCalls:
    """The calls of a reply while they are read: each tool adds to it what its calls ask for.

    Attributes:
        message: The reply.
        tools: The tools that its agent may call.
        scope: The place of the reply.
        added: The subordinates beside the declared ones; `None` if the agent can have none.
        accepted: The accepted calls of built-in tools.
        must_wait: Whether the reply has a call whose result must be read before a report.
        tool_calls: Names of the called tools for whose results a report waits.
        metadata: The entries that the reply keeps of its calls in its metadata.
    """

    def __init__(
        self,
        message: AIMessage,
        tools: CallableTools,
        scope: ReplyScope,
        added: AddedSubordinates | None = None,
    ) -> None:
        self.message = message
        self.tools = tools
        self.scope = scope
        self.added = added
        self.remaining_width = maxsize if tools.width is None else tools.width
        self.requests: list[SubordinateCall | FanOutCall] = []
        self.answers: list[ToolMessage] = []
        self.refused: list[tuple[SubordinateCall, DelegationError]] = []
        self.questions: list[AgentQuestion] = []
        self.reports: list[ToolCall] = []
        self.report: ReportArgs | None = None
        self.has_waiting_report = False
        self.output_fault = ""
        self.accepted: list[tuple[ToolCall, BuiltIn]] = []
        self.must_wait = False
        self.tool_calls: list[str] = []
        self.mended: dict[str, dict[str, Any]] = {}
        self.metadata: dict[str, Any] = {}

    @property
    def heads(self) -> Mapping[str, Head]:
        """The threads of the subordinates, whose questions a call may answer."""
        return {**self.scope.past.heads, **(self.scope.state.get("heads") or {})}

    @property
    def thread(self) -> list[BaseMessage]:
        """The messages of the agent's thread before the reply."""
        return [*self.scope.past.messages, *self.scope.state["messages"]]

    @property
    def callable_agents(self) -> tuple[Collection[str], Callable[[], Collection[str]]]:
        """Names of the declared subordinates, and what returns those of the added ones."""
        return self.tools.subordinates, lambda: self.added.callable if self.added else ()

    def add_call(self, received: ToolCall) -> None:
        """Read a call."""
        name, call = received["name"], self._mend(received)
        if tool := self.tools.built_in.get(name):
            if why := tool.accept(call, self):
                self.refuse(call, why)
            else:
                self.accepted.append((call, tool))
        elif name in self.tools.inputs:
            self._add_typed_call(call)
        elif name not in self.tools.tools:
            names = ", ".join(self.tools.names) or "none"
            self.refuse(call, f"there is no such tool; the tools are: {names}")
        elif refusal := self.take_width(1):
            self.refuse(call, refusal.reason)
        elif name not in _SILENT_TOOLS:
            self.tool_calls.append(name)

    def refuse(self, call: Mapping[str, Any], why: str, mark: str = REFUSED) -> None:
        """Answer a call with an error."""
        call_id, name = call.get("id") or "", call.get("name") or "unknown"
        answer = ToolMessage(f"Error: {why}", tool_call_id=call_id, name=name, status="error")
        self.answers.append(mark_refused(answer, mark))

    def take_width(self, wanted: int) -> DelegationError | None:
        """Take room for parallel calls; return the error if there is not enough."""
        if wanted > self.remaining_width:
            width = self.tools.width or 0
            return too_wide(wanted, width - self.remaining_width, width)
        self.remaining_width -= wanted
        return None

    def add_request(self, request: SubordinateCall) -> None:
        """Add a request, if there is room for it."""
        if refusal := self.take_width(1):
            self.refused.append((request, refusal))
        else:
            self.requests.append(request)

    def find_unknown(self, name: str) -> str:
        """Return why no subordinate can be called by a name; empty if one can."""
        choices = [*self.tools.subordinates]
        if name in choices:
            return ""
        if self.added:
            if (fault := self.added.find_fault(name)) is not None:
                return fault
            choices += self.added.callable
        return f"no subordinate is called {name!r}; name one of: {', '.join(choices) or 'none'}"

    def _mend(self, call: ToolCall) -> ToolCall:
        """Return a call with the arguments that are meant."""
        name, arguments, tools = call["name"], call["args"], self.tools
        tool, mended = None, None
        if tool_arguments := tools.arguments.get(name):
            mended = tool_arguments.mend(arguments)
        elif contract := tools.inputs.get(name):
            mended = mend(arguments, contract.input_schema or {}, contract.read_input)
        elif tool := tools.built_in.get(name):
            mended = mend_built_in(tool.arguments, arguments)
            mended = tool.mend_names(mended or arguments, self) or mended
        if mended is None:
            return call
        self.mended[call["id"] or ""] = mended
        return MendedCall.build(call, mended)

    def _add_typed_call(self, call: ToolCall) -> None:
        name, args = call["name"], call["args"]
        try:
            self.tools.inputs[name].read_input(args)
        except InvalidInput as error:
            self.refuse(call, str(error))
        else:
            self.add_request(build_typed_call(call["id"] or "", name, args))
