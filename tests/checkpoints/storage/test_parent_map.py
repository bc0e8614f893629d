"""Each row names the checkpoint next above it, and is read with all of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from echelons import Agent, SqliteCheckpointer
from echelons.checkpoints.storage import rows
from echelons.checkpoints.storage.rows import complete_parents
from echelons.testing import Call, ScriptedModel, delegate
from tests.error_codes import raises_code

DEPTH = 5
CONFIG: Any = {"configurable": {"thread_id": "t"}}
NAMES = [f"a{level}" for level in range(DEPTH)]


def ask(question: str) -> str:
    """Ask a human."""
    return f"a human said {interrupt(question)}"


def chain() -> tuple[Agent, ScriptedModel]:
    """Return agents one below the other, of whom the last asks a human."""
    steps: dict[str, Any] = {
        name: [delegate(below, "go"), f"{name} done"] for name, below in pairwise(NAMES)
    }
    model = ScriptedModel({**steps, NAMES[-1]: [Call("ask", {"question": "sure?"}), "asked"]})
    agent = Agent(NAMES[-1], tools=[ask])
    for name in reversed(NAMES[1:-1]):
        agent = Agent(name, subordinates=[agent])
    return Agent(NAMES[0], model=model, subordinates=[agent]), model


class Noting(SqliteCheckpointer):
    """Notes what it is given to store."""

    def __init__(self, path: Path, **options: Any) -> None:
        super().__init__(path, **options)
        self.given: dict[str, Any] = {}

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        self.given[checkpoint["id"]] = dict(metadata["parents"])
        return super().put(config, checkpoint, metadata, new_versions)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.sqlite"


@pytest.fixture
def saver(path: Path) -> Iterator[Noting]:
    with Noting(path, seal=b"a key of enough bytes") as opened:
        yield opened


def kept(saver: SqliteCheckpointer) -> list[dict[str, str]]:
    rows = saver.conn.execute("SELECT metadata FROM checkpoints")
    return [json.loads(metadata)["parents"] for (metadata,) in rows]


def read(saver: SqliteCheckpointer) -> dict[str, Any]:
    return {row.checkpoint["id"]: row.metadata.get("parents") for row in saver.list(CONFIG)}


def asked(saver: Any) -> tuple[Any, ScriptedModel]:
    agent, model = chain()
    graph = agent.compile(saver)
    graph.invoke({"messages": [HumanMessage("go")]}, CONFIG)
    return graph, model


def leaf(state: Any) -> Any:
    """Return the state of the graph that is furthest down."""
    while state.tasks and state.tasks[0].state is not None:
        state = state.tasks[0].state
    return state


def test_a_row_names_one_above_it_and_is_read_with_all(saver: Noting) -> None:
    graph, _ = asked(saver)
    graph.invoke(Command(resume="yes"), CONFIG)

    assert max(map(len, saver.given.values())) == 2 * (DEPTH - 1)
    assert max(map(len, kept(saver))) == 1
    assert read(saver) == saver.given
    for row in saver.list(CONFIG):
        one = saver.get_tuple(row.config)
        assert one is not None
        assert one.metadata["parents"] == saver.given[row.checkpoint["id"]]


def test_rows_that_a_second_process_stores_are_read_with_all_too(path: Path) -> None:
    with Noting(path) as first:
        asked(first)
    with Noting(path) as second:
        chain()[0].compile(second).invoke(Command(resume="yes"), CONFIG)
        assert read(second) == {**first.given, **second.given}


def test_rows_with_the_whole_map_read_on(path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(rows.ParentMap, "shorten", lambda _, __, parents: parents)
    with Noting(path) as old:
        asked(old)
        assert max(map(len, kept(old))) == 2 * (DEPTH - 1)
    monkeypatch.undo()

    with Noting(path) as new:
        graph = chain()[0].compile(new)
        graph.invoke(Command(resume="yes"), CONFIG)

        assert read(new) == {**old.given, **new.given}
        assert graph.get_state(CONFIG).values["messages"][-1].text == "a0 done"


def test_a_map_that_the_next_above_does_not_have_is_kept_whole(saver: Noting) -> None:
    def put(namespace: str, name: str, parents: dict[str, str]) -> None:
        config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": namespace}}
        saver.put(config, {**empty_checkpoint(), "id": name}, {"parents": parents}, {})

    put("", "1", {})
    put("a:1", "2", {"": "1"})
    put("a:1|b:1", "3", {"": "1", "a:1": "2"})
    put("a:1|b:1", "4", {"": "another", "a:1": "2"})
    put("x:1|y:1", "5", {"": "1", "x:1": "nowhere"})

    assert kept(saver) == [
        {},
        {"": "1"},
        {"a:1": "2"},
        {"": "another", "a:1": "2"},
        {"": "1", "x:1": "nowhere"},
    ]
    assert read(saver) == saver.given


def test_row_deleted_by_others_leaves_nothing(saver: Noting) -> None:
    def put(namespace: str, name: str, parents: dict[str, str]) -> None:
        config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": namespace}}
        saver.put(config, {**empty_checkpoint(), "id": name}, {"parents": parents}, {})

    put("", "1", {})
    put("a:1", "2", {"": "1"})
    saver.conn.execute("DELETE FROM checkpoints WHERE checkpoint_id = '2'")
    saver.conn.commit()

    put("a:1|b:1", "3", {"": "1", "a:1": "2"})

    assert kept(saver) == [{}, {"": "1", "a:1": "2"}]


def test_the_whole_tree_is_inspected_to_its_leaf(saver: Noting) -> None:
    graph, _ = asked(saver)

    state = leaf(graph.get_state(CONFIG, subgraphs=True))

    assert state.tasks[0].interrupts[0].value == "sure?"
    mapped = state.config["configurable"]["checkpoint_map"]
    assert len(mapped) == 2 * (DEPTH - 1) + 1
    assert mapped == {
        **saver.given[state.config["configurable"]["checkpoint_id"]],
        state.config["configurable"]["checkpoint_ns"]: state.config["configurable"][
            "checkpoint_id"
        ],
    }


def test_a_fork_far_down_is_refused_as_on_langgraphs_own_saver(saver: Noting) -> None:
    for any_saver in (saver, InMemorySaver()):
        graph, model = asked(any_saver)
        graph.invoke(Command(resume="yes"), CONFIG)
        states = [
            state
            for state in graph.get_state_history(CONFIG)
            if state.tasks and state.tasks[0].interrupts
        ]
        before = len(model.calls)
        inside = leaf(graph.get_state(states[0].config, subgraphs=True))
        changed = graph.update_state(inside.config, {"messages": [HumanMessage("otherwise")]})

        with raises_code("checkpoint_below_root"):
            graph.invoke(None, changed)

        assert len(model.calls) == before


def test_the_file_no_longer_grows_with_the_cube_of_the_depth(saver: Noting) -> None:
    asked(saver)

    longest = max(len(json.dumps(each)) for each in kept(saver))
    whole_ones = max(len(json.dumps(each)) for each in saver.given.values())
    assert longest < whole_ones / (DEPTH - 2)


@pytest.mark.parametrize(
    ("stored", "above", "expected"),
    [
        ({}, {}, {}),
        ({"": "1"}, {}, {"": "1"}),
        (
            {"b": "2"},
            {("b", "2"): {"a": "1"}, ("a", "1"): {"": "0"}},
            {"b": "2", "a": "1", "": "0"},
        ),
        ({"b": "2"}, {}, {"b": "2"}),
        ({"b": "2"}, {("b", "2"): {"b": "3"}}, {"b": "2"}),
    ],
)
def test_maps_are_followed_up_as_far_as_they_lead(stored: Any, above: Any, expected: Any) -> None:
    assert complete_parents(stored, lambda *place: above.get(place, {})) == expected
