"""A compiled tree is an ordinary LangGraph graph that knows whose conversation it holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.errors import GraphRecursionError
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolRuntime
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, interrupt

from echelons import Agent, Limits, SqliteCheckpointer, ThreadStore
from echelons.errors import StorageError
from echelons.identity.lineage import METADATA_KEYS
from echelons.testing import Call, ScriptedModel, delegate
from tests.error_codes import raises_code

TASK: Any = {"messages": [("user", "plan")]}


@tool
def ask(question: str) -> str:
    """Ask a human."""
    return f"they said {interrupt(question)}"


def config(thread: Any = "t", **more: Any) -> Any:
    return {"configurable": {"thread_id": thread}, **more}


def team(*last: Any) -> Agent:
    """Return a tree of three levels whose lowest agent follows ``last``."""
    model = ScriptedModel(
        {
            "head": [delegate("days", "one day"), "planned"],
            "days": [delegate("eat", "dinner"), "day done"],
            "eat": [*(last or ["pizza"])],
        }
    )
    days = Agent("days", subordinates=[Agent("eat", tools=[ask])])
    return Agent("head", model=model, subordinates=[days])


def asking() -> Agent:
    return team(Call("ask", {"question": "Sure?"}), "thanks")


def said(result: Any) -> list[str]:
    return [each.text for each in result["messages"]]


# Ways to run it


async def test_all_four_ways_in_come_to_the_same_answer() -> None:
    graph = team().compile()

    invoked = [graph.invoke(TASK), await graph.ainvoke(TASK)]
    streamed = list(graph.stream(TASK, stream_mode="values"))[-1]
    astreamed = [each async for each in graph.astream(TASK, stream_mode="values")][-1]

    for result in (*invoked, streamed, astreamed):
        assert said(result) == ["plan", "", "day done", "planned"]


@pytest.mark.parametrize("thread", [None, "t", 7])
def test_without_a_saver_it_runs_and_keeps_nothing(thread: Any) -> None:
    graph = team().compile()
    given = config(thread) if thread else None

    first, second = graph.invoke(TASK, given), graph.invoke(TASK, given)

    assert said(first) == said(second) == ["plan", "", "day done", "planned"]


def test_a_path_is_opened_as_a_database(tmp_path: Path) -> None:
    for path in (tmp_path / "one.sqlite", str(tmp_path / "two.sqlite")):
        graph = team().compile(path)
        graph.invoke(TASK, config())
        assert isinstance(graph.checkpointer, SqliteCheckpointer)
        graph.checkpointer.close()
        assert said(team().compile(path).get_state(config()).values)[-1] == "planned"


def test_a_path_that_cannot_be_opened_is_refused_when_it_is_compiled(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        team().compile(tmp_path / "missing" / "trip.sqlite")


@pytest.fixture(params=["memory", "sqlite"])
def saver(request: pytest.FixtureRequest) -> Iterator[Any]:
    """One of LangGraph's own savers."""
    if request.param == "memory":
        yield InMemorySaver()
    else:
        with SqliteSaver.from_conn_string(":memory:") as plain:
            yield plain


def test_any_saver_keeps_a_tree(saver: Any) -> None:
    graph = asking().compile(saver)

    stopped = graph.invoke(TASK, config())
    result = graph.invoke(Command(resume="yes"), config())

    assert [each.value for each in stopped["__interrupt__"]] == ["Sure?"]
    assert said(result)[-1] == "planned"
    assert ThreadStore(saver).trace("t").text.count("fulfilled") == 2


@pytest.mark.parametrize("given", [5, True, False, object(), b"trip.sqlite"])
def test_what_is_no_saver_and_no_path_is_refused(given: Any) -> None:
    with raises_code("invalid_database", match="pass a LangGraph saver, the path"):
        team().compile(given)


def test_tools_reach_the_store_that_the_tree_was_compiled_with() -> None:
    @tool
    def look(runtime: ToolRuntime) -> str:
        """Look into the store."""
        assert runtime.store is not None
        item = runtime.store.get(("places",), "rome")
        return str(item and item.value["food"])

    store = InMemoryStore()
    store.put(("places",), "rome", {"food": "pizza"})
    model = ScriptedModel({"head": [delegate("eat", "x"), "end"], "eat": [Call("look"), "done"]})
    head = Agent("head", model=model, subordinates=[Agent("eat", tools=[look])])

    head.compile(store=store).invoke(TASK)

    assert model.calls[2].messages[-1].text == "pizza"


def test_a_loop_without_end_is_stopped_by_langgraphs_own_limit() -> None:
    model = ScriptedModel(lambda _: Call("ask", {"q": 1}))
    head = Agent("head", model=model, tools=[ask], limits=Limits(max_refusals=None))

    with pytest.raises(GraphRecursionError):
        head.compile().invoke(TASK, {"recursion_limit": 8})


# Threads and identity


def test_a_thread_goes_on_and_two_threads_know_nothing_of_each_other() -> None:
    model = ScriptedModel(lambda messages: f"{len(messages)} messages")
    graph = Agent("head", guidance="", model=model).compile(":memory:")

    texts = [said(graph.invoke(TASK, config(thread)))[-1] for thread in ("a", "a", "b")]

    assert texts == ["1 messages", "3 messages", "1 messages"]


def test_every_agent_runs_under_its_own_identity() -> None:
    graph = team().compile(":memory:")
    graph.invoke(TASK, config())
    store = ThreadStore(graph.checkpointer)  # type: ignore[arg-type]

    trace = store.trace("t")

    paths = [store.get(each.thread_id).path for each in trace.walk()]
    assert paths == ["head", "head/days", "head/days/eat"]
    superiors = [store.get(each.thread_id).superior_thread_id for each in trace.walk()]
    assert superiors == ["", "t", trace.subordinates[0].thread_id]


def test_thread_without_agent_is_named_by_a_new_uuid() -> None:
    model = ScriptedModel(lambda _: "done")
    graph = Agent("head", model=model).compile()

    graph.invoke(TASK)
    graph.invoke(TASK)

    ids = [call.thread_id for call in model.calls]
    assert len({UUID(each) for each in ids}) == 2


def test_a_callers_metadata_is_kept_and_cannot_pose_as_an_agent() -> None:
    graph = team().compile(":memory:")
    sly = dict.fromkeys(METADATA_KEYS, "sly")

    graph.invoke(TASK, config(metadata={**sly, "user": "ann"}))

    saved = graph.checkpointer.get_tuple(config())  # type: ignore[union-attr]
    assert saved is not None
    kept: Any = saved.metadata
    assert kept["user"] == "ann"
    own = {key: kept[key] for key in METADATA_KEYS if key != "thread_name"}
    assert "sly" not in own.values()
    assert (own["agent"], own["agent_thread_id"], own["superior_thread_id"]) == ("head", "t", "")


def test_every_step_is_stored_before_the_next_begins() -> None:
    stored: list[int] = []
    saver = InMemorySaver()

    def counting(_: Any) -> Any:
        stored.append(len(list(saver.list(config()))))
        return Call("ask", {"q": 1}) if len(stored) < 4 else "done"

    limits = Limits(max_refusals=None)
    head = Agent("head", model=ScriptedModel(counting), tools=[ask], limits=limits)
    head.compile(saver).invoke(TASK, config())

    assert len(set(stored)) == 4
    assert stored == sorted(stored)


# Looking into it


def test_tree_of_states_shows_waiting_agents() -> None:
    graph = asking().compile(":memory:")
    graph.invoke(TASK, config())

    depth, state = 0, graph.get_state(config(), subgraphs=True)
    while state.tasks and isinstance(state.tasks[0].state, type(state)):
        depth, state = depth + 1, state.tasks[0].state

    assert depth == 4
    assert state.next == ("act",)
    assert [each.text for each in state.values["messages"]] == ["dinner", ""]
    assert state.tasks[0].interrupts[0].value == "Sure?"


def test_streams_of_nested_levels_carry_their_place() -> None:
    parts = team().compile().stream(TASK, subgraphs=True, stream_mode="updates")

    places = {tuple(each.split(":")[0] for each in namespace) for namespace, _ in parts}

    assert places == {
        (),
        ("delegate",),
        ("delegate", "days"),
        ("delegate", "days", "delegate"),
        ("delegate", "days", "delegate", "eat"),
    }


def test_the_subgraphs_of_a_tree_are_found_by_name() -> None:
    found = {name for name, _ in team().compile().get_subgraphs(recurse=True)}

    assert found == {
        "delegate",
        "delegate|days",
        "delegate|days|delegate",
        "delegate|days|delegate|eat",
    }


def test_history_and_forks_work_as_on_any_graph() -> None:
    model = ScriptedModel(lambda messages: f"{len(messages)} messages")
    graph = Agent("head", guidance="", model=model).compile(":memory:")
    graph.invoke(TASK, config())
    after_one = graph.get_state(config())
    graph.invoke(TASK, config())

    forked = graph.invoke({"messages": [("user", "other")]}, after_one.config)

    assert said(forked) == ["plan", "1 messages", "other", "3 messages"]
    assert len(list(graph.get_state_history(config()))) > 6


def test_it_is_a_compiled_state_graph_and_so_is_its_copy() -> None:
    graph = team().compile(":memory:")

    copied = graph.copy({"name": "other"})

    assert isinstance(copied, CompiledStateGraph)
    assert type(copied) is type(graph)
    assert (copied.name, copied.agent, copied.fingerprint) == (
        *("other", graph.agent),
        graph.fingerprint,
    )
    assert said(copied.invoke(TASK, config()))[-1] == "planned"


# Models


def test_a_missing_key_anywhere_in_the_tree_is_known_when_it_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.delenv("OPENAI_API_BASE", raising=False)
    eat = Agent("eat", model="openai:gpt-5-mini")
    head = Agent("head", model=ScriptedModel(["x"]), subordinates=[eat])

    with raises_code("model_key_missing") as refused:
        head.compile()

    assert refused.value.model == "openai:gpt-5-mini"


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_missing_package_anywhere_in_the_tree_is_known_when_it_is_compiled(depth: int) -> None:
    tree = Agent("leaf", model="mistralai:mistral-large-latest")
    for level in range(1, depth):
        tree = Agent(f"level{level}", model=ScriptedModel(["x"]), subordinates=[tree])

    with raises_code("model_package_missing", match="pip install langchain-mistralai"):
        tree.compile()


def test_unknown_model_is_refused_at_compile() -> None:
    head = Agent("head", model=ScriptedModel(["x"]), subordinates=[Agent("eat", model="gpt")])

    with raises_code("unknown_model", match="'gpt'"):
        head.compile()


def test_a_resumed_run_is_of_the_turn_that_it_goes_on_with() -> None:
    saver = InMemorySaver()
    graph = team(Call("ask", {"question": "Sure?"}), "thanks", "pasta").compile(saver)

    def turns() -> set[Any]:
        return {each.metadata.get("turn_id") for each in saver.list(config())}

    graph.invoke(TASK, config())
    graph.invoke(Command(resume="yes"), config())
    first = turns()
    team("pasta").compile(saver).invoke(TASK, config())

    assert len(first) == 1
    assert len(turns()) == 2
