"""`LedgerDecisions`: the decisions on calls that hold for a whole thread, kept in its ledger.

Each call has one value under the root's thread. A decision is for the line of the conversation in
which it was given: neither a copy of the thread nor a fork of its past takes it over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeVar

from echelons.checkpoints.coordination.branches import get_root_checkpoint, read_branch
from echelons.checkpoints.coordination.turns import get_turn
from echelons.checkpoints.inherited_config import get_saver
from echelons.checkpoints.ledger import (
    RecordKind,
    Transaction,
    VersionedValue,
    build_key,
    get_ledger,
)
from echelons.checkpoints.queries import LedgerQuery, ReadPlan, arun_plan, run_plan
from echelons.effects.approvals import GuardedCall
from echelons.effects.human_review import Decision
from echelons.errors import InvalidSetting, LedgerDamaged

T = TypeVar("T")
Config = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StandingDecision:
    """A decision as it is stored.

    Attributes:
        decision: Its JSON.
        thread: The root's thread in which it was given; a copy of the thread has another id.
        after: The root's checkpoint at which it was given.
    """

    decision: dict[str, Any]
    thread: str
    after: str


APPROVAL: Final[RecordKind[list[StandingDecision]]] = RecordKind("approval", list[StandingDecision])
"""The decisions on one call, one for each branch of the thread in which it was decided."""


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
        saver, turn = get_saver(config["configurable"]), get_turn(config["configurable"])
        if saver is None:
            return
        name, after = _build_key(call), get_root_checkpoint(config["configurable"])
        new = asdict(StandingDecision(decision.to_json(), call.thread_id, after))

        def work(open_: Transaction) -> None:
            if turn:
                open_.require_lease(turn.fence)
            found = open_.get_record(APPROVAL, name)
            known = [asdict(each) for each in found.value] if found else []
            if new not in known:
                others = [each for each in known if each["after"] != after]
                open_.compare_and_set(name, found.version if found else None, [*others, new])

        get_ledger(saver).commit(work)

    async def arun(self, work: Callable[[], T], config: Config) -> T:
        """Call `keep` in an event loop, and again if the ledger was busy."""
        saver = get_saver(config["configurable"])
        return await get_ledger(saver).arun(work) if saver else work()


def _find_decision(call: GuardedCall, config: Config) -> ReadPlan[Decision | None]:
    name = _build_key(call)
    found: VersionedValue[list[StandingDecision]] | None = yield LedgerQuery(
        lambda ledger: ledger.get_record(APPROVAL, name)
    )
    given = {
        each.after: each.decision
        for each in (found.value if found else ())
        if each.thread == call.thread_id
    }
    if not given:
        return None
    branch = yield from read_branch(call.thread_id, get_root_checkpoint(config["configurable"]))
    for after in sorted(given, reverse=True):
        if branch.goes_on_from(after):
            try:
                return Decision.from_json(given[after])
            except InvalidSetting as error:
                raise LedgerDamaged(name, str(error), APPROVAL.name) from error
    return None


def _build_key(call: GuardedCall) -> str:
    return build_key(call.thread_id, APPROVAL.name, call.digest)
