"""Asks one subordinate: if its circuit lets it, and within its time.

``ask`` and ``aask`` differ in nothing but the waiting.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import Any, NamedTuple, cast

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.errors import GraphInterrupt

from echelons.delegation.race import LOST, Entrant, races_of
from echelons.errors import CircuitOpen, TooManyFailures
from echelons.guards.circuit_breaker import Admission, End, Intensity, circuits_of
from echelons.guards.deadlines import timed
from echelons.guards.gate import HALT_KEY
from echelons.nodes.delegating.run_level import Failure, acall, call


class Terms(NamedTuple):
    """On what terms a subordinate is asked.

    Attributes:
        agent: Its name.
        meant: Who is to answer: it, or who is further down if it passes the request on.
        superior: Path of who asks.
        timeout: Seconds that it has; ``None`` for no end of its own.
        part: What it races for, if others are asked at the same time.
    """

    agent: str
    meant: str
    superior: str
    timeout: float | None
    part: Entrant | None = None


class Asked(NamedTuple):
    """What came of asking.

    Attributes:
        outcome: The output of its level, or why there is none.
        too_much: Why its superior must not try on; empty if it may.
    """

    outcome: Any | Failure
    too_much: str = ""


def ask(level: Runnable[Any, Any], brief: Any, config: RunnableConfig, terms: Terms) -> Asked:
    """Ask a subordinate.

    Raises:
        GraphBubbleUp: It was interrupted; the pause belongs to the whole tree.
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
    """Do what ``ask`` does in an event loop.

    Raises:
        GraphBubbleUp: It was interrupted; the pause belongs to the whole tree.
    """
    circuits = circuits_of(config)
    admission = await circuits.aadmit(terms.agent)
    if not admission.admitted:
        return Asked(_refused(terms, admission))
    try:
        outcome = await acall(level, brief, _timed(config, terms))
    except BaseException as ended:
        await circuits.anote(terms.agent, terms.superior, admission, End.NOTHING)
        if _has_to_wait(ended, config, terms):
            raise
        return Asked(Failure(LOST.reason, End.NOTHING))
    much = await circuits.anote(terms.agent, terms.superior, admission, end_of(outcome))
    return Asked(outcome, _too_much(terms, much))


def end_of(outcome: Any | Failure) -> End:
    """Return what an outcome says of a subordinate, to its circuit."""
    if isinstance(outcome, Failure):
        return outcome.end
    said: Mapping[str, Any] = outcome.get("response") or {}
    # In a thread nothing is cut short: the level itself ends when its time is over.
    return End.FAILED if said.get(HALT_KEY) == "timeout" else End.ANSWERED


def _has_to_wait(ended: BaseException, config: RunnableConfig, terms: Terms) -> bool:
    """Return whether what has ended a run of a subordinate ends its superior's too.

    A question of somebody without whom it is decided by now need not be answered.
    """
    part = terms.part
    if part is None or not part.enough or not isinstance(ended, GraphInterrupt):
        return True
    return races_of(config).waits(part)


def _timed(config: RunnableConfig, terms: Terms) -> RunnableConfig:
    return cast("RunnableConfig", timed(config, terms.meant, terms.timeout, monotonic))


def _refused(terms: Terms, admission: Admission) -> Failure:
    error = CircuitOpen(terms.agent, admission.failures, admission.wait)
    return Failure(error.reason, End.NOTHING)


def _too_much(terms: Terms, much: Intensity | None) -> str:
    return TooManyFailures(terms.superior, much.failures, much.period).reason if much else ""
