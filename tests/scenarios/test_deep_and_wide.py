"""The deepest and the widest trees: they run, ask, go on in another session, and are read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import BaseMessage, ToolMessage
from langgraph.types import interrupt

from echelons import Agent, Limits, Session, SqliteCheckpointer
from echelons.errors import MissingAgents
from echelons.testing import Call, ScriptedModel, delegate
from tests.error_codes import raises_code
from tests.proof import sample
from tests.told_lines import without_told

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

WIDE = 300
CALLED = range(7, WIDE, 9)
"""Of whom that many are called at once; the first of them asks."""


def ask() -> str:
    """Ask the human."""
    return str(interrupt("How deep?"))


def chain(depth: int) -> Agent:
    """Return a tree of so many levels, one agent each; the lowest asks."""
    names = [f"level-{place}" for place in range(1, depth + 1)]
    scripts: dict[str, Any] = {
        name: [delegate(below, f"to {below}"), f"{name} heard"] for name, below in pairwise(names)
    }
    scripts[names[-1]] = [Call("ask"), "the bottom"]
    agent = Agent(names[-1], tools=[ask], model=ScriptedModel(scripts))
    for name in reversed(names[:-1]):
        agent = Agent(name, subordinates=[agent], model=ScriptedModel(scripts))
    return agent


@pytest.mark.parametrize("depth", sample([1, 2, 5, 17], [1, 2, 3, 5, 9, 17, 32]))
def test_a_tree_of_any_depth_asks_from_its_bottom_and_goes_on_in_another_session(
    tmp_path: Path, world: World, depth: int
) -> None:
    database = tmp_path / "deep.sqlite"
    with Session(chain(depth), database) as session:
        [question] = world.send(session, "go").questions
        shown = session.graph.get_state(session.config, subgraphs=True)

    with Session(chain(depth), database) as session:
        result = world.answer(session, {question.id: "so deep"})
        threads = list(session.trace().walk())
        bottom = session.thread_store.get(threads[-1].thread_id)

    assert question.path.parts == tuple(f"level-{place}" for place in range(1, depth + 1))
    assert result.text == ("level-1 heard" if depth > 1 else "the bottom")
    assert len(threads) == depth
    assert bottom.path == question.path
    assert bottom.messages[-2].text == "so deep"
    assert shown.tasks[0].interrupts[0].id == question.id


def test_a_tree_of_33_levels_is_refused_by_name_when_it_is_made() -> None:
    with raises_code("tree_too_deep") as refused:
        Agent("top", subordinates=[chain(32)])

    assert (refused.value.depth, refused.value.limit) == (33, 32)
    assert "33 levels" in str(refused.value)


def test_a_tree_deeper_than_its_root_allows_is_refused() -> None:
    with raises_code("tree_too_deep"):
        Agent("top", subordinates=[chain(3)], limits=Limits(depth=3))


def crowd(size: int, callers: Sequence[int]) -> Agent:
    """Return a tree in which a manager has very many subordinates and calls some at once."""
    calls = [delegate(f"hand-{number}", f"task {number}") for number in callers]

    def hand(messages: Sequence[BaseMessage]) -> Any:
        last = messages[-1]
        return Call("ask") if str(last.text) in ("task 7", "again") else f"did {last.text}"

    model = ScriptedModel(
        {
            "head": [delegate("manager", "go"), "over"],
            "manager": [calls, delegate("hand-7", "again"), "managed"],
            "*": hand,
        }
    )
    hands = [Agent(f"hand-{number}", tools=[ask]) for number in range(size)]
    return Agent("head", model=model, subordinates=[Agent("manager", subordinates=hands)])


def test_one_of_300_asks_under_its_path_and_all_calls_are_answered(
    tmp_path: Path, world: World
) -> None:
    database = tmp_path / "wide.sqlite"
    tree = crowd(WIDE, CALLED)
    with Session(tree, database) as session:
        [question] = world.send(session, "go").questions
        assert question.path == "head/manager/hand-7"

    with Session(tree, database) as session:
        [again] = world.answer(session, {question.id: "this deep"}).questions
        result = world.answer(session, {again.id: "deeper"})
        links = session.thread_store.verify(session.thread_id)
        manager, *hands = [session.thread_store.get(each.sub_agent_thread_id) for each in links]

    assert result.text == "over"
    assert {str(link.state) for link in links} == {"ok"}
    answers = [
        without_told(each.text) for each in manager.messages if isinstance(each, ToolMessage)
    ]
    expected = [f"did task {number}" for number in CALLED]
    assert answers == ["did this deep", *expected[1:], "did deeper"]
    assert [each.path.parts for each in hands] == [("head", "manager", f"hand-{n}") for n in CALLED]
    assert [each.segments for each in hands[:3]] == [2, 1, 1]
    assert isinstance(tree.model, ScriptedModel)
    assert tree.model.repeated_calls == []


def test_a_crowd_that_outgrows_its_nodes_while_it_waits_goes_on(
    saver: SqliteCheckpointer, world: World
) -> None:
    tree = crowd(257, [7, 8])
    [question] = world.send(Session(crowd(256, [7, 8]), saver), "go").questions

    session = Session(tree, saver)
    [again] = world.answer(session, {question.id: "this deep"}).questions
    assert again.path == "head/manager/hand-7"
    assert world.answer(session, {again.id: "deeper"}).text == "over"

    links = session.thread_store.verify(session.thread_id)
    manager, *hands = [session.thread_store.get(each.sub_agent_thread_id) for each in links]
    answers = [
        without_told(each.text) for each in manager.messages if isinstance(each, ToolMessage)
    ]
    assert answers == ["did this deep", "did task 8", "did deeper"]
    assert [each.segments for each in hands] == [2, 1]
    assert isinstance(tree.model, ScriptedModel)
    assert tree.model.repeated_calls == []


def test_a_crowd_that_shrinks_to_nodes_of_its_own_while_it_waits_is_refused_and_loses_nothing(
    saver: SqliteCheckpointer,
) -> None:
    session = Session(crowd(257, [7, 8]), saver)
    [question] = session.send("go").result().questions

    with pytest.raises(MissingAgents, match="thread 'main' waits in head/manager/dispatch"):
        Session(crowd(256, [7, 8]), saver).answer(question.id, "no").result()

    [again] = session.answer(question.id, "yes").result().questions
    assert session.answer(again.id, "yes").result().text == "over"
