"""How much time a subordinate has: its own, and never more than its superior has left.

The deadline travels in the run's config. ``nodes`` begin nothing after it; in an event loop
``nodes.call`` cuts short what still runs then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from time import monotonic, time
from typing import Any

from echelons.guards.gate import GATE_KEY, Gate, Halt, gate_of
from echelons.guards.scoped_gate import Bounded

DEADLINE_KEY = "__echelons_deadline"
"""Where a run's config holds the deadline; LangGraph stores nothing that begins like this."""


def deadline_of(config: Mapping[str, Any]) -> float | None:
    """Return by when an agent must have answered, ``None`` for no end."""
    deadline: float | None = (config.get("configurable") or {}).get(DEADLINE_KEY)
    return deadline


def left(
    config: Mapping[str, Any], seconds: Iterable[float | None], clock: Callable[[], float]
) -> float | None:
    """Return how many seconds a subordinate has that has so many: no more than its superior.

    Args:
        config: The superior's config.
        seconds: What it has of its own; ``None`` is no end.
        clock: Tells the time, in seconds from any moment.
    """
    own = [each for each in seconds if each is not None]
    deadline = deadline_of(config)
    if deadline is not None:
        own.append(max(deadline - clock(), 0.0))
    return min(own, default=None)


def due(config: Mapping[str, Any], seconds: Iterable[float | None]) -> float | None:
    """Return by when a subordinate that is asked now must answer; ``None`` for no end.

    Args:
        config: The superior's config.
        seconds: What it has of its own; ``None`` is no end.

    Returns:
        Seconds since 1970 (UTC), as a request says it to whoever reads it anywhere.
    """
    has = left(config, seconds, monotonic)
    return None if has is None else time() + has


class Timed(Bounded):
    """The gate of a subordinate that has until a deadline: nothing begins after it.

    A reply that comes after it is an answer all the same.

    Args:
        gate: The gate of the run.
        agent: The subordinate.
        deadline: By when it must have answered, by the clock.
        seconds: The time that it had.
        clock: Tells the time, in seconds from any moment.
    """

    def __init__(
        self, gate: Gate, agent: str, deadline: float, seconds: float, clock: Callable[[], float]
    ) -> None:
        super().__init__(gate)
        self._agent = agent
        self._deadline = deadline
        self._seconds = seconds
        self._clock = clock

    @property
    def over(self) -> Halt | None:
        """Why nothing begins any more, if it is too late."""
        return self.late if self._clock() >= self._deadline else None

    @property
    def late(self) -> Halt:
        """What is said of an agent that is late."""
        return Halt("timeout", f"{self._agent!r} has not answered within {self._seconds:g} s")


def timed(
    config: Mapping[str, Any], agent: str, seconds: float | None, clock: Callable[[], float]
) -> dict[str, Any]:
    """Return a config in which an agent has so much time, if its superior has as much left.

    Args:
        config: The superior's config.
        agent: The subordinate.
        seconds: What it would have; ``None`` for no end of its own.
        clock: Tells the time, in seconds from any moment.
    """
    inherited, now = deadline_of(config), clock()
    own = None if seconds is None else now + seconds
    if own is None or (inherited is not None and inherited <= own):
        return dict(config)
    gate = Timed(gate_of(config), agent, own, own - now, clock)
    configurable = {**config["configurable"], GATE_KEY: gate, DEADLINE_KEY: own}
    return {**config, "configurable": configurable}
