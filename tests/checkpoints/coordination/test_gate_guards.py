"""What features decide in the transactions of a run's gate, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from echelons import Agent, Limits
from echelons.checkpoints.coordination.gate import METER, TreeGate
from echelons.checkpoints.coordination.orders import ORDERS, ControlOrders
from echelons.checkpoints.ledger import MemoryLedger, Transaction
from echelons.features.feature import GateScope
from echelons.features.registry import open_guards
from echelons.guards.gate import Halt, Pause, Step, StepGuard
from echelons.identity.lineage import Identity
from echelons.run_context import NO_CONTEXT

ROOT = Identity("head", ("head",), "t", "tree", turn="1")
CONFIG = {"metadata": {"agent_path": "head"}, "configurable": {}}
STOPPED = ControlOrders(stopped=("head",))


class Recorded(StepGuard):
    """A guard that stores what it is called for, and that may refuse a step."""

    def __init__(self, name: str, calls: list[str], halt: Halt | None = None) -> None:
        self.name = name  # type: ignore[misc]  # several of one class
        self._calls = calls
        self._halt = halt
        self.order: Halt | None = None

    def refresh(self, open_: Transaction) -> Callable[[], object]:
        self._calls.append(f"{self.name} reads")
        return lambda: self._calls.append(f"{self.name} has read")

    def find_order(self, path: str, step: Step | None) -> Halt | None:
        return self.order

    def concerns(self, step: Step, config: Mapping[str, Any], claims: Sequence[Any]) -> bool:
        return step is not Step.MODEL

    def admit(
        self, open_: Transaction, step: Step, config: Mapping[str, Any], claims: Sequence[Any]
    ) -> Halt | None:
        self._calls.append(f"{self.name} admits {claims}")
        open_.compare_and_set(self.name, None, True)
        return self._halt

    def finish(self, open_: Transaction) -> Callable[[], object]:
        self._calls.append(f"{self.name} finishes")
        return lambda: self._calls.append(f"{self.name} is stored")

    def close(self) -> Callable[[Transaction], Callable[[], object]]:
        return lambda open_: lambda: self._calls.append(f"{self.name} is closed")


def build(*guards: StepGuard) -> tuple[TreeGate, MemoryLedger]:
    ledger = MemoryLedger()
    gate = TreeGate(ROOT, "t", Limits(), ledger)
    gate.add_guards(guards)
    return gate, ledger


def count_steps(ledger: MemoryLedger) -> int:
    usage = ledger.query(lambda open_: METER.get(open_, "t", "1"))
    return usage.steps if usage else 0


def test_guards_admit_a_step_in_order_and_are_called_after_its_commit() -> None:
    calls: list[str] = []
    gate, ledger = build(Recorded("one", calls), Recorded("two", calls))

    assert gate.enter(Step.TOOL, CONFIG, ("claim",)) is None
    gate.close()

    assert calls == [
        *("one reads", "two reads", "one has read", "two has read"),
        *("one admits ('claim',)", "two admits ('claim',)"),
        *("one finishes", "two finishes", "one is stored", "two is stored"),
        *("one is closed", "two is closed"),
    ]
    assert count_steps(ledger) == 1


def test_first_guard_that_refuses_a_step_ends_it_and_nothing_is_counted() -> None:
    calls: list[str] = []
    halt = Halt("budget", "nothing is left")
    gate, ledger = build(Recorded("one", calls, halt), Recorded("two", calls))

    assert gate.enter(Step.SUBORDINATE, CONFIG) == halt

    assert "two admits ()" not in calls
    assert calls[-2:] == ["one is stored", "two is stored"]
    assert count_steps(ledger) == 0


def test_guard_is_not_asked_about_steps_that_do_not_concern_it() -> None:
    calls: list[str] = []
    gate, ledger = build(Recorded("one", calls, Halt("budget", "nothing is left")))

    assert gate.enter(Step.MODEL, CONFIG) is None

    assert calls == ["one reads", "one has read"]
    assert count_steps(ledger) == 1


@pytest.mark.parametrize(
    ("order", "orders", "expected"),
    [
        (Halt("dismissed", "now"), STOPPED, Halt("dismissed", "now")),
        (Halt("dismissed", "later", finishes=True), STOPPED, STOPPED.find_order("head")),
        (
            Halt("dismissed", "later", finishes=True),
            ControlOrders(paused=("head",)),
            Halt("dismissed", "later", finishes=True),
        ),
        (None, ControlOrders(paused=("head",)), Pause("head")),
    ],
)
def test_order_that_ends_an_agent_at_once_comes_first_and_a_pause_last(
    order: Halt | None, orders: ControlOrders, expected: Halt | Pause
) -> None:
    guard = Recorded("one", [])
    guard.order = order
    gate, ledger = build(guard)
    ledger.commit(lambda open_: ORDERS.put(open_, orders, "t", "1"))

    assert gate.enter(Step.MODEL, CONFIG) == expected


def test_features_guard_a_run_in_the_order_of_the_registry() -> None:
    scope = GateScope(
        agent=Agent("head"),
        identity=ROOT,
        thread_id="t",
        ledger=MemoryLedger(),
        saver=None,
        turn=None,
        around=NO_CONTEXT,
        allowance=None,
        configurable={},
        clock=lambda: 0.0,
    )

    # A budget refuses a request before its agent gets a name for people.
    assert [guard.name for guard in open_guards(scope)] == ["budget", "dismissal", "aliases"]
