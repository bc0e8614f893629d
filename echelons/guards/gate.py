"""What stands between an agent and its next step: limits, stops and pauses.

A run carries its ``Gate`` in its config. ``nodes`` ask it before they begin anything;
``checkpoints`` implement it, for what it decides by is kept in the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, Protocol

GATE_KEY = "__echelons_gate"
"""Where a run's config holds its gate; LangGraph stores nothing that begins like this."""
HALT_KEY = "halt"
"""Where the ``response_metadata`` of an agent's last message say why it ended early."""
PAUSE_KEY = "echelons_pause"
"""What tells an interrupt that pauses an agent from a question to a human."""


class Step(StrEnum):
    """Work that a node is about to begin."""

    MODEL = "model call"
    TOOL = "tool call"
    SUBORDINATE = "run of a subordinate"


@dataclass(frozen=True, slots=True)
class Halt:
    """Nothing begins any more: the agent ends with what it has.

    Attributes:
        kind: What ends it.
        why: The limit that is reached, or what was stopped.
    """

    kind: Literal["limit", "stopped", "timeout"]
    why: str

    @property
    def reason(self) -> str:
        """The reason in a line, as responses give it."""
        return f"{self.kind}: {self.why}"

    @property
    def status(self) -> Literal["partial", "unable"]:
        """How an agent ends that had begun: a limit leaves what it has, a stop nothing."""
        return "partial" if self.kind == "limit" else "unable"


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing begins until somebody lifts the pause.

    Attributes:
        path: The agent that was paused, with all below it.
    """

    path: str

    @property
    def marker(self) -> dict[str, str]:
        """The value of the interrupt that stands for it."""
        return {PAUSE_KEY: self.path}


class Gate(Protocol):
    """Says whether an agent of one run may begin its next step.

    Each method takes the config of the node that asks: who asks is in its metadata.
    """

    def enter(self, step: Step, config: Mapping[str, Any]) -> Halt | Pause | None:
        """Return what keeps a step from beginning; else count it, and return ``None``.

        A pause holds up model calls only.

        Raises:
            StorageError: The ledger could not be read or written.
        """
        ...

    async def aenter(self, step: Step, config: Mapping[str, Any]) -> Halt | Pause | None:
        """Do what ``enter`` does in an event loop."""
        ...

    def leave(self, reply: Any, config: Mapping[str, Any]) -> Halt | None:
        """Count what a model's reply cost, and return why it must not be acted on, if so.

        Raises:
            StorageError: The ledger could not be read.
        """
        ...

    async def aleave(self, reply: Any, config: Mapping[str, Any]) -> Halt | None:
        """Do what ``leave`` does in an event loop."""
        ...

    def listen(self, config: Mapping[str, Any], told: Callable[[Halt], None]) -> Callable[[], None]:
        """Have somebody told, from any thread, when the agent is stopped while it runs.

        Returns:
            What ends the listening.
        """
        ...


class OpenGate:
    """The gate of what runs outside of a tree: it stops nobody."""

    def enter(self, step: Step, config: Mapping[str, Any]) -> None:
        """Let it pass."""

    async def aenter(self, step: Step, config: Mapping[str, Any]) -> None:
        """Let it pass."""

    def leave(self, reply: Any, config: Mapping[str, Any]) -> None:
        """Let it pass."""

    async def aleave(self, reply: Any, config: Mapping[str, Any]) -> None:
        """Let it pass."""

    def listen(self, config: Mapping[str, Any], told: Callable[[Halt], None]) -> Callable[[], None]:
        """Tell nobody."""
        return lambda: None


_OPEN = OpenGate()


def gate_of(config: Mapping[str, Any] | None) -> Gate:
    """Return the gate of a run."""
    gate: Gate = ((config or {}).get("configurable") or {}).get(GATE_KEY, _OPEN)
    return gate


def is_pause(value: object) -> bool:
    """Return whether the value of an interrupt is a pause, and no question."""
    return isinstance(value, Mapping) and value.keys() == {PAUSE_KEY}
