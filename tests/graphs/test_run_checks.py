"""A stored run goes on only with a tree that still has the agents it waits in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from echelons import Agent
from echelons.checkpoints.threads.pending_work import OpenAgent
from echelons.errors import MissingAgents
from echelons.graphs.run_checks import find_missing_agents
from echelons.testing import Call, ScriptedModel, delegate
from tests.error_codes import raises_code

TASK: Any = {"messages": [("user", "plan")]}
CONFIG: Any = {"configurable": {"thread_id": "t"}}
MODEL = ScriptedModel(
    {
        "head": [delegate("days", "one day"), "planned"],
        "days": [delegate("eat", "dinner"), "day done"],
        "eat": [Call("ask", {"question": "Sure?"}), "thanks"],
        "*": ["anything"],
    }
)


@tool
def ask(question: str) -> str:
    """Ask a human."""
    return f"they said {interrupt(question)}"


EAT = Agent("eat", "Finds places to eat", tools=[ask])


def head(*subordinates: Any, **own: Any) -> Agent:
    return Agent("head", model=MODEL, subordinates=subordinates, **own)


def team(*below: Any) -> Agent:
    return head(Agent("days", subordinates=below or (EAT,)))


def eat(task: str) -> str:
    """Find a place."""
    return task


def waiting() -> InMemorySaver:
    """Return a saver with a run that waits in the lowest agent."""
    saver = InMemorySaver()
    team().compile(saver).invoke(TASK, CONFIG)
    return saver


@pytest.mark.parametrize(
    ("changed", "lost"),
    [
        (head(), ["head/days", "head/days/eat", "head/delegate"]),
        (head(Agent("days")), ["head/days/eat"]),
        (team(Agent("food", tools=[ask])), ["head/days/eat"]),
        (team(replace(EAT, tools=())), ["head/days/eat/act"]),
        (team(eat), ["head/days/eat/act"]),
        (head(Agent("trips", subordinates=[EAT])), ["head/days", "head/days/eat"]),
        (head(Agent("days"), EAT), ["head/days/eat"]),
    ],
)
async def test_tree_without_waiting_agent_is_refused_and_changes_nothing(
    changed: Agent, lost: list[str]
) -> None:
    saver = waiting()
    before = list(saver.list(CONFIG))
    graph = changed.compile(saver)

    ways: list[Command[Any] | None] = [Command(resume="yes"), None]
    for resume in ways:
        with pytest.raises(MissingAgents) as refused:
            graph.invoke(resume, CONFIG)
        with pytest.raises(MissingAgents):
            await graph.ainvoke(resume, CONFIG)

        assert refused.value.thread == "t"
        assert set(lost) <= set(refused.value.missing)
        for part in ("'t'", lost[0], "the tree that started it", "Nothing was changed"):
            assert part in str(refused.value)
    assert list(saver.list(CONFIG)) == before
    assert team().compile(saver).invoke(Command(resume="yes"), CONFIG)["messages"][-1].text == (
        "planned"
    )


@pytest.mark.parametrize(
    "changed",
    [
        team(),
        team(replace(EAT, prompt="Be brief.", description="Other")),
        team(EAT, Agent("wine")),
        head(Agent("days", subordinates=[EAT]), Agent("more")),
        team(replace(EAT, subordinates=(Agent("wine"),))),
    ],
)
def test_a_tree_that_still_has_them_goes_on(changed: Agent) -> None:
    result = changed.compile(waiting()).invoke(Command(resume="yes"), CONFIG)

    assert result["messages"][-1].text == "planned"


def test_a_new_task_is_not_checked() -> None:
    result = Agent("head", model=MODEL).compile(waiting()).invoke(TASK, CONFIG)

    assert result["messages"][-1].type == "ai"


def test_a_thread_that_never_ran_is_not_checked() -> None:
    graph = head().compile(waiting())

    assert graph.invoke(TASK, {"configurable": {"thread_id": "new"}})["messages"]


@pytest.mark.parametrize(
    ("waits", "lost"),
    [
        (OpenAgent(("head",), ("reason", "delegate"), ("days",)), []),
        (OpenAgent(("head",), ("act",), ()), ["head/act"]),
        (OpenAgent(("head",), (), ("flights",)), ["head/flights"]),
        (OpenAgent(("head", "days"), ("refuse", "eat"), ("eat",)), []),
        (OpenAgent(("head", "days", "eat"), ("reason", "act"), ()), []),
        (
            OpenAgent(("head", "days", "eat"), ("delegate",), ("x",)),
            [
                "head/days/eat/delegate",
                "head/days/eat/x",
            ],
        ),
        (OpenAgent(("head", "nights"), ("reason",), ()), ["head/nights"]),
        (OpenAgent(("days",), ("reason",), ()), ["days"]),
    ],
)
def test_every_agent_and_node_that_is_gone_is_named_once(waits: OpenAgent, lost: list[str]) -> None:
    assert find_missing_agents(team(), [waits, waits]) == lost


def test_a_function_works_in_one_node() -> None:
    tree = head(eat)

    assert find_missing_agents(tree, [OpenAgent(("head", "eat"), ("run",), ())]) == []
    assert find_missing_agents(tree, [OpenAgent(("head", "eat"), ("reason",), ())]) == [
        "head/eat/reason"
    ]


def forked(**given: Any) -> Any:
    return {"configurable": {"thread_id": "t", **given}}


@pytest.mark.parametrize("begins", ["a run", "a resume", "an update"])
async def test_a_checkpoint_that_a_thread_does_not_have_is_refused_before_anything_is_stored(
    any_saver: Any, begins: str
) -> None:
    graph, updates = team().compile(any_saver), begins == "an update"
    for thread in ("other", "t"):
        graph.invoke(TASK, {"configurable": {"thread_id": thread}})
    [other, *_] = any_saver.list({"configurable": {"thread_id": "other"}})
    elsewhere = other.config["configurable"]["checkpoint_id"]
    nested = {"checkpoint_ns": "delegate:1", "checkpoint_map": {"delegate:1": elsewhere}}
    rows = list(any_saver.list(None))
    for config, named in (
        (forked(checkpoint_id="nothing"), "'t' has no checkpoint 'nothing' in the namespace ''"),
        (forked(checkpoint_id=elsewhere), f"'t' has no checkpoint '{elsewhere}'"),
        (forked(checkpoint_id=5), "'t' has no checkpoint 5"),
        (forked(checkpoint_id=elsewhere, thread_id="new"), "'new' has no checkpoint"),
        (forked(**nested), f"'t' has no checkpoint '{elsewhere}' in the namespace 'delegate:1'"),
    ):
        given = None if begins == "a resume" else TASK
        with raises_code("checkpoint_not_found", match=named):
            graph.update_state(config, TASK) if updates else graph.invoke(given, config)
        with raises_code("checkpoint_not_found", match=named):
            await (graph.aupdate_state(config, TASK) if updates else graph.ainvoke(given, config))

    assert list(any_saver.list(None)) == rows
    with raises_code("invalid_option", match="checkpoint_map=5: it is no mapping"):
        graph.invoke(TASK, forked(checkpoint_map=5))
    assert graph.invoke(Command(resume="yes"), CONFIG)["messages"][-1].text == "planned"


def test_a_checkpoint_that_is_there_can_be_begun_from_in_every_namespace(any_saver: Any) -> None:
    graph: Any = team().compile(any_saver)
    graph.invoke(TASK, CONFIG)
    [root, *_] = graph.get_state_history(CONFIG)
    [task] = graph.get_state(CONFIG, subgraphs=True).tasks

    for config in (root.config, task.state.config, task.state.tasks[0].state.config):
        assert graph.invoke(None, config)["__interrupt__"]


def build_siblings(dug: list[str], *, asks: bool) -> Agent:
    """Return a tree of two subordinates that dig; the second may ask first."""

    def dig(where: str) -> str:
        """Dig."""
        if asks and where == "south":
            interrupt("Dig?")
        dug.append(where)
        return "a hole"

    model = ScriptedModel(
        {
            "head": [[delegate("north", "dig"), delegate("south", "dig")], "done"],
            "north": [Call("dig", {"where": "north"}), "dug"],
            "south": [Call("dig", {"where": "south"}), "dug"],
        }
    )
    return Agent(
        "head", model=model, subordinates=[Agent(name, tools=[dig]) for name in ("north", "south")]
    )


@pytest.mark.parametrize("asks", [True, False])
async def test_run_from_checkpoint_of_subordinate_repeats_nothing(
    any_saver: Any, asks: bool
) -> None:
    dug: list[str] = []
    graph: Any = build_siblings(dug, asks=asks).compile(any_saver)
    graph.invoke(TASK, CONFIG)
    step = next(state for state in graph.get_state_history(CONFIG) if len(state.tasks) == 2)
    tasks = graph.get_state(step.config, subgraphs=True).tasks
    done = sorted(dug)

    inputs: list[Any] = [None, Command(resume="yes")]
    root = step.config["configurable"]["checkpoint_id"]
    for task in tasks:
        for given in inputs:
            with raises_code("checkpoint_below_root", match="update_state") as caught:
                graph.invoke(given, task.state.config)
            assert caught.value.root == root
            with raises_code("checkpoint_below_root"):
                await graph.ainvoke(given, task.state.config)

    assert sorted(dug) == done == (["north"] if asks else ["north", "south"])
