"""How much time a subordinate has: its own, and never more than its superior has left.

The deadline travels in the run's config. ``nodes`` begin nothing after it; in an event loop
``nodes.call`` cuts short what still runs then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from echelons.gate import GATE_KEY, Gate, Halt, Pause, Step, gate_of

DEADLINE_KEY = "__echelons_deadline"
"""Where a run's config holds the deadline; LangGraph stores nothing that begins like this."""


def deadline_of(config: Mapping[str, Any]) -> float | None:
    """Return by when an agent must have answered, ``None`` for no end."""
    deadline: float | None = (config.get("configurable") or {}).get(DEADLINE_KEY)
    return deadline


@dataclass(frozen=True, slots=True)
class Timed:
    """The gate of a subordinate that has until a deadline: nothing begins after it.

    Attributes:
        gate: The gate of the run.
        agent: The subordinate.
        deadline: By when it must have answered, by the clock.
        seconds: The time that it had.
        clock: Tells the time, in seconds from any moment.
    """

    gate: Gate
    agent: str
    deadline: float
    seconds: float
    clock: Callable[[], float]

    @property
    def late(self) -> Halt | None:
        """Why nothing begins any more, if it is too late."""
        if self.clock() < self.deadline:
            return None
        return Halt("timeout", f"{self.agent!r} has not answered within {self.seconds:g} s")

    def enter(self, step: Step, config: Mapping[str, Any]) -> Halt | Pause | None:
        """Return what keeps a step from beginning; else count it, and return ``None``."""
        return self.late or self.gate.enter(step, config)

    async def aenter(self, step: Step, config: Mapping[str, Any]) -> Halt | Pause | None:
        """Do what ``enter`` does in an event loop."""
        return self.late or await self.gate.aenter(step, config)

    def leave(self, reply: Any, config: Mapping[str, Any]) -> Halt | None:
        """Count what a reply cost; one that is late is an answer all the same."""
        return self.gate.leave(reply, config)

    async def aleave(self, reply: Any, config: Mapping[str, Any]) -> Halt | None:
        """Do what ``leave`` does in an event loop."""
        return await self.gate.aleave(reply, config)

    def listen(self, config: Mapping[str, Any], told: Callable[[Halt], None]) -> Callable[[], None]:
        """Have somebody told when the agent is stopped while it runs."""
        return self.gate.listen(config, told)


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
