"""Puts the gate of a run into its config, and closes it behind the run.

`AgentGraph` does it for every run. The limits of the tree take the place of LangGraph's
`recursion_limit`, which counts each invocation for itself and says little of a tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig

from echelons.checkpoints.coordination.run_gate import TreeGate
from echelons.delegation.race import RACES_KEY, Races
from echelons.guards.circuit_breaker import CIRCUITS_KEY, Circuits
from echelons.guards.gate import GATE_KEY
from echelons.identity.lineage import Identity

SUPERSTEPS = 10**9
"""The `recursion_limit` of who gives none: out of the way of any tree's limits."""


class Aids(NamedTuple):
    """What the nodes of a run go by.

    Attributes:
        gate: Its gate.
        circuits: The circuits of its tree.
        races: Its races.
    """

    gate: TreeGate
    circuits: Circuits
    races: Races


def gated(
    config: RunnableConfig | None,
    around: RunnableConfig,
    identity: Identity,
    aids: Aids,
) -> RunnableConfig:
    """Return the config of a run.

    Args:
        config: What the caller gives.
        around: The same with what is around the call.
        identity: Whose run it is.
        aids: What its nodes go by.
    """
    given: RunnableConfig = config or {}
    own: RunnableConfig = {
        **given,
        "metadata": {**(given.get("metadata") or {}), **identity.metadata()},
        "configurable": {
            **around["configurable"],
            GATE_KEY: aids.gate,
            CIRCUITS_KEY: aids.circuits,
            RACES_KEY: aids.races,
        },
    }
    if not _sets_a_limit(given):
        own["recursion_limit"] = SUPERSTEPS
    return own


def closing(parts: Iterator[Any], gate: TreeGate) -> Iterator[Any]:
    """Yield the parts of a stream, and close the gate when it ends, however it does."""
    with gate:
        yield from parts


def _sets_a_limit(config: RunnableConfig) -> bool:
    # LangGraph marks its own default by a subclass, and hands it on to graphs within graphs.
    return type(config.get("recursion_limit")) is int
