"""What people give agents is told on every surface: once, with who gave it and when."""

from __future__ import annotations

import asyncio
import getpass
import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from echelons import Agent, Decision, Permissions, Session
from echelons.identity.lineage import choose_user_name
from echelons.runtime.run_events import RunEvent, RunEventKind
from echelons.testing import Call, ScriptedModel, delegate
from tests.error_codes import raises_code

KINDS = (RunEventKind.ANSWER, RunEventKind.APPROVAL, RunEventKind.ORDER, RunEventKind.QUESTION)


def pay(payee: str, amount: int) -> str:
    """Transfer an amount."""
    return f"paid {amount} to {payee}"


def team(*calls: Call) -> Agent:
    """Return a tree of three levels, whose clerk makes some calls one after the other."""

    def work(messages: Any) -> Any:
        done = sum(each.type == "tool" for each in messages)
        return calls[done] if done < len(calls) else f"Done: {messages[-1].text}"

    def send_down(name: str) -> Callable[[Any], Any]:
        def reply(messages: Any) -> Any:
            return messages[-1].text if messages[-1].type == "tool" else delegate(name, "go")

        return reply

    model = ScriptedModel({"head": send_down("north"), "north": send_down("clerk"), "clerk": work})
    clerk = Agent(
        "clerk",
        tools=[pay],
        permissions=Permissions(contact_user=True, approvals={"pay": "ask"}),
    )
    north = Agent("north", subordinates=[clerk], permissions=Permissions(contact_user=True))
    return Agent(
        "head", model=model, subordinates=[north], permissions=Permissions(contact_user=True)
    )


ASK = Call("ask_user", {"question": "Which colour?", "choices": ["red", "blue"]})
PAY = Call("pay", {"payee": "Zoe", "amount": 700})


def select(events: Iterator[RunEvent] | list[RunEvent]) -> list[tuple[str, str, str, str]]:
    return [
        (str(each.kind), each.path, each.content, str(each.data.get("by", "")))
        for each in events
        if each.kind in KINDS
    ]


def rows(path: Path) -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(path)) as database:
        query = "SELECT kind, agent_path, value, given_by FROM user_actions"
        return database.execute(query).fetchall()


def test_an_answer_is_an_event_of_the_run_the_trace_the_table_and_the_view(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with Session(team(ASK), path) as session:
        [question] = session.send("paint").result().questions
    with Session(team(ASK), path) as session:
        events = list(session.answer(question.id, "red", by="Ann"))
        clerk = session.trace().subordinates[0].subordinates[0]

        assert select(events) == [("answer", "head/north/clerk", "red", "Ann")]
        [given] = [each for each in events if each.kind is RunEventKind.ANSWER]
        assert given.data["question"] == question.id
        assert given.data["at"] >= question.asked_at
        assert given.thread_id == question.thread_id
        [action] = clerk.user_actions
        assert (action.kind, action.text, action.at) == ("answer", "red", given.data["at"])
        assert "answer of Ann: red" in session.trace().text

    assert rows(path) == [("answer", "head/north/clerk", "red", "Ann")]


def test_decisions_are_reported_with_reasons_and_without_arguments(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with Session(team(PAY, PAY), path) as session:
        [question] = session.send("pay").result().questions
        edited = {"name": "pay", "args": {"payee": "Zoe", "amount": 7}}
        first = session.answer(question.id, Decision("edit", edited_action=edited), by="Ann")
        events = list(first)
        [again] = session.inbox()
        events += session.answer(again.id, Decision("reject", "too much"), by="Bob")

        assert [each for each in select(events) if each[0] == "approval"] == [
            ("approval", "head/north/clerk", "edit pay", "Ann"),
            ("approval", "head/north/clerk", "reject pay", "Bob"),
        ]
        shown = json.dumps([each.as_json() for each in events if each.kind == "approval"])
        assert "Zoe" not in shown
        assert "too much" in shown
        assert "decision of Bob: reject pay" in session.trace().text

    assert [row[0] for row in rows(path)] == ["approval", "approval"]
    assert [json.loads(row[2])[0]["type"] for row in rows(path)] == ["edit", "reject"]


def test_an_answer_that_is_left_to_a_run_is_an_event_of_that_run(tmp_path: Path) -> None:
    answered = threading.Event()

    def knock() -> str:
        """Wait until the question of the sibling is answered."""
        assert answered.wait(300)
        return "knocked"

    def lead(messages: Any) -> Any:
        if messages[-1].type == "tool":
            return "Both."
        return [delegate("asker", "ask"), delegate("knocker", "knock")]

    path = tmp_path / "a.db"
    model = ScriptedModel({"head": lead, "asker": [ASK, "Red."], "knocker": [Call("knock"), "Ok."]})
    asker = Agent("asker", permissions=Permissions(contact_user=True))
    agent = Agent(
        "head",
        model=model,
        subordinates=[asker, Agent("knocker", tools=[knock])],
        permissions=Permissions(contact_user=True),
    )
    events: list[RunEvent] = []
    with Session(agent, path) as session:
        for event in session.send("go"):
            events.append(event)
            if event.kind is RunEventKind.QUESTION:
                with Session(agent, path) as other:
                    queued = other.answer(event.data["id"], "blue", by="Eve").result()
                assert queued.queued
                answered.set()

    assert select(events)[1:] == [("answer", "head/asker", "blue", "Eve")]
    assert rows(path) == [("answer", "head/asker", "blue", "Eve")]


def test_orders_are_events_with_their_author(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with Session(team(ASK), path) as session:
        events: list[RunEvent] = []
        with session.send("paint") as run:
            for event in run:
                events.append(event)
                if event.kind is RunEventKind.TASK and event.path == "head/north":
                    session.pause("head/north", by="Ann")
        events += session.resume("head/north", by="Bob")
        session.stop("head/north", by="Eve")
        events += session.resume()

        assert [each for each in select(events) if each[0] == "order"] == [
            ("order", "head/north", "pause", "Ann"),
            ("order", "head/north", "resume", "Bob"),
        ]
        orders = [each.text for each in session.trace().user_actions]
        assert orders == ["pause", "resume", "stop"]
        assert "stop of head/north ordered by Eve" in session.trace().text

    assert [row[2:] for row in rows(path)] == [("pause", "Ann"), ("resume", "Bob"), ("stop", "Eve")]


def test_a_question_for_later_and_its_answer_are_events(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    later = Call("ask_later", {"question": "Which colour?", "choices": ["red", "blue"]})
    with Session(team(later), path) as session:
        events = list(session.send("paint"))
        [question] = session.inbox()
        session.answer(question.id, "red", by="Ann").result()

        [asked] = [each for each in events if each.kind is RunEventKind.QUESTION]
        assert asked.path == "head/north/clerk"
        assert asked.data == {
            "id": question.id,
            "value": "Which colour?",
            "choices": ["red", "blue"],
            "later": True,
        }
        stored = session.thread_store.trace(session.thread_id).subordinates[0].subordinates[0]
        assert [each.text for each in stored.user_actions] == ["red"]

    with closing(sqlite3.connect(path)) as database:
        [(data,)] = database.execute("SELECT data FROM events WHERE kind = 'question'").fetchall()
    assert json.loads(data)["later"] is True


def test_a_default_that_a_passed_deadline_takes_has_no_giver(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    details = {"question": "Which?", "deadline_seconds": 0.001, "default": "rice"}
    with Session(team(Call("ask_user", details)), path) as session:
        events = list(session.send("eat"))
        if session.inbox():
            events += session.resume()

    assert ("answer", "head/north/clerk", "rice", "") in select(events)
    assert rows(path) == [("answer", "head/north/clerk", "rice", "")]


def test_a_fork_of_the_past_has_only_the_answers_of_its_past(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with Session(team(ASK), path) as session:
        [question] = session.send("paint").result().questions
        past = session.graph.get_state(session.config).config
        session.answer(question.id, "red", by="Ann").result()
        session.graph.update_state(past, {}, as_node="reason")

        clerks = [each for each in session.trace().walk() if each.agent == "clerk"]
        assert [each.user_actions for each in clerks] in ([], [()])


def test_any_saver_streams_them_and_keeps_none(recwarn: pytest.WarningsRecorder) -> None:
    with Session(team(ASK), InMemorySaver()) as session:
        [question] = session.send("paint").result().questions
        events = list(session.answer(question.id, "red", by="Ann"))

        assert select(events) == [("answer", "head/north/clerk", "red", "Ann")]
        assert all(each.user_actions == () for each in session.trace().walk())


def test_an_async_run_streams_them_likewise(tmp_path: Path) -> None:
    async def run() -> list[RunEvent]:
        async with Session(team(ASK), tmp_path / "a.db") as session:
            asked = await (await session.asend("paint")).result()
            answering = await session.aanswer(asked.questions[0].id, "red", by="Ann")
            return [event async for event in answering]

    assert select(asyncio.run(run())) == [("answer", "head/north/clerk", "red", "Ann")]


def test_they_are_copied_and_deleted_with_their_thread(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with Session(team(ASK), path) as session:
        [question] = session.send("paint").result().questions
        session.answer(question.id, "red", by="Ann").result()
        saver: Any = session.graph.checkpointer
        saver.copy_thread(session.thread_id, "copied")

        copied = session.thread_store.trace("copied")
        assert [action.text for each in copied.walk() for action in each.user_actions] == ["red"]
        saver.delete_thread(session.thread_id)

    assert len(rows(path)) == 1


@pytest.mark.parametrize("by", ["", " Ann", "A\nnn", 5, "x" * 513])
def test_a_name_that_is_none_is_refused_before_anything_is_stored(tmp_path: Path, by: Any) -> None:
    path = tmp_path / "a.db"
    with Session(team(ASK), path) as session:
        [question] = session.send("paint").result().questions

        with raises_code("invalid_id", match="by"):
            session.answer(question.id, "red", by=by)
        with raises_code("invalid_id", match="by"):
            session.stop(by=by)
        assert session.inbox() == [question]

    assert rows(path) == []


def test_without_a_name_it_is_that_of_the_systems_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "carol")
    assert choose_user_name() == "carol"

    def fail() -> str:
        raise KeyError("uid not found")

    monkeypatch.setattr(getpass, "getuser", fail)
    assert choose_user_name().startswith("user ")
