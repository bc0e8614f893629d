"""The circuit breaker's states, and what moves it from one to the other. Pure.

Closed until so many failures in a row; then open, and nobody is admitted for a while; then
half open, and exactly one probe is admitted, which closes or opens it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict, Field

CIRCUITS_KEY = "__echelons_circuits"
"""Where a run's config holds its circuits; LangGraph stores nothing that begins like this."""
SECONDS = 60.0
"""How long a circuit stays open, unless somebody says otherwise (recursive delegation)."""


class Breaking(BaseModel):
    """When a circuit opens and how long it stays open, and when a superior gives up.

    Attributes:
        failures: Consecutive failures that open it (3, as in the recursive delegation).
        seconds: How long it stays open (60, likewise). A probe that has not come back for as
            long counts as lost, and another is admitted.
        intensity: Failures below one superior within ``period`` after which it does not try
            on but reports up, as supervisors of Erlang/OTP do; ``None`` for no limit.
        period: Seconds in which these failures are counted.

    Raises:
        pydantic.ValidationError: A value is out of its range, or has an unknown name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    failures: int = Field(default=3, ge=1)
    seconds: float = Field(default=SECONDS, gt=0, allow_inf_nan=False)
    intensity: int | None = Field(default=10, ge=1)
    period: float = Field(default=60.0, gt=0, allow_inf_nan=False)


class CircuitState(StrEnum):
    """Whether an agent is asked."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Admission(NamedTuple):
    """Whether a request may go through.

    Attributes:
        admitted: Whether.
        probe: The number of the probe that it is; 0 if it is none.
        wait: Seconds until the next may be; 0 if it is admitted.
        failures: Failures in a row until now.
    """

    admitted: bool
    probe: int = 0
    wait: float = 0.0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Circuit:
    """The circuit of one agent in one tree.

    Attributes:
        failures: Failures in a row.
        opened_at: When it opened last, in seconds since 1970; ``None`` while it is closed.
        probe: The number of the latest probe.
        probed_at: When that was admitted; ``None`` if none is on its way.
        seconds: How long it stays open by the rules that opened it, for who is shown it and
            does not know them.
    """

    failures: int = 0
    opened_at: float | None = None
    probe: int = 0
    probed_at: float | None = None
    seconds: float = SECONDS

    def state(self, rules: Breaking, now: float) -> CircuitState:
        """Return whether the agent is asked."""
        if self.opened_at is None:
            return CircuitState.CLOSED
        if self.probed_at is not None or self._since(self.opened_at, now) >= rules.seconds:
            return CircuitState.HALF_OPEN
        return CircuitState.OPEN

    def admit(self, rules: Breaking, now: float) -> tuple[Circuit, Admission]:
        """Return the circuit after somebody asks, and whether they may go through."""
        if self.opened_at is None:
            return self, Admission(admitted=True, failures=self.failures)
        last = self.opened_at if self.probed_at is None else self.probed_at
        wait = rules.seconds - self._since(last, now)
        if wait > 0:
            return self, Admission(admitted=False, wait=wait, failures=self.failures)
        probing = replace(self, probe=self.probe + 1, probed_at=now)
        return probing, Admission(admitted=True, probe=probing.probe, failures=self.failures)

    def succeeded(self, probe: int) -> Circuit:
        """Return the circuit after a success.

        Args:
            probe: The number that was given at the admission.
        """
        # One that was admitted before the circuit opened says nothing of the agent now.
        if self.opened_at is not None and not self._is_out(probe):
            return self
        return Circuit(probe=self.probe)

    def failed(self, rules: Breaking, now: float, probe: int) -> Circuit:
        """Return the circuit after a failure.

        Args:
            rules: When it opens.
            now: The time.
            probe: The number that was given at the admission.
        """
        if self.opened_at is not None and not self._is_out(probe):
            return self
        failures = self.failures + 1
        if self.opened_at is None and failures < rules.failures:
            return replace(self, failures=failures)
        return Circuit(failures, now, self.probe, seconds=rules.seconds)

    def given_back(self, probe: int) -> Circuit:
        """Return the circuit after an end that says nothing: an interrupt, a cancellation."""
        return replace(self, probed_at=None) if self._is_out(probe) else self

    def _is_out(self, probe: int) -> bool:
        """Return whether this is the probe that is waited for."""
        return self.probed_at is not None and probe == self.probe

    @staticmethod
    def _since(then: float, now: float) -> float:
        # A clock that was put back must not keep a circuit open for as long again.
        return abs(now - then)


class Circuits(Protocol):
    """The circuits of a tree. ``nodes`` ask them before they call a subordinate."""

    def admit(self, agent: str) -> Admission:
        """Ask whether an agent may be asked."""
        ...

    async def aadmit(self, agent: str) -> Admission:
        """Do the same in an event loop."""
        ...

    def note(
        self, agent: str, superior: str, admission: Admission, came_to: End
    ) -> Intensity | None:
        """Note what came of an admission; return what is too much, if it is."""
        ...

    async def anote(
        self, agent: str, superior: str, admission: Admission, came_to: End
    ) -> Intensity | None:
        """Do the same in an event loop."""
        ...


class End(StrEnum):
    """What came of asking an agent, as far as its circuit is concerned.

    ``ANSWERED``: it said something, be it that it is unable. ``FAILED``: an error, or no answer
    in time. ``NOTHING``: it was interrupted, cancelled or stopped, or the machinery failed.
    """

    ANSWERED = "answered"
    FAILED = "failed"
    NOTHING = "nothing"


class Intensity(NamedTuple):
    """Failures below one superior that are too many.

    Attributes:
        failures: How many.
        period: Within how many seconds.
    """

    failures: int
    period: float


class OpenCircuits:
    """The circuits of what runs outside of a tree: everybody may be asked, always."""

    def admit(self, agent: str) -> Admission:
        """Admit."""
        return Admission(admitted=True)

    async def aadmit(self, agent: str) -> Admission:
        """Admit."""
        return Admission(admitted=True)

    def note(self, agent: str, superior: str, admission: Admission, came_to: End) -> None:
        """Note nothing."""

    async def anote(self, agent: str, superior: str, admission: Admission, came_to: End) -> None:
        """Note nothing."""


_OPEN = OpenCircuits()


def circuits_of(config: Mapping[str, Any]) -> Circuits:
    """Return the circuits of a run."""
    circuits: Circuits = (config.get("configurable") or {}).get(CIRCUITS_KEY, _OPEN)
    return circuits
