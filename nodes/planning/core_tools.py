"""The tools of the loop itself: those that delegate, `report`, and `read_result`.

Their arguments are pydantic models. The calls are answered, or become requests, when a reply is
read: `act` runs none of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

from langchain_core.messages import ToolCall, ToolMessage
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    create_model,
    model_validator,
)

from echelons.delegation.calls import FanOutCall, SubordinateCall, build_part_id
from echelons.delegation.contract import DelegationTool, SubordinateTool, get_inputs
from echelons.delegation.join import JOIN_NAMES, parse_join
from echelons.delegation.questions import build_question_id
from echelons.delegation.request import Status, render_input
from echelons.errors import DelegationError, InvalidInput
from echelons.features.feature import BuiltIn, Place, RequestField, SubordinateSource
from echelons.identity.lineage import NOTICES_KEY, PAGE_KEY
from echelons.models import is_offline_planner
from echelons.nodes.long_results import LongResults
from echelons.nodes.planning.call_arguments import (
    DelegatingTool,
    extend_arguments,
    mend_name,
    store_fields,
    validate_arguments,
)
from echelons.nodes.planning.final_answer import build_report_answer
from echelons.nodes.planning.repeated_calls import OUTPUT
from echelons.prompts import load_tool_texts
from echelons.text.input_limits import check_context
from echelons.tree.members import Member, RosterEntry, collect_capabilities, render_roster
from echelons.tree.names import (
    CALL_SUBORDINATE,
    DELEGATE_MANY,
    PATH_SEPARATOR,
    READ_RESULT,
    REPORT,
)

if TYPE_CHECKING:
    from echelons.nodes.planning.tool_calls import ReplyCalls

MAX_REQUESTS = 256
"""Most requests of one call, so that a model's slip does not start ten thousand agents."""


def _check_context(context: dict[str, Any] | None) -> dict[str, Any]:
    try:
        return check_context(context, "the context")
    except InvalidInput as error:
        raise ValueError(str(error)) from error


def _write_result(value: Any) -> Any:
    """Return a result as text: many models report a list or a number as what it is."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)


def _read_reset(reset: Any) -> Any:
    """Return an argument, `False` for one that is null: some models name every argument."""
    return False if reset is None else reset


class CallSubordinateArgs(BaseModel):
    """Arguments of `call_subordinate`."""

    message: str = Field(min_length=1)
    subordinate: str | None = None
    reset: Annotated[bool, BeforeValidator(_read_reset)] = False
    answers: str | None = None
    context: Annotated[dict[str, Any] | None, AfterValidator(_check_context)] = None
    profile: str | None = None
    input: dict[str, Any] | None = None

    @model_validator(mode="before")
    @classmethod
    def _write_message(cls, arguments: Any) -> Any:
        """Add the message that an input is."""
        if isinstance(arguments, dict) and not arguments.get("message"):
            fields = arguments.get("input")
            return (
                {**arguments, "message": render_input(fields)}
                if isinstance(fields, dict)
                else arguments
            )
        return arguments


class DelegateManyArgs(BaseModel):
    """Arguments of `delegate_many`."""

    requests: list[CallSubordinateArgs] = Field(min_length=1, max_length=MAX_REQUESTS)
    join: Any = "all"
    n: Any = None


class ReadResultArgs(BaseModel):
    """Arguments of `read_result`."""

    id: str = Field(min_length=1)
    offset: int = Field(default=0, ge=0)


class ReportArgs(BaseModel):
    """Arguments of `report`."""

    status: Status
    result: Annotated[str, BeforeValidator(_write_result)] = ""
    confidence: float | None = Field(default=None, ge=0.0, le=1.0)
    reason: str = ""


@lru_cache(64)
def _extend_many(fields: tuple[RequestField, ...]) -> type[DelegateManyArgs]:
    """Return the arguments of `delegate_many`, whose requests have further parameters, too."""
    request: Any = extend_arguments(CallSubordinateArgs, fields)
    requests: Any = (list[request], Field(min_length=1, max_length=MAX_REQUESTS))
    model = create_model("DelegateManyArgs", __base__=DelegateManyArgs, requests=requests)
    return extend_arguments(model, fields)


class CallSubordinate(DelegatingTool):
    """The tool that gives a subordinate a task.

    Args:
        subordinates: The agent's declared subordinates.
        source: What adds subordinates, which it may name, too; `None` for nothing.
    """

    name, arguments = CALL_SUBORDINATE, CallSubordinateArgs

    def __init__(
        self, subordinates: Sequence[Member], source: SubordinateSource | None = None
    ) -> None:
        self._subordinates = subordinates
        self._source = source

    def build_schema(self) -> DelegationTool:
        """Return what a model is shown of it.

        The offline planner reads each subordinate with the capabilities of all that is below it.
        """
        properties: dict[str, dict[str, Any]] = {
            "message": {"type": "string"},
            "subordinate": {"type": "string"},
            "reset": {"type": "boolean"},
            "answers": {"type": "string"},
            "context": {"type": "object"},
        }
        members = self._subordinates
        if not self._source:
            # The names of those that are added are not known yet.
            properties["subordinate"]["enum"] = [member.name for member in members]
        if get_inputs({member.name: member for member in members}):
            properties["input"] = {"type": "object"}
        if self._source and self._source.profiles:
            properties["profile"] = {"type": "string", "enum": [*self._source.profiles]}
        properties |= self._show_fields()
        schema = DelegationTool(self._describe(properties, ["message"]))
        schema.roster = render_roster(
            RosterEntry(member.name, member.description, collect_capabilities(member))
            for member in members
        )
        return schema

    def mend_names(self, arguments: Mapping[str, Any], reply: ReplyCalls) -> dict[str, Any] | None:
        """Return the arguments with the name of the subordinate that is meant."""
        return mend_name(arguments, "subordinate", *reply.callable_agents)

    def accept(self, call: ToolCall, reply: ReplyCalls) -> str:
        """Add the request of a call."""
        wanted: Any = validate_arguments(self.arguments, call["args"])
        if isinstance(wanted, str):
            return wanted
        if wanted.profile and not wanted.subordinate:
            if reply.added is None:
                return "profile: you may spawn no subordinates; leave it out"
            fields = store_fields(wanted, self.fields)
            return reply.added.add(call, wanted.message, wanted.profile, fields, reply)
        if why := _check_subordinate(wanted, reply):
            return why
        request = _build_request(call["id"] or "", wanted, reply)
        reply.add_request(replace(request, fields=store_fields(wanted, self.fields)))
        return ""


class DelegateMany(DelegatingTool):
    """The tool that gives several subordinates a task each, and joins their answers.

    Args:
        is_needed: Whether its model is shown the tool by default.
    """

    name, arguments = DELEGATE_MANY, DelegateManyArgs

    def __init__(self, *, is_needed: bool = True) -> None:
        self.is_needed = is_needed

    def add_fields(self, fields: Sequence[RequestField]) -> None:
        """Take further parameters of requests."""
        self.fields = (*fields,)
        self.arguments = _extend_many(self.fields)

    def build_schema(self) -> dict[str, Any]:
        """Return what a model is shown of it; its requests take all that a single one takes."""
        kinds = {"message": "string", "subordinate": "string", "context": "object"}
        request = {
            "type": "object",
            "properties": {name: {"type": kind} for name, kind in kinds.items()},
            "required": ["message"],
        }
        properties: dict[str, Any] = {
            "requests": {"type": "array", "items": request},
            "join": {"type": "string", "enum": list(JOIN_NAMES)},
            "n": {"type": "integer"},
            **self._show_fields(),
        }
        return self._describe(properties, ["requests"])

    def mend_names(self, arguments: Mapping[str, Any], reply: ReplyCalls) -> dict[str, Any] | None:
        """Return the arguments with the names of the subordinates that are meant."""
        requests = arguments.get("requests")
        if not isinstance(requests, list):
            return None
        named = reply.callable_agents
        parts = [mend_name(request, "subordinate", *named) or request for request in requests]
        return {**arguments, "requests": parts} if parts != requests else None

    def accept(self, call: ToolCall, reply: ReplyCalls) -> str:
        """Add the requests of a call."""
        wanted: Any = validate_arguments(self.arguments, call["args"])
        call_id = call["id"] or ""
        if isinstance(wanted, str):
            return wanted
        try:
            join = parse_join(wanted.join, wanted.n, len(wanted.requests))
        except DelegationError as error:
            return str(error)
        for added in self.fields:
            if any(getattr(request, added.name) for request in wanted.requests):
                return added.part_refusal
        for request in wanted.requests:
            if why := _check_subordinate(request, reply):
                return why
        if refusal := reply.take_width(len(wanted.requests)):
            reply.refused.append((SubordinateCall(call_id, "", "", reset=False), refusal))
            return ""
        fields = store_fields(wanted, self.fields)
        parts = (
            replace(
                _build_request(build_part_id(call_id, place), request, reply, place),
                fields=fields,
            )
            for place, request in enumerate(wanted.requests, start=1)
        )
        reply.requests.append(FanOutCall(call_id, join, tuple(parts)))
        return ""


class Report(BuiltIn):
    """The tool with which an agent ends its task.

    Args:
        output: JSON Schema of its answers, if they have one.
        is_needed: Whether its model is shown the tool by default.
    """

    name, arguments = REPORT, ReportArgs
    is_executed = False

    def __init__(self, output: Mapping[str, Any] | None = None, *, is_needed: bool = True) -> None:
        self._output = output
        self.is_needed = is_needed

    def build_schema(self) -> dict[str, Any]:
        """Return what a model is shown of it; the result is of the schema of the answers."""
        properties = {
            "status": {"type": "string", "enum": [str(status) for status in Status]},
            "result": self._output or {"type": "string"},
            "confidence": {"type": "number"},
            "reason": {"type": "string"},
        }
        return self._describe(properties, ["status"])

    def accept(self, call: ToolCall, reply: ReplyCalls) -> str:
        """Keep the call until all others of the reply have been read."""
        reply.reports.append(call)
        return ""


class ReadResult(BuiltIn):
    """The tool that reads on in a long result, which a model is shown from the first one on."""

    name, arguments = READ_RESULT, ReadResultArgs
    is_offered, is_executed = False, False

    def __init__(self, results: LongResults) -> None:
        self._results = results

    def build_schema(self) -> dict[str, Any]:
        """Return what a model is shown of it."""
        properties = {"id": {"type": "string"}, "offset": {"type": "integer", "minimum": 0}}
        return self._describe(properties, ["id", "offset"])

    def accept(self, call: ToolCall, reply: ReplyCalls) -> str:
        """Answer a call with a part of the result."""
        wanted = validate_arguments(ReadResultArgs, call["args"])
        if isinstance(wanted, str):
            return wanted
        beside = sum(other["name"] == READ_RESULT for other in reply.message.tool_calls)
        try:
            page = self._results.read(reply.thread, wanted.id, wanted.offset, beside)
        except LookupError as error:
            return str(error.args[0])
        answer = ToolMessage(page.text, tool_call_id=call["id"] or "", name=READ_RESULT)
        answer.response_metadata = {PAGE_KEY: wanted.id, NOTICES_KEY: [page.note]}
        reply.answers.append(answer)
        return ""


def list_core_tools(
    place: Place, results: LongResults, source: SubordinateSource | None
) -> list[BuiltIn]:
    """Return the tools that the loop gives an agent at its place; `source` adds subordinates."""
    agent, tools = place.agent, list[BuiltIn]()
    if agent.subordinates or source:
        tools.append(CallSubordinate(agent.subordinates, source))
    if len(agent.subordinates) > 1 or source:
        tools.append(DelegateMany(is_needed=place.policy.joins))
    if place.reports and place.can_call:
        output = agent.contract.output_schema if agent.contract else None
        # What the planner returns has a status, and it is charged for no tokens.
        is_needed = is_offline_planner(place.model) or place.reach.is_candidate
        tools.append(Report(output, is_needed=is_needed))
    return [*tools, ReadResult(results)]


def build_subordinate_tool(member: Member, schema: dict[str, Any]) -> SubordinateTool:
    """Return the tool that gives a subordinate the input of its contract, which has this schema."""
    description = load_tool_texts("subordinate")["description"]
    if member.description:
        description = f"{member.description}\n{description}"
    parameters = {key: value for key, value in schema.items() if key != "title"}
    function = {"name": member.name, "description": description, "parameters": parameters}
    return SubordinateTool(type="function", function=function)


def _check_subordinate(wanted: CallSubordinateArgs, reply: ReplyCalls) -> str:
    """Return why a subordinate cannot be called so; empty if it can."""
    name = wanted.subordinate
    if wanted.profile:
        return "profile: it makes a new subordinate; leave it out, or the name and the others"
    if name and (fault := reply.find_unknown(name)):
        return fault
    if wanted.answers is None:
        return _check_input(wanted, reply)
    thread = _find_asking_thread(wanted.answers, reply)
    if not thread:
        return f"answers: no question and no conversation has the id {wanted.answers!r}"
    asking = reply.heads[thread]["agent"]
    if name and name != asking:
        return f"answers: the id {wanted.answers!r} is one of {asking!r}, not of {name!r}"
    return "answers: it goes on with a conversation; leave reset out" if wanted.reset else ""


def _check_input(wanted: CallSubordinateArgs, reply: ReplyCalls) -> str:
    """Return why a task is not of the subordinate's contract; empty if it is."""
    name, inputs = _get_target(wanted, reply), reply.tools.inputs
    contract = inputs.get(name)
    if contract is None:
        if wanted.input is None:
            return ""
        typed = ", ".join(inputs) or "none"
        target = f"{name!r} takes" if name else "a task that names no subordinate has"
        return f"input: {target} no input but a message; those with an input are: {typed}"
    try:
        if wanted.input is not None:
            contract.read_input(wanted.input)
        elif wanted.reset or not _continues(name, reply):
            contract.read_task(wanted.message)
    except InvalidInput as error:
        return f"{name!r} has an input, and this is none: {error}; call its own tool {name!r}"
    return ""


def _get_target(wanted: CallSubordinateArgs, reply: ReplyCalls) -> str:
    """Return the name of the subordinate that is meant; empty if the task is to be routed."""
    # With only one possible target, no routing is needed.
    if wanted.subordinate or reply.tools.has_deeper_levels:
        return wanted.subordinate or ""
    if reply.added and reply.added.callable:
        names = [*reply.tools.subordinates, *reply.added.callable]
        return names[0] if len(names) == 1 else ""
    return reply.tools.only_subordinate


def _continues(name: str, reply: ReplyCalls) -> bool:
    """Return whether a task for a subordinate goes on with its latest conversation."""
    requests = (request for request in reply.requests if isinstance(request, SubordinateCall))
    if any(request.subordinate == name for request in requests):
        return False
    return any(head["agent"] == name for head in reply.heads.values() if "side" not in head)


def _find_asking_thread(question: str, reply: ReplyCalls) -> str:
    """Return the id of the subordinate's thread that asked a question, empty for none."""
    return next((thread for thread in reply.heads if build_question_id(thread) == question), "")


def _build_request(
    call_id: str, wanted: CallSubordinateArgs, reply: ReplyCalls, group: int = 1
) -> SubordinateCall:
    request = SubordinateCall(
        call_id,
        _get_target(wanted, reply),
        wanted.message,
        wanted.reset,
        group,
        wanted.context or {},
    )
    if wanted.input is not None:
        request = replace(request, input=wanted.input)
    if wanted.answers is None:
        return request
    thread = _find_asking_thread(wanted.answers, reply)
    head = reply.heads[thread]
    below = tuple(filter(None, head.get("way", "").split(PATH_SEPARATOR)))
    return replace(request, subordinate=head["agent"], thread_id=thread, route=below)


def settle_reports(reply: ReplyCalls, text: str) -> None:
    """Take the report of a reply, whose text is `text`, if its other calls let it.

    One beside a task or a question came before the answers, and is not taken; beside other tools it
    waits for their results.
    """
    why = ""
    if reply.requests or reply.refused or reply.must_wait:
        why = "not reported: read the answers of your other calls, then report"
    elif any(answer.status == "error" for answer in reply.answers):
        why = "not reported: another call of this message was refused; read why, then report"
    for call in reply.reports:
        if why:
            reply.refuse(call, why)
        else:
            _take_report(call, reply, text)


def _take_report(call: ToolCall, reply: ReplyCalls, text: str) -> None:
    contract, args, call_id = reply.tools.output, call["args"], call["id"] or ""
    if contract and isinstance(args.get("result"), (Mapping, list)):
        args = {**args, "result": json.dumps(args["result"], ensure_ascii=False)}
    report = validate_arguments(ReportArgs, args)
    if isinstance(report, str):
        reply.refuse(call, report)
        return
    if not report.result.strip() and text.strip():
        report = report.model_copy(update={"result": text})
    if contract and report.status is Status.FULFILLED:
        try:
            contract.read_output(report.result)
        except InvalidInput as error:
            reply.output_fault = str(error)
            reply.refuse(call, f"result: {error}", OUTPUT)
            return
    if reply.report or reply.has_waiting_report:
        reply.refuse(call, "reported already in this message")
    elif reply.tool_calls:
        reply.has_waiting_report = True
        stored = report.model_dump(mode="json", exclude_none=True)
        reply.answers.append(build_report_answer(call_id, stored))
    else:
        reply.report = report
        reply.answers.append(build_report_answer(call_id))
