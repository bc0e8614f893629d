"""Messages of agents: to their superiors, and to each other under the rule of their superior."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import BaseMessage, ToolMessage

from echelons import Agent, DelegationPolicy, Session, SqliteCheckpointer
from echelons.errors import InvalidSetting
from echelons.testing import Call, ScriptedModel, delegate, report
from tests.scenarios.drivers.camp import asked
from tests.scenarios.drivers.siblings import chat, tell
from tests.told_lines import without_marks

if TYPE_CHECKING:
    from tests.scenarios.conftest import World


def pair(policy: DelegationPolicy | None = None, **scripts: Any) -> Agent:
    """Return a head over north, which has the siblings one and two, and a function."""
    given = {
        "head": [delegate("north", "go"), "over"],
        "north": [[delegate("one", "go"), delegate("two", "go")], "north is done"],
        "one": ["one is done"],
        "two": ["two is done"],
        **scripts,
    }
    below = [Agent("one"), Agent("two"), count]
    north = Agent("north", subordinates=below, delegation=policy)
    return Agent("head", model=ScriptedModel(given), subordinates=[north])


def count(task: str) -> str:
    """Count."""
    return task


def mail_of(session: Session, agent: str) -> list[tuple[str, str]]:
    return [
        (mail.kind, mail.text)
        for each in session.trace().walk()
        if each.agent == agent
        for mail in each.mail
    ]


def answers_of(session: Session, agent: str) -> list[str]:
    [found] = [each for each in session.trace().walk() if each.agent == agent]
    messages = session.thread_store.get(found.thread_id).messages
    return [
        str(m.text) for m in messages if isinstance(m, ToolMessage) and m.name == "send_message"
    ]


def test_a_superior_reads_it_before_its_next_model_call(
    world: World, saver: SqliteCheckpointer
) -> None:
    head = pair(one=[tell("superior", "Half done."), "one is done"])
    session = Session(head, saver)

    assert world.send(session, "go").text == "over"

    assert mail_of(session, "north") == [("message", "Half done.")]
    assert answers_of(session, "one") == ["sent"]
    assert asked(head, "north") == 2


def test_the_user_is_the_superior_of_the_root(world: World, saver: SqliteCheckpointer) -> None:
    head = pair(head=[[tell("superior", "I ask north."), delegate("north", "go")], "over"])
    session = Session(head, saver)
    world.send(session, "go")

    assert session.trace().progress == ("I ask north.",)
    assert "told the user: I ask north." in session.trace().text
    told = [each for each in session.send("go") if each.kind == "mail"]
    assert [(each.path, each.content, each.data["to"]) for each in told] == [
        ("head", "I ask north.", "the user")
    ]


def hold_for_two(message: Any) -> str:
    return "hold" if (message.sender, message.receiver) == ("one", "two") else "copy"


@pytest.mark.parametrize(
    ("rule", "two", "north", "answer"),
    [
        ("copy", ["Hello."], [("copy", "Hello.")], "sent"),
        ("hold", [], [("held", "Hello.")], "your superior has it"),
        ("refuse", [], [], "Error: your superior does not allow"),
        (
            lambda each: "hold" if each.receiver == "two" else "copy",
            [],
            [("held", "Hello.")],
            "you",
        ),
        (lambda each: 1 / 0, [], [("held", "Hello.")], "your superior has it"),
        (lambda each: "perhaps", [], [("held", "Hello.")], "your superior has it"),
    ],
)
def test_the_superior_decides_about_its_subordinates(
    rule: Any, two: Any, north: Any, answer: str, world: World, saver: SqliteCheckpointer
) -> None:
    sent = threading.Event()

    def wait(_: Sequence[BaseMessage]) -> str:
        sent.wait()
        return "two is done"

    def send(messages: Sequence[BaseMessage]) -> Any:
        if asked(head, "one") == 1:
            return tell("two", "Hello.")
        sent.set()
        return "one is done"

    # One after the other, so that no event loop is held up.
    order = [delegate("one", "go"), delegate("two", "go"), "north is done"]
    head = pair(DelegationPolicy(sibling_messages=rule), north=order, one=send, two=wait)
    session = Session(head, saver)

    world.send(session, "go")

    assert [text for _, text in mail_of(session, "two")] == two
    assert mail_of(session, "north") == north
    assert answers_of(session, "one")[0].startswith(answer)


def test_a_rule_that_is_none_is_refused() -> None:
    for each in ("send", 7, None):
        with pytest.raises(InvalidSetting, match="sibling_messages"):
            DelegationPolicy(sibling_messages=each)


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ({"to": "three", "message": "Hello."}, "no agent beside you is called 'three'"),
        ({"to": "head", "message": "Hello."}, "no agent beside you is called 'head'"),
        ({"to": "count", "message": "Hello."}, "no agent beside you is called 'count'"),
        ({"to": "one", "message": "Hello."}, "no agent beside you is called 'one'"),
        ({"to": "two", "message": " "}, "says nothing"),
        ({"to": "two", "message": "x" * 2**20}, "the limit is 65536"),
        ({"to": "two"}, "message: Field required"),
    ],
)
def test_what_cannot_be_sent_is_refused_by_name(
    arguments: Any, answer: str, world: World, saver: SqliteCheckpointer
) -> None:
    head = pair(one=[Call("send_message", arguments), "one is done"])
    session = Session(head, saver)

    assert world.send(session, "go").text == "over"

    assert answer in answers_of(session, "one")[0]
    assert mail_of(session, "two") == mail_of(session, "north") == []


def test_stopped_agent_gets_no_message(world: World, saver: SqliteCheckpointer) -> None:
    def stop(_: Sequence[BaseMessage]) -> Any:
        if asked(head, "one") > 1:
            return "one is done"
        session.stop("head/north/two")
        return tell("two", "Hello?")

    head = pair(one=stop)
    session = Session(head, saver)
    world.send(session, "go")

    assert "head/north/two was told to stop" in answers_of(session, "one")[0]


def test_a_message_beside_a_report_is_sent_and_the_report_counts(
    world: World, saver: SqliteCheckpointer
) -> None:
    head = pair(one=[[tell("superior", "Almost."), report("partial", "half")]])
    session = Session(head, saver)

    world.send(session, "go")

    assert mail_of(session, "north") == [("message", "Almost.")]
    assert asked(head, "one") == 1


REFUSED = (
    "Error: you have sent {} 20 messages in this turn, and no more are delivered; go on with your "
    "own task"
)


def test_agent_may_send_another_twenty_messages_in_a_turn(
    world: World, saver: SqliteCheckpointer
) -> None:
    some = [tell("superior", f"{number}") for number in range(15)]
    more = [tell("superior", f"{number}") for number in range(15, 30)]
    steps = [[*some, tell("two", "Hello.")], more, "one is done"]
    # It may be at its last reply when it reads the message, and then replies again.
    head = pair(one=steps, two=lambda _: "two is done")
    session = Session(head, saver)

    assert world.send(session, "go").text == "over"

    answers = answers_of(session, "one")
    refused = REFUSED.format("head/north")
    assert answers == [*["sent"] * 21, *[refused] * 10]
    # Twenty messages, and the copy of the one to its sibling.
    assert len(mail_of(session, "north")) == 21

    world.send(session, "again")

    assert answers_of(session, "one")[31:] == answers


def test_agent_at_work_on_several_threads_sends_twenty_messages_in_all(
    world: World, saver: SqliteCheckpointer
) -> None:
    flood = [tell("superior", f"{number}") for number in range(12)]
    both = [delegate("one", "go"), delegate("one", "go too")]
    head = pair(north=[both, "north is done"], one=[flood, "one is done"])
    session = Session(head, saver)

    assert world.send(session, "go").text == "over"

    assert len(mail_of(session, "north")) == 20


def test_count_of_messages_goes_on_in_another_session_of_the_turn(tmp_path: Path) -> None:
    breaks = [ConnectionError("no line")]

    def head(messages: Sequence[BaseMessage]) -> Any:
        answers = sum(isinstance(each, ToolMessage) for each in messages)
        if answers == 1 and breaks:
            return breaks.pop()
        return "over" if answers == 2 else delegate("one", f"part {answers}", reset=True)

    flood = [tell("superior", f"{number}") for number in range(15)]
    model = ScriptedModel({"head": head, "one": [flood, "one is done"]})
    agent = Agent("head", model=model, subordinates=[Agent("one")])
    path = tmp_path / "mail.sqlite"
    with Session(agent, path, thread="t") as session, pytest.raises(ConnectionError):
        session.send("go").result()
    with Session(agent, path, thread="t") as session:
        assert session.resume().result().text == "over"
        mail = mail_of(session, "head")

    assert len(mail) == 20


def test_run_without_saver_says_that_nothing_is_delivered() -> None:
    seen: list[str] = []

    def one(messages: Sequence[BaseMessage]) -> Any:
        seen.extend(without_marks(m.text) for m in messages if isinstance(m, ToolMessage))
        return "done" if seen else tell("superior", "Hello?")

    pair(one=one).compile().invoke({"messages": ["go"]})

    assert seen == ["Error: nothing of this run is stored, so no message can be delivered"]


def test_siblings_talk_and_their_superior_holds_one_back(
    world: World, saver: SqliteCheckpointer
) -> None:
    head = chat(10)
    session = Session(head, saver)

    assert world.send(session, "go").text == "over"

    assert heard(session, "one") == [f"two {number}" for number in range(10)]
    assert heard(session, "two") == [f"one {number}" for number in range(10) if number != 7]
    kinds = [kind for kind, _ in mail_of(session, "north")]
    assert (kinds.count("copy"), kinds.count("held")) == (19, 1)
    assert ("held", "one 7") in mail_of(session, "north")


def heard(session: Session, agent: str) -> list[str]:
    return [text for kind, text in mail_of(session, agent) if kind == "message"]


def test_a_fork_of_the_past_has_read_nothing_that_was_sent_after_it(
    world: World, saver: SqliteCheckpointer
) -> None:
    order = [delegate("one", "go"), delegate("two", "go"), "north is done"]
    head = pair(north=order, one=[tell("two", "Hello."), "one is done"])
    session = Session(head, saver)
    world.send(session, "go")
    session.send_message("head/north/two", "After the turn.")
    history = [*session.graph.get_state_history(session.config)]
    [before] = [each for each in history if each.next == ("delegate",)]

    world.invoke(session.graph, None, before.config)

    assert isinstance(head.model, ScriptedModel)
    first, again = (call for call in head.model.calls if call.agent == "two")
    for call in (first, again):
        told = [str(m.text) for m in call.messages if "mail" in m.response_metadata]
        # That of its own branch.
        assert [text.partition(" ")[2] for text in told] == [
            'Message from head/north/one: "Hello."'
        ]
