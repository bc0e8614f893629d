"""`reason`: one step of the agent loop. Calls the model once and parses its reply.

Entered at the start of a segment and after every round of calls. Its update holds all that
the level does next: the reply, the answers to calls that need no work, and the threads of
the other calls, so that each thread's id is stored before it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import chain, count
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    SystemMessage,
    ToolMessage,
    message_chunk_to_message,
)
from langchain_core.runnables import Runnable, RunnableConfig

from echelons.delegation.agent_specification import AgentSpecification
from echelons.delegation.calls import SubordinateCall
from echelons.delegation.policy import DelegationPolicy
from echelons.delegation.relayed_request import RelayedRequest
from echelons.delegation.request import CURRENT_REQUEST_KEY, store_request_budget
from echelons.delegation.request_builder import RequestLimits
from echelons.guards.gate import Gate, Halt, Step, get_allowance, get_gate
from echelons.guards.limits import DEFAULT_REFUSALS
from echelons.identity.lineage import (
    MAIL_KEY,
    MEMORY_KEY,
    PARTS_KEY,
    QUESTIONS_KEY,
    REFUSED_KEY,
    REQUESTS_KEY,
    ROUTES_KEY,
    SPAWNED_KEY,
    THREADS_KEY,
    UNASKED_KEY,
    Identity,
    derive_message_id,
    derive_request_id,
    require_identity,
    strip_own_metadata,
)
from echelons.identity.thread_history import Past, ThreadHistory, join_path
from echelons.langgraph_internals import TASK_ID_KEY
from echelons.messaging.mail import Mail
from echelons.messaging.sibling_messages import SiblingRule
from echelons.nodes.base_node import Node
from echelons.nodes.delegating.cancel_on_stop import CancelOnStop
from echelons.nodes.delegating.queued_request import (
    QueuedRequest,
    build_part_entry,
    build_tool_message,
)
from echelons.nodes.memory.prompt_memory import PromptMemory
from echelons.nodes.messages import get_whole_usage, sanitize_message
from echelons.nodes.planning.bound_model import BoundModel, ModelAnswer, ModelFunction, ModelInput
from echelons.nodes.planning.cut_reply import (
    CancelOnIntervention,
    CutOnIntervention,
    join_chunks,
    mark_cut,
)
from echelons.nodes.planning.delegation_plan import (
    DelegationPlan,
    RoutedTasks,
    build_delegation_plan,
    build_refusal,
    choose_threads,
    compute_max_parts,
    condense_context,
    iter_unnamed_tasks,
)
from echelons.nodes.planning.duplicates import find_answered
from echelons.nodes.planning.early_end import (
    build_direct_update,
    build_halt_update,
    build_late_reply_update,
)
from echelons.nodes.planning.incoming_mail import (
    build_budget_warnings,
    build_correction_update,
    build_mail_messages,
    has_intervention,
    leave_out,
    settle_late_mail,
)
from echelons.nodes.planning.join_results import JoinedState, build_joint_answer, join_parts
from echelons.nodes.planning.outgoing_mail import (
    RoutedMessage,
    build_answers,
    list_spawned_siblings,
    route_message,
)
from echelons.nodes.planning.refused_calls import find_refusal_halt, mark_refused
from echelons.nodes.planning.relay_messages import (
    RELAY_CALL_ID,
    build_addressed_call,
    build_relay_answer,
    build_relay_call,
)
from echelons.nodes.planning.spawn_plan import SpawnPlan, SpawnRules
from echelons.nodes.planning.system_prompt import MAX_LISTED, SystemPrompt, list_dismissed
from echelons.nodes.planning.task_router import TaskRouter
from echelons.nodes.planning.tool_calls import (
    CallableTools,
    ParsedReply,
    assign_call_ids,
    parse_calls,
)
from echelons.nodes.planning.unanswered import build_question_report, build_unanswered_update
from echelons.tree.names import PATH_SEPARATOR, SEND_MESSAGE
from echelons.workspace.changes import WORKSPACE_KEY

if TYPE_CHECKING:
    from echelons.nodes.middleware.model_calls import ModelCalls


@dataclass(frozen=True, slots=True)
class ReasonSettings:
    """The settings of an agent's `reason` node.

    Attributes:
        model: The chat model with the agent's tools bound, or a function that chooses one.
        prompt: What the model reads before the thread.
        callable_tools: The tools that it may call.
        router: Routes tasks that name no subordinate; `None` without subordinates.
        policy: The agent's delegation policy.
        depth: Levels of the tree.
        timeouts: Seconds for each declared subordinate, by its name; `None` for no limit.
        timed_model: The chat model itself, if its calls take a timeout.
        sibling_rule: The superior's rule about messages between its subordinates.
        max_refusals: Refusals of the same call in a row after which the agent ends; `None` for
            no limit.
        direct_tools: Names of its tools whose results are its answer (`return_direct`).
        model_calls: What its middleware wraps around a model call, if it does.
        has_hooks: Whether it has middleware.
        shown_tools: The tools that are bound to the model.
        memory: Shortens what the model reads, if the agent has a memory.
        spawn_rules: Which subordinates it may make at run time; `None` for none.
    """

    model: Runnable[Any, Any] | ModelFunction
    prompt: SystemPrompt
    callable_tools: CallableTools
    router: TaskRouter | None = None
    policy: DelegationPolicy = field(default_factory=DelegationPolicy)
    depth: int = 1
    timeouts: Mapping[str, float | None] = field(default_factory=dict)
    timed_model: BaseChatModel | None = None
    max_refusals: int | None = DEFAULT_REFUSALS
    sibling_rule: SiblingRule = "copy"
    direct_tools: frozenset[str] = frozenset()
    model_calls: ModelCalls | None = None
    has_hooks: bool = False
    shown_tools: Sequence[Any] = ()
    memory: PromptMemory | None = None
    spawn_rules: SpawnRules | None = None


class Reason(Node):
    """The node `reason` of one level."""

    def __init__(self, settings: ReasonSettings, history: ThreadHistory) -> None:
        super().__init__("reason")
        self._settings = settings
        self._history = history
        self._direct_tools = settings.direct_tools
        given = settings.model
        self._model_function = given if isinstance(given, ModelFunction) else None
        self._bound_model: BoundModel | None = None
        if not isinstance(given, ModelFunction):
            self._bound_model = BoundModel.from_runnable(given, settings.timed_model)
        able = settings.callable_tools
        self._passes_on_questions = able.can_contact_user and able.can_report

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Call the model, unless the segment has reported, is halted, or passes its task on."""
        config = config or {}
        identity = require_identity(config)
        joined = join_parts(input, identity)
        state = joined.state
        if (end := self._find_end(state)) is not None:
            return joined.rebase_update(end)
        if state.get("forward"):
            past = self._history.load_past(state.get("previous"), config)
            return build_relay_update(past, state, identity)
        if call := build_addressed_call(state["messages"], identity):
            past = self._history.load_past(state.get("previous"), config)
            context = parse_message(self._settings, past, state, call, identity, config)
            return joined.rebase_update(self._build_reply_update(context, None, {}, config))
        gate = get_gate(config)
        direct: dict[str, Any] | None = None
        if tools := self._direct_tools:
            direct = build_direct_update(state["messages"], tools, identity)
        verdict = gate.enter(Step.RETURN, config) if direct else None
        # What was said to the agent meanwhile, it has to read.
        unread = gate.mailboxes.has_mail and direct and gate.mailboxes.read(config)
        if direct and not verdict and (not unread or state.get("unhooked")):
            # Hooks before the model that were skipped come first.
            return joined.rebase_update({"jump_to": "model"} if unread else direct)
        # Without a refusal nothing is counted: this comes before every call of the model.
        if state["messages"] and REFUSED_KEY in state["messages"][-1].response_metadata:
            verdict = verdict or find_refusal_halt(state["messages"], self._settings.max_refusals)
        verdict = verdict or gate.enter(Step.MODEL, config)
        if verdict:
            return joined.rebase_update(build_halt_update(verdict, state["messages"], identity))
        if (allowance := get_allowance(config)) and gate.budgets.has_warnings(allowance):
            warnings = gate.budgets.take_warnings(allowance, config)
            joined = joined.add_messages(build_budget_warnings(warnings, identity))
        return self._call_model(joined, gate, identity, config)

    def _call_model(
        self, given: JoinedState, gate: Gate, identity: Identity, config: RunnableConfig
    ) -> dict[str, Any]:
        """Call the model with the mail that has come in, and return the update."""
        settings, mailboxes, mail = self._settings, gate.mailboxes, list[Mail]()
        joined = given
        # Where nobody was ever sent a message, nothing is looked for.
        if mailboxes.has_mail and (mail := list(mailboxes.read(config))):
            joined = given.add_messages(build_mail_messages(mail, identity))
        past = self._history.load_past(joined.state.get("previous"), config)
        past = past.hide_cut(joined.state) if settings.has_hooks else past
        bound = self._bound_model or self._chooser.choose(past, joined.state, config)
        if isinstance(bound, Halt):
            return given.rebase_update(build_halt_update(bound, given.state["messages"], identity))
        system = settings.prompt.build(past, joined.state, config)
        if isinstance(system, Halt):
            return given.rebase_update(build_halt_update(system, given.state["messages"], identity))
        system = self._note_dismissed(system, gate, identity)
        messages, noted = [*past.messages, *joined.state["messages"]], None
        if settings.memory:
            system, messages, noted = settings.memory.shorten(system, messages, gate, config)
        model_input, answer = ModelInput(system, messages, past, joined.state), ModelAnswer()
        with CutOnIntervention(mailboxes, config) as cut:
            if calls := settings.model_calls:
                answer = calls.invoke(bound, model_input, gate, config)
            else:
                answer = bound.answer(model_input, config)
        if cut.said:
            if late := leave_out(mail, mailboxes.read(config)):
                mailboxes.note_read([*mail, *late], config)
                return build_cut_update(cut.said, past, joined, late, identity)
            # Another thread of the same agent was told.
            return self._call_model(given, gate, identity, config)
        if answer.refused:
            end = build_halt_update(answer.refused, given.state["messages"], identity)
            return given.rebase_update(end)
        halt = answer.halt
        if settings.model_calls is None:
            halt = gate.leave(answer.reply, config)
        context = parse_reply(settings, past, joined.state, answer.reply, identity, config)
        context = context.note_memory(noted) if noted else context
        update = self._take_reply(context, answer, halt, mail, gate, config)
        return joined.rebase_update(update)

    def _take_reply(
        self,
        context: ReplyContext,
        answer: ModelAnswer,
        halt: Halt | None,
        mail: Sequence[Mail],
        gate: Gate,
        config: RunnableConfig,
    ) -> dict[str, Any]:
        """Return the update for a reply, with the mail that has come in meanwhile."""
        settings, mailboxes, identity = self._settings, gate.mailboxes, context.identity
        routed = {
            (task, splits): self._router.route_task(
                task,
                identity.agent,
                max_parts=compute_max_parts(context.parsed, splits),
                spawned=context.living,
                dismissed=gate.dismissals.list_below(PATH_SEPARATOR.join(identity.path)),
            )
            for task, splits in iter_unnamed_tasks(context.parsed, settings.policy)
        }
        update = self._build_reply_update(context, halt, routed, config)
        if settings.has_hooks:
            update["replied"] = halt is None
        if answer.updates and settings.model_calls:
            update = settings.model_calls.apply_updates(update, answer, context.past, context.state)
        late = list[Mail]()
        if mailboxes.has_mail and halt is None:
            late = leave_out(mail, mailboxes.read(config))
        if context.parsed.messages and not (halt or has_intervention(late)):
            sent = self._route_messages(context)
            errors = mailboxes.post([each.mail for each in sent], config)
            update["messages"] += build_answers(sent, errors)
        if mail or late:
            update, told = settle_late_mail(update, late, identity)
            mailboxes.note_read([*mail, *told], config)
        return update

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Async version of `invoke`."""
        config = config or {}
        identity = require_identity(config)
        joined = join_parts(input, identity)
        state = joined.state
        if (end := self._find_end(state)) is not None:
            return joined.rebase_update(end)
        if state.get("forward"):
            past = await self._history.aload_past(state.get("previous"), config)
            return build_relay_update(past, state, identity)
        if call := build_addressed_call(state["messages"], identity):
            past = await self._history.aload_past(state.get("previous"), config)
            context = parse_message(self._settings, past, state, call, identity, config)
            return joined.rebase_update(self._build_reply_update(context, None, {}, config))
        gate = get_gate(config)
        direct: dict[str, Any] | None = None
        if tools := self._direct_tools:
            direct = build_direct_update(state["messages"], tools, identity)
        verdict = await gate.arun(lambda: gate.enter(Step.RETURN, config)) if direct else None
        unread = gate.mailboxes.has_mail and direct and await gate.mailboxes.aread(config)
        if direct and not verdict and (not unread or state.get("unhooked")):
            # Hooks before the model that were skipped come first.
            return joined.rebase_update({"jump_to": "model"} if unread else direct)
        if state["messages"] and REFUSED_KEY in state["messages"][-1].response_metadata:
            verdict = verdict or find_refusal_halt(state["messages"], self._settings.max_refusals)
        if gate.backpressure:
            await gate.backpressure.await_start(config["configurable"][TASK_ID_KEY])
        verdict = verdict or await gate.arun(lambda: gate.enter(Step.MODEL, config))
        if verdict:
            return joined.rebase_update(build_halt_update(verdict, state["messages"], identity))
        if (allowance := get_allowance(config)) and gate.budgets.has_warnings(allowance):
            take = partial(gate.budgets.take_warnings, allowance, config)
            warnings = await gate.arun(take)
            joined = joined.add_messages(build_budget_warnings(warnings, identity))
        return await self._acall_model(joined, gate, identity, config)

    async def _acall_model(
        self, given: JoinedState, gate: Gate, identity: Identity, config: RunnableConfig
    ) -> dict[str, Any]:
        """Async version of `_call_model`."""
        settings, mailboxes, mail = self._settings, gate.mailboxes, list[Mail]()
        joined = given
        if mailboxes.has_mail and (mail := list(await mailboxes.aread(config))):
            joined = given.add_messages(build_mail_messages(mail, identity))
        past = await self._history.aload_past(joined.state.get("previous"), config)
        past = past.hide_cut(joined.state) if settings.has_hooks else past
        bound = self._bound_model or await self._chooser.achoose(past, joined.state, config)
        system = await settings.prompt.abuild(past, joined.state, config)
        system = self._note_dismissed(system, gate, identity)
        messages, noted = [*past.messages, *joined.state["messages"]], None
        if settings.memory:
            system, messages, noted = await settings.memory.ashorten(system, messages, gate, config)
        model_input, answer = ModelInput(system, messages, past, joined.state), ModelAnswer()
        # Of a subordinate, the whole level is cancelled.
        stopped = None if identity.request_id else CancelOnStop(config)
        with CancelOnIntervention(mailboxes, config) as cut, stopped or nullcontext():
            if calls := settings.model_calls:
                answer = await calls.ainvoke(bound, model_input, gate, config)
            else:
                answer = await bound.aanswer(model_input, config)
        if stopped and stopped.halt:
            answer.refused = stopped.halt
        if cut.said:
            if late := leave_out(mail, await mailboxes.aread(config)):
                await mailboxes.anote_read([*mail, *late], config)
                return build_cut_update(cut.said, past, joined, late, identity)
            return await self._acall_model(given, gate, identity, config)
        if answer.refused:
            end = build_halt_update(answer.refused, given.state["messages"], identity)
            return given.rebase_update(end)
        halt = answer.halt
        if settings.model_calls is None:
            halt = await gate.arun(lambda: gate.leave(answer.reply, config))
        context = parse_reply(settings, past, joined.state, answer.reply, identity, config)
        context = context.note_memory(noted) if noted else context
        update = await self._atake_reply(context, answer, halt, mail, gate, config)
        return joined.rebase_update(update)

    async def _atake_reply(
        self,
        context: ReplyContext,
        answer: ModelAnswer,
        halt: Halt | None,
        mail: Sequence[Mail],
        gate: Gate,
        config: RunnableConfig,
    ) -> dict[str, Any]:
        """Async version of `_take_reply`."""
        settings, mailboxes, identity = self._settings, gate.mailboxes, context.identity
        routed = {
            (task, splits): await self._router.aroute_task(
                task,
                identity.agent,
                max_parts=compute_max_parts(context.parsed, splits),
                spawned=context.living,
                dismissed=gate.dismissals.list_below(PATH_SEPARATOR.join(identity.path)),
            )
            for task, splits in iter_unnamed_tasks(context.parsed, settings.policy)
        }
        update = self._build_reply_update(context, halt, routed, config)
        if settings.has_hooks:
            update["replied"] = halt is None
        if answer.updates and settings.model_calls:
            update = settings.model_calls.apply_updates(update, answer, context.past, context.state)
        late = list[Mail]()
        if mailboxes.has_mail and halt is None:
            late = leave_out(mail, await mailboxes.aread(config))
        if context.parsed.messages and not (halt or has_intervention(late)):
            sent = self._route_messages(context)
            errors = await mailboxes.apost([each.mail for each in sent], config)
            update["messages"] += build_answers(sent, errors)
        if mail or late:
            update, told = settle_late_mail(update, late, identity)
            await mailboxes.anote_read([*mail, *told], config)
        return update

    def _find_end(self, state: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the update of a segment that ends without a model call, `None` for any other."""
        if state.get("response"):
            return {}
        return build_unanswered_update(state["messages"]) if self._passes_on_questions else None

    def _note_dismissed(
        self, system: SystemMessage | None, gate: Gate, identity: Identity
    ) -> SystemMessage | None:
        """Return the system message, with those of the agent's subordinates that were dismissed."""
        if not gate.dismissals:
            return system
        below = gate.dismissals.list_below(PATH_SEPARATOR.join(identity.path))
        declared = self._settings.callable_tools.subordinates
        return list_dismissed(system, [name for name in declared if name in below])

    @property
    def _chooser(self) -> ModelFunction:
        assert self._model_function is not None  # noqa: S101  there is a model, or this
        return self._model_function

    @property
    def _router(self) -> TaskRouter:
        assert self._settings.router is not None  # noqa: S101  only a level with subordinates asks
        return self._settings.router

    def _route_messages(self, context: ReplyContext) -> list[RoutedMessage]:
        rule = self._settings.sibling_rule
        return [route_message(each, context.identity, rule) for each in context.parsed.messages]

    def _build_reply_update(
        self,
        context: ReplyContext,
        halt: Halt | None,
        routed: RoutedTasks,
        config: RunnableConfig,
    ) -> dict[str, Any]:
        settings, messages = self._settings, context.state["messages"]
        if context.parsed.waits:
            context = replace(context, now=get_gate(config).get_time())
        if halt:
            return build_late_reply_update(halt, messages, context.message, context.identity)
        if settings.policy.context and config["configurable"].get(WORKSPACE_KEY):
            context = replace(context, has_workspace=True)

        def limits(subordinate: str) -> RequestLimits:
            timeout = settings.timeouts.get(subordinate)
            if context.spawns and (levels := context.spawns.count_levels(subordinate)):
                timeout = settings.policy.compute_timeout(levels)
            return RequestLimits.begin(settings.depth, settings.policy, timeout, config)

        return plan_reply_update(settings, context, routed, limits)


@dataclass(frozen=True, slots=True)
class ReplyContext:
    """A model's reply with the context that is needed to act on it.

    Attributes:
        message: The reply, as it is stored.
        parsed: The parsed calls of the reply.
        past: The segments before this one.
        state: The level's state.
        identity: The agent that replied.
        now: When it replied; `None` if nobody needs to know.
        has_workspace: Whether its run has a workspace.
        spawns: The agents that it has made at run time, and those that the reply makes; `None` if
            it may make none.
    """

    message: AIMessage
    parsed: ParsedReply
    past: Past
    state: Mapping[str, Any]
    identity: Identity
    now: datetime | None = None
    has_workspace: bool = False
    spawns: SpawnPlan | None = None

    @property
    def living(self) -> tuple[AgentSpecification, ...]:
        """The agents that it has made and that are there."""
        return tuple(self.spawns.living.values()) if self.spawns else ()

    def note_memory(self, noted: Mapping[str, Any]) -> ReplyContext:
        """Return it with what the memory keeps in the reply."""
        metadata = {**self.message.response_metadata, MEMORY_KEY: noted}
        message = self.message.model_copy(update={"response_metadata": metadata})
        return replace(self, message=message)


def parse_reply(
    settings: ReasonSettings,
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
    message = _adopt_reply(reply, identity, before, cut["removed"] if cut else 0)
    return parse_message(settings, past, state, message, identity, config)


def parse_message(
    settings: ReasonSettings,
    past: Past,
    state: Mapping[str, Any],
    message: AIMessage,
    identity: Identity,
    config: RunnableConfig,
) -> ReplyContext:
    """Return a message of an agent as it is stored, parsed and with its context."""
    heads, rules = {**past.heads, **(state.get("heads") or {})}, settings.spawn_rules
    spawns = SpawnPlan.build(rules, past, state, config) if rules else None

    def find_beside() -> frozenset[str]:
        request = config["configurable"].get(CURRENT_REQUEST_KEY)
        said = chain(past.messages, state["messages"])
        return list_spawned_siblings(request, said, identity)

    parsed = parse_calls(message, settings.callable_tools, heads, spawns, find_beside)
    return ReplyContext(message, parsed, past, state, identity, spawns=spawns)


def plan_reply_update(
    settings: ReasonSettings,
    context: ReplyContext,
    routed: RoutedTasks,
    limits: Callable[[str], RequestLimits] | None = None,
) -> dict[str, Any]:
    """Return the state update for a reply.

    `limits` returns those of a request to a subordinate; a reply without requests needs none.
    """
    able, policy, reply = settings.callable_tools, settings.policy, context.message
    before, thread = context.state["messages"], context.identity.thread_id
    ends = not (reply.tool_calls or reply.invalid_tool_calls)
    if able.output:
        parsed, identity = context.parsed, context.identity
        update = build_correction_update(able.output, reply, parsed, before, identity)
        if update:
            return update
    if ends and able.subordinates and not able.tools and not _has_asked(before):
        metadata = {**reply.response_metadata, UNASKED_KEY: True}
        marked = reply.model_copy(update={"response_metadata": metadata})
        context = replace(context, message=marked)
    plan = build_delegation_plan(context.parsed, routed, policy, able.width, able.only_subordinate)
    if policy.repeats == "refuse" and plan.requests:
        plan.refuse_repeated(lambda asked: find_answered(asked, before, thread))
    targets = {key: join_path(each.remaining[0][1:]) for key, each in plan.candidates.items()}
    tell = None
    if policy.context and plan.requests:
        messages = [*context.past.messages, *before]
        tell = partial(
            condense_context, policy.context, messages, context.identity, context.has_workspace
        )
    return _build_update(context, plan, targets, limits, tell)


def build_cut_update(
    said: Sequence[BaseMessage],
    past: Past,
    joined: JoinedState,
    mail: Sequence[Mail],
    identity: Identity,
) -> dict[str, Any]:
    """Return the update for a reply that was cut off, with what the model reads next."""
    before = (past.messages, joined.state["messages"])
    reply = mark_cut(_adopt_reply(join_chunks(said), identity, before))
    new = [reply, *build_mail_messages(mail, identity)]
    return joined.rebase_update({"messages": new})


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
    return _build_update(context, DelegationPlan([call]), targets)


def _has_asked(messages: Sequence[BaseMessage]) -> bool:
    """Return whether an agent without tools has delegated anything since its task."""
    for message in reversed(messages):
        if message.type == "human" and MAIL_KEY not in message.response_metadata:
            break
        is_answer = message.type == "tool" and message.name != SEND_MESSAGE
        if is_answer and REFUSED_KEY not in message.response_metadata:
            return True
    return False


def _adopt_reply(
    reply: Any, identity: Identity, before: Sequence[Sequence[BaseMessage]], removed: int = 0
) -> AIMessage:
    if not isinstance(reply, AIMessage):
        raise TypeError(f"the model of {identity.agent!r} returned {type(reply).__name__}")
    message = sanitize_message(message_chunk_to_message(reply))
    assert isinstance(message, AIMessage)  # noqa: S101  a chunk's message is of its kind
    update: dict[str, Any] = {
        "name": identity.agent,
        "response_metadata": strip_own_metadata(message),
    }
    if message.usage_metadata and not get_whole_usage(message):
        update["usage_metadata"] = None
    # A reply with the id of an earlier message would replace that message.
    if not message.id or message.id in map(_get_id, chain(*before)):
        taken = set(map(_get_id, chain(*before)))
        places = (
            f"{identity.request_id}/{place}" for place in count(removed + sum(map(len, before)))
        )
        ids = (derive_message_id(identity.thread_id, place) for place in places)
        update["id"] = next(each for each in ids if each not in taken)
    return assign_call_ids(message.model_copy(update=update))


_get_id = attrgetter("id")


def _build_update(
    context: ReplyContext,
    plan: DelegationPlan,
    targets: Mapping[str, str],
    limits: Callable[[str], RequestLimits] | None = None,
    tell: Callable[[SubordinateCall], Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    message, identity = context.message, context.identity
    known = {**context.past.heads, **(context.state.get("heads") or {})}
    kept = _build_notes(context, plan)
    spawned = kept.get(SPAWNED_KEY, {})
    threads, heads = choose_threads(plan.requests, targets, known, message, identity, spawned)
    if threads:
        kept[THREADS_KEY] = threads
    if (
        limits
        and threads
        and (
            notes := _build_request_notes(
                plan, message, threads, limits, tell, context.spawns.names if context.spawns else ()
            )
        )
    ):
        kept[REQUESTS_KEY] = notes
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


def _build_notes(context: ReplyContext, plan: DelegationPlan) -> dict[str, Any]:
    """Return what the message's metadata says of its calls, but for the threads and requests."""
    kept: dict[str, Any] = {}
    if context.now and context.parsed.waits:
        kept[QUESTIONS_KEY] = {
            call_id: {"deadline": (context.now + timedelta(seconds=seconds)).isoformat()}
            for call_id, seconds in context.parsed.waits.items()
        }
    if context.spawns:
        spawned = context.spawns.list_specifications(plan.requests, plan.candidates)
        if spawned:
            kept[SPAWNED_KEY] = spawned
    if plan.candidates:
        kept[ROUTES_KEY] = {
            call_id: candidates.stored() for call_id, candidates in plan.candidates.items()
        }
    if plan.fan_outs:
        kept[PARTS_KEY] = {each.call_id: each.stored() for each in plan.fan_outs}
    return kept


def _build_request_notes(
    plan: DelegationPlan,
    message: AIMessage,
    threads: Mapping[str, str],
    limits: Callable[[str], RequestLimits],
    tell: Callable[[SubordinateCall], Mapping[str, Any]] | None,
    spawned: Sequence[str] = (),
) -> dict[str, dict[str, Any]]:
    """Return the limits of each request, and what it is told, for the message's metadata.

    `spawned` are the names of the agents that the superior has made and that are there.
    """
    notes: dict[str, dict[str, Any]] = {}
    begun: set[str] = set()
    # Of a task that is passed on; a model's reply has none of its own.
    known: Mapping[str, Any] = message.response_metadata.get(REQUESTS_KEY) or {}
    named = {call["id"]: call["args"].get("subordinate") for call in message.tool_calls}
    for each in plan.requests:
        note = {**known.get(each.call_id, {}), **limits(each.subordinate).fields}
        thread = threads[each.call_id]
        if thread in begun:
            # Its deadline is set when the request before it on the same thread has ended.
            note.pop("deadline", None)
        begun.add(thread)
        name = named.get(each.call_id, each.subordinate)
        if name != each.subordinate and each.call_id not in plan.candidates:
            note["current"] = each.subordinate
        if each.budget:
            note["budget"] = {**note.get("budget", {}), **store_request_budget(each.budget)}
        if tell and (told := tell(each)):
            # What the model has given itself stands before what the policy tells.
            note["context"] = {**told, **each.context}
        if beside := [name for name in spawned if name != each.subordinate]:
            note["siblings"] = beside[-MAX_LISTED:]
        if note:
            notes[each.call_id] = note
    return notes


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
    several = {part.call_id for each in plan.fan_outs for part in each.parts}
    tools = {call["id"]: call["name"] for call in message.tool_calls}
    for call, why in plan.refused:
        request, answer = build_refusal(call, why, message.id or "", identity)
        if call.call_id in several:
            parts[request.id] = build_part_entry(answer)
        else:
            order = QueuedRequest(request, call.call_id, identity.thread_id, continues=False)
            whole.append(mark_refused(build_tool_message(order, answer, tools[call.call_id])))
    for each in plan.fan_outs:
        if ended := build_joint_answer(each, message, parts, identity):
            whole.append(mark_refused(ended))
            for part in each.parts:
                key = derive_request_id(identity.thread_id, message.id or "", part.call_id)
                parts.pop(key, None)
    return whole, parts
