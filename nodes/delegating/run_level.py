"""Runs a subordinate's level, and decides which errors become its failure.

The only module that invokes a level of a subordinate.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from time import monotonic
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.errors import (
    EmptyChannelError,
    EmptyInputError,
    GraphBubbleUp,
    InvalidUpdateError,
    ParentCommand,
    is_invalid_resume,
)

from echelons.errors import (
    CheckpointTampered,
    LeaseLost,
    LedgerError,
    MissingAgents,
    NotStorable,
    ScriptError,
    SealKeyMissing,
    StorageError,
    UnreadableRecord,
)
from echelons.guards.circuit_breaker import AttemptOutcome
from echelons.guards.deadlines import DeadlineGate, get_deadline
from echelons.guards.gate import get_gate
from echelons.nodes.delegating.cancel_on_stop import CancelOnStop
from echelons.text.error_lines import describe_error

LOG = logging.getLogger(__name__)

PROPAGATED_ERRORS = (
    StorageError,
    NotStorable,
    CheckpointTampered,
    SealKeyMissing,
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


@dataclass(frozen=True, slots=True)
class LevelFailure:
    """The failure of a subordinate's run.

    Attributes:
        reason: One line for its superior.
        end: How the failure counts for the subordinate's circuit breaker.
    """

    reason: str
    end: AttemptOutcome = AttemptOutcome.FAILED


def run_level(
    level: Runnable[Any, Any], level_input: Any, config: RunnableConfig
) -> Any | LevelFailure:
    """Run a subordinate's level and return its output, or its failure.

    The async version also cancels the run when the subordinate is stopped, and at its deadline.

    Raises:
        GraphBubbleUp: The run was interrupted; the interrupt concerns the whole tree.
    """
    try:
        return level.invoke(level_input, config)
    except Exception as error:  # noqa: BLE001  sorted below: interrupts and our own errors go on
        return _convert_error(error)


async def arun_level(
    level: Runnable[Any, Any], level_input: Any, config: RunnableConfig
) -> Any | LevelFailure:
    """Async version of `run_level`."""
    # A level that relays a request shares the deadline of the agent that answers it. It gets no
    # timer, or its own circuit would open and shut out all agents below it.
    timer = asyncio.timeout(None if "forward" in level_input else _compute_seconds_left(config))
    with CancelOnStop(config) as cutting:
        try:
            async with timer:
                return await level.ainvoke(level_input, config)
        except Exception as error:  # noqa: BLE001  sorted below: interrupts and our own errors go on
            if isinstance(error, TimeoutError) and timer.expired():
                return LevelFailure(_describe_timeout(config))
            return _convert_error(error)
    return LevelFailure(cutting.reason, AttemptOutcome.NOTHING)


def _compute_seconds_left(config: RunnableConfig) -> float | None:
    deadline = get_deadline(config)
    return None if deadline is None else max(0.0, deadline - monotonic())


def _describe_timeout(config: RunnableConfig) -> str:
    gate = get_gate(config)
    return (
        gate.timeout_halt.reason
        if isinstance(gate, DeadlineGate)
        else "timeout: its superior has no time left"
    )


def _convert_error(error: Exception) -> LevelFailure:
    # A Command(graph=PARENT) of a tool would steer the superior's delegation graph.
    if isinstance(error, ParentCommand):
        return LevelFailure("a tool tried to steer the superior with Command(graph=PARENT)")
    # An invalid answer to an interrupt is asked for again: it is no failure.
    if isinstance(error, (GraphBubbleUp, *PROPAGATED_ERRORS)) or is_invalid_resume(error):
        raise error
    # The superior gets one line; the log has the whole traceback.
    LOG.warning("a subordinate failed", exc_info=error)
    return LevelFailure(describe_error(error))
