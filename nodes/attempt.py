"""One attempt of a request with one subordinate, within its circuit breaker and its time.

Decides which errors of the subordinate's level become its failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any, NamedTuple, TypeAlias

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.errors import (
    EmptyChannelError,
    EmptyInputError,
    GraphBubbleUp,
    GraphDrained,
    GraphInterrupt,
    InvalidUpdateError,
    ParentCommand,
    is_invalid_resume,
)

from echelons.delegation.join import LOST_HALT, RaceEntry, get_races
from echelons.delegation.request import DelegationResponse
from echelons.errors import (
    CheckpointTampered,
    LeaseLost,
    LedgerError,
    MissingAgents,
    NotStorable,
    ScriptError,
    StorageError,
    UnreadableRecord,
)
from echelons.guards.circuit_breaker import (
    Admission,
    AttemptOutcome,
    FailureIntensity,
    get_circuits,
)
from echelons.guards.gate import HALT_KEY, get_gate
from echelons.guards.limits import find_timeout, get_deadline, get_timeout_halt, with_deadline
from echelons.identity.failures import get_failure_log
from echelons.langgraph_internals import parent_config
from echelons.nodes.base_node import CancelOnStop
from echelons.plans import Plan, PlanStep, build_step
from echelons.tree.names import PATH_SEPARATOR

PROPAGATED_ERRORS = (
    StorageError,
    NotStorable,
    CheckpointTampered,
    UnreadableRecord,
    LeaseLost,
    LedgerError,
    MissingAgents,
    ScriptError,
    InvalidUpdateError,
    EmptyChannelError,
    EmptyInputError,
)
"""Errors of the library: an `unable` instead of them would hide a bug or a full disk."""
_PARENT_COMMAND_REASON = (
    "it returned Command(graph=PARENT), which would steer its superior; let it return an answer"
)


@dataclass(frozen=True, slots=True)
class LevelFailure:
    """The failure of a subordinate's run.

    Attributes:
        reason: One line for its superior.
        end: How the failure counts for the subordinate's circuit breaker.
    """

    reason: str
    end: AttemptOutcome = AttemptOutcome.FAILED


class AttemptOptions(NamedTuple):
    """The options of an attempt.

    Attributes:
        path: Path of the subordinate.
        target: Name of the agent that answers: the subordinate, or the target of a relayed request.
        timeout: Seconds for the attempt; `None` for no limit.
        race_entry: The attempt's race entry, if others are asked in parallel.
        begun: When it began, by the clock of its run, if it was held since.
    """

    path: str
    target: str
    timeout: float | None
    race_entry: RaceEntry | None = None
    begun: float | None = None


class AttemptResult(NamedTuple):
    """The result of an attempt.

    Attributes:
        outcome: The output of the subordinate's level, or the failure.
        stop_reason: The reason why no other candidate may be tried; empty if one may.
    """

    outcome: Any | LevelFailure
    stop_reason: str = ""


Settle: TypeAlias = Callable[
    [DelegationResponse, Any, Mapping[str, Any], RunnableConfig], Plan[Mapping[str, Any]]
]


class Attempt(NamedTuple):
    """The outcome of a request with one subordinate.

    Attributes:
        answer: Its response.
        stop_reason: The reason why no other candidate may be tried; empty if one may.
        spent: The seconds that it took.
        config: The config of the subordinate; `None` if a middleware has answered without it.
        refused: Whether the subordinate was not allowed to begin.
        settles: What features store once it is known what follows, each with the answer, the step
            that follows, the state and the config; each returns what the head keeps.
        end: How it counts for the subordinate's circuit breaker.
        mark: The mark of its thread's notices, as its level ended with it; empty if it did not.
    """

    answer: DelegationResponse
    stop_reason: str = ""
    spent: float = 0.0
    config: RunnableConfig | None = None
    refused: bool = False
    settles: tuple[Settle, ...] = ()
    end: AttemptOutcome = AttemptOutcome.ANSWERED
    mark: str = ""


def attempt(
    level: Runnable[Any, Any], level_input: Any, config: RunnableConfig, options: AttemptOptions
) -> Plan[AttemptResult]:
    """Run a request with a subordinate, unless its circuit is open.

    Raises:
        GraphBubbleUp: The run was interrupted; the interrupt concerns the whole tree.
    """
    circuits = get_circuits(config)
    admission: Admission
    admission = yield build_step(partial(circuits.admit, options.path), circuits.arun)
    if not admission.admitted:
        agent = options.path.rpartition(PATH_SEPARATOR)[2]
        return AttemptResult(
            LevelFailure(
                f"circuit_open: {agent!r} failed {admission.failures} times in a row; "
                f"it is tried again in {admission.wait:.3g} s",
                AttemptOutcome.NOTHING,
            )
        )
    note = partial(circuits.note, options.path, admission)
    begun = monotonic() if options.begun is None else options.begun
    try:
        timed_config: Any = with_deadline(
            config, options.target, options.timeout, monotonic, options.begun
        )
        outcome = yield from run_level(level, level_input, timed_config)
    except BaseException as ended:
        _note_hold(config, begun, ended)
        yield build_step(partial(note, AttemptOutcome.NOTHING), circuits.arun)
        if _must_propagate(ended, config, options):
            raise
        return AttemptResult(LevelFailure(LOST_HALT.reason, AttemptOutcome.NOTHING))
    much = yield build_step(partial(note, classify_outcome(outcome)), circuits.arun)
    return AttemptResult(outcome, _describe_failures(options, much) if much else "")


def classify_outcome(outcome: Any | LevelFailure) -> AttemptOutcome:
    """Return how an outcome counts for the subordinate's circuit breaker."""
    if isinstance(outcome, LevelFailure):
        return outcome.end
    response: Mapping[str, Any] = outcome.get("response") or {}
    # A thread cannot be cancelled: in a sync run the level itself may end at its deadline.
    match response.get(HALT_KEY):
        case "timeout":
            return AttemptOutcome.FAILED
        case "dismissed":
            return AttemptOutcome.NOTHING
    return AttemptOutcome.ANSWERED


def _must_propagate(error: BaseException, config: RunnableConfig, options: AttemptOptions) -> bool:
    """Return whether an exception of a subordinate also ends its superior's run.

    An interrupt does not if the race is already decided: its question needs no answer.
    """
    part = options.race_entry
    if part is None or not part.enough or not isinstance(error, GraphInterrupt):
        return True
    return get_races(config).register_waiting(part)


def _note_hold(config: RunnableConfig, begun: float, ended: BaseException) -> None:
    """Keep when an attempt began, if it was held; its time starts again if it asks a person."""
    held = get_gate(config).held_attempts
    if held is None:
        return
    if isinstance(ended, GraphDrained):
        held.keep(config, begun)
    else:
        held.forget(config)


def _describe_failures(options: AttemptOptions, intensity: FailureIntensity) -> str:
    where = options.path.rpartition(PATH_SEPARATOR)[0]
    count, period = intensity.failures, intensity.period
    return (
        f"intensity: {count} failures below {where!r} within {period:g} s: no other agent is asked"
    )


def run_level(
    level: Runnable[Any, Any], level_input: Any, config: RunnableConfig
) -> Plan[Any | LevelFailure]:
    """Run a subordinate's level and return its output, or its failure.

    An output after the deadline is a failure, but for that of an agent that was halted. In an event
    loop the run is cancelled when the subordinate is stopped, and at its deadline. Nothing else
    invokes the level of a subordinate.
    """
    outcome = yield from _run_level(level, level_input, config)
    halt = None if "forward" in level_input else find_timeout(config, monotonic)
    if halt is None:
        return outcome
    if isinstance(outcome, LevelFailure):
        is_halted = outcome.end is AttemptOutcome.NOTHING
    else:
        is_halted = HALT_KEY in (outcome.get("response") or {})
    return outcome if is_halted else LevelFailure(halt.reason)


def _run_level(
    level: Runnable[Any, Any], level_input: Any, config: RunnableConfig
) -> Plan[Any | LevelFailure]:
    around = parent_config.set(config)
    try:
        return (
            yield PlanStep(
                partial(level.invoke, level_input, config),
                partial(_arun_cancellable, level, level_input, config),
            )
        )
    except ParentCommand:
        return LevelFailure(_PARENT_COMMAND_REASON)
    except Exception as error:
        if not is_failure(error):
            raise
        log = get_failure_log(config)
        failure = yield PlanStep(
            partial(log.record, error, config), partial(log.arecord, error, config)
        )
        return LevelFailure(failure.reason)
    finally:
        parent_config.reset(around)


async def _arun_cancellable(
    level: Runnable[Any, Any], level_input: Any, config: RunnableConfig
) -> Any | LevelFailure:
    # A level that relays a request shares the deadline of the agent that answers it. It gets no
    # timer, or its own circuit would open and shut out all agents below it.
    deadline = None if "forward" in level_input else get_deadline(config)
    timer = asyncio.timeout(None if deadline is None else max(0.0, deadline - monotonic()))
    with CancelOnStop(config) as cancelled:
        try:
            async with timer:
                return await level.ainvoke(level_input, config)
        except TimeoutError:
            if not timer.expired():
                raise
            return LevelFailure(get_timeout_halt(config).reason)
    why = cancelled.halt.reason if cancelled.halt else ""
    return LevelFailure(why, AttemptOutcome.NOTHING)


def is_failure(error: Exception) -> bool:
    """Return whether an exception is a failure of an agent: no interrupt, no error of the library.

    Nor is the wrong answer to a question, which is asked again.
    """
    return not isinstance(error, (GraphBubbleUp, *PROPAGATED_ERRORS)) and not is_invalid_resume(
        error
    )
