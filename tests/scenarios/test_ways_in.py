"""Runs that come in by side doors: bound configs, late starts, old checkpoints, other trees."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.types import Command, interrupt

from echelons import Agent, Session, SqliteCheckpointer, ThreadStore
from echelons.errors import MissingAgents, TeamError
from echelons.testing import Call, ScriptedModel, delegate
from tests.error_codes import raises_code


def delete(path: str) -> str:
    """Delete a file, after asking."""
    return f"{path}: {interrupt(f'delete {path}?')}"


def team(leaf: str = "leaf") -> Agent:
    model = ScriptedModel(
        {
            "head": [delegate(leaf, "clean up"), "done"],
            leaf: [Call("delete", {"path": "A"}), Call("delete", {"path": "B"}), "clean"],
        }
    )
    return Agent("head", model=model, subordinates=[Agent(leaf, tools=[delete])])


ASK = {"messages": [("user", "clean up")]}


def test_a_thread_bound_with_with_config_is_the_thread_that_is_stored() -> None:
    saver = InMemorySaver()
    bound = team().compile(saver).with_config({"configurable": {"thread_id": "t1"}})

    bound.invoke(ASK)

    store = ThreadStore(saver)
    assert [root.id for root in store.roots()] == ["t1"]
    assert store.get("t1").id == store.trace("t1").thread_id == "t1"


def test_a_resume_through_a_bound_config_is_checked_too() -> None:
    saver = InMemorySaver()
    thread: Any = {"configurable": {"thread_id": "t1"}}
    team().compile(saver).with_config(thread).invoke(ASK)

    with pytest.raises(MissingAgents, match="head/leaf"):
        team("twig").compile(saver).with_config(thread).invoke(Command(resume="yes"))


def test_a_past_that_waits_in_a_lost_agent_is_refused_and_one_before_it_is_not() -> None:
    saver = InMemorySaver()
    thread: Any = {"configurable": {"thread_id": "t1"}}
    graph = team().compile(saver)
    graph.invoke(ASK, thread)
    waiting = graph.get_state(thread).config
    before = next(each.config for each in graph.get_state_history(thread) if "reason" in each.next)
    graph.invoke(Command(resume="yes"), thread)
    graph.invoke(Command(resume="yes"), thread)
    changed = team("twig").compile(saver)

    with pytest.raises(MissingAgents, match="head/leaf"):
        changed.invoke(None, waiting)
    forked = changed.invoke(None, before)

    assert forked["__interrupt__"][0].value == "delete A?"


def test_one_answer_that_is_given_twice_is_never_taken_for_the_next_question() -> None:
    with Session(team(), ":memory:") as session:
        session.send("clean up").result()
        first = session.inbox()[0].id
        once, twice = session.answer(first, "yes"), session.answer(first, "yes")

        once.result()
        with raises_code("question_closed"):
            twice.result()

        assert [question.value for question in session.inbox()] == ["delete B?"]


async def test_the_same_holds_in_an_event_loop() -> None:
    async with Session(team(), ":memory:") as session:
        await (await session.asend("clean up")).result()
        first = (await session.ainbox())[0].id
        once, twice = await asyncio.gather(
            session.aanswer(first, "yes"), session.aanswer(first, "yes")
        )

        await once.result()
        with raises_code("question_closed"):
            await twice.result()

        assert [question.value for question in await session.ainbox()] == ["delete B?"]


def test_an_error_of_ours_in_a_users_function_is_the_functions_failure() -> None:
    def broken(message: str) -> str:
        raise TeamError("there is no team x", code="unknown_team")

    model = ScriptedModel([delegate("broken", "go"), "went on"])
    graph = Agent("head", model=model, subordinates=[broken]).compile()

    answer, last = graph.invoke(ASK)["messages"][-2:]

    assert answer.content.startswith("[unable] UnknownTeam:")
    assert last.content == "went on"


async def test_closing_a_stream_cancels_what_still_runs_before_it_returns() -> None:
    ended: list[str] = []

    async def linger(word: str) -> str:
        """Wait for good."""
        get_stream_writer()(word)
        try:
            return str(await asyncio.Event().wait())
        finally:
            ended.append(word)

    model = ScriptedModel([Call("linger", {"word": "x"}), "done"])
    graph = Agent("head", model=model, tools=[linger]).compile(InMemorySaver())
    stream = graph.astream(ASK, {"configurable": {"thread_id": "t"}}, stream_mode="custom")

    async with aclosing(cast("AsyncGenerator[Any]", stream)) as parts:
        assert await anext(parts) == "x"

    assert ended == ["x"]


async def test_stream_that_is_never_iterated_leaves_nothing_behind() -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        team().compile(InMemorySaver()).astream(ASK, {"configurable": {"thread_id": "t"}})
        gc.collect()

    assert warned == []


def test_a_tree_inside_a_tree_asks_with_its_whole_path_and_is_no_root() -> None:
    inner = team().compile()
    model = ScriptedModel([delegate("head", "clean up"), "done"])
    boss = Agent("boss", model=model, subordinates=[inner])

    with Session(boss, ":memory:", thread="nest") as session:
        session.send("clean up").result()

        assert [(root.agent, root.turns) for root in session.threads()] == [("boss", 1)]
        assert session.inbox()[0].path == "boss/head/leaf"


def test_a_session_finds_the_thread_that_a_compiled_graph_was_given_by_id(tmp_path: Any) -> None:
    database = tmp_path / "evenings.sqlite"
    with SqliteCheckpointer(database) as saver:
        team().compile(saver).invoke(ASK, {"configurable": {"thread_id": "saturday"}})

    with Session(team(), database, thread="saturday") as session:
        assert [question.value for question in session.inbox()] == ["delete A?"]
        assert str(session.answer(session.inbox()[0].id, "yes").result()) == (
            "head/leaf asks: delete B?"
        )
