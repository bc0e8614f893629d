"""Messages to agents: told once, to whoever they are for, whatever it does at the moment."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import BaseMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import interrupt

from echelons import Agent, Limits, Session, SqliteCheckpointer
from echelons.checkpoints.ledger import Transaction
from echelons.errors import ControlError, ThreadNotFound, UnknownPath
from echelons.testing import Call, ScriptedModel, delegate, report
from tests.error_codes import raises_code
from tests.proof import sample
from tests.scenarios.drivers.camp import asked, team

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

CAMP = "head/north/camp"


def read(session: Session, agent: str) -> list[str]:
    """Return what an agent was told on all of its threads, in order."""
    return [
        mail.text for each in session.trace().walk() if each.agent == agent for mail in each.mail
    ]


MARK = re.compile(r"^~\d{12} ")


def seen(agent: Agent, name: str) -> list[list[str]]:
    """Return the messages from others that each call of an agent's model was shown."""
    assert isinstance(agent.model, ScriptedModel)
    return [
        [
            MARK.sub("", str(m.text))
            for m in call.messages
            if isinstance(m, HumanMessage) and m.text != "go"
        ]
        for call in agent.model.calls
        if call.agent == name
    ]


def test_working_agent_reads_message_before_its_next_model_call(
    world: World, saver: SqliteCheckpointer
) -> None:
    def look_out(_: Sequence[BaseMessage]) -> Any:
        if asked(head, "camp") == 2:
            return "camp is done"
        session.send_message(CAMP, "It rains.")
        session.send_message(CAMP, 'Take "coats".')
        return Call("look")

    head = team({"camp": look_out})
    session = Session(head, saver)

    assert world.send(session, "go").text == "over"

    said = ['Message from the user: "It rains."', 'Message from the user: "Take \\"coats\\"."']
    assert seen(head, "camp") == [[], said]
    assert read(session, "camp") == ["It rains.", 'Take "coats".']
    assert seen(head, "south") == [[]]


def test_what_comes_during_the_last_reply_gives_one_more_model_call(
    world: World, saver: SqliteCheckpointer
) -> None:
    def answer(messages: Sequence[BaseMessage]) -> Any:
        if asked(head, "camp") == 1:
            session.send_message(CAMP, "Not there!")
            return "on the hill"
        return "in the valley"

    head = team({"camp": answer})
    session = Session(head, saver)

    world.send(session, "go")

    assert asked(head, "camp") == 2
    [north] = [each for each in session.trace().walk() if each.agent == "north"]
    assert session.thread_store.get(north.thread_id).messages[-2].text == "in the valley"


def test_a_report_waits_for_what_came_in_meanwhile(world: World, saver: SqliteCheckpointer) -> None:
    def answer(messages: Sequence[BaseMessage]) -> Any:
        if asked(head, "camp") == 1:
            session.send_message(CAMP, "Try again.")
            return report("unable", "no way")
        return report("fulfilled", "a way")

    head = team({"camp": answer})
    session = Session(head, saver)

    world.send(session, "go")

    [north] = [each for each in session.trace().walk() if each.agent == "north"]
    assert session.thread_store.get(north.thread_id).messages[-2].text == "a way"
    assert asked(head, "camp") == 2


def test_idle_agent_reads_message_in_its_next_segment(
    world: World, saver: SqliteCheckpointer
) -> None:
    head = team({"head": [delegate("north", "go"), "over"]})
    session = Session(head, saver)
    world.do(session, "send_message", "head/south", "before the thread has begun")
    world.send(session, "go")
    world.do(session, "send_message", "head", "to the root")
    world.do(session, "send_message", CAMP, "to the camp")

    world.send(session, "go")
    world.send(session, "go")

    told = 'Message from the user: "to the root"'
    assert seen(head, "head") == [[], [], [told], [told], [told], [told]]
    assert read(session, "head") == ["to the root"]
    assert read(session, "camp") == ["to the camp"]
    assert read(session, "south") == []
    assert asked(head, "camp") == 3


def test_a_message_is_no_task(world: World, saver: SqliteCheckpointer) -> None:
    head = Agent("head", model=ScriptedModel(["done", "done again"]))
    session = Session(head, saver)
    world.do(session, "send_message", "head", "Mind the gap.")

    result = world.send(session, "Plan a trip")

    assert result.response is not None
    assert session.thread_store.roots()[0].turns == 1
    assert [(e.kind, e.content) for e in session.send("Again")][:2] == [
        ("task", "Again"),
        ("token", "done"),
    ]


def test_paused_agent_reads_message_after_the_pause(
    world: World, saver: SqliteCheckpointer
) -> None:
    def hold(_: Sequence[BaseMessage]) -> Any:
        if asked(head, "camp") == 2:
            return "camp is done"
        session.pause("head/north")
        return Call("look")

    head = team({"camp": hold})
    session = Session(head, saver)
    assert world.send(session, "go").status == "paused"

    world.do(session, "send_message", CAMP, "Wait for us.")

    assert read(session, "camp") == []
    assert world.resume(session).text == "over"
    assert read(session, "camp") == ["Wait for us."]


def test_waiting_agent_reads_message_after_the_answer(
    world: World, saver: SqliteCheckpointer
) -> None:
    def ask() -> str:
        """Ask."""
        return str(interrupt("Which way?"))

    head = team({"camp": [Call("ask"), "camp is done"]}, [ask])
    session = Session(head, saver)
    [question] = world.send(session, "go").questions
    world.do(session, "send_message", CAMP, "Not left.")

    world.answer(session, {question.id: "right"})

    assert seen(head, "camp") == [[], ['Message from the user: "Not left."']]


def test_another_process_reports_it_once(world: World, tmp_path: Path) -> None:
    broken = team({"camp": [ConnectionError("no line")]})
    with Session(broken, tmp_path / "t.sqlite") as session:
        session.send_message("head", "One.")
        session.send_message(CAMP, "Two.")
        world.send(session, "go")
    head = team({"head": [delegate("north", "go"), "over"]})
    with Session(head, tmp_path / "t.sqlite") as session:
        world.send(session, "go")

        assert read(session, "head") == ["One."]
        assert read(session, "camp") == ["Two."]


def test_message_without_stored_reply_is_delivered_again(
    world: World, saver: SqliteCheckpointer
) -> None:
    head = Agent("head", model=ScriptedModel([ConnectionError("no line")] * 2))
    session = Session(head, saver)
    session.send_message("head", "Hurry.")
    with pytest.raises(ConnectionError):
        world.send(session, "go")

    again = Session(Agent("head", model=ScriptedModel(["done"])), saver)
    assert world.resume(again).text == "done"

    assert read(again, "head") == ["Hurry."]


def test_a_fork_of_the_past_has_not_read_what_was_sent_after_it(
    world: World, saver: SqliteCheckpointer
) -> None:
    head = Agent("head", model=ScriptedModel(lambda _: "done"))
    session = Session(head, saver)
    world.do(session, "send_message", "head", "before")
    world.send(session, "go")
    [past, *_] = session.graph.get_state_history(session.config)
    world.do(session, "send_message", "head", "after")
    world.send(session, "go")

    fork = session.graph.update_state(past.config, {"messages": ["elsewhere"]}, as_node="__start__")
    world.do(session, "send_message", "head", "to the fork")
    world.invoke(session.graph, None, fork)

    assert seen(head, "head")[-1] == [
        'Message from the user: "before"',
        "elsewhere",
        'Message from the user: "to the fork"',
    ]


def test_messages_of_users_and_agents_have_the_time_of_the_database(
    world: World, tmp_path: Path
) -> None:
    noon = datetime(2026, 11, 23, 12, tzinfo=UTC)
    with SqliteCheckpointer(tmp_path / "t.sqlite", clock=lambda: noon) as saver:
        steps: Any = [Call("send_message", {"to": "superior", "message": "Begun."}), "done"]
        head = Agent(
            "head",
            model=ScriptedModel({"head": [delegate("camp", "go"), "end"], "camp": steps}),
            subordinates=[Agent("camp")],
        )
        session = Session(head, saver)
        world.send(session, "go")
        world.do(session, "send_message", "head/camp", "Hurry.")

        keys = [key for key in saver.ledger.query(Transaction.list_keys) if "/mail/" in key]
        found = [saver.ledger.get(key) for key in keys]
        assert [each.value["at"] for each in found if each] == [noon.isoformat()] * 2


def test_receivers_that_cannot_read_are_refused_by_name(
    world: World, saver: SqliteCheckpointer
) -> None:
    def halt(_: Sequence[BaseMessage]) -> Any:
        session.stop("head/north")
        with raises_code("message_refused", match="head/north was told to stop"):
            session.send_message(CAMP, "Hello?")
        return "too late"

    head = team({"camp": halt})
    session = Session(head, saver)
    with pytest.raises(UnknownPath, match="no agent 'head/west'"):
        world.do(session, "send_message", "head/west", "Hello?")
    with pytest.raises(UnknownPath):
        world.do(session, "send_message", "north", "Hello?")

    world.send(session, "go")

    assert read(session, "camp") == []
    world.do(session, "send_message", CAMP, "The turn of the stop is over.")
    with_function = Agent("head", model=ScriptedModel(["x"]), subordinates=[sum_up])
    with raises_code("message_refused", match="no Agent"):
        world.do(Session(with_function, saver, thread="f"), "send_message", "head/sum_up", "Hello?")


def sum_up(task: str) -> str:
    """Sum up."""
    return task


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "invalid_value"),
        (" \n", "invalid_value"),
        (7, "invalid_value"),
        ("ü" * 32769, "input_too_large"),
        ("x" * 2**20, "input_too_large"),
    ],
)
def test_a_text_that_says_nothing_or_too_much_is_refused(
    text: Any, error: str, saver: SqliteCheckpointer
) -> None:
    session = Session(Agent("head", model=ScriptedModel(["done"])), saver)
    with raises_code(error):
        session.send_message("head", text)
    session.send_message("head", "ü" * 32768)
    assert session.send("go").result().text == "done"


def test_a_flood_fills_one_mailbox_and_harms_nothing_else(saver: SqliteCheckpointer) -> None:
    head = team({"head": [delegate("north", "go"), "over"]})
    session = Session(head, saver)
    refused, flood = 0, sample(1100, 10_000)
    for number in range(flood):
        try:
            session.send_message(CAMP, f"{number}")
        except ControlError as error:
            assert error.code == "mailbox_full"
            refused += 1
    session.send_message("head/north", "Keep calm.")

    assert session.send("go").result().text == "over"
    assert refused == flood - 1000
    assert read(session, "camp") == [str(number) for number in range(1000)]
    assert read(session, "north") == ["Keep calm."]
    session.send_message(CAMP, "The mailbox is empty again.")


def test_agent_with_endless_messages_ends_at_a_limit(
    world: World, saver: SqliteCheckpointer
) -> None:
    def answer(_: Sequence[BaseMessage]) -> str:
        session.send_message("head", "One more thing.")
        return "done"

    head = Agent("head", model=ScriptedModel(answer), limits=Limits(calls=5))
    session = Session(head, saver)

    result = world.send(session, "go")

    assert (result.status, asked(head, "head")) == ("limited", 5)


def test_many_senders_at_once_lose_nothing_and_keep_their_order(tmp_path: Path) -> None:
    head = Agent("head", model=ScriptedModel(lambda _: "done"))

    def chat(name: str) -> None:
        with Session(head, tmp_path / "t.sqlite") as own:
            for number in range(20):
                own.send_message("head", f"{name} {number}")

    with Session(head, tmp_path / "t.sqlite") as session:
        session.send("go").result()
        senders = [threading.Thread(target=chat, args=(name,)) for name in "abcd"]
        for each in senders:
            each.start()
        for each in senders:
            each.join()
        session.send("go").result()

        told = read(session, "head")
    assert len(told) == 80
    for name in "abcd":
        own = [each for each in told if each.startswith(name)]
        assert own == [f"{name} {number}" for number in range(20)]


@pytest.mark.filterwarnings("ignore::echelons.errors.ForeignSaverWarning")
def test_another_saver_delivers_once_too(world: World) -> None:
    def answer(_: Sequence[BaseMessage]) -> str:
        if asked(head, "head") == 1:
            session.send_message("head", "One.")
        return "done"

    head = Agent("head", model=ScriptedModel(answer))
    session = Session(head, InMemorySaver())
    world.send(session, "go")
    world.do(session, "send_message", "head", "Two.")
    world.send(session, "go")
    world.send(session, "go")

    assert read(session, "head") == ["One.", "Two."]
    assert asked(head, "head") == 4


def test_it_is_an_event_and_in_the_trace(saver: SqliteCheckpointer) -> None:
    session = Session(team({}), saver)
    session.send_message(CAMP, "Hello, camp.")

    mail = [event for event in session.send("go") if event.kind == "mail"]

    assert [(each.path, each.content, each.data["from"]) for each in mail] == [
        (CAMP, "Hello, camp.", "the user")
    ]
    assert "message from the user: Hello, camp." in session.trace().text
    stored = [each.event.data for each in saver.read_events(session.thread_id)]
    assert [each["mail"]["number"] for each in stored if "mail" in each] == [1]


def test_a_thread_that_nothing_is_known_of_takes_no_mail(saver: SqliteCheckpointer) -> None:
    from echelons.checkpoints.queries import run_plan
    from echelons.checkpoints.threads.control import post_mail

    with pytest.raises(ThreadNotFound):
        run_plan(saver, post_mail("nowhere", "head", "Hello?"))
