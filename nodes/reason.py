"""`reason`: one step of the agent loop. Calls the model once and parses its reply.

Entered at the start of a segment and after every round of calls. Its update holds all that the
level does next, see `nodes/planning/reply_handler.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.runnables import Runnable, RunnableConfig

from echelons.delegation.calls import RequestLimits
from echelons.delegation.policy import DelegationPolicy
from echelons.guards.gate import Gate, Halt, Step, get_allowance, get_gate
from echelons.guards.limits import DEFAULT_REFUSALS, DEFAULT_RESULT_TOKENS
from echelons.identity.lineage import (
    REFUSED_KEY,
    Identity,
    require_identity,
)
from echelons.identity.thread_history import Past, ThreadHistory, build_past_step
from echelons.langgraph_internals import TASK_ID_KEY
from echelons.messaging.mail import Mail
from echelons.messaging.sibling_messages import SiblingRule
from echelons.models.door.ask import note_cut
from echelons.models.door.bound_model import BoundModel
from echelons.models.door.notices import Shorten, View, with_view
from echelons.nodes.base_node import Node
from echelons.nodes.delegating.cancel_on_stop import CancelOnStop
from echelons.nodes.memory.prompt_memory import PromptMemory
from echelons.nodes.model_call.long_results import Examination, LongResults
from echelons.nodes.model_call.model_input import ModelAnswer, ModelFunction, ModelInput
from echelons.nodes.model_call.system_prompt import SystemPrompt
from echelons.nodes.planning.cut_reply import (
    CancelOnIntervention,
    CutOnIntervention,
    join_chunks,
)
from echelons.nodes.planning.delegation_plan import (
    RoutedTasks,
    compute_max_parts,
    iter_unnamed_tasks,
)
from echelons.nodes.planning.final_answer import (
    find_waiting_report,
    is_paused,
    refuse_report,
    settle_report,
)
from echelons.nodes.planning.incoming_mail import (
    WITHDRAWN_END,
    build_budget_warnings,
    build_mail_messages,
    has_intervention,
    leave_out,
    settle_late_mail,
)
from echelons.nodes.planning.join_results import JoinedState, join_parts
from echelons.nodes.planning.outgoing_mail import (
    RoutedMessage,
    build_answers,
    route_message,
)
from echelons.nodes.planning.refused_calls import find_refusal_halt
from echelons.nodes.planning.relay_messages import (
    build_addressed_call,
)
from echelons.nodes.planning.repeated_calls import RepeatedCall, RepeatRules, find_repeated_call
from echelons.nodes.planning.reply_handler import (
    ReplyContext,
    ReplyHandler,
    build_cut_update,
    build_relay_update,
)
from echelons.nodes.planning.roster_changes import list_roster_notices
from echelons.nodes.planning.segment_end import (
    build_direct_update,
    build_halt_update,
    build_late_reply_update,
    build_unanswered_update,
)
from echelons.nodes.planning.spawn_plan import SpawnRules
from echelons.nodes.planning.task_router import TaskRouter
from echelons.nodes.planning.tool_calls import (
    CallableTools,
)
from echelons.plans import Plan, PlanStep, arun_plan_steps, build_step, run_plan_steps
from echelons.run_context import get_context
from echelons.tree.names import MAX_TOOLS, PATH_SEPARATOR, READ_RESULT, REPORT

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
        results: What its model is shown of long results.
        bind_more: Binds its model to other tools than those shown.
        repeat_rules: How often it may make the same call with the same result; `None` for no limit.
        announces_notices: Whether the instructions name the mark of what the library says.
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
    results: LongResults = field(default_factory=lambda: LongResults(DEFAULT_RESULT_TOKENS))
    bind_more: Callable[[Sequence[Any]], Runnable[Any, Any]] | None = None
    repeat_rules: RepeatRules | None = None
    announces_notices: bool = False


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
        tools = settings.callable_tools
        self._replies = ReplyHandler(tools, settings.policy, settings.spawn_rules)
        self._reading_model: BoundModel | None = None

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Call the model, unless the segment has reported, is halted, or passes its task on."""
        return run_plan_steps(self._run(input, config or {}))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Async version of `invoke`."""
        return await arun_plan_steps(self._run(input, config or {}))

    def _run(self, input: Any, config: RunnableConfig) -> Plan[dict[str, Any]]:
        identity = require_identity(config)
        joined = join_parts(input, identity)
        state = joined.state
        if (end := self._find_end(state)) is not None:
            return joined.rebase_update(end)
        if state.get("forward"):
            past = yield build_past_step(self._history, state.get("previous"), config)
            return build_relay_update(past, state, identity)
        if call := build_addressed_call(state["messages"], identity):
            past = yield build_past_step(self._history, state.get("previous"), config)
            context = self._replies.parse_message(past, state, call, identity, config)
            return joined.rebase_update(self._build_reply_update(context, None, {}, config))
        return (yield from self._step(joined, identity, config))

    def _step(
        self, joined: JoinedState, identity: Identity, config: RunnableConfig
    ) -> Plan[dict[str, Any]]:
        """End with an answer that waits, or call the model, if the gate admits either."""
        state, gate, verdict = joined.state, get_gate(config), None
        direct, refused = self._find_answer(state["messages"], identity)
        joined = joined.replace_message(refused) if refused else joined
        if direct:
            verdict = yield build_step(partial(gate.enter, Step.RETURN, config), gate.arun)
        # What was said to the agent meanwhile, it has to read.
        unread = gate.mailboxes.has_mail and direct and (yield _read_mail(gate, config))
        if direct and not verdict and (not unread or state.get("unhooked")):
            # Hooks before the model that were skipped come first.
            return joined.rebase_update({"jump_to": "model"} if unread else direct)
        if direct and unread and (waiting := find_waiting_report(state["messages"])):
            joined = joined.replace_message(refuse_report(waiting, WITHDRAWN_END[REPORT]))
        looping, repeated = self._find_loop(state["messages"])
        if gate.backpressure:
            yield gate.backpressure.build_start_step(config["configurable"][TASK_ID_KEY])
        verdict = verdict or looping
        if not verdict:
            verdict = yield build_step(partial(gate.enter, Step.MODEL, config), gate.arun)
        if verdict:
            return joined.rebase_update(build_halt_update(verdict, state["messages"], identity))
        if repeated:
            joined = joined.add_messages([repeated.build_warning(identity)])
        if (allowance := get_allowance(config)) and gate.budgets.has_warnings(allowance):
            take = partial(gate.budgets.take_warnings, allowance, config)
            warnings = yield build_step(take, gate.arun)
            joined = joined.add_messages(build_budget_warnings(warnings, identity))
        return (yield from self._call_model(joined, gate, identity, config))

    def _call_model(
        self, given: JoinedState, gate: Gate, identity: Identity, config: RunnableConfig
    ) -> Plan[dict[str, Any]]:
        """Call the model with the mail that has come in, and return the update."""
        settings, mailboxes, mail = self._settings, gate.mailboxes, list[Mail]()
        joined = given
        # Skip the mailbox if no message was ever sent in this thread.
        has_mail = mailboxes.has_mail and not is_paused(given.state["messages"])
        if has_mail and (mail := [*(yield _read_mail(gate, config))]):
            joined = given.add_messages(build_mail_messages(mail, identity))
        past = yield build_past_step(self._history, joined.state.get("previous"), config)
        past = past.hide_cut(joined.state) if settings.has_hooks else past
        joined = self._announce_changes(past, joined, gate, config)
        where = (past, joined.state, config)
        bound = self._bound_model or (yield from self._chooser.choose(*where))
        if isinstance(bound, Halt):
            return given.rebase_update(build_halt_update(bound, given.state["messages"], identity))
        system = yield from settings.prompt.build(*where)
        if isinstance(system, Halt):
            return given.rebase_update(build_halt_update(system, given.state["messages"], identity))
        messages, noted = [*past.messages, *joined.state["messages"]], None
        bound, shorten, more = self._offer_reading(bound, messages)
        if settings.memory:
            view = yield from settings.memory.shorten(system, messages, config, shorten)
            system, messages, noted = view
        own = with_view(config, View(joined.mark, settings.announces_notices, shorten))
        call = (bound, ModelInput(system, messages, past, joined.state, more), gate, own)
        answer, said = yield PlanStep(
            partial(self._ask_model, *call), partial(self._aask_model, *call)
        )
        if said:
            late = leave_out(mail, (yield _read_mail(gate, config)))
            yield from note_cut(bound, messages, join_chunks(said), config, is_kept=bool(late))
            if late:
                yield _note_read([*mail, *late], gate, config)
                return build_cut_update(said, past, joined, late, identity)
            # Another thread of the same agent was told.
            return (yield from self._call_model(given, gate, identity, config))
        if answer.refused:
            end = build_halt_update(answer.refused, given.state["messages"], identity)
            return given.rebase_update(end)
        halt = answer.halt
        if settings.model_calls is None:
            halt = yield build_step(partial(gate.leave, answer.reply, config), gate.arun)
        context = self._replies.parse_reply(past, joined.state, answer.reply, identity, config)
        context = context.note_memory(noted) if noted else context
        update = yield from self._take_reply(context, answer, halt, mail, gate, config)
        return joined.rebase_update(update)

    def _ask_model(
        self, bound: BoundModel, model_input: ModelInput, gate: Gate, config: RunnableConfig
    ) -> tuple[ModelAnswer, Sequence[BaseMessage]]:
        """Return what has come of the model's call, or what it had said when it was cut off."""
        answer, calls = ModelAnswer(), self._settings.model_calls
        with CutOnIntervention(gate.mailboxes, config) as cut:
            if calls:
                answer = calls.invoke(bound, model_input, gate, config)
            else:
                answer = model_input.answer(bound, config)
        return answer, cut.said

    async def _aask_model(
        self, bound: BoundModel, model_input: ModelInput, gate: Gate, config: RunnableConfig
    ) -> tuple[ModelAnswer, Sequence[BaseMessage]]:
        """Async version of `_ask_model`, which a stop also cancels."""
        answer, calls = ModelAnswer(), self._settings.model_calls
        # Of a subordinate, the whole level is cancelled.
        is_root = not require_identity(config).request_id
        stopped = CancelOnStop(config) if is_root else None
        with CancelOnIntervention(gate.mailboxes, config) as cut, stopped or nullcontext():
            if calls:
                answer = await calls.ainvoke(bound, model_input, gate, config)
            else:
                answer = await model_input.aanswer(bound, config)
        if stopped and stopped.halt:
            answer.refused = stopped.halt
        return answer, cut.said

    def _take_reply(
        self,
        context: ReplyContext,
        answer: ModelAnswer,
        halt: Halt | None,
        mail: Sequence[Mail],
        gate: Gate,
        config: RunnableConfig,
    ) -> Plan[dict[str, Any]]:
        """Return the update for a reply, with the mail that has come in meanwhile."""
        settings, mailboxes, identity = self._settings, gate.mailboxes, context.identity
        routed: dict[tuple[str, bool], Any] = {}
        for task, splits in iter_unnamed_tasks(context.parsed, settings.policy):
            where: Any = {
                "max_parts": compute_max_parts(context.parsed, splits),
                "spawned": context.living,
                "dismissed": gate.dismissals.list_below(PATH_SEPARATOR.join(identity.path)),
            }
            routed[task, splits] = yield PlanStep(
                partial(self._router.route_task, task, identity.agent, **where),
                partial(self._router.aroute_task, task, identity.agent, **where),
            )
        update = self._build_reply_update(context, halt, routed, config)
        if settings.has_hooks:
            update["replied"] = halt is None
        if answer.updates and settings.model_calls:
            update = settings.model_calls.apply_updates(update, answer, context.past, context.state)
        late = list[Mail]()
        if mailboxes.has_mail and halt is None:
            late = leave_out(mail, (yield _read_mail(gate, config)))
        if context.parsed.messages and not (halt or has_intervention(late)):
            sent = self._route_messages(context)
            posted = [each.mail for each in sent]
            errors = yield PlanStep(
                partial(mailboxes.post, posted, config), partial(mailboxes.apost, posted, config)
            )
            update["messages"] += build_answers(sent, errors)
        if mail or late:
            update, told = settle_late_mail(update, late, identity)
            yield _note_read([*mail, *told], gate, config)
        return update

    def _find_answer(
        self, messages: Sequence[BaseMessage], identity: Identity
    ) -> tuple[dict[str, Any] | None, ToolMessage | None]:
        """Return the update of an answer that needs no model call, or a report's refusal.

        The answer is a report that has waited for other calls, or the results of direct tools.
        """
        if waiting := find_waiting_report(messages):
            update, refused = settle_report(waiting, messages)
            return update or None, refused
        if tools := self._direct_tools:
            return build_direct_update(messages, tools, identity), None
        return None, None

    def _find_loop(
        self, messages: Sequence[BaseMessage]
    ) -> tuple[Halt | None, RepeatedCall | None]:
        """Return why the agent ends, as it makes the same call again and again.

        The second is the call of which it is told now, if it does not end.
        """
        settings, halt = self._settings, None
        # Without a refusal nothing is counted: this comes before every call of the model.
        if messages and REFUSED_KEY in messages[-1].response_metadata:
            halt = find_refusal_halt(messages, settings.max_refusals)
        repeated = find_repeated_call(messages, settings.repeat_rules)
        if repeated and not halt:
            halt = repeated.halt
        return halt, repeated

    def _find_end(self, state: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the update of a segment that ends without a model call, `None` for any other."""
        if state.get("response"):
            return {}
        # A root has no superior that could answer in place of the user.
        can_report = self._settings.callable_tools.can_report
        return build_unanswered_update(state["messages"]) if can_report else None

    def _announce_changes(
        self, past: Past, joined: JoinedState, gate: Gate, config: RunnableConfig
    ) -> JoinedState:
        """Return the state with a notice of the subordinates that have come or gone."""
        settings = self._settings
        # Most agents make none, and have none dismissed.
        if not (settings.spawn_rules or gate.dismissals):
            return joined
        rules, declared = settings.spawn_rules, settings.callable_tools.subordinates
        notices = list_roster_notices(past, joined.state, rules, declared, config)
        return joined.add_messages(notices) if notices else joined

    def _offer_reading(
        self, bound: BoundModel, messages: Sequence[BaseMessage]
    ) -> tuple[BoundModel, Shorten | None, Sequence[Any]]:
        """Return the model, what shortens its results, and the tool that reads on in them.

        From the first long result on, the tool is there in every request of the thread.
        """
        settings = self._settings
        found, shorten = settings.results.examine(messages), settings.results.shorten
        if found is Examination.WHOLE:
            # A middleware may add messages.
            return bound, shorten if settings.model_calls else None, ()
        bind = settings.bind_more if bound.unbound is None else bound.unbound.bind_tools
        has_room = len(settings.shown_tools) < MAX_TOOLS
        if bind is None or found is not Examination.CUT or not has_room:
            return bound, shorten, ()
        more = (settings.callable_tools.built_in[READ_RESULT].build_schema(),)
        if bound is self._bound_model and self._reading_model:
            return self._reading_model, shorten, more
        model = bind([*settings.shown_tools, *more])
        reading = BoundModel.from_runnable(model, bound.timed_model, bound.unbound)
        if bound is self._bound_model:
            self._reading_model = reading
        return reading, shorten, more

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
        if halt:
            return build_late_reply_update(halt, messages, context.message, context.identity)
        if settings.policy.context and get_context(config).workspace:
            context = replace(context, has_workspace=True)

        def limits(subordinate: str) -> RequestLimits:
            timeout = settings.timeouts.get(subordinate)
            if context.spawns and (levels := context.spawns.count_levels(subordinate)):
                timeout = settings.policy.compute_timeout(levels)
            return RequestLimits.begin(settings.depth, settings.policy, timeout, config)

        return self._replies.build_update(context, routed, limits)


def _read_mail(gate: Gate, config: RunnableConfig) -> PlanStep:
    """Return the step that reads the unread messages of the agent."""
    mailboxes = gate.mailboxes
    return PlanStep(partial(mailboxes.read, config), partial(mailboxes.aread, config))


def _note_read(mail: Sequence[Mail], gate: Gate, config: RunnableConfig) -> PlanStep:
    """Return the step after which messages count as read."""
    mailboxes = gate.mailboxes
    return PlanStep(
        partial(mailboxes.note_read, mail, config), partial(mailboxes.anote_read, mail, config)
    )
