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
from echelons.guards.circuit_breaker import End
from echelons.guards.deadlines import Timed, deadline_of
from echelons.guards.gate import gate_of
from echelons.nodes.delegating.cancel_on_stop import Cutting
from echelons.text.error_lines import describe_error

LOG = logging.getLogger(__name__)

OURS = (
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
class Failure:
    """The failure of a subordinate's run.

    Attributes:
        reason: One line for its superior.
        end: How the failure counts for the subordinate's circuit breaker.
    """

    reason: str
    end: End = End.FAILED


def call(level: Runnable[Any, Any], brief: Any, config: RunnableConfig) -> Any | Failure:
    """Run a subordinate's level and return its output, or its failure.

    The async version also cancels the run when the subordinate is stopped, and at its deadline.

    Raises:
        GraphBubbleUp: The run was interrupted; the interrupt concerns the whole tree.
    """
    try:
        return level.invoke(brief, config)
    except Exception as error:  # noqa: BLE001  sorted below: interrupts and our own errors go on
        return _sorted_out(error)


async def acall(level: Runnable[Any, Any], brief: Any, config: RunnableConfig) -> Any | Failure:
    """Async version of `run_level`."""
    # A level that relays a request shares the deadline of the agent that answers it. It gets no
    # timer, or its own circuit would open and shut out all agents below it.
    timer = asyncio.timeout(None if "forward" in brief else _left(config))
    with Cutting(config) as cutting:
        try:
            async with timer:
                return await level.ainvoke(brief, config)
        except Exception as error:  # noqa: BLE001  sorted below: interrupts and our own errors go on
            if isinstance(error, TimeoutError) and timer.expired():
                return Failure(_late(config))
            return _sorted_out(error)
    return Failure(cutting.reason, End.NOTHING)


def _left(config: RunnableConfig) -> float | None:
    deadline = deadline_of(config)
    return None if deadline is None else max(0.0, deadline - monotonic())


def _late(config: RunnableConfig) -> str:
    gate = gate_of(config)
    return gate.late.reason if isinstance(gate, Timed) else "timeout: its superior has no time left"


def _sorted_out(error: Exception) -> Failure:
    # A Command(graph=PARENT) of a tool would steer the superior's delegation graph.
    if isinstance(error, ParentCommand):
        return Failure("a tool tried to steer the superior with Command(graph=PARENT)")
    # An invalid answer to an interrupt is asked for again: it is no failure.
    if isinstance(error, (GraphBubbleUp, *OURS)) or is_invalid_resume(error):
        raise error
    # The superior gets one line; the log has the whole traceback.
    LOG.warning("a subordinate failed", exc_info=error)
    return Failure(describe_error(error))
