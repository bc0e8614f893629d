"""A circuit opens after failures in a row, and closes after one probe that succeeds."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from echelons.errors import InvalidSetting
from echelons.guards.circuit_breaker import Admission, BreakerPolicy, Circuit, CircuitState

RULES = BreakerPolicy(failures=3, seconds=60)


def opened() -> Circuit:
    circuit = Circuit()
    for _ in range(3):
        circuit = circuit.record_failure(RULES, 0.0, 0)
    return circuit


def test_it_opens_after_three_failures_in_a_row_and_not_before() -> None:
    circuit = Circuit()
    for expected in (CircuitState.CLOSED, CircuitState.CLOSED, CircuitState.OPEN):
        circuit = circuit.record_failure(RULES, 0.0, 0)
        assert circuit.get_state(RULES, 0.0) is expected


def test_a_success_between_begins_the_count_anew() -> None:
    circuit = (
        Circuit().record_failure(RULES, 0.0, 0).record_failure(RULES, 0.0, 0).record_success(0)
    )

    assert circuit.record_failure(RULES, 0.0, 0).get_state(RULES, 0.0) is CircuitState.CLOSED


def test_open_circuit_admits_no_request_and_says_for_how_long() -> None:
    circuit, admission = opened().admit(RULES, 20.0)

    assert admission == Admission(admitted=False, wait=40.0, failures=3)
    assert circuit == opened()


def test_after_its_time_it_admits_one_probe() -> None:
    circuit, first = opened().admit(RULES, 60.0)
    _, second = circuit.admit(RULES, 61.0)

    assert (first.admitted, first.probe) == (True, 1)
    assert (second.admitted, second.wait) == (False, 59.0)
    assert circuit.get_state(RULES, 61.0) is CircuitState.HALF_OPEN


def test_a_probe_that_succeeds_closes_it_and_one_that_fails_opens_it_again() -> None:
    circuit, probe = opened().admit(RULES, 60.0)

    assert circuit.record_success(probe.probe).get_state(RULES, 60.0) is CircuitState.CLOSED
    again = circuit.record_failure(RULES, 70.0, probe.probe)
    assert (again.get_state(RULES, 129.0), again.failures) == (CircuitState.OPEN, 4)
    assert again.get_state(RULES, 130.0) is CircuitState.HALF_OPEN


def test_a_probe_that_never_comes_back_is_followed_by_another() -> None:
    circuit, lost = opened().admit(RULES, 60.0)
    circuit, second = circuit.admit(RULES, 120.0)

    assert (second.admitted, second.probe) == (True, 2)
    assert circuit.record_failure(RULES, 121.0, lost.probe) == circuit
    assert circuit.record_success(lost.probe) == circuit


def test_requests_admitted_before_the_circuit_opened_do_not_count() -> None:
    assert opened().record_success(0) == opened()
    assert opened().record_failure(RULES, 5.0, 0) == opened()


def test_an_interrupted_probe_leaves_its_place_to_another() -> None:
    circuit, probe = opened().admit(RULES, 60.0)
    circuit = circuit.release_probe(probe.probe)

    assert circuit.admit(RULES, 61.0)[1].admitted


def test_a_clock_that_is_put_back_does_not_keep_it_open() -> None:
    assert opened().admit(RULES, -3600.0)[1].admitted


@pytest.mark.parametrize(
    "wrong",
    [{"failures": 0}, {"seconds": 0}, {"seconds": float("inf")}, {"intensity": 0}, {"x": 1}],
)
def test_rules_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    [name] = wrong
    with pytest.raises(InvalidSetting, match=f"BreakerPolicy.{name}="):
        BreakerPolicy(**wrong)  # type: ignore[arg-type]


class Against(RuleBasedStateMachine):
    """The circuit against its textbook description, told in other words."""

    def __init__(self) -> None:
        super().__init__()
        self.circuit, self.now = Circuit(), 0.0
        self.in_a_row = 0
        self.shut_until: float | None = None
        self.probe: int | None = None
        self.probe_lost_at = 0.0

    @rule(seconds=st.sampled_from([0.5, 10.0, 59.0, 60.0, 200.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def ask(self) -> None:
        self.circuit, admission = self.circuit.admit(RULES, self.now)
        if self.shut_until is None:
            assert admission.admitted
            assert admission.probe == 0
            return
        free = self.now >= (self.probe_lost_at if self.probe else self.shut_until)
        assert admission.admitted is free
        if free:
            self.probe, self.probe_lost_at = admission.probe, self.now + RULES.seconds

    @precondition(lambda self: self.shut_until is None)
    @rule(ok=st.booleans())
    def answer(self, ok: bool) -> None:
        if ok:
            self.circuit, self.in_a_row = self.circuit.record_success(0), 0
            return
        self.circuit, self.in_a_row = (
            self.circuit.record_failure(RULES, self.now, 0),
            self.in_a_row + 1,
        )
        if self.in_a_row == RULES.failures:
            self.shut_until = self.now + RULES.seconds

    @precondition(lambda self: self.probe is not None)
    @rule(end=st.sampled_from(["good", "bad", "nothing"]))
    def probe_ends(self, end: str) -> None:
        assert self.probe is not None
        assert self.shut_until is not None
        if end == "good":
            self.circuit = self.circuit.record_success(self.probe)
            self.shut_until, self.in_a_row = None, 0
        elif end == "bad":
            self.circuit = self.circuit.record_failure(RULES, self.now, self.probe)
            self.shut_until = self.now + RULES.seconds
        else:
            self.circuit = self.circuit.release_probe(self.probe)
        self.probe = None

    @rule(ok=st.booleans(), probe=st.integers(-3, -1))
    def a_stale_answer_comes(self, ok: bool, probe: int) -> None:
        if self.shut_until is not None:
            before = self.circuit
            after = (
                before.record_success(probe)
                if ok
                else before.record_failure(RULES, self.now, probe)
            )
            assert after == before

    @invariant()
    def it_is_closed_exactly_when_nothing_shut_it(self) -> None:
        closed = self.circuit.get_state(RULES, self.now) is CircuitState.CLOSED
        assert closed is (self.shut_until is None)


TestAgainst = Against.TestCase
TestAgainst.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
