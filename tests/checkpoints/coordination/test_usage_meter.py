"""What a turn spends is counted up to its limits, whoever counts and however it ends."""

from __future__ import annotations

import pytest

from echelons import Limits
from echelons.checkpoints.coordination.usage_meter import Meter
from echelons.checkpoints.ledger import MemoryLedger
from echelons.guards.gate import Halt, Step
from echelons.testing import FakeClock


def take(ledger: MemoryLedger, meter: Meter, step: Step = Step.TOOL) -> Halt | None:
    """Count a step as a gate does."""
    while not (taken := meter.take(step)):
        ledger.commit(lambda open_: meter.refill(open_, step))()
    return taken if isinstance(taken, Halt) else None


def spent(ledger: MemoryLedger) -> dict[str, float]:
    found = ledger.get("m")
    assert found is not None
    return dict(found.value)


@pytest.mark.parametrize("limit", [1, 2, 99, 100, 199, 200, 250, 1001])
def test_exactly_as_many_steps_are_counted_as_the_limit_says(limit: int) -> None:
    ledger, meter = MemoryLedger(), Meter("m", Limits(steps=limit))

    assert [take(ledger, meter) for _ in range(limit)] == [None] * limit
    assert take(ledger, meter) == Halt("limit", f"{limit} of {limit} steps")
    assert take(ledger, meter, Step.MODEL) == Halt("limit", f"{limit} of {limit} steps")
    assert spent(ledger)["steps"] == limit


def test_model_calls_end_before_steps_do_and_the_others_go_on() -> None:
    ledger, meter = MemoryLedger(), Meter("m", Limits(steps=10, calls=2))

    assert [take(ledger, meter, Step.MODEL) for _ in range(2)] == [None, None]
    assert take(ledger, meter, Step.MODEL) == Halt("limit", "2 of 2 model calls")
    assert take(ledger, meter, Step.TOOL) is None


def test_a_block_dies_with_its_run_and_is_not_counted_twice() -> None:
    ledger, limits = MemoryLedger(), Limits(steps=300)
    assert take(ledger, Meter("m", limits)) is None  # a block of three, and then its process died

    after = Meter("m", limits)
    taken = 0
    while take(ledger, after) is None:
        taken += 1

    assert taken == 297


def test_what_is_in_hand_is_given_back_at_the_end_of_a_run() -> None:
    ledger, limits = MemoryLedger(), Limits(steps=1000, calls=500)
    meter = Meter("m", limits)
    take(ledger, meter, Step.MODEL)
    assert (spent(ledger)["steps"], spent(ledger)["calls"]) == (10, 5)

    ledger.commit(meter.give_back)()

    assert (spent(ledger)["steps"], spent(ledger)["calls"]) == (1, 1)
    assert take(ledger, meter) is None  # and it can go on


def test_two_runs_share_what_there_is() -> None:
    ledger, limits = MemoryLedger(), Limits(steps=25)
    one, other = Meter("m", limits), Meter("m", limits)

    counted = 0
    while take(ledger, one) is None or take(ledger, other) is None:
        counted += 1

    assert counted == 25


def test_tokens_are_written_down_with_each_step_where_they_are_limited() -> None:
    ledger, limits = MemoryLedger(), Limits(tokens=100)
    meter = Meter("m", limits)
    take(ledger, meter, Step.MODEL)
    meter.spend(60)
    take(ledger, meter, Step.MODEL)
    assert spent(ledger)["tokens"] == 60

    after = Meter("m", limits)  # the process died
    assert take(ledger, after, Step.MODEL) is None
    after.spend(40)
    assert take(ledger, after, Step.MODEL) == Halt("limit", "100 of 100 tokens")


def test_seconds_pass_while_a_run_lasts_and_add_up() -> None:
    ledger, clock, limits = MemoryLedger(), FakeClock(), Limits(seconds=10)
    meter = Meter("m", limits, clock.now)
    take(ledger, meter)
    clock.advance(6)
    ledger.commit(meter.give_back)()
    clock.advance(1000)

    after = Meter("m", limits, clock.now)
    assert take(ledger, after) is None
    clock.advance(3.5)
    assert take(ledger, after) is None
    clock.advance(0.5)
    assert take(ledger, after) == Halt("limit", "10 of 10 seconds")


def test_a_lower_limit_than_what_is_spent_is_reached() -> None:
    ledger = MemoryLedger()
    first = Meter("m", Limits(steps=50))
    assert [take(ledger, first) for _ in range(20)] == [None] * 20

    assert take(ledger, Meter("m", Limits(steps=5))) == Halt("limit", "5 of 5 steps")
    assert spent(ledger)["steps"] == 20
