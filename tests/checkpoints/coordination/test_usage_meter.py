"""What a turn spends is counted up to its limits, whoever counts and however it ends."""

from __future__ import annotations

import pytest

from echelons import Limits
from echelons.checkpoints.coordination.gate import Meter
from echelons.checkpoints.ledger import MemoryLedger
from echelons.guards.gate import Halt, Step
from echelons.testing import FakeClock


def take(ledger: MemoryLedger, meter: Meter, step: Step = Step.TOOL) -> Halt | None:
    """Count a step as a gate does."""
    return ledger.commit(lambda open_: meter.count(open_, step))()


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


def test_a_process_that_dies_takes_no_step_with_it_but_those_that_it_had_begun() -> None:
    ledger, limits = MemoryLedger(), Limits(steps=300)
    assert take(ledger, Meter("m", limits)) is None  # and then its process died

    after = Meter("m", limits)
    taken = 0
    while take(ledger, after) is None:
        taken += 1

    assert taken == 299


def test_steps_and_calls_are_stored_one_by_one() -> None:
    ledger, limits = MemoryLedger(), Limits(steps=1000, calls=500)
    meter = Meter("m", limits)
    take(ledger, meter, Step.MODEL)
    assert (spent(ledger)["steps"], spent(ledger)["calls"]) == (1, 1)

    ledger.commit(meter.count)()

    assert (spent(ledger)["steps"], spent(ledger)["calls"]) == (1, 1)
    assert take(ledger, meter) is None  # and it can go on


def test_counts_that_were_stored_in_blocks_are_read() -> None:
    ledger = MemoryLedger()
    blocks = {"steps": 100, "calls": 0, "tokens": 7, "seconds": 0.5}
    ledger.compare_and_set("m", None, blocks)

    assert take(ledger, Meter("m", Limits(), lambda: 0.0)) is None

    assert spent(ledger) == {**blocks, "steps": 101}


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
    meter.add_tokens(60)
    take(ledger, meter, Step.MODEL)
    assert spent(ledger)["tokens"] == 60

    after = Meter("m", limits)  # the process died
    assert take(ledger, after, Step.MODEL) is None
    after.add_tokens(40)
    assert take(ledger, after, Step.MODEL) == Halt("limit", "100 of 100 tokens")


def test_seconds_pass_while_a_run_lasts_and_add_up() -> None:
    ledger, clock, limits = MemoryLedger(), FakeClock(), Limits(seconds=10)
    meter = Meter("m", limits, clock.now)
    take(ledger, meter)
    clock.advance(6)
    ledger.commit(meter.count)()
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
