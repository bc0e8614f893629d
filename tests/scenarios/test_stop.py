"""Stopping agents: what was told to stop does nothing more, and everybody else goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import interrupt

from echelons import Agent, Budget, Session, SqliteCheckpointer
from echelons.delegation.questions import build_question_id
from echelons.errors import (
    NothingToResume,
    QuestionClosed,
    ThreadNotFound,
    UnfinishedTurn,
    UnknownPath,
)
from echelons.identity.lineage import THREADS_KEY
from echelons.testing import Call, ScriptedModel, delegate, per_conversation
from tests.error_codes import raises_code
from tests.scenarios.drivers.camp import asked, first, team, told, waiting
from tests.scenarios.drivers.steered import SCOUT, Metronome, tree

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

STOPPED = "stopped: head/north was told to stop"


async def test_what_runs_in_an_event_loop_is_cut_short_and_its_siblings_go_on(
    saver: SqliteCheckpointer,
) -> None:
    began, never, south = asyncio.Event(), asyncio.Event(), asyncio.Event()
    cancelled: list[str] = []

    async def hang(_: Sequence[BaseMessage]) -> str:
        began.set()
        try:
            await never.wait()
        except asyncio.CancelledError:
            cancelled.append("camp")
            raise
        return "never said"

    async def wait(_: Sequence[BaseMessage]) -> str:
        await south.wait()
        return "south is done"

    head = team({"camp": hang, "south": wait})
    session = Session(head, saver)
    run = asyncio.create_task((await session.asend("go")).result())
    await began.wait()

    assert await session.astop("head/north") == "head/north"
    south.set()
    result = await run

    assert cancelled == ["camp"]
    assert result.text == "over"
    assert told(session) == [f"[unable] {STOPPED}", "south is done"]
    assert asked(head, "north") == asked(head, "camp") == 1


async def test_stop_by_another_connection_reaches_hanging_agent(tmp_path: Path) -> None:
    began = asyncio.Event()

    async def hang(_: Sequence[BaseMessage]) -> str:
        began.set()
        await asyncio.Event().wait()
        return "never said"

    head = team({"camp": hang})
    async with Session(head, tmp_path / "t.sqlite") as session:
        run = asyncio.create_task((await session.asend("go")).result())
        await began.wait()
        with Session(team({}), tmp_path / "t.sqlite") as other:
            other.stop("head/north")
        result = await run

        assert result.text == "over"
        assert told(session)[0] == f"[unable] {STOPPED}"


async def test_stopping_the_root_cuts_all_of_it_short(saver: SqliteCheckpointer) -> None:
    both = asyncio.Barrier(3)

    async def hang(_: Sequence[BaseMessage]) -> str:
        await both.wait()
        await asyncio.Event().wait()
        return "never said"

    head = team({"camp": hang, "south": hang})
    session = Session(head, saver)
    run = asyncio.create_task((await session.asend("go")).result())
    await both.wait()

    assert await session.astop() == "head"
    result = await run

    assert result.status == "stopped"
    assert result.text == "Not finished (stopped: head was told to stop)."
    assert asked(head, "head") == 1


@pytest.mark.parametrize("stopped", [SCOUT, "head/north", "head"])
def test_stop_ends_streamed_reply_at_next_chunk(
    world: World, saver: SqliteCheckpointer, stopped: str
) -> None:
    clock = Metronome(5, lambda: session.stop(stopped))
    head = tree(clock=clock)
    session = Session(head, saver)

    result = world.send(session, "go")

    assert 5 <= clock.beats <= 10
    assert asked(head, "scout") == 1
    assert result.status == ("stopped" if stopped == "head" else "finished")


def test_stop_charges_reply_that_it_ends(world: World, saver: SqliteCheckpointer) -> None:
    clock = Metronome(5, lambda: session.stop(SCOUT))
    session = Session(tree(clock=clock), saver)

    world.send(session, "go", budget=Budget(calls=10))

    [grant] = session.usage().grants
    assert (grant.unit, int(grant.spent), int(grant.reserved)) == ("calls", 5, 0)


def test_a_reply_that_comes_in_late_is_not_acted_on(
    world: World, saver: SqliteCheckpointer
) -> None:
    def stopping(_: Sequence[BaseMessage]) -> Any:
        session.stop("head/north")
        return [Call("look"), Call("look")]

    head = team({"camp": stopping})
    session = Session(head, saver)

    result = world.send(session, "go")

    assert result.text == "over"
    assert told(session)[0] == f"[unable] {STOPPED}"
    assert asked(head, "camp") == asked(head, "north") == 1


def test_in_threads_nothing_begins_any_more_and_its_siblings_go_on(
    saver: SqliteCheckpointer,
) -> None:
    stopped = threading.Event()
    ran: list[str] = []

    @tool
    def dig() -> str:
        """Dig."""
        ran.append("dig")
        return "dug"

    def stopping(_: Sequence[BaseMessage]) -> Any:
        session.stop("head/north")
        stopped.set()
        return [Call("dig"), Call("dig")]

    def wait(_: Sequence[BaseMessage]) -> Any:
        stopped.wait()
        return "south is done"

    head = team({"camp": stopping, "south": wait}, [dig])
    session = Session(head, saver)

    assert session.send("go").result().text == "over"

    assert ran == []
    assert told(session, "camp") == []
    assert told(session)[0] == f"[unable] {STOPPED}"
    assert told(session)[1] == "south is done"


def test_a_call_that_stands_in_line_does_not_begin(world: World, saver: SqliteCheckpointer) -> None:
    # Two tasks for one thread are worked off one after the other.
    def ask_again(messages: Sequence[BaseMessage]) -> Any:
        replies = [each for each in messages if isinstance(each, AIMessage)]
        if not replies:
            return delegate("north", "before")
        [thread] = replies[0].response_metadata[THREADS_KEY].values()
        named = {"answers": build_question_id(thread)}
        twice = [Call("call_subordinate", {"message": each, **named}) for each in ("one", "two")]
        return twice if len(replies) == 1 else "over"

    def stopping(messages: Sequence[BaseMessage]) -> Any:
        if messages[-1].text == "before":
            return "ready"
        session.stop("head/north")
        return "north said this too late"

    head = team({"head": ask_again, "north": stopping})
    session = Session(head, saver)

    world.send(session, "go")

    assert asked(head, "north") == 2
    assert told(session) == ["ready", f"[unable] {STOPPED}", f"[unable] not run: {STOPPED}"]


def test_question_of_stopped_agent_leaves_inbox_and_the_rest_continues(
    world: World, saver: SqliteCheckpointer
) -> None:
    head = waiting()
    session = Session(head, saver)
    [question] = world.send(session, "go").questions

    world.do(session, "stop", "head/north/camp")

    assert world.do(session, "inbox") == []
    with pytest.raises(QuestionClosed):
        world.answer(session, {question.id: "left"})
    assert world.resume(session).text == "over"
    assert told(session, "north") == [
        "[unable] stopped: head/north/camp was told to stop",
    ]
    assert told(session)[0] == "north is done"


def test_stopped_asking_agent_holds_up_no_run(
    saver: SqliteCheckpointer,
) -> None:
    asking = threading.Event()

    @tool
    def ask() -> str:
        """Ask the human."""
        asking.set()
        return f"heard {interrupt('Which way?')}"

    def stopping(_: Sequence[BaseMessage]) -> Any:
        asking.wait(120)
        session.stop("head/north/camp")
        return "south is done"

    head = team({"camp": [Call("ask"), "camp is done"], "south": stopping}, [ask])
    session = Session(head, saver)

    result = session.send("go").result()

    assert (result.text, result.questions) == ("over", ())
    assert told(session) == ["north is done", "south is done"]
    assert told(session, "north") == ["[unable] stopped: head/north/camp was told to stop"]


def test_a_turn_whose_model_always_fails_can_be_given_up(
    world: World, saver: SqliteCheckpointer
) -> None:
    failing = [True]

    def fails(_: Sequence[BaseMessage]) -> Any:
        if failing:
            raise ConnectionError("no line")
        return "works again"

    head = team({"head": fails})
    session = Session(head, saver)
    with pytest.raises(ConnectionError):
        world.send(session, "go")
    with pytest.raises(ConnectionError):
        world.resume(session)
    with pytest.raises(UnfinishedTurn):
        world.send(session, "something else")

    world.do(session, "stop")
    result = world.resume(session)

    assert result.status == "stopped"
    assert result.text == "Not finished (stopped: head was told to stop)."
    assert asked(head, "head") == 2
    failing.clear()
    assert world.send(session, "something else").text == "works again"


def test_a_stop_ends_with_its_turn(world: World, saver: SqliteCheckpointer) -> None:
    session = Session(waiting(), saver)
    world.send(session, "go")
    world.do(session, "stop", "head/north")
    world.resume(session)

    result = world.send(session, "go again")

    assert [each.path for each in result.questions] == ["head/north/camp"]


def test_a_thread_that_was_cut_short_goes_on_with_its_calls_closed(
    world: World, saver: SqliteCheckpointer
) -> None:
    head = waiting()
    session = Session(head, saver)
    world.send(session, "go")
    world.do(session, "stop", "head/north/camp")
    world.resume(session)
    world.send(session, "go again")

    assert isinstance(head.model, ScriptedModel)
    seen = [call for call in head.model.calls if call.agent == "camp"][-1].messages
    # Its tool had begun, and asked; so nobody may say that it was not run.
    closed = [str(each.text) for each in seen if isinstance(each, ToolMessage)]
    assert [text.partition(" ")[2] for text in closed] == [
        "cut short, and what came of it is not known"
    ]


@pytest.mark.filterwarnings("ignore::echelons.errors.ForeignSaverWarning")
@pytest.mark.parametrize(
    "made", [partial(SqliteCheckpointer, ":memory:"), InMemorySaver], ids=["ours", "memory"]
)
async def test_subordinate_of_agent_cut_short_remembers_when_both_continue(
    made: Callable[[], BaseCheckpointSaver[Any]],
) -> None:
    hangs = asyncio.Event()
    seen: list[list[str]] = []

    @tool
    def note() -> str:
        """Take a note."""
        return "noted"

    async def leaf(messages: Sequence[BaseMessage]) -> Any:
        task = next(each.text for each in reversed(messages) if each.type == "human")
        if task == "look" and messages[-1].type == "human":
            return Call("note")
        if task == "look":
            hangs.set()
            await asyncio.Event().wait()
        seen.append([each.text for each in messages])
        return "seen"

    model = ScriptedModel(
        {
            "head": per_conversation([delegate("mid", "go"), "cut", delegate("mid", "on"), "done"]),
            "mid": per_conversation([delegate("leaf", "look"), delegate("leaf", "again"), "mid"]),
            "leaf": leaf,
        }
    )
    mid = Agent("mid", subordinates=[Agent("leaf", tools=[note])])
    session = Session(Agent("head", guidance="", model=model, subordinates=[mid]), made())
    run = asyncio.create_task((await session.asend("go")).result())
    await hangs.wait()
    await session.astop("head/mid")
    assert (await run).text == "cut"

    assert (await (await session.asend("go on")).result()).text == "done"

    assert seen == [["look", "", "noted", "again"]]
    [thread] = [each for each in session.trace().walk() if each.agent == "leaf"]
    assert session.thread_store.get(thread.thread_id).segments == 2


def test_an_agent_that_has_not_begun_may_be_stopped(
    world: World, saver: SqliteCheckpointer
) -> None:
    def stopping(_: Sequence[BaseMessage]) -> Any:
        session.stop("head/north/camp")
        return delegate("camp", "go")

    head = team({"north": first(stopping, "north is done")})
    session = Session(head, saver)

    assert world.send(session, "go").text == "over"
    assert asked(head, "camp") == 0
    assert told(session, "north") == [
        "[unable] not run: stopped: head/north/camp was told to stop",
    ]


def test_orders_without_receiver_are_refused_by_name(
    world: World, saver: SqliteCheckpointer
) -> None:
    session = Session(waiting(), saver)
    with pytest.raises(ThreadNotFound):
        world.do(session, "stop")
    world.send(session, "go")

    with pytest.raises(UnknownPath, match="head/nort'") as refused:
        world.do(session, "stop", "head/nort")
    assert refused.value.known == ("head", "head/north", "head/north/camp", "head/south")

    world.do(session, "stop")
    world.resume(session)
    with raises_code("nothing_running"):
        world.do(session, "stop")
    with raises_code("nothing_running"):
        world.do(session, "pause", "head/north")
    with pytest.raises(NothingToResume):
        world.resume(session)
