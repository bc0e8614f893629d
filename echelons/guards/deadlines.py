"""Deadlines of subordinates: their own time, and never more than their superior has left.

The deadline is passed on in the run's config. Nodes begin no step after it; in an event loop
`echelons.nodes.delegating.attempt` also cancels what is still running then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from time import monotonic, time
from typing import TYPE_CHECKING, Any

from echelons.errors import no_call
from echelons.guards.gate import OPEN_GATE, Gate, Halt, ScopedGate, get_gate
from echelons.run_context import get_context, with_context
from echelons.text.input_limits import shorten_repr

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig


def get_deadline(config: Mapping[str, Any]) -> float | None:
    """Return an agent's deadline by the clock of its run, or `None` if it has none."""
    return get_context(config).deadline


def time_left(call: object) -> float | None:
    """Return the seconds that the agent of a tool call has left, or `None` if it has no limit.

    A synchronous tool gives them to its client as a timeout: a blocked one is not cut short at the
    deadline, for a thread cannot be cancelled, and its run waits for it.

    Args:
        call: The tool's `ToolRuntime`, or its config.

    Raises:
        ThreadError: It is neither.
    """
    config = call if isinstance(call, Mapping) else getattr(call, "config", None)
    if not isinstance(config, Mapping):
        raise no_call(shorten_repr(call))
    deadline = get_deadline(config)
    return None if deadline is None else max(deadline - monotonic(), 0.0)


def compute_deadline(config: Mapping[str, Any], seconds: Iterable[float | None]) -> float | None:
    """Return the deadline of a subordinate that is called now, or `None` if it has none.

    It has at most the time that its superior, with `config`, has left; `seconds` are its limits.
    """
    limits = [limit for limit in seconds if limit is not None]
    if (deadline := get_deadline(config)) is not None:
        limits.append(max(deadline - monotonic(), 0.0))
    # Since 1970 (UTC): unlike those of a monotonic clock, other processes can read these seconds.
    return time() + min(limits) if limits else None


def find_timeout(config: Mapping[str, Any], clock: Callable[[], float]) -> Halt | None:
    """Return the halt of an agent whose deadline has passed, by the clock of its run."""
    context = get_context(config)
    gate, deadline = context.gate, context.deadline
    if type(gate) is DeadlineGate:
        return gate.halt
    return None if deadline is None or clock() < deadline else get_timeout_halt(config)


def get_timeout_halt(config: Mapping[str, Any]) -> Halt:
    """Return the halt of an agent that is late, with the time that it had if it is its own."""
    gate = get_gate(config)
    if type(gate) is DeadlineGate:
        return gate.timeout_halt
    return Halt("timeout", "its superior has no time left")


class DeadlineGate(ScopedGate):
    """The gate of a subordinate that begins no step after its deadline, by the clock."""

    def __init__(
        self, gate: Gate, agent: str, deadline: float, seconds: float, clock: Callable[[], float]
    ) -> None:
        super().__init__(gate)
        self._agent = agent
        self._deadline = deadline
        self._seconds = seconds
        self._clock = clock

    @property
    def halt(self) -> Halt | None:
        """The order to begin no more steps, once the deadline has passed."""
        return self.timeout_halt if self._clock() >= self._deadline else None

    @property
    def timeout_halt(self) -> Halt:
        """The reason given for an agent that is late."""
        return Halt("timeout", f"{self._agent!r} has not answered within {self._seconds:g} s")


def with_deadline(
    config: RunnableConfig,
    agent: str,
    seconds: float | None,
    clock: Callable[[], float],
    begun: float | None = None,
) -> RunnableConfig:
    """Return the config of a superior for a subordinate, with its deadline if that is earlier.

    `seconds` is the time of the subordinate, and `begun` when it began, if it was held since.
    """
    if seconds is None:
        return config
    context, deadline = get_context(config), (clock() if begun is None else begun) + seconds
    if context.deadline is not None and context.deadline <= deadline:
        return config
    outer = context.gate or OPEN_GATE
    if type(outer) is DeadlineGate:
        # Its deadline is the later one, so it would never be the first to halt.
        outer = outer.gate
    gate = DeadlineGate(outer, agent, deadline, seconds, clock)
    return with_context(config, context._replace(gate=gate, deadline=deadline))
