"""A run enters a tree with services of its own, and LangGraph's own limit is out of the way."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config
from langchain_core.tools import tool
from langgraph.errors import GraphRecursionError

from echelons import Agent, Limits
from echelons.delegation.join import get_races
from echelons.graphs.entry import NO_RECURSION_LIMIT, TreeEntry, enter_tree
from echelons.guards.gate import OPEN_GATE, get_gate
from echelons.guards.permissions import Grant
from echelons.identity.failures import get_failure_log
from echelons.identity.lineage import Identity
from echelons.run_context import CONTEXT_KEY, RunContext, get_context
from echelons.testing import Call, ScriptedModel

GRAPH = Agent("head", model=ScriptedModel({})).compile()
ROOT = Identity(agent="head", path=("head",), thread_id="t", tree="x", turn="1")


def of(config: RunnableConfig | None) -> TreeEntry:
    return enter_tree(GRAPH, ROOT, config, ensure_config(config))


def test_run_carries_its_services_beside_what_its_caller_passes() -> None:
    entry = of({"configurable": {"thread_id": "t"}, "metadata": {"mine": 1}})
    own = entry.config

    assert get_gate(own) is entry.gate
    assert get_races(own) is entry.races
    assert get_failure_log(own) is entry.failures is GRAPH.failures
    assert own["configurable"] == {"thread_id": "t", CONTEXT_KEY: get_context(own)}
    assert own["metadata"]["mine"] == 1
    assert own["metadata"]["agent"] == "head"


def test_tree_within_an_agents_work_keeps_its_grant_and_deadline_but_not_its_request() -> None:
    request: Any = object()
    outer = RunContext(
        gate=OPEN_GATE,
        request=request,
        rights=Grant(tools=("look",)),
        deadline=5.0,
        is_added=True,
        first_place=2,
    )
    own = of({"configurable": {"thread_id": "t", CONTEXT_KEY: outer}}).config
    inner = get_context(own)

    assert (inner.rights, inner.deadline) == (outer.rights, outer.deadline)
    assert (inner.request, inner.is_added, inner.first_place) == (None, False, 0)
    assert get_context({"configurable": {CONTEXT_KEY: outer}}).request is request


def test_langgraphs_own_limit_is_out_of_the_way_unless_the_caller_sets_one() -> None:
    assert of(None).config["recursion_limit"] == NO_RECURSION_LIMIT
    assert of({"recursion_limit": 7}).config["recursion_limit"] == 7


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


def test_run_outside_of_a_tree_cannot_be_stopped() -> None:
    assert get_gate(None) is get_gate({"configurable": {}})
