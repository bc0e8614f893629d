"""The gate of a run is in its config, and LangGraph's own limit is out of the way."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config
from langchain_core.tools import tool
from langgraph.errors import GraphRecursionError

from echelons import Agent, Limits
from echelons.checkpoints.coordination.race_ledger import TreeRaces
from echelons.checkpoints.ledger import MemoryLedger
from echelons.checkpoints.tree_control.run_gate import TreeGate
from echelons.delegation.race import RACES_KEY, get_races
from echelons.graphs.invocation.run_services import (
    NO_RECURSION_LIMIT,
    RunServices,
    with_run_services,
)
from echelons.guards.circuit_breaker import CIRCUITS_KEY, ClosedCircuits, get_circuits
from echelons.guards.gate import GATE_KEY, get_gate
from echelons.identity.failures import FAILURES_KEY, FailureLog, get_failure_log
from echelons.identity.lineage import Identity
from echelons.testing import Call, ScriptedModel

ROOT = Identity(agent="head", path=("head",), thread_id="t", tree="x", turn="1")
LEDGER = MemoryLedger()
GATE = TreeGate(ROOT, "t", Limits(), LEDGER)
CIRCUITS = ClosedCircuits()
RACES = TreeRaces(LEDGER, "t", "1")
FAILURES = FailureLog()


def of(config: RunnableConfig | None) -> RunnableConfig:
    return with_run_services(
        config, ensure_config(config), ROOT, RunServices(GATE, CIRCUITS, RACES, FAILURES)
    )


def test_a_run_carries_its_gate_beside_what_its_caller_gave() -> None:
    own = of({"configurable": {"thread_id": "t"}, "metadata": {"mine": 1}})

    assert get_gate(own) is GATE
    assert get_circuits(own) is CIRCUITS
    assert get_races(own) is RACES
    assert get_failure_log(own) is FAILURES
    assert own["configurable"] == {
        "thread_id": "t",
        GATE_KEY: GATE,
        CIRCUITS_KEY: CIRCUITS,
        RACES_KEY: RACES,
        FAILURES_KEY: FAILURES,
    }
    assert own["metadata"]["mine"] == 1
    assert own["metadata"]["agent"] == "head"


def test_langgraphs_own_limit_is_out_of_the_way_unless_the_caller_sets_one() -> None:
    assert of(None)["recursion_limit"] == NO_RECURSION_LIMIT
    assert of({"recursion_limit": 7})["recursion_limit"] == 7


def test_a_limit_that_the_caller_sets_still_strikes() -> None:
    @tool
    def dig() -> str:
        """Dig."""
        return "dug"

    model = ScriptedModel({"head": lambda _: Call("dig")})
    graph = Agent("head", model=model, tools=[dig], limits=Limits(calls=20)).compile()
    task: Any = {"messages": [("user", "go")]}

    with pytest.raises(GraphRecursionError):
        graph.invoke(task, {"recursion_limit": 5})
    assert "halt" in graph.invoke(task)["messages"][-1].response_metadata


def test_what_runs_outside_of_a_tree_is_stopped_by_nobody() -> None:
    assert get_gate(None) is get_gate({"configurable": {}})
