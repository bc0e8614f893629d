"""The circuit breaker of an agent: its states and transitions. Pure.

A circuit is closed until a number of consecutive failures; then open, and admits no request for
a while; then half open, and admits exactly one probe, which closes it or opens it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import Field, FiniteFloat, NonNegativeInt

from echelons.run_context import get_context
from echelons.settings import Settings

T = TypeVar("T")

DEFAULT_OPEN_SECONDS = 60.0  # source: recursive delegation


class BreakerPolicy(Settings):
    """When a circuit opens, how long it stays open, and when a superior stops retrying.

    Attributes:
        failures: Consecutive failures that open it (3, as in the recursive delegation).
        seconds: How long it stays open (60, likewise). A probe without a result after the same
            time counts as lost, and another is admitted.
        intensity: Failures below one superior within `period` after which it stops trying other
            candidates and reports the failure, like a supervisor of Erlang/OTP; `None` for no
            limit.
        period: Seconds over which these failures are counted.

    Raises:
        InvalidSetting: A value is out of its range, or has an unknown name.
    """

    failures: int = Field(default=3, ge=1)
    seconds: float = Field(default=DEFAULT_OPEN_SECONDS, gt=0, allow_inf_nan=False)
    intensity: int | None = Field(default=10, ge=1)
    period: float = Field(default=60.0, gt=0, allow_inf_nan=False)


class CircuitState(StrEnum):
    """The state of a circuit."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Admission(NamedTuple):
    """A circuit's decision about a request."""

    admitted: bool
    probe: int = 0  # number of the probe that it is; 0 if it is not a probe
    wait: float = 0.0  # seconds until a request may be admitted again
    failures: int = 0  # consecutive ones so far


@dataclass(frozen=True, slots=True)
class Circuit:
    """The circuit of one agent, at one place of a tree."""

    failures: NonNegativeInt = 0  # consecutive ones
    opened_at: FiniteFloat | None = None  # seconds since 1970; `None` while it is closed
    probe: NonNegativeInt = 0  # number of the latest probe
    probed_at: FiniteFloat | None = None  # when it was admitted; `None` if none is under way
    # How long it stays open by the rules that opened it, for displays that do not know the rules.
    seconds: Annotated[FiniteFloat, Field(gt=0)] = DEFAULT_OPEN_SECONDS

    def get_state(self, rules: BreakerPolicy, now: float) -> CircuitState:
        """Return the state at the time `now`, in seconds since 1970."""
        if self.opened_at is None:
            return CircuitState.CLOSED
        if self.probed_at is not None or _measure_elapsed(self.opened_at, now) >= rules.seconds:
            return CircuitState.HALF_OPEN
        return CircuitState.OPEN

    def admit(self, rules: BreakerPolicy, now: float) -> tuple[Circuit, Admission]:
        """Return the circuit after a request, and the decision about that request."""
        if self.opened_at is None:
            return self, Admission(admitted=True, failures=self.failures)
        last = self.opened_at if self.probed_at is None else self.probed_at
        wait = rules.seconds - _measure_elapsed(last, now)
        if wait > 0:
            return self, Admission(admitted=False, wait=wait, failures=self.failures)
        probing = replace(self, probe=self.probe + 1, probed_at=now)
        return probing, Admission(admitted=True, probe=probing.probe, failures=self.failures)

    def record_success(self, probe: int) -> Circuit:
        """Return the circuit after the success of a request with that number of a probe."""
        # A request admitted before the circuit opened says nothing about the agent now.
        if self.opened_at is not None and not self._is_pending_probe(probe):
            return self
        return Circuit(probe=self.probe)

    def record_failure(self, rules: BreakerPolicy, now: float, probe: int) -> Circuit:
        """Return the circuit after a failure at the time `now`, in seconds since 1970."""
        if self.opened_at is not None and not self._is_pending_probe(probe):
            return self
        failures = self.failures + 1
        if self.opened_at is None and failures < rules.failures:
            return replace(self, failures=failures)
        return Circuit(failures, now, self.probe, seconds=rules.seconds)

    def release_probe(self, probe: int) -> Circuit:
        """Return the circuit after an inconclusive end: an interrupt or a cancellation."""
        return replace(self, probed_at=None) if self._is_pending_probe(probe) else self

    def _is_pending_probe(self, probe: int) -> bool:
        return self.probed_at is not None and probe == self.probe


def _measure_elapsed(then: float, now: float) -> float:
    # `abs`: a clock that was set back must not keep the circuit open for that much longer.
    return abs(now - then)


class AttemptOutcome(StrEnum):
    """The outcome of a request for the agent's circuit.

    `ANSWERED` also if it is unable. `FAILED`: an error, or no answer in time. `NOTHING`: it was
    interrupted, cancelled or stopped, or the infrastructure failed.
    """

    ANSWERED = "answered"
    FAILED = "failed"
    NOTHING = "nothing"


class FailureIntensity(NamedTuple):
    """Too many failures below one superior, counted over a period in seconds."""

    failures: int
    period: float


class Circuits:
    """The circuits of a tree, consulted before each call of a subordinate.

    These are those of a node that runs outside of a tree: they admit every request.
    """

    def admit(self, path: str) -> Admission:
        """Return whether a request to an agent may go through; count it if it is a probe."""
        return Admission(admitted=True)

    def note(
        self, path: str, admission: Admission, outcome: AttemptOutcome
    ) -> FailureIntensity | None:
        """Record the outcome of an admitted request; return the failures if too many."""
        return None

    async def arun(self, work: Callable[[], T]) -> T:
        """Call some of these methods in an event loop; repeat all of it if the ledger was busy."""
        return work()


_CLOSED_CIRCUITS = Circuits()


def get_circuits(config: Mapping[str, Any]) -> Circuits:
    """Return the circuits in a run's config, or closed ones."""
    return get_context(config).circuits or _CLOSED_CIRCUITS
