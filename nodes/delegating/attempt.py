"""One attempt of a request with one subordinate, within its circuit breaker and its time."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from time import monotonic
from typing import Any, NamedTuple, cast

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.errors import GraphInterrupt

from echelons.delegation.race import LOST_HALT, RaceEntry, get_races
from echelons.guards.circuit_breaker import (
    Admission,
    AttemptOutcome,
    FailureIntensity,
    get_circuits,
)
from echelons.guards.deadlines import with_deadline
from echelons.guards.gate import HALT_KEY
from echelons.nodes.delegating.run_level import LevelFailure, arun_level, run_level


class AttemptOptions(NamedTuple):
    """The options of an attempt.

    Attributes:
        agent: Name of the subordinate.
        target: Name of the agent that answers: the subordinate, or the target of a relayed request.
        superior: Path of the agent that delegates.
        timeout: Seconds for the attempt; `None` for no limit.
        race_entry: The attempt's race entry, if others are asked in parallel.
    """

    agent: str
    target: str
    superior: str
    timeout: float | None
    race_entry: RaceEntry | None = None


class AttemptResult(NamedTuple):
    """The result of an attempt.

    Attributes:
        outcome: The output of the subordinate's level, or the failure.
        stop_reason: The reason why no other candidate may be tried; empty if one may.
    """

    outcome: Any | LevelFailure
    stop_reason: str = ""


def attempt(
    level: Runnable[Any, Any], level_input: Any, config: RunnableConfig, options: AttemptOptions
) -> AttemptResult:
    """Run a request with a subordinate, unless its circuit is open.

    Raises:
        GraphBubbleUp: The run was interrupted; the interrupt concerns the whole tree.
    """
    circuits = get_circuits(config)
    admission = circuits.admit(options.agent)
    if not admission.admitted:
        return AttemptResult(_build_open_circuit_failure(options, admission))
    try:
        outcome = run_level(level, level_input, _with_timeout(config, options))
    except BaseException as ended:
        circuits.note(options.agent, options.superior, admission, AttemptOutcome.NOTHING)
        if _must_propagate(ended, config, options):
            raise
        return AttemptResult(LevelFailure(LOST_HALT.reason, AttemptOutcome.NOTHING))
    much = circuits.note(options.agent, options.superior, admission, classify_outcome(outcome))
    return AttemptResult(outcome, _describe_failures(options, much))


async def aattempt(
    level: Runnable[Any, Any], level_input: Any, config: RunnableConfig, options: AttemptOptions
) -> AttemptResult:
    """Async version of `attempt`."""
    circuits = get_circuits(config)
    admission = await circuits.arun(lambda: circuits.admit(options.agent))
    if not admission.admitted:
        return AttemptResult(_build_open_circuit_failure(options, admission))
    note = partial(circuits.note, options.agent, options.superior, admission)
    try:
        outcome = await arun_level(level, level_input, _with_timeout(config, options))
    except BaseException as ended:
        await circuits.arun(partial(note, AttemptOutcome.NOTHING))
        if _must_propagate(ended, config, options):
            raise
        return AttemptResult(LevelFailure(LOST_HALT.reason, AttemptOutcome.NOTHING))
    much = await circuits.arun(partial(note, classify_outcome(outcome)))
    return AttemptResult(outcome, _describe_failures(options, much))


def classify_outcome(outcome: Any | LevelFailure) -> AttemptOutcome:
    """Return how an outcome counts for the subordinate's circuit breaker."""
    if isinstance(outcome, LevelFailure):
        return outcome.end
    said: Mapping[str, Any] = outcome.get("response") or {}
    # A thread cannot be cancelled: in a sync run the level itself ends at its deadline.
    return AttemptOutcome.FAILED if said.get(HALT_KEY) == "timeout" else AttemptOutcome.ANSWERED


def _must_propagate(error: BaseException, config: RunnableConfig, options: AttemptOptions) -> bool:
    """Return whether an exception of a subordinate also ends its superior's run.

    An interrupt does not if the race is already decided: its question needs no answer.
    """
    part = options.race_entry
    if part is None or not part.enough or not isinstance(error, GraphInterrupt):
        return True
    return get_races(config).register_waiting(part)


def _with_timeout(config: RunnableConfig, options: AttemptOptions) -> RunnableConfig:
    return cast("RunnableConfig", with_deadline(config, options.target, options.timeout, monotonic))


def _build_open_circuit_failure(options: AttemptOptions, admission: Admission) -> LevelFailure:
    return LevelFailure(
        f"circuit_open: {options.agent!r} failed {admission.failures} times in a row; "
        f"it is tried again in {admission.wait:.3g} s",
        AttemptOutcome.NOTHING,
    )


def _describe_failures(options: AttemptOptions, intensity: FailureIntensity | None) -> str:
    if not intensity:
        return ""
    failures = (
        f"{intensity.failures} failures below {options.superior!r} within {intensity.period:g} s"
    )
    return f"intensity: {failures}: it does not try on"
