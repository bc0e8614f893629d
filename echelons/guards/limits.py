"""`Limits` of a tree, and the deadlines of subordinates, which never exceed their superior's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from time import monotonic, time
from typing import TYPE_CHECKING, Any

from pydantic import Field

from echelons.errors import no_call
from echelons.guards.gate import OPEN_GATE, Gate, Halt, ScopedGate, get_gate
from echelons.run_context import get_context, with_context
from echelons.settings import Settings
from echelons.text.input_limits import shorten_repr

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig


MAX_DEPTH = 32
"""Maximum levels of a tree: LangGraph's metadata grows with the cube of the depth."""
DEFAULT_STEPS = 10_000
"""Default limit of steps in a turn: it bounds a runaway, and is far above normal work."""
DEFAULT_REFUSALS = 3
"""Default limit of refusals: a model that has read the reason twice will not heed it."""
DEFAULT_RESULT_TOKENS = 25_000
"""Default limit of what a model is shown of a result: a tenth of a usual context."""
MIN_RESULT_TOKENS = 200
"""A result has a line about how to read on; less would show hardly more than that."""
DEFAULT_REPEATS = 8
"""Default limit of repetitions: a model that is told after half of them has a chance to turn."""


class Limits(Settings):
    """The limits of a tree: for all its agents together, in one turn of the root.

    Reaching a limit raises no error: no further work begins, each agent ends with what it has,
    and the root's response names the limit. An agent that is not the root has a limit of depth
    only.

    Attributes:
        depth: Maximum levels of the tree under this agent, the agent itself included;
            between 1 and 32.
        steps: Maximum model calls, tool calls and runs of subordinates.
        calls: Maximum model calls.
        tokens: Maximum tokens read and written by models, as they report them. The reply that
            exceeds it is still received; no other model call begins.
        seconds: Maximum running time of the turn. It does not count while the turn waits for a
            human, is paused, or its process is dead. Work that has begun is not interrupted.
        width: Maximum parallel calls of one message, including requests sent to several
            subordinates at once; calls beyond are answered with an error for the model.
        max_refusals: Maximum refusals of the same call in a row, of one agent. Its response is
            `partial` then, with the reason of the last refusal; `None` for no limit.
        result_tokens: Maximum tokens that a model is shown of one result of a tool or subordinate,
            at least 200; the results of one message have twice as many together. The thread keeps
            the whole result, in which `read_result` reads on; `None` for no limit.
        max_repeats: Maximum calls with the same arguments and the same result, in a row or not,
            of one agent for one request. It gets a warning at half of them, and its response is
            `partial` at the last. Calls of tools that poll (`effect(polls=True)`) and questions to
            people do not count; `None` for no limit.

    Raises:
        InvalidSetting: A limit is out of its range, or has an unknown name.

    Examples:
        >>> Limits(depth=3, calls=100).depth
        3
    """

    __stored_as__ = "echelons.limits.Limits"

    depth: int = Field(default=MAX_DEPTH, ge=1, le=MAX_DEPTH)
    steps: int = Field(default=DEFAULT_STEPS, ge=1)
    calls: int | None = Field(default=None, ge=1)
    tokens: int | None = Field(default=None, ge=1)
    seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    width: int | None = Field(default=None, ge=1)
    max_refusals: int | None = Field(default=DEFAULT_REFUSALS, ge=1)
    result_tokens: int | None = Field(default=DEFAULT_RESULT_TOKENS, ge=MIN_RESULT_TOKENS)
    max_repeats: int | None = Field(default=DEFAULT_REPEATS, ge=2)

    @property
    def root_only_names(self) -> tuple[str, ...]:
        """Names of the limits that were given and that only a root may have."""
        return tuple(sorted(self.model_fields_set - {"depth"}))


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
    return with_context(config, replace(context, gate=gate, deadline=deadline))
