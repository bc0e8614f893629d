"""`LedgerDecisions`: the decisions on calls that hold for a whole thread, kept in its ledger.

Each call has one value under the root's thread. A decision is for the line of the conversation in
which it was given: neither a copy of the thread nor a fork of its past takes it over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from echelons.checkpoints.coordination.records import (
    Branch,
    Records,
    get_root_checkpoint,
    read_branch,
)
from echelons.checkpoints.coordination.task_changes import TaskChange, commit_changes
from echelons.checkpoints.ledger import Transaction, get_ledger
from echelons.checkpoints.queries import LedgerQuery, ReadPlan, arun_plan, run_plan
from echelons.checkpoints.run_config import get_saver
from echelons.delegation.approvals import Decision, GuardedCall
from echelons.errors import InvalidSetting, LedgerDamaged

T = TypeVar("T")
Config = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StandingDecision:
    """A decision as it is stored."""

    decision: dict[str, Any]  # its JSON
    thread: str  # the root's thread in which it was given; a copy of the thread has another id
    after: str  # the root's checkpoint at which it was given


# A fork takes over none of them, wherever it begins.
STANDING: Final = Records[list[StandingDecision]](
    "approval", list[StandingDecision], "items", sees=Branch.goes_on_from
)
"""The decisions on a call, by its digest: one for each branch on which it was decided."""


class LedgerDecisions:
    """The standing decisions of a compiled tree, in the ledger of the saver that a run uses."""

    def find(self, call: GuardedCall, config: Config) -> Decision | None:
        """Return the decision that holds for a call of a run, if there is one."""
        saver = get_saver(config["configurable"])
        return run_plan(saver, _find_decision(call, config)) if saver else None

    async def afind(self, call: GuardedCall, config: Config) -> Decision | None:
        """Async version of `find`."""
        saver = get_saver(config["configurable"])
        return await arun_plan(saver, _find_decision(call, config)) if saver else None

    def keep(self, call: GuardedCall, decision: Decision, config: Config) -> None:
        """Keep a decision for the same call, from now on; nothing if there is no saver."""
        saver = get_saver(config["configurable"])
        if saver is None:
            return
        after = get_root_checkpoint(config["configurable"])
        new = StandingDecision(decision.to_json(), call.thread_id, after)

        def add(before: list[StandingDecision] | None) -> list[StandingDecision]:
            if before and new in before:
                return before
            return [*(standing for standing in before or () if standing.after != after), new]

        def store(open_: Transaction) -> None:
            STANDING.change(open_, add, call.thread_id, call.digest)

        commit_changes(get_ledger(saver), [TaskChange("approvals", store)], config)

    async def arun(self, work: Callable[[], T], config: Config) -> T:
        """Call `keep` in an event loop, and again if the ledger was busy."""
        saver = get_saver(config["configurable"])
        return await get_ledger(saver).arun(work) if saver else work()


def _find_decision(call: GuardedCall, config: Config) -> ReadPlan[Decision | None]:
    name = call.thread_id, call.digest
    standing: list[StandingDecision] | None = yield LedgerQuery(
        lambda ledger: ledger.query(lambda open_: STANDING.get(open_, *name))
    )
    decisions = {
        decision.after: decision.decision
        for decision in standing or ()
        if decision.thread == call.thread_id
    }
    if not decisions:
        return None
    branch = yield from read_branch(call.thread_id, get_root_checkpoint(config["configurable"]))
    for after in sorted(decisions, reverse=True):
        if STANDING.sees(branch, after):
            try:
                return Decision.from_json(decisions[after])
            except InvalidSetting as error:
                raise LedgerDamaged(STANDING.key(*name), str(error), STANDING.name) from error
    return None
