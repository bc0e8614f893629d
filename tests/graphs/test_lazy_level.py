"""Levels are compiled when they are first touched, and nobody can tell the difference."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from echelons import Agent
from echelons.graphs.compiled_tree import LazyLevel, LevelGraph
from echelons.graphs.level_graph import LevelBuilder, build_foreign_level
from echelons.testing import ScriptedModel, delegate
from echelons.tree.members import adopt_member

TASK: Any = {"messages": [("user", "plan")]}


def shout(task: str) -> str:
    return task.upper()


def level(built: list[str]) -> LazyLevel:
    """Return a level that notes when it is built."""

    def build() -> LevelBuilder:
        built.append("shout")
        return build_foreign_level(adopt_member("head", shout), None)  # type: ignore[arg-type]

    return LazyLevel("shout", build)


def levels_of(graph: Any) -> dict[str, str]:
    """Return the kinds of the levels right below a graph, untouched ones untouched."""
    nodes = dict(graph.builder.nodes["delegate"].runnable.builder.nodes)
    return {
        name: type(node.runnable.deps[0]).__name__
        for name, node in nodes.items()
        if node.runnable.deps
    }


def test_a_level_is_not_built_before_it_is_touched() -> None:
    built: list[str] = []
    untouched = level(built)

    assert (untouched.name, untouched.checkpointer) == ("shout", None)
    assert type(untouched) is LazyLevel
    assert built == []


def test_the_first_touch_makes_it_a_level_like_any_other() -> None:
    built: list[str] = []
    untouched = level(built)

    assert set(untouched.nodes) == {"__start__", "run"}
    assert set(untouched.nodes) == {"__start__", "run"}
    assert type(untouched) is LevelGraph
    assert untouched.name == "shout"
    assert built == ["shout"]


def test_a_touch_from_several_threads_is_as_good_as_one() -> None:
    for _ in range(20):
        untouched = level([])
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(getattr, [untouched] * 4, ["nodes"] * 4))
        assert [set(nodes) for nodes in found] == [{"__start__", "run"}] * 4


def test_a_run_builds_the_levels_that_it_comes_to_and_no_others() -> None:
    model = ScriptedModel({"head": [delegate("a", "x"), "end"], "a": ["A"]})
    graph = Agent("head", model=model, subordinates=[Agent("a"), Agent("b")]).compile()
    before = levels_of(graph)

    graph.invoke(TASK)

    assert before == {"a": "LazyLevel", "b": "LazyLevel"}
    assert levels_of(graph) == {"a": "LevelGraph", "b": "LazyLevel"}


def test_an_inspection_finds_every_level() -> None:
    below = Agent("a", subordinates=[Agent("b", subordinates=[shout])])
    graph = Agent("head", model=ScriptedModel(["x"]), subordinates=[below]).compile()

    found = [name.split("|")[-1] for name, _ in graph.get_subgraphs(recurse=True)]

    assert [each for each in found if each != "delegate"] == ["a", "b", "shout"]
