"""``Bounded``: a gate within a gate, for what ends a subordinate and not its superior.

``timing`` and ``racing`` say what that is; ``nodes`` put it into the subordinate's config.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from echelons.guards.gate import Gate, Halt, Pause, Step


class Bounded(ABC):
    """The gate of a subordinate that may be over before the run is.

    Args:
        gate: The gate of its superior.
    """

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    @property
    @abstractmethod
    def over(self) -> Halt | None:
        """Why nothing begins any more, if so."""

    def enter(self, step: Step, config: Mapping[str, Any]) -> Halt | Pause | None:
        """Return what keeps a step from beginning; else count it, and return ``None``."""
        return self.over or self.gate.enter(step, config)

    async def aenter(self, step: Step, config: Mapping[str, Any]) -> Halt | Pause | None:
        """Do what ``enter`` does in an event loop."""
        return self.over or await self.gate.aenter(step, config)

    def leave(self, reply: Any, config: Mapping[str, Any]) -> Halt | None:
        """Count what a reply cost, and return why it must not be acted on, if so."""
        return self.gate.leave(reply, config)

    async def aleave(self, reply: Any, config: Mapping[str, Any]) -> Halt | None:
        """Do what ``leave`` does in an event loop."""
        return await self.gate.aleave(reply, config)

    def listen(self, config: Mapping[str, Any], told: Callable[[Halt], None]) -> Callable[[], None]:
        """Have somebody told when the agent is stopped while it runs."""
        return self.gate.listen(config, told)
