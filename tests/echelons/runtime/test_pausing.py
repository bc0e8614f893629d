"""A run that is asked to pause stops at the end of its step and goes on from there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langgraph.types import interrupt

from echelons import Agent, AsyncRun, Run, Session, SqliteCheckpointer
from echelons.checkpoints.queries import OneCheckpoint, run_plan
from echelons.checkpoints.threads.pending_work import is_finished
from echelons.errors import ThreadNotFound
from echelons.testing import Call, ScriptedModel, delegate


def confirm(what: str) -> str:
    """Ask a human.

    Args:
        what: What to confirm.
    """
    return str(interrupt({"question": what}))


def model() -> ScriptedModel:
    return ScriptedModel(
        {
            "head": [delegate("leaf", "look"), "Seen."],
            "leaf": [Call("confirm", {"what": "Really?"}), "There."],
        }
    )


def team(script: ScriptedModel) -> Agent:
    leaf = Agent("leaf", "Looks", tools=[confirm])
    return Agent("head", model=script, subordinates=[leaf])


def finished(session: Session) -> bool:
    assert isinstance(session.graph.checkpointer, SqliteCheckpointer)
    return run_plan(session.graph.checkpointer, is_finished(OneCheckpoint(session.thread_id)))


def test_a_paused_run_is_not_finished_and_goes_on_without_repeating_anything(
    tmp_path: Path,
) -> None:
    script = model()
    with Session(team(script), tmp_path / "t.sqlite") as session:
        run = session.send("Go")
        for event in run:
            if event.kind == "delegation":
                run.pause()
        stopped = run.result()
        assert not stopped.finished
        assert not stopped.questions
        assert not finished(session)

        result = session.resume().result()

    assert [question.path for question in result.questions] == ["head/leaf"]
    assert script.repeated_calls == []


async def test_a_run_in_an_event_loop_pauses_too(tmp_path: Path) -> None:
    async with Session(team(model()), tmp_path / "t.sqlite") as session:
        run = await session.asend("Go")
        async for event in run:
            if event.kind == "delegation":
                run.pause()
        assert not (await run.result()).finished
        assert (await (await session.aresume()).result()).questions


class Helper:
    """A tool that answers, through a session of its own, what another agent asks; then it pauses.

    Attributes:
        run: The run that it pauses.
    """

    def __init__(self, database: Path, script: ScriptedModel) -> None:
        self.run: Run | AsyncRun | None = None
        self._database = database
        tools: dict[str, list[Any]] = {"asker": [confirm], "helper": [self.help]}
        below = [Agent(name, tools=own) for name, own in tools.items()]
        self.team = Agent("head", model=script, subordinates=below)

    def help(self) -> str:
        """Answer the other's question."""
        assert self.run is not None
        with Session(self.team, self._database, thread="main") as elsewhere:
            while not (asked := elsewhere.inbox()):
                pass
            assert elsewhere.answer(asked[0].id, "yes").result().queued
        self.run.pause()
        return "answered"


def helped() -> ScriptedModel:
    return ScriptedModel(
        {
            "head": [[delegate("asker", "x"), delegate("helper", "y")], "Both."],
            "asker": [Call("confirm", {"what": "Sure?"}), "They are."],
            "helper": [Call("help"), "Helped."],
        }
    )


def test_a_paused_run_asks_nothing_that_was_answered_meanwhile(tmp_path: Path) -> None:
    helper = Helper(tmp_path / "t.sqlite", helped())
    with Session(helper.team, tmp_path / "t.sqlite", thread="main") as session:
        helper.run = session.send("Go")
        paused = helper.run.result()
        again = session.resume().result()

    assert (paused.questions, paused.status) == ((), "paused")
    assert "`resume` continues it" in paused.reason
    assert again.text == "Both."


async def test_a_paused_run_in_an_event_loop_asks_nothing_that_was_answered_meanwhile(
    tmp_path: Path,
) -> None:
    helper = Helper(tmp_path / "t.sqlite", helped())
    async with Session(helper.team, tmp_path / "t.sqlite", thread="main") as session:
        helper.run = await session.asend("Go")
        paused = await helper.run.result()
        again = await (await session.aresume()).result()

    assert (paused.questions, paused.status) == ((), "paused")
    assert again.text == "Both."


def test_a_thread_is_finished_when_no_work_is_left_and_only_then(tmp_path: Path) -> None:
    with Session(team(model()), tmp_path / "t.sqlite") as session:
        assert finished(session), "it never ran"
        result = session.send("Go").result()
        assert not finished(session), "it waits for an answer"
        session.answer(result.questions[0].id, "yes").result()
        assert finished(session)


def test_a_thread_whose_model_failed_is_not_finished(tmp_path: Path) -> None:
    broken = Agent("head", model=ScriptedModel([ConnectionError("down")]))
    with Session(broken, tmp_path / "t.sqlite") as session:
        with pytest.raises(ConnectionError):
            session.send("Go").result()
        assert not finished(session)


def test_an_agent_that_goes_on_after_an_answer_is_shown_with_its_own_task(tmp_path: Path) -> None:
    with Session(team(model()), tmp_path / "t.sqlite") as session:
        result = session.send("Go").result()
        events = list(session.answer(result.questions[0].id, "yes"))

    tasks = {event.path: event.content for event in events if event.kind == "task"}
    assert tasks == {"head/leaf": "look", "head": "Go"}


@pytest.mark.parametrize("path", [None, "head", "head/leaf"])
def test_a_thread_that_has_never_run_has_no_pause_to_lift(tmp_path: Path, path: str | None) -> None:
    with Session(team(model()), tmp_path / "t.sqlite") as session:
        with pytest.raises(ThreadNotFound):
            session.resume(path)


@pytest.mark.parametrize("path", [None, "head/leaf"])
def test_a_pause_is_taken_back_while_there_is_nothing_to_do_but_to_answer(
    tmp_path: Path, path: str | None
) -> None:
    script = model()
    with Session(team(script), tmp_path / "t.sqlite") as session:
        [question] = session.send("Go").result().questions
        session.pause(path)

        resumed = session.resume(path).result()

        assert [each.id for each in resumed.questions] == [question.id]
        assert session.answer(question.id, "yes").result().text == "Seen."
    assert len(script.calls) == 4
