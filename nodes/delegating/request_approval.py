"""Asks a human whether a subordinate may be given a request, where the permissions say so.

The question comes in the node of the subordinate, before its segment has begun.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphInterrupt

from echelons.delegation.race import LOST_HALT, RaceEntry, get_races
from echelons.effects.approvals import ApprovalAnswer, GuardedCall, StandingDecisions
from echelons.guards.circuit_breaker import AttemptOutcome
from echelons.guards.permissions import ApprovalRule, judge_call
from echelons.identity.thread_history import ThreadHistory
from echelons.nodes.delegating.attempt import LevelFailure
from echelons.nodes.delegating.queued_request import QueuedRequest
from echelons.nodes.tool_execution.approval import plan_approval
from echelons.nodes.tool_execution.at_most_once import PlanStep
from echelons.nodes.tool_execution.scratchpad import Scratchpad
from echelons.tree.names import PATH_SEPARATOR


@dataclass(frozen=True, slots=True)
class RequestApproval:
    """The approval of the requests to one subordinate.

    Attributes:
        rules: The rules for it on the path to its superior, at least one.
        decisions: The decisions that hold for a whole thread.
        history: Knows the segments that have begun: they are not asked about any more.
    """

    rules: Sequence[ApprovalRule]
    decisions: StandingDecisions
    history: ThreadHistory

    def plan(
        self, order: QueuedRequest, config: RunnableConfig
    ) -> Generator[PlanStep, Any, LevelFailure | None]:
        """Return why the subordinate must not run, or `None`; `config` is its own.

        Raises:
            GraphInterrupt: A human is asked.
        """
        pad, history = Scratchpad(config), self.history
        has_begun = yield PlanStep(
            partial(history.load_head, config), partial(history.aload_head, config)
        )
        if has_begun:
            pad.note_answers()
            return None
        call = _build_guarded_call(order, config)
        if order.request.route:
            # It only relays the request: the agent that answers is asked about.
            verdict = judge_call(self.rules, call.name, call.arguments)
            return _reject(ApprovalAnswer("denied")) if verdict == "deny" else None
        try:
            answer = yield from plan_approval(call, self.rules, self.decisions, pad, config)
        except GraphInterrupt:
            race = order.race_entry
            if race is None or not race.enough or (yield _build_wait_step(race, config)):
                raise
            return LevelFailure(LOST_HALT.reason, AttemptOutcome.NOTHING)
        if answer.verdict != "allowed":
            return _reject(answer)
        pad.note_answers()
        return None


def _build_guarded_call(order: QueuedRequest, config: RunnableConfig) -> GuardedCall:
    request, metadata = order.request, config["metadata"]
    return GuardedCall(
        thread_id=str(config["configurable"].get("thread_id", "")),
        path=str(metadata["agent_path"]).rpartition(PATH_SEPARATOR)[0],
        kind="subordinate",
        name=request.current,
        arguments={"message": request.task, "context": dict(request.context)},
        call_id=order.call_id,
    )


def _build_wait_step(race: RaceEntry, config: RunnableConfig) -> PlanStep:
    """Return the step that registers that an entrant waits, and says whether it still has to."""
    races = get_races(config)

    def register() -> bool:
        return not races.has_lost(race) and races.register_waiting(race)

    return PlanStep(register, partial(races.arun, register))


def _reject(answer: ApprovalAnswer) -> LevelFailure:
    return LevelFailure(answer.reason, AttemptOutcome.NOTHING)
