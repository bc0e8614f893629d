"""Turns the replies of a model into updates of its level, or asks for a corrected one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, count
from operator import attrgetter
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    ToolMessage,
    message_chunk_to_message,
)
from langchain_core.runnables import RunnableConfig

from echelons.delegation.calls import RelayedRequest, RequestLimits, SubordinateCall
from echelons.delegation.contract import Contract
from echelons.delegation.policy import DelegationPolicy
from echelons.errors import InvalidInput
from echelons.features.feature import AddedSubordinates, SubordinateSource
from echelons.guards.gate import Halt
from echelons.identity.lineage import (
    ADDED_KEY,
    ASIDE_KEY,
    END_KEY,
    MENDED_KEY,
    PARTS_KEY,
    REFUSED_KEY,
    REQUESTS_KEY,
    ROUTES_KEY,
    SHORTENED_KEY,
    SIDE_BY_SIDE_KEY,
    THREADS_KEY,
    UNASKED_KEY,
    Identity,
    derive_message_id,
    derive_request_id,
    strip_own_metadata,
)
from echelons.identity.thread_history import Head, Past, join_path
from echelons.models.door import ShownLimit
from echelons.models.notices import build_aside
from echelons.models.replies import read_reply_end
from echelons.models.usage import get_whole_usage
from echelons.nodes.messages import sanitize_message
from echelons.nodes.planning.call_arguments import adopt_written_arguments
from echelons.nodes.planning.delegation_plan import (
    DelegationPlan,
    IsPerson,
    RoutedTasks,
    build_delegation_plan,
    build_refusal,
    choose_threads,
    condense_context,
    list_side_by_side,
)
from echelons.nodes.planning.final_answer import (
    build_continued_update,
    build_refused_update,
    read_final_text,
)
from echelons.nodes.planning.relay import (
    RELAY_CALL_ID,
    build_joint_answer,
    build_late_reply_update,
    build_question_report,
    build_relay_answer,
    build_relay_call,
)
from echelons.nodes.planning.repeated_calls import OUTPUT, find_answered, mark_refused
from echelons.nodes.planning.tool_calls import (
    CallableTools,
    ParsedReply,
    ReplyScope,
    assign_call_ids,
    parse_calls,
)
from echelons.nodes.request_queue import QueuedRequest, build_part_entry, build_tool_message
from echelons.text.input_limits import shorten_repr
from echelons.tree.names import SEND_MESSAGE


def build_correction_update(
    contract: Contract,
    reply: AIMessage,
    parsed: ParsedReply,
    before: Sequence[BaseMessage],
    identity: Identity,
) -> dict[str, Any] | None:
    """Return the update for an answer that is not of the contract: another try, or the end.

    `None` for any other reply. An answer is a reply without calls, or the result of a report.

    Args:
        contract: The agent's, with an output.
        reply: The reply.
        parsed: Its calls.
        before: The messages of the segment before it.
        identity: The agent.
    """
    fault, is_text = parsed.output_fault, not (reply.tool_calls or reply.invalid_tool_calls)
    if is_text:
        try:
            contract.read_output(read_final_text([*before, reply]))
        except InvalidInput as error:
            fault = str(error)
    if not fault:
        return None
    assert contract.output is not None  # noqa: S101  it has a fault
    count = _count_corrections(before) + 1
    if count >= contract.attempts:
        why = (
            f"its answer was not of the type {contract.output.__name__} {count} times, as often as "
            f"its contract allows; the last fault was: {shorten_repr(fault)}"
        )
        return build_late_reply_update(Halt("refused", why), before, reply, identity)
    if is_text:
        return {"messages": [reply, _build_correction(fault, reply, identity)]}
    # No other call of the message runs: it was to be the end.
    answered = {answer.tool_call_id for answer in parsed.answers}
    why = "not run: your report was not accepted; make the call again if you need it"
    rest = [
        mark_refused(
            ToolMessage(why, tool_call_id=call["id"], name=call["name"], status="error"), OUTPUT
        )
        for call in reply.tool_calls
        if call["id"] not in answered
    ]
    return {"messages": [reply, *parsed.answers, *rest]}


def _build_correction(why: str, reply: AIMessage, identity: Identity) -> BaseMessage:
    """Return the message to a model on why its answer breaks the agent's contract."""
    place = derive_message_id(identity.thread_id, f"correction/{reply.id}")
    return build_aside("correction", why, place)


def _count_corrections(messages: Sequence[BaseMessage]) -> int:
    """Return how many answers of the last messages were not of the agent's contract.

    It counts back to the task, over other asides and over the calls made in between.
    """
    count = 0
    for message in reversed(messages):
        if isinstance(message, HumanMessage):
            aside = message.response_metadata.get(ASIDE_KEY)
            if aside is None:
                break
            count += aside.get("kind") == "correction"
        count += message.response_metadata.get(REFUSED_KEY) == OUTPUT
    return count


@dataclass(frozen=True, slots=True)
class ReplyContext:
    """A model's reply with the context that is needed to act on it.

    Attributes:
        message: The reply, as it is stored.
        parsed: The parsed calls of the reply.
        past: The segments before this one.
        state: The level's state.
        identity: The agent that replied.
        config: The config of the task.
        added: The subordinates beside its declared ones; `None` if it can have none.
    """

    message: AIMessage
    parsed: ParsedReply
    past: Past
    state: Mapping[str, Any]
    identity: Identity
    config: RunnableConfig = field(default_factory=RunnableConfig)
    added: AddedSubordinates | None = None

    def keep(self, more: Mapping[str, Any]) -> ReplyContext:
        """Return it with what features keep in the metadata of the reply."""
        metadata = {**self.message.response_metadata, **more}
        message = self.message.model_copy(update={"response_metadata": metadata})
        return replace(self, message=message)


@dataclass(frozen=True, slots=True)
class ReplyHandler:
    """Turns the replies of one agent's model into updates of its level.

    Attributes:
        callable_tools: The tools that it may call.
        policy: Its delegation policy.
        source: What adds subordinates to its declared ones; `None` for nothing.
    """

    callable_tools: CallableTools
    policy: DelegationPolicy = field(default_factory=DelegationPolicy)
    source: SubordinateSource | None = None

    def parse_reply(
        self,
        past: Past,
        state: Mapping[str, Any],
        reply: Any,
        identity: Identity,
        config: RunnableConfig,
    ) -> ReplyContext:
        """Return a model's reply, parsed and with its context.

        Raises:
            TypeError: The model did not return a message.
        """
        cut = state.get("cut")
        before = (past.messages, state["messages"])
        message = adopt_reply(reply, identity, before, cut["removed"] if cut else 0)
        return self.parse_message(past, state, message, identity, config)

    def parse_message(
        self,
        past: Past,
        state: Mapping[str, Any],
        message: AIMessage,
        identity: Identity,
        config: RunnableConfig,
    ) -> ReplyContext:
        """Return a message of an agent as it is stored, parsed and with its context."""
        scope = ReplyScope(past, state, config)
        added = self.source.read(scope, self.callable_tools) if self.source else None
        parsed = parse_calls(message, self.callable_tools, scope, added)
        return ReplyContext(message, parsed, past, state, identity, config, added)

    def build_update(
        self,
        context: ReplyContext,
        routed: RoutedTasks,
        limits: Callable[[str], RequestLimits] | None = None,
    ) -> dict[str, Any]:
        """Return the state update for a reply.

        `limits` returns those of a request to a subordinate; a reply without requests needs none.
        """
        tools, policy, reply = self.callable_tools, self.policy, context.message
        before, identity = context.state["messages"], context.identity
        thread = identity.thread_id
        ends = not (reply.tool_calls or reply.invalid_tool_calls)
        if ends and END_KEY in reply.response_metadata:
            continued = build_continued_update(reply, before, identity)
            if continued:
                return continued
        if not ends and (refused := build_refused_update(reply, context.parsed.answers, identity)):
            return refused
        if tools.output and not _was_withheld(reply):
            parsed = context.parsed
            update = build_correction_update(tools.output, reply, parsed, before, identity)
            if update:
                return update
        if ends and tools.subordinates and not tools.tools and not _has_asked(before):
            metadata = {**reply.response_metadata, UNASKED_KEY: True}
            marked = reply.model_copy(update={"response_metadata": metadata})
            context = replace(context, message=marked)
        plan = build_delegation_plan(
            context.parsed, routed, policy, tools.width, tools.only_subordinate
        )
        if policy.repeats == "refuse" and plan.requests:
            plan.refuse_repeated(lambda request: find_answered(request, before, thread))
        targets = {
            key: join_path(candidates.remaining[0][1:])
            for key, candidates in plan.candidates.items()
        }
        tell = None
        if policy.context and plan.requests:
            messages = [*context.past.messages, *before]
            tell = partial(
                condense_context, policy.context, messages, context.identity, context.config
            )
        return _build_update(context, plan, targets, tools.is_person, limits, tell)


def build_relay_update(past: Past, state: Mapping[str, Any], identity: Identity) -> dict[str, Any]:
    """Return the update of a level that relays a request down, or its response back up."""
    done = build_relay_answer(state["messages"], identity)
    if done:
        return done
    forward = RelayedRequest.load(state["forward"])
    call = SubordinateCall(RELAY_CALL_ID, forward.next_agent, forward.request.task, forward.reset)
    message = build_relay_call(forward, identity)
    context = ReplyContext(message, ParsedReply((call,)), past, state, identity)
    targets = {RELAY_CALL_ID: join_path(forward.request.route[1:])}
    return _build_update(context, DelegationPlan([call]), targets, lambda *_: False)


def _has_asked(messages: Sequence[BaseMessage]) -> bool:
    """Return whether an agent without tools has delegated anything since its task."""
    for message in reversed(messages):
        if message.type == "human" and ASIDE_KEY not in message.response_metadata:
            break
        is_answer = message.type == "tool" and message.name != SEND_MESSAGE
        if is_answer and REFUSED_KEY not in message.response_metadata:
            return True
    return False


def _was_withheld(reply: AIMessage) -> bool:
    """Return whether a reply is none that another try would mend."""
    return reply.response_metadata.get(END_KEY) in ("filtered", "refused", "length")


def adopt_reply(
    reply: Any, identity: Identity, before: Sequence[Sequence[BaseMessage]], removed: int = 0
) -> AIMessage:
    """Return a model's reply as it is stored.

    Args:
        reply: The reply.
        identity: The agent.
        before: The messages before it.
        removed: How many messages before those were taken out of the thread.

    Raises:
        TypeError: The model did not return a message.
    """
    if not isinstance(reply, AIMessage):
        raise TypeError(f"the model of {identity.agent!r} returned {type(reply).__name__}")
    message = sanitize_message(message_chunk_to_message(reply))
    assert isinstance(message, AIMessage)  # noqa: S101  a chunk's message is of its kind
    metadata = strip_own_metadata(message)
    if (end := read_reply_end(message)).kind != "complete":
        metadata[END_KEY] = end.kind
    if isinstance(limit := reply.response_metadata.get(SHORTENED_KEY), ShownLimit):
        metadata[SHORTENED_KEY] = dict(limit)
    update: dict[str, Any] = {"name": identity.agent, "response_metadata": metadata}
    if message.usage_metadata and not get_whole_usage(message):
        update["usage_metadata"] = None
    # A reply with the id of an earlier message would replace that message.
    if not message.id or message.id in map(_get_id, chain(*before)):
        taken = set(map(_get_id, chain(*before)))
        places = (
            f"{identity.request_id}/{place}" for place in count(removed + sum(map(len, before)))
        )
        ids = (derive_message_id(identity.thread_id, place) for place in places)
        update["id"] = next(unused for unused in ids if unused not in taken)
    return assign_call_ids(adopt_written_arguments(message.model_copy(update=update)))


_get_id = attrgetter("id")


def _build_update(
    context: ReplyContext,
    plan: DelegationPlan,
    targets: Mapping[str, str],
    is_person: IsPerson,
    limits: Callable[[str], RequestLimits] | None = None,
    tell: Callable[[SubordinateCall], Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    message, identity = context.message, context.identity
    all_heads = {**context.past.heads, **(context.state.get("heads") or {})}
    kept = _build_call_metadata(context, plan)
    threads, heads = choose_threads(plan.requests, targets, all_heads, message, identity, is_person)
    if threads:
        kept[THREADS_KEY] = threads
    if len(heads) > 1 and (beside := list_side_by_side(threads, heads)):
        kept[SIDE_BY_SIDE_KEY] = beside
    if ADDED_KEY in kept:
        _keep_facts(heads, plan.requests, threads, kept[ADDED_KEY])
    if (
        limits
        and threads
        and (fields := _build_request_fields(plan, message, threads, limits, tell, context.added))
    ):
        kept[REQUESTS_KEY] = fields
    if kept:
        metadata = {**message.response_metadata, **kept}
        message = message.model_copy(update={"response_metadata": metadata})
    answers, parts = _answer_refused(plan, message, identity)
    update: dict[str, Any] = {"messages": [message, *context.parsed.answers, *answers]}
    if heads:
        update["heads"] = dict(heads)
    if parts:
        update["parts"] = parts
    report = context.parsed.report
    if report is not None:
        update["response"] = report.model_dump(mode="json", exclude_none=True)
    elif questions := context.parsed.questions:
        update["response"] = build_question_report(questions)
    return update


def _keep_facts(
    heads: dict[str, Head],
    requests: Sequence[SubordinateCall],
    threads: Mapping[str, str],
    added: Mapping[str, Mapping[str, Any]],
) -> None:
    """Add the facts of the added subordinates that calls go to, by call id, to their heads."""
    for request in requests:
        facts, thread = added.get(request.call_id, {}), threads[request.call_id]
        if request.subordinate in facts:
            heads[thread] = Head(**{**heads[thread], "spawned": facts[request.subordinate]})


def _build_call_metadata(context: ReplyContext, plan: DelegationPlan) -> dict[str, Any]:
    """Return what the message's metadata says of its calls, but for the threads and requests."""
    kept: dict[str, Any] = {**context.parsed.metadata}
    if context.added and (facts := context.added.list_facts(plan.requests, plan.candidates)):
        kept[ADDED_KEY] = facts
    if plan.candidates:
        kept[ROUTES_KEY] = {
            call_id: candidates.stored() for call_id, candidates in plan.candidates.items()
        }
    if context.parsed.mended:
        kept[MENDED_KEY] = dict(context.parsed.mended)
    if plan.fan_outs:
        kept[PARTS_KEY] = {fan_out.call_id: fan_out.stored() for fan_out in plan.fan_outs}
    return kept


def _build_request_fields(
    plan: DelegationPlan,
    message: AIMessage,
    threads: Mapping[str, str],
    limits: Callable[[str], RequestLimits],
    tell: Callable[[SubordinateCall], Mapping[str, Any]] | None,
    added: AddedSubordinates | None,
) -> dict[str, dict[str, Any]]:
    """Return the limits and the facts of each request, for the message's metadata."""
    fields_by_call: dict[str, dict[str, Any]] = {}
    begun: set[str] = set()
    # Of a task that is passed on; a model's reply has none of its own.
    noted: Mapping[str, Any] = message.response_metadata.get(REQUESTS_KEY) or {}
    named = {call["id"]: call["args"].get("subordinate") for call in message.tool_calls}
    for request in plan.requests:
        fields = {**noted.get(request.call_id, {}), **limits(request.subordinate).fields}
        thread = threads[request.call_id]
        if thread in begun:
            # Its deadline is set when the request before it on the same thread has ended.
            fields.pop("deadline", None)
        begun.add(thread)
        name = named.get(request.call_id, request.subordinate)
        if name != request.subordinate and request.call_id not in plan.candidates:
            fields["current"] = request.subordinate
        for key, value in request.fields.items():
            fields[key] = {**fields.get(key, {}), **value}
        if tell and (facts := tell(request)):
            # The facts of the model take precedence over those of the policy.
            fields["context"] = {**facts, **request.context}
        if added and (beside := added.list_beside(request.subordinate)):
            fields["siblings"] = [*beside]
        if fields:
            fields_by_call[request.call_id] = fields
    return fields_by_call


def _answer_refused(
    plan: DelegationPlan, message: AIMessage, identity: Identity
) -> tuple[list[ToolMessage], dict[str, Any]]:
    """Return the tool messages of refused calls, and the state entries of refused parts.

    A call with several requests is refused if all of them are.
    """
    whole: list[ToolMessage] = []
    parts: dict[str, Any] = {}
    if not plan.refused:
        return whole, parts
    several = {part.call_id for fan_out in plan.fan_outs for part in fan_out.parts}
    tools = {call["id"]: call["name"] for call in message.tool_calls}
    for call, why in plan.refused:
        request, answer = build_refusal(call, why, message.id or "", identity)
        if call.call_id in several:
            parts[request.id] = build_part_entry(answer)
        else:
            order = QueuedRequest(request, call.call_id, identity.thread_id, continues=False)
            whole.append(mark_refused(build_tool_message(order, answer, tools[call.call_id])))
    for fan_out in plan.fan_outs:
        if ended := build_joint_answer(fan_out, message, parts, identity):
            whole.append(mark_refused(ended))
            for part in fan_out.parts:
                key = derive_request_id(identity.thread_id, message.id or "", part.call_id)
                parts.pop(key, None)
    return whole, parts
