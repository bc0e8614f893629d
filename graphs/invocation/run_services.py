"""Puts the gate, the circuit breakers, the races and the failure log of a run into its config.

`AgentGraph` does it for every run. The limits of the tree replace LangGraph's
`recursion_limit`, which counts the steps of each graph separately, not those of a tree.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig

from echelons.checkpoints.threads.store import hide_library_metadata
from echelons.checkpoints.tree_control.run_gate import TreeGate
from echelons.delegation.contract import ROOT_CONTRACT_KEY, Contract
from echelons.delegation.race import RACES_KEY, Races
from echelons.delegation.request import CURRENT_REQUEST_KEY
from echelons.guards.budget import ALLOWANCE_KEY
from echelons.guards.circuit_breaker import CIRCUITS_KEY, Circuits
from echelons.guards.gate import GATE_KEY
from echelons.guards.permissions import ALL_GRANTED, GRANT_KEY, Grant
from echelons.identity.failures import FAILURES_KEY, FailureLog
from echelons.identity.lineage import Identity

NO_RECURSION_LIMIT = 10**9
"""The `recursion_limit` of a caller who sets none: higher than any limit of a tree."""


class RunServices(NamedTuple):
    """The services of a run that its nodes read from the config.

    Attributes:
        gate: Admits each step within the limits, or halts it.
        circuits: The circuit breakers of the tree.
        races: The races of the run.
        failures: The failure log of the tree.
        saver: The saver of the run; `None` for none.
        contract: The contract of the root; `None` for none.
        grant: What the root is granted.
    """

    gate: TreeGate
    circuits: Circuits
    races: Races
    failures: FailureLog
    saver: Any = None
    contract: Contract | None = None
    grant: Grant = ALL_GRANTED


def with_run_services(
    config: RunnableConfig | None,
    around: RunnableConfig,
    identity: Identity,
    services: RunServices,
) -> RunnableConfig:
    """Return the config of a run with its identity and services.

    `around` is the caller's config, merged with the config around the call.
    """
    given: RunnableConfig = config or {}
    own: RunnableConfig = {
        **given,
        "metadata": {
            **(given.get("metadata") or {}),
            **hide_library_metadata(around.get("metadata") or {}),
            **identity.to_metadata(),
        },
        "configurable": {
            **around["configurable"],
            GATE_KEY: services.gate,
            CIRCUITS_KEY: services.circuits,
            RACES_KEY: services.races,
            FAILURES_KEY: services.failures,
        },
    }
    if services.grant != ALL_GRANTED:
        above = own["configurable"].get(GRANT_KEY, ALL_GRANTED)
        own["configurable"][GRANT_KEY] = above.narrow(services.grant)
    if services.contract or ROOT_CONTRACT_KEY in own["configurable"]:
        own["configurable"][ROOT_CONTRACT_KEY] = services.contract
    if ALLOWANCE_KEY in own["configurable"]:
        own["configurable"][ALLOWANCE_KEY] = services.gate.allowance
    # A tree within a tree has a request of its own, which its root reads from its state.
    if CURRENT_REQUEST_KEY in own["configurable"]:
        own["configurable"][CURRENT_REQUEST_KEY] = None
    # LangGraph's own default is a subclass of `int`, which subgraphs inherit.
    if type(given.get("recursion_limit")) is not int:
        own["recursion_limit"] = NO_RECURSION_LIMIT
    return own
