"""One attempt of a request with one subordinate, within its circuit breaker and its time."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from time import monotonic
from typing import Any, NamedTuple, cast

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.errors import GraphInterrupt

from echelons.delegation.race import LOST, Entrant, races_of
from echelons.guards.circuit_breaker import Admission, End, Intensity, circuits_of
from echelons.guards.deadlines import timed
from echelons.guards.gate import HALT_KEY
from echelons.nodes.delegating.run_level import Failure, acall, call


class Terms(NamedTuple):
    """The options of an attempt.

    Attributes:
        agent: Name of the subordinate.
        meant: Name of the agent that answers: the subordinate, or the target of a relayed request.
        superior: Path of the agent that delegates.
        timeout: Seconds for the attempt; `None` for no limit.
        part: The attempt's race entry, if others are asked in parallel.
    """

    agent: str
    meant: str
    superior: str
    timeout: float | None
    part: Entrant | None = None


class Asked(NamedTuple):
    """The result of an attempt.

    Attributes:
        outcome: The output of the subordinate's level, or the failure.
        too_much: The reason why no other candidate may be tried; empty if one may.
    """

    outcome: Any | Failure
    too_much: str = ""


def ask(level: Runnable[Any, Any], brief: Any, config: RunnableConfig, terms: Terms) -> Asked:
    """Run a request with a subordinate, unless its circuit is open.

    Raises:
        GraphBubbleUp: The run was interrupted; the interrupt concerns the whole tree.
    """
    circuits = circuits_of(config)
    admission = circuits.admit(terms.agent)
    if not admission.admitted:
        return Asked(_refused(terms, admission))
    try:
        outcome = call(level, brief, _timed(config, terms))
    except BaseException as ended:
        circuits.note(terms.agent, terms.superior, admission, End.NOTHING)
        if _has_to_wait(ended, config, terms):
            raise
        return Asked(Failure(LOST.reason, End.NOTHING))
    much = circuits.note(terms.agent, terms.superior, admission, end_of(outcome))
    return Asked(outcome, _too_much(terms, much))


async def aask(
    level: Runnable[Any, Any], brief: Any, config: RunnableConfig, terms: Terms
) -> Asked:
    """Async version of `attempt`."""
    circuits = circuits_of(config)
    admission = await circuits.arun(lambda: circuits.admit(terms.agent))
    if not admission.admitted:
        return Asked(_refused(terms, admission))
    note = partial(circuits.note, terms.agent, terms.superior, admission)
    try:
        outcome = await acall(level, brief, _timed(config, terms))
    except BaseException as ended:
        await circuits.arun(partial(note, End.NOTHING))
        if _has_to_wait(ended, config, terms):
            raise
        return Asked(Failure(LOST.reason, End.NOTHING))
    much = await circuits.arun(partial(note, end_of(outcome)))
    return Asked(outcome, _too_much(terms, much))


def end_of(outcome: Any | Failure) -> End:
    """Return how an outcome counts for the subordinate's circuit breaker."""
    if isinstance(outcome, Failure):
        return outcome.end
    said: Mapping[str, Any] = outcome.get("response") or {}
    # A thread cannot be cancelled: in a sync run the level itself ends at its deadline.
    return End.FAILED if said.get(HALT_KEY) == "timeout" else End.ANSWERED


def _has_to_wait(ended: BaseException, config: RunnableConfig, terms: Terms) -> bool:
    """Return whether an exception of a subordinate also ends its superior's run.

    An interrupt does not if the race is already decided: its question needs no answer.
    """
    part = terms.part
    if part is None or not part.enough or not isinstance(ended, GraphInterrupt):
        return True
    return races_of(config).waits(part)


def _timed(config: RunnableConfig, terms: Terms) -> RunnableConfig:
    return cast("RunnableConfig", timed(config, terms.meant, terms.timeout, monotonic))


def _refused(terms: Terms, admission: Admission) -> Failure:
    return Failure(
        f"circuit_open: {terms.agent!r} failed {admission.failures} times in a row; "
        f"it is tried again in {admission.wait:.3g} s",
        End.NOTHING,
    )


def _too_much(terms: Terms, much: Intensity | None) -> str:
    if not much:
        return ""
    failures = f"{much.failures} failures below {terms.superior!r} within {much.period:g} s"
    return f"intensity: {failures}: it does not try on"
