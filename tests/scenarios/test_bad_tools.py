"""Whatever a tool does, it stays with the agent whose tool it is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import ToolException
from langgraph.types import Command

from echelons import Agent, Session, SqliteCheckpointer
from echelons.checkpoints.threads.thread import Thread
from echelons.testing import Call, ScriptedModel, delegate, report
from tests.failure_ids import without_ids

if TYPE_CHECKING:
    from tests.scenarios.conftest import World


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Failures of subordinates are logged; here they are wanted."""
    with caplog.at_level(logging.CRITICAL):
        yield


def look() -> str:
    """Look around."""
    return "fine"


def team(tool: Any, calls: Any, **scripts: Any) -> Agent:
    """Return a tree of three levels whose leaf has a tool, and makes some calls."""
    scripts = {
        "head": [delegate("mid", "work"), "over"],
        "mid": [[delegate("leaf", "work"), delegate("other", "work")], "mid done"],
        "leaf": [calls, "leaf done"],
        "other": [Call("look"), "other done"],
        **scripts,
    }
    below = [Agent("leaf", tools=[tool, look]), Agent("other", tools=[look])]
    mid = Agent("mid", subordinates=below)
    return Agent("head", model=ScriptedModel(scripts), subordinates=[mid])


def threads(session: Session) -> dict[str, Thread]:
    """Return the threads of the tree by agent."""
    links = session.thread_store.verify(session.thread_id)
    reasons = [each.reason for part in session.trace().walk() for each in part.requests]
    assert {str(link.state) for link in links} == {"ok"}, reasons
    return {link.agent: session.thread_store.get(link.sub_agent_thread_id) for link in links}


def told(thread: Thread) -> list[str]:
    return [str(each.text) for each in thread.messages if isinstance(each, ToolMessage)]


def boom() -> str:
    """Fail."""
    raise ValueError("no such city\nTraceback: secret")


def kind() -> str:
    """Fail in words for the model."""
    raise ToolException("There is no such city; try Rome.")


def number(count: int) -> str:
    """Take a number."""
    return str(count)


@pytest.mark.parametrize(
    ("tool", "call", "answer"),
    [
        (boom, Call("boom"), "Error: ValueError: no such city"),
        (kind, Call("kind"), "Error: There is no such city; try Rome."),
        (number, Call("number", {"count": "many"}), "Error: "),
        (number, Call("number"), "Error: "),
    ],
    ids=["raises", "raises for the model", "wrong argument", "no argument"],
)
def test_a_tool_that_fails_tells_its_own_model_and_nobody_else(
    world: World, saver: SqliteCheckpointer, tool: Any, call: Call, answer: str
) -> None:
    session = Session(team(tool, [call, Call("look")]), saver)

    result = world.send(session, "go")

    found = threads(session)
    assert result.text == "over"
    assert told(found["leaf"])[0].startswith(answer)
    assert "Traceback" not in told(found["leaf"])[0]
    assert told(found["leaf"])[1] == "fine"
    assert told(found["mid"]) == ["leaf done", "other done"]


def steer() -> Command[Any]:
    """Steer the superior."""
    return Command(graph=Command.PARENT, goto="refuse", update={"queue": []})


def test_a_tool_that_steers_the_superior_makes_its_agent_unable_and_its_siblings_go_on(
    world: World, saver: SqliteCheckpointer
) -> None:
    session = Session(team(steer, [Call("look"), Call("steer")]), saver)

    result = world.send(session, "go")

    found = threads(session)
    assert result.text == "over"
    assert told(found["mid"]) == [
        "[unable] a tool tried to steer the superior with Command(graph=PARENT)",
        "other done",
    ]
    assert told(found["leaf"]) == ["fine", "cut short, and what came of it is not known"]


def test_an_agent_that_was_cut_short_is_told_what_ran_and_what_did_not_when_it_goes_on(
    world: World, saver: SqliteCheckpointer
) -> None:
    again = [[delegate("leaf", "work"), delegate("other", "work")], delegate("leaf", "again"), "ok"]
    agent = team(steer, [Call("look", id="a"), Call("steer", id="b")], mid=again)
    session = Session(agent, saver)

    world.send(session, "go")

    assert isinstance(agent.model, ScriptedModel)
    last = [call for call in agent.model.calls if call.agent == "leaf"][1]
    shown = {
        each.tool_call_id: each.text for each in last.messages if isinstance(each, ToolMessage)
    }
    assert shown == {"a": "fine", "b": "cut short, and what came of it is not known"}


def update() -> Command[Any]:
    """Update the state."""
    message = ToolMessage("noted", tool_call_id="u")
    return Command(update={"messages": [message], "unknown": 1})


def test_a_tool_may_update_its_own_agents_messages(world: World, saver: SqliteCheckpointer) -> None:
    session = Session(team(update, [Call("update", id="u"), Call("look")]), saver)

    world.send(session, "go")

    found = threads(session)
    assert told(found["leaf"]) == ["noted", "fine"]
    assert told(found["mid"]) == ["leaf done", "other done"]


@pytest.mark.parametrize(
    "private",
    [
        {"response": {"status": "fulfilled", "result": "taken over"}},
        {"response": {"status": "nonsense"}},
        {"response": "nonsense"},
        {"heads": {"x": {"agent": "other"}}},
        {"previous": {"checkpoint_ns": "", "checkpoint_id": "nothing"}},
        {"request": 7},
    ],
    ids=repr,
)
def test_what_a_level_keeps_for_itself_is_not_a_tools_to_update(
    world: World, saver: SqliteCheckpointer, private: dict[str, Any]
) -> None:
    def overreach() -> Command[Any]:
        """Update what is not its own."""
        message = ToolMessage("noted", tool_call_id="u")
        return Command(update={"messages": [message], **private})

    session = Session(team(overreach, [Call("overreach", id="u")]), saver)

    world.send(session, "go")

    found = threads(session)
    assert told(found["leaf"]) == ["noted"]
    assert told(found["mid"]) == ["leaf done", "other done"]


class Stopped(BaseException):
    """What Ctrl-C is like."""


def test_a_tool_that_is_stopped_like_by_a_keyboard_stops_the_tree_until_a_human_says_what_it_did(
    world: World, saver: SqliteCheckpointer
) -> None:
    stops = [Stopped()]

    def stop() -> str:
        """Be stopped."""
        while stops:
            raise stops.pop()
        return "went on"

    # One after the other: what is under way beside a stop is cut short, too, and asked about.
    one_by_one = [delegate("other", "work"), delegate("leaf", "work"), "mid done"]
    agent = team(stop, [Call("look"), Call("stop")], mid=one_by_one)
    session = Session(agent, saver)

    with pytest.raises(Stopped):
        world.send(session, "go")
    [question] = world.resume(session).questions
    result = world.answer(session, {question.id: "run_again"})

    found = threads(session)
    assert result.text == "over"
    assert told(found["leaf"]) == ["fine", "went on"]
    assert told(found["mid"]) == ["other done", "leaf done"]
    assert isinstance(agent.model, ScriptedModel)
    assert agent.model.repeated_calls == []


async def test_a_cancelled_run_stops_at_once_and_goes_on_when_a_human_says_what_its_tool_did(
    saver: SqliteCheckpointer,
) -> None:
    started = asyncio.Event()
    patient = [True]

    async def wait() -> str:
        """Wait for good, the first time."""
        started.set()
        if patient:
            await asyncio.Event().wait()
        return "went on"

    agent = team(wait, [Call("wait")])
    session = Session(agent, saver)
    run = await session.asend("go")
    task = asyncio.create_task(run.result())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    patient.clear()

    [question] = (await (await session.aresume()).result()).questions
    result = await (await session.aanswer(question.id, "run_again")).result()

    found = threads(session)
    assert result.text == "over"
    assert told(found["leaf"]) == ["went on"]
    assert isinstance(agent.model, ScriptedModel)
    assert agent.model.repeated_calls == []


def test_a_tool_named_like_a_subordinate_or_with_odd_results_is_a_tool_like_any_other(
    world: World, saver: SqliteCheckpointer
) -> None:
    def other() -> None:
        """Return nothing."""

    session = Session(team(other, [Call("other"), Call("look")]), saver)

    world.send(session, "go")

    assert told(threads(session)["leaf"]) == ["null", "fine"]


def test_a_report_waits_for_the_tool_beside_it_even_if_that_fails(
    world: World, saver: SqliteCheckpointer
) -> None:
    session = Session(team(boom, [report("partial", "half"), Call("boom")]), saver)

    world.send(session, "go")

    found = threads(session)
    assert told(found["mid"]) == ["[partial]\nhalf", "other done"]
    failed, reported = sorted(told(found["leaf"]))
    assert without_ids(failed) == "Error: ValueError: no such city"
    assert reported == "reported"
    assert not isinstance(found["leaf"].messages[-1], AIMessage)
