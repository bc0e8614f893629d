"""Pausing agents: they wait before their next model call, and then go on as if nothing was."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import BaseMessage

from echelons import Agent, Session, SqliteCheckpointer
from echelons.errors import UnfinishedTurn
from echelons.runtime.run_events import RunEventKind
from echelons.testing import ScriptedModel, delegate
from tests.error_codes import raises_code
from tests.fork_server import ForkServer
from tests.scenarios.drivers.camp import asked, first, team, told, waiting
from tests.scenarios.drivers.forks import Ended, Forks

if TYPE_CHECKING:
    from tests.scenarios.conftest import World


def pausing(path: str | None, sessions: list[Session]) -> Agent:
    """Return the team; its head pauses an agent in its first turn of thinking."""

    def pause(_: Sequence[BaseMessage]) -> Any:
        sessions[0].pause(path)
        return [delegate("north", "go"), delegate("south", "go")]

    return team({"head": first(pause, "over")})


def test_paused_agent_waits_before_the_model_and_the_others_continue(
    world: World, saver: SqliteCheckpointer
) -> None:
    sessions: list[Session] = []
    head = pausing("head/north", sessions)
    sessions.append(session := Session(head, saver))

    result = world.send(session, "go")

    assert not result.finished
    assert result.text == ""
    assert result.questions == ()
    assert session.inbox() == []
    assert asked(head, "north") == 0
    assert asked(head, "south") == 1
    with pytest.raises(UnfinishedTurn):
        world.send(session, "something else")

    assert world.resume(session).text == "over"
    assert told(session) == ["north is done", "south is done"]
    assert asked(head, "south") == 1


def test_pause_of_the_whole_tree_holds_every_agent(world: World, saver: SqliteCheckpointer) -> None:
    sessions: list[Session] = []
    head = pausing(None, sessions)
    sessions.append(session := Session(head, saver))

    assert not world.send(session, "go").finished
    assert asked(head, "north") == asked(head, "south") == 0
    assert world.resume(session).text == "over"


def test_pauses_are_lifted_one_by_one(world: World, saver: SqliteCheckpointer) -> None:
    sessions: list[Session] = []

    def pause(_: Sequence[BaseMessage]) -> Any:
        session.pause("head/north/camp")
        session.pause("head/south")
        return [delegate("north", "go"), delegate("south", "go")]

    head = team({"head": first(pause, "over")})
    sessions.append(session := Session(head, saver))
    world.send(session, "go")
    assert asked(head, "north") == 1

    with raises_code("not_paused", match="head/north/camp, head/south") as refused:
        world.do(session, "resume", "head/nobody")
    assert refused.value.path == "head/nobody"
    resumed(world, session, "head/south")
    assert (asked(head, "camp"), asked(head, "south")) == (0, 1)
    # What stands below a path is lifted with it.
    assert resumed(world, session, "head/north").text == "over"


def resumed(world: World, session: Session, path: str) -> Any:
    run = world.do(session, "resume", path)
    return world.do(run, "result") if not hasattr(run, "__aiter__") else _aresult(world, run)


def _aresult(world: Any, run: Any) -> Any:
    return world.wait_for(run.result())


def test_a_pause_shows_no_question_anywhere(saver: SqliteCheckpointer) -> None:
    sessions: list[Session] = []
    sessions.append(session := Session(pausing("head/north", sessions), saver))

    kinds = {event.kind for event in session.send("go")}

    assert RunEventKind.QUESTION not in kinds
    rows = saver.conn.execute("SELECT count(*) FROM events WHERE kind = 'question'").fetchone()
    assert rows == (0,)


def test_a_question_can_be_answered_while_others_are_paused(
    world: World, saver: SqliteCheckpointer
) -> None:
    head = waiting()
    session = Session(head, saver)
    [question] = world.send(session, "go").questions
    world.do(session, "pause", "head/north")

    # The tool goes on; who called it does not.
    result = world.answer(session, {question.id: "left"})

    assert not result.finished
    assert result.questions == ()
    assert told(session, "camp") == ["heard left"]
    assert asked(head, "camp") == 1
    assert world.resume(session).text == "over"


def test_another_connection_pauses_a_run_that_is_under_way(tmp_path: Path) -> None:
    def pause(_: Sequence[BaseMessage]) -> Any:
        with Session(Agent("head", subordinates=[Agent("north")]), tmp_path / "t.sqlite") as other:
            other.pause("head/north")
        return delegate("north", "go")

    model = ScriptedModel({"head": first(pause, "over"), "north": ["done"]})
    head = Agent("head", model=model, subordinates=[Agent("north")])
    with Session(head, tmp_path / "t.sqlite") as session:
        assert not session.send("go").result().finished
        assert asked(head, "north") == 0
        assert session.resume().result().text == "over"


def test_a_stop_comes_before_a_pause(world: World, saver: SqliteCheckpointer) -> None:
    sessions: list[Session] = []
    head = pausing("head/north", sessions)
    sessions.append(session := Session(head, saver))
    world.send(session, "go")

    world.do(session, "stop", "head/north")

    assert world.resume(session).text == "over"
    assert asked(head, "north") == 0


@pytest.fixture(scope="module")
def crowd(fork_server: ForkServer) -> Iterator[Forks]:
    """Runs thirty agents, each time in a process of its own."""
    forks = Forks(fork_server, "tests.scenarios.drivers.crowd")
    yield forks
    forks.end()


@pytest.mark.parametrize("way", ["sync", "async"])
def test_thirty_agents_paused_and_killed_come_to_the_same_end(
    way: str, tmp_path: Path, crowd: Forks
) -> None:
    def run(name: str, what: str) -> Ended:
        return crowd.run(str(tmp_path / f"{name}.sqlite"), str(tmp_path / f"{name}.txt"), way, what)

    def lines(name: str) -> list[str]:
        return sorted((tmp_path / f"{name}.txt").read_text().splitlines())

    killed = run("held", "held")
    # All the others are at work; the second step of m1 may have come before the pause.
    begun = {each for each in lines("held") if each.endswith(" 1")}
    resumed, free = run("held", "free"), run("free", "free")

    assert (killed.code, resumed.code, free.code) == (-signal.SIGKILL, 0, 0)
    assert begun - {"model m1 1"} == {"model m2 1"}
    assert resumed.returned["opened"] == ["How deep?", "Where?"]
    assert resumed.returned["unread"] == 1
    assert resumed.returned["end"] == free.returned["end"]
    assert free.returned["end"][0] == ["all are done", "over"]
    assert lines("held") == lines("free")
    assert len(lines("free")) == 94
