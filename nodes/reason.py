"""`reason`: one step of the agent loop. Calls the model once and reads its reply.

Entered at the start of a segment and after every round of calls. Its update holds all that the
level does next, see `nodes/planning/reply_handler.py`. The work of features at a step stands in the
hooks of `echelons/features/feature.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from langchain_core.runnables import RunnableConfig

from echelons.delegation.calls import RequestLimits
from echelons.delegation.policy import DelegationPolicy
from echelons.features.feature import (
    AgentHooks,
    AgentStep,
    CutReply,
    Outcome,
    SubordinateSource,
    collect,
    compose,
)
from echelons.guards.gate import Halt, Step, get_gate
from echelons.guards.limits import DEFAULT_REFUSALS
from echelons.identity.lineage import Identity, require_identity
from echelons.identity.thread_history import ThreadHistory, build_past_step
from echelons.langgraph_internals import TASK_ID_KEY
from echelons.nodes.base_node import Node
from echelons.nodes.model_call import AgentModel
from echelons.nodes.planning.delegation_plan import (
    RoutedTasks,
    compute_max_parts,
    iter_unnamed_tasks,
)
from echelons.nodes.planning.final_answer import (
    WITHDRAWN_REPORT,
    find_waiting_report,
    refuse_report,
)
from echelons.nodes.planning.relay import (
    JoinedState,
    build_addressed_call,
    build_halt_update,
    build_late_reply_update,
    build_unanswered_update,
    find_answer,
    join_parts,
)
from echelons.nodes.planning.repeated_calls import RepeatRules, find_loop
from echelons.nodes.planning.reply_handler import ReplyContext, ReplyHandler, build_relay_update
from echelons.nodes.planning.task_router import TaskRouter
from echelons.nodes.planning.tool_calls import CallableTools
from echelons.plans import Plan, arun_plan_steps, build_step, run_plan_steps
from echelons.tree.names import PATH_SEPARATOR


@dataclass(frozen=True, slots=True)
class ReasonSettings:
    """The settings of an agent's `reason` node.

    Attributes:
        model: The agent's model.
        tools: The tools that it may call.
        router: Routes tasks that name no subordinate; `None` without subordinates.
        policy: The agent's delegation policy.
        depth: Levels of the tree.
        timeouts: Seconds for each declared subordinate, by its name; `None` for no limit.
        max_refusals: Refusals of the same call in a row after which the agent ends; `None` for
            no limit.
        repeat_rules: How often it may make the same call with the same result; `None` for no limit.
        direct_tools: Names of its tools whose results are its answer (`return_direct`).
        source: What adds subordinates to its declared ones; `None` for nothing.
    """

    model: AgentModel
    tools: CallableTools
    router: TaskRouter | None = None
    policy: DelegationPolicy = field(default_factory=DelegationPolicy)
    depth: int = 1
    timeouts: Mapping[str, float | None] = field(default_factory=dict)
    max_refusals: int | None = DEFAULT_REFUSALS
    repeat_rules: RepeatRules | None = None
    direct_tools: frozenset[str] = frozenset()
    source: SubordinateSource | None = None


class Reason(Node):
    """The node `reason` of one level."""

    def __init__(
        self, settings: ReasonSettings, history: ThreadHistory, hooks: Sequence[AgentHooks] = ()
    ) -> None:
        super().__init__("reason")
        self._settings = settings
        self._history = history
        self._replies = ReplyHandler(settings.tools, settings.policy, settings.source)
        self._news_hooks = collect(hooks, "has_news", AgentHooks)
        self._prompt_hooks = collect(hooks, "prepare_prompt", AgentHooks)
        self._around = compose(collect(hooks, "around_step", AgentHooks), self._call_model)
        self._ask = compose(collect(hooks, "around_model", AgentHooks), settings.model.ask)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Call the model, unless the segment has reported, is halted, or passes its task on."""
        return run_plan_steps(self._run(input, config or {}, is_async=False))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Async version of `invoke`."""
        return await arun_plan_steps(self._run(input, config or {}, is_async=True))

    def _run(self, input: Any, config: RunnableConfig, *, is_async: bool) -> Plan[dict[str, Any]]:
        identity = require_identity(config)
        joined = join_parts(input, identity)
        state = joined.state
        if state.get("response"):
            return joined.rebase_update({})
        # A root has no superior that could answer in place of the user.
        unanswered = build_unanswered_update if self._settings.tools.can_report else None
        if unanswered and (end := unanswered(state["messages"])) is not None:
            return joined.rebase_update(end)
        if state.get("forward"):
            past = yield build_past_step(self._history, state.get("previous"), config)
            return build_relay_update(past, state, identity)
        if call := build_addressed_call(state["messages"], identity):
            past = yield build_past_step(self._history, state.get("previous"), config)
            context = self._replies.parse_message(past, state, call, identity, config)
            return joined.rebase_update(self._build_reply_update(context, None, {}, config))
        return (yield from self._step(joined, identity, config, is_async))

    def _step(
        self, joined: JoinedState, identity: Identity, config: RunnableConfig, is_async: bool
    ) -> Plan[dict[str, Any]]:
        """End with an answer that waits, or call the model, if the gate admits either."""
        settings, state, gate = self._settings, joined.state, get_gate(config)
        direct, refused = find_answer(state["messages"], settings.direct_tools, identity)
        halt, has_news = None, False
        if direct:
            halt = yield build_step(partial(gate.enter, Step.RETURN, config), gate.arun)
            has_news = yield from self._has_news(config)
            if not halt and (not has_news or state.get("unhooked")):
                # Hooks before the model that were skipped come first.
                return joined.rebase_update({"jump_to": "model"} if has_news else direct)
        if has_news and (waiting := find_waiting_report(state["messages"])):
            refused = refuse_report(waiting, WITHDRAWN_REPORT)
        joined = joined.replace_message(refused) if refused else joined
        loop, repeated = find_loop(state["messages"], settings.max_refusals, settings.repeat_rules)
        if gate.backpressure:
            yield gate.backpressure.build_start_step(config["configurable"][TASK_ID_KEY])
        halt = halt or loop
        if not halt:
            halt = yield build_step(partial(gate.enter, Step.MODEL, config), gate.arun)
        if halt:
            return joined.rebase_update(build_halt_update(halt, state["messages"], identity))
        if repeated:
            joined = joined.add_messages([repeated.build_warning(identity)])
        past = yield build_past_step(self._history, state.get("previous"), config)
        step = AgentStep(joined, past.hide_cut(state), identity, config, gate, is_async)
        outcome = yield from self._around(step)
        joined = joined.add_messages(outcome.added) if outcome.added else joined
        if outcome.halt and not outcome.reply:
            end = build_halt_update(outcome.halt, joined.state["messages"], identity)
            return joined.rebase_update(end)
        return joined.rebase_update(outcome.update)

    def _has_news(self, config: RunnableConfig) -> Plan[bool]:
        for has_news in self._news_hooks:
            if (yield from has_news(config)):
                return True
        return False

    def _call_model(self, step: AgentStep) -> Plan[Outcome]:
        """Call the model, and return the update for its reply."""
        config, gate = step.config, step.gate
        call = yield from self._settings.model.prepare(step, self._prompt_hooks)
        if isinstance(call, Halt):
            return Outcome(halt=call)
        answer = yield from self._ask(call)
        if answer.cut:
            return Outcome(cut=CutReply(call, answer.cut))
        if answer.refused:
            return Outcome(halt=answer.refused)
        halt = answer.halt
        if not answer.is_counted:
            halt = yield build_step(partial(gate.leave, answer.reply, config), gate.arun)
        context = self._replies.parse_reply(
            step.past, step.state, answer.reply, step.identity, config
        )
        context = context.keep(call.metadata) if call.metadata else context
        # Who works on the tasks of a reply that name no subordinate.
        routed: dict[tuple[str, bool], Any] = {}
        router, identity = self._settings.router, step.identity
        for task, splits in iter_unnamed_tasks(context.parsed, self._settings.policy):
            assert router is not None  # noqa: S101  only a level with subordinates asks
            path, guards = PATH_SEPARATOR.join(identity.path), step.gate.guards.values()
            where: Any = {
                "max_parts": compute_max_parts(context.parsed, splits),
                "added": context.added.list_agents() if context.added else (),
                "closed": {way for guard in guards for way in guard.list_closed(path)},
            }
            routed[task, splits] = yield from router.route_task(task, identity.agent, **where)
        update = self._build_reply_update(context, halt, routed, config)
        return Outcome(update, context, halt, updates=answer.updates)

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

        def limits(subordinate: str) -> RequestLimits:
            timeout = settings.timeouts.get(subordinate)
            if context.added and (levels := context.added.count_levels(subordinate)):
                timeout = settings.policy.compute_timeout(levels)
            return RequestLimits.begin(settings.depth, settings.policy, timeout, config)

        return self._replies.build_update(context, routed, limits)
