"""`ApprovalFeature`: requests that wait until a person approves them."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphInterrupt

from echelons.delegation.approvals import (
    ApprovalAnswer,
    GuardedCall,
    StandingDecisions,
    build_approval_answer,
)
from echelons.delegation.join import LOST_HALT, RaceEntry, get_races
from echelons.delegation.user_answers import UserAnswer
from echelons.features.feature import AttemptHooks, AttemptStep, Feature, RequestPlace
from echelons.guards.circuit_breaker import AttemptOutcome
from echelons.guards.dismissals import get_dismissals
from echelons.guards.gate import Step, get_gate
from echelons.guards.permissions import RulesByName, judge_call
from echelons.identity.thread_history import ThreadHistory, build_head_step
from echelons.nodes.attempt import Attempt, LevelFailure
from echelons.nodes.request_queue import QueuedRequest
from echelons.nodes.tool_execution.approval import plan_approval, read_first_answer
from echelons.nodes.tool_execution.scratchpad import MISSING, Scratchpad, peek_first_answer
from echelons.plans import Plan, PlanStep, build_step
from echelons.tree.names import PATH_SEPARATOR, SPAWN_SUBORDINATE


class RequestVerdict(NamedTuple):
    """Whether a subordinate may be given a request."""

    failure: LevelFailure | None = None
    # What the superior of the agent that makes the request reads of it.
    told: tuple[UserAnswer, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestApprovals(AttemptHooks):
    """The approval of the requests of one agent to its subordinates."""

    rules: RulesByName
    decisions: StandingDecisions
    # Segments that have begun are not asked about any more.
    history: ThreadHistory

    def around_attempt(
        self, step: AttemptStep, proceed: Callable[[AttemptStep], Plan[Attempt]]
    ) -> Plan[Attempt]:
        """Ask about a request before anything is counted: the node runs again when it is answered.

        Raises:
            GraphInterrupt: A human is asked.
        """
        order, config, gate = step.order, step.config, step.gate
        # A call that middleware repeats needs no second approval.
        if step.failure or not self.may_hold(order, config) or order.wrap_log:
            return (yield from proceed(step))
        if (yield build_step(partial(gate.enter, Step.PERMISSION, config), gate.arun)):
            return (yield from proceed(step))
        failure, notices = yield from self.plan(order, config)
        done = yield from proceed(replace(step, failure=failure))
        if not notices:
            return done
        answers = (*notices, *done.answer.user_answers)
        answer = done.answer.model_copy(update={"user_answers": answers})
        return done._replace(answer=answer)

    def may_hold(self, order: QueuedRequest, config: RunnableConfig) -> bool:
        """Return whether a request may have to be approved; `config` is the subordinate's.

        It may also have been asked about before its rule was removed: its answer holds.
        """
        name = _get_rule_name(order) if order.added else order.request.current
        return name in self.rules or peek_first_answer(config) is not MISSING

    def plan(
        self, order: QueuedRequest, config: RunnableConfig
    ) -> Generator[PlanStep, Any, RequestVerdict]:
        """Return whether the subordinate may run; `config` is its own.

        Raises:
            GraphInterrupt: A human is asked.
        """
        pad = Scratchpad(config)
        if (yield build_head_step(self.history, config)):
            pad.note_answers()
            first = pad.answers[0] if pad.answers else None
            return _build_verdict(read_first_answer(first), order)
        if get_dismissals(get_gate(config)).find(str(config["metadata"]["agent_path"])):
            # The gate does not let it begin.
            return RequestVerdict()
        request, metadata = order.request, config["metadata"]
        spec, spawned = order.added.get(request.current), dict[str, Any]()
        if spec and order.is_new:
            shown = ("role", "kind", "profile", "tools", "contact_user", "keep")
            spawned = {"subordinate": request.current, **{key: spec.get(key) for key in shown}}
        call = GuardedCall(
            thread_id=str(config["configurable"].get("thread_id", "")),
            path=str(metadata["agent_path"]).rpartition(PATH_SEPARATOR)[0],
            kind="subordinate",
            name=_get_rule_name(order),
            arguments={"message": request.task, "context": dict(request.context), **spawned},
            call_id=order.call_id,
        )
        rules = self.rules.get(call.name, ())
        if order.request.route:
            # It only relays the request: the agent that answers is asked about.
            verdict = judge_call(rules, call.name, call.arguments)
            return _build_verdict(
                ApprovalAnswer("denied" if verdict == "deny" else "allowed"), order
            )
        try:
            answer = yield from plan_approval(call, rules, self.decisions, pad, config)
        except GraphInterrupt:
            race = order.race_entry
            if race is None or not race.enough or (yield _build_wait_step(race, config)):
                raise
            return RequestVerdict(LevelFailure(LOST_HALT.reason, AttemptOutcome.NOTHING))
        if answer.outcome == "allowed":
            pad.note_answers()
        return _build_verdict(answer, order)


def _get_rule_name(order: QueuedRequest) -> str:
    """Return the name of the rule for a request: one for the first of any spawned agent."""
    return SPAWN_SUBORDINATE if order.is_new else order.request.current


def _build_wait_step(race: RaceEntry, config: RunnableConfig) -> PlanStep:
    """Return the step that registers that an entrant waits, and says whether it still has to."""
    races = get_races(config)

    def register() -> bool:
        return not races.has_lost(race) and races.register_waiting(race)

    return PlanStep(register, partial(races.arun, register))


def _build_verdict(answer: ApprovalAnswer, order: QueuedRequest) -> RequestVerdict:
    request = order.request
    notice = build_approval_answer("subordinate", request.current, answer)
    failure = (
        None if answer.outcome == "allowed" else LevelFailure(answer.reason, AttemptOutcome.NOTHING)
    )
    path = request.path_from_origin.parent
    return RequestVerdict(failure, (notice.model_copy(update={"path": path}),) if notice else ())


class ApprovalsFeature(Feature):
    """Requests that a person has to approve before they run."""

    name: ClassVar[str] = "approvals"

    def bind_request(self, place: RequestPlace) -> AttemptHooks:
        """Return the approval of requests, which a stored question needs also without a rule."""
        return RequestApprovals(place.rules, place.decisions, place.history)


FEATURE = ApprovalsFeature()
