"""Whatever is stored of a request, asked for or returned: an answer, and the thread goes on."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langgraph.types import interrupt

from echelons import Agent, Session, SqliteCheckpointer
from echelons.checkpoints.storage.serde import AllowlistSerializer
from echelons.delegation.request import DelegationResponse
from echelons.errors import UnreadableRecord
from echelons.nodes.planning.core_tools import MAX_REQUESTS
from echelons.testing import Call, ScriptedModel, delegate, per_conversation

if TYPE_CHECKING:
    from tests.scenarios.conftest import World


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Failures of subordinates are logged; here they are wanted."""
    with caplog.at_level(logging.CRITICAL):
        yield


def told(session: Session, agent: str) -> list[ToolMessage]:
    """Return what an agent's calls were answered; every link must hold."""
    assert all(link.holds for link in session.thread_store.verify(session.thread_id))
    [found] = [each for each in session.trace().walk() if each.agent == agent]
    messages = session.thread_store.get(found.thread_id).messages
    return [each for each in messages if isinstance(each, ToolMessage)]


# What is stored of a request


def ask(question: str) -> str:
    """Ask the human."""
    return f"heard {interrupt(question)}"


def waiting(saver: SqliteCheckpointer) -> Session:
    """Return a session of three levels whose lowest agent asks."""
    scripts: dict[str, Any] = {
        "head": lambda said: delegate("mid", f"go {len(said)}") if human(said) else "over",
        "mid": lambda said: delegate("leaf", f"go {len(said)}") if human(said) else "mid done",
        "leaf": lambda said: Call("ask", {"question": "?"}) if human(said) else "leaf done",
    }
    mid = Agent("mid", subordinates=[Agent("leaf", tools=[ask])])
    return Session(Agent("head", model=ScriptedModel(scripts), subordinates=[mid]), saver)


def human(said: Any) -> bool:
    return bool(said[-1].type == "human")


def forge(saver: SqliteCheckpointer, change: Callable[[Any], Any]) -> bytes:
    """Change the order for ``mid`` where it is stored, and return what was there."""
    query = "SELECT rowid, type, checkpoint FROM checkpoints WHERE checkpoint_ns LIKE 'delegate:%'"
    for rowid, tag, stored in saver.conn.execute(query).fetchall():
        saved = AllowlistSerializer().loads_typed((tag, stored))
        queue = saved["channel_values"].get("queue")
        if queue and queue[0]["request"]["origin"] == "head":
            queue[0] = change(queue[0])
            put(saver, rowid, AllowlistSerializer().dumps_typed(saved)[1])
            return bytes(stored)
    raise AssertionError


def put(saver: SqliteCheckpointer, rowid: int, stored: bytes) -> None:
    with saver.conn as connection:
        connection.execute("UPDATE checkpoints SET checkpoint = ? WHERE rowid = ?", (stored, rowid))


def with_request(**fields: Any) -> Callable[[Any], Any]:
    return lambda order: {**order, "request": {**order["request"], **fields}}


def without(field: str) -> Callable[[Any], Any]:
    return lambda order: {key: value for key, value in order.items() if key != field}


MISPLACED = "[unable] misplaced: what is stored of it is not of a request of 'head' to 'mid'"


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        (with_request(path=["nobody", "ghost"]), MISPLACED),
        (with_request(path=[]), MISPLACED),
        (with_request(path=["mid", "head", "mid"], origin="head"), MISPLACED),
        (with_request(path=["ghost", "head", "mid"]), MISPLACED),
        (with_request(path=["x"] * 100_000), MISPLACED),
        (with_request(origin="stranger"), MISPLACED),
        (with_request(current="ghost"), MISPLACED),
        (with_request(current="head"), MISPLACED),
        (with_request(path=["head", "mid", "head", "mid"]), "[unable] cycle: it has been with"),
        (with_request(route=["mid"]), "[unable] cycle: it has been with 'mid' already"),
        (with_request(max_hops=-5), "[unable] hops: it would pass 1 agents, and may pass -5"),
        (with_request(max_hops=2**62), "mid done"),
    ],
)
def test_forged_request_is_not_run_and_superior_reads_why(
    world: World, saver: SqliteCheckpointer, change: Callable[[Any], Any], answer: str
) -> None:
    session = waiting(saver)
    [question] = world.send(session, "go").questions
    forge(saver, change)

    assert world.answer(session, {question.id: "yes"}).text == "over"
    assert told(session, "head")[0].text.startswith(answer)

    [question] = world.send(session, "go on").questions
    assert question.path == "head/mid/leaf"
    assert world.answer(session, {question.id: "yes"}).text == "over"
    assert told(session, "head")[-1].text == "mid done"


@pytest.mark.parametrize(
    "change",
    [
        *(with_request(path=each) for each in (5, [1, None], None)),
        *(with_request(origin=each) for each in (5, None)),
        with_request(current=7),
        with_request(max_hops="many"),
        with_request(model="Other"),
        *(without(each) for each in ("request", "thread_id", "call_id")),
        *(lambda _: None, lambda _: 5, lambda _: [], lambda _: {}),
        lambda order: {**order, "thread_id": 5},
        lambda order: {**order, "ways": 5},
        lambda order: {**order, "tried": [5]},
    ],
)
def test_a_request_that_cannot_be_read_is_refused_by_name_and_nothing_is_lost(
    world: World, saver: SqliteCheckpointer, change: Callable[[Any], Any]
) -> None:
    session = waiting(saver)
    [question] = world.send(session, "go").questions
    before = forge(saver, change)

    with pytest.raises(UnreadableRecord):
        world.answer(session, {question.id: "yes"})

    [(rowid,)] = saver.conn.execute(
        "SELECT max(rowid) FROM checkpoints WHERE checkpoint_ns LIKE 'delegate:%'"
        " AND checkpoint_ns NOT LIKE '%|%'"
    ).fetchall()
    put(saver, rowid, before)
    again = Session(session.graph.agent, saver)
    assert world.resume(again).text == "over"
    assert told(again, "head")[0].text == "mid done"


# What is stored of a response


def settled_and_asking(saver: SqliteCheckpointer) -> Session:
    """Return a session whose ``mid`` has the answer of ``leaf``, and asks before it goes on."""
    model = ScriptedModel(
        {
            "head": per_conversation([delegate("mid", "go"), "over", "over again"]),
            "mid": [delegate("leaf", "go"), Call("ask", {"question": "?"}), "mid done"],
            "leaf": ["leaf done"],
        }
    )
    mid = Agent("mid", tools=[ask], subordinates=[Agent("leaf")])
    return Session(Agent("head", model=model, subordinates=[mid]), saver)


def reword(saver: SqliteCheckpointer, old: str, new: str) -> int:
    """Change a word everywhere in the database, as somebody else; return in how many rows."""
    assert len(old) == len(new), "what is stored says how long its texts are"
    changed = 0
    with closing(sqlite3.connect(saver.path)) as connection, connection:
        for table, column in (("checkpoints", "checkpoint"), ("writes", "value")):
            every = connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall()
            for rowid, stored in every:
                if old.encode() in stored:
                    other = stored.replace(old.encode(), new.encode())
                    update = f"UPDATE {table} SET {column} = ? WHERE rowid = ?"
                    changed += connection.execute(update, (other, rowid)).rowcount
        update = "UPDATE events SET data = replace(data, ?, ?) WHERE instr(data, ?)"
        return changed + connection.execute(update, (old, new, old)).rowcount


def test_a_response_with_a_status_that_there_is_not_is_named_and_nothing_is_lost(
    world: World, tmp_path: Path
) -> None:
    with SqliteCheckpointer(tmp_path / "t.sqlite") as saver:
        session = settled_and_asking(saver)
        [question] = world.send(session, "go").questions
        changed = reword(saver, "fulfilled", "exploded!")
        again = Session(session.graph.agent, saver)

        # Who reads is told.
        [mid] = again.trace().subordinates
        [leaf] = mid.subordinates
        assert (str(leaf.state), leaf.requests[0].status) == ("ok", "unable")
        assert "exploded!" in leaf.requests[0].reason
        view = "SELECT status, reason FROM delegations WHERE current = 'leaf'"
        assert saver.conn.execute(view).fetchall() == [("exploded!", "")]
        assert [each.id for each in again.inbox()] == [question.id]

        # Who goes on is stopped, by name, as often as he tries.
        with pytest.raises(UnreadableRecord, match="exploded!"):
            world.answer(again, {question.id: "yes"})
        with pytest.raises(UnreadableRecord, match="exploded!"):
            world.resume(again)

        # And what was there is there.
        assert reword(saver, "exploded!", "fulfilled") >= changed > 1
        whole = Session(session.graph.agent, saver)
        assert world.resume(whole).text == "over"
        assert told(whole, "mid")[0].text == "leaf done"
        model = whole.graph.agent.model
        assert isinstance(model, ScriptedModel)
        assert [call.agent for call in model.calls].count("leaf") == 1


def test_such_a_response_of_an_earlier_turn_holds_up_no_later_one(
    world: World, tmp_path: Path
) -> None:
    with SqliteCheckpointer(tmp_path / "t.sqlite") as saver:
        session = settled_and_asking(saver)
        [question] = world.send(session, "go").questions
        assert world.answer(session, {question.id: "yes"}).text == "over"
        reword(saver, "fulfilled", "exploded!")

        again = Session(session.graph.agent, saver)
        assert world.send(again, "go on").text == "over again"

        [mid] = again.trace().subordinates
        assert "exploded!" in mid.requests[0].reason
        reword(saver, "exploded!", "fulfilled")
        assert [each.status for each in told(Session(session.graph.agent, saver), "head")] == [
            "success"
        ]


# What is returned


class Silent:
    """Has no text."""

    def __str__(self) -> str:
        raise ValueError("no text")


CIRCLE: dict[str, Any] = {}
CIRCLE["me"] = CIRCLE
DEEP: list[Any] = []
for _ in range(5000):
    DEEP = [DEEP]
STATUS = {"model": "DelegationResponse", "request_id": "x", "agent": "y", "status": "exploded"}
CONFIDENCES = [{"status": "fulfilled", "confidence": each} for each in (float("nan"), 7, -1)]
ARTIFACT = ToolMessage("text", tool_call_id="x", artifact=STATUS)
RETURNED: list[tuple[Any, str]] = [
    (b"caf\xc3\xa9", "café"),
    (b"\xff\x00", "[unable] UnicodeDecodeError: "),
    (object(), "[unable] TypeError: returned object, which has no text"),
    (Silent(), "[unable] ValueError: no text"),
    (iter([1]), "[unable] TypeError: returned list_iterator, which has no text"),
    (ValueError("x"), "[unable] TypeError: returned ValueError, which has no text"),
    (CIRCLE, "{'me': {...}}"),
    (DEEP, "[unable] RecursionError: "),
    (10**5000, "[unable] ValueError: Exceeds the limit"),
    (float("nan"), "nan"),
    ("a\x00b \ud800 c", "a\x00b \ufffd c"),
    (None, "[unable] empty: it has answered nothing"),
    ("", "[unable] empty: it has answered nothing"),
    ({"messages": []}, "[unable] TypeError: returned messages of which there are none"),
    ({"messages": [5]}, "[unable] TypeError: returned messages whose last is int"),
    ({"messages": 5}, "{'messages': 5}"),
    ({"messages": [ARTIFACT]}, "text"),
    (ARTIFACT, "text"),
    (STATUS, str(STATUS)),
    *((each, str(each)) for each in CONFIDENCES),
]


@pytest.mark.parametrize("kind", ["function", "runnable"])
@pytest.mark.parametrize(("returned", "answer"), RETURNED, ids=lambda each: type(each).__name__)
def test_whatever_a_function_returns_is_text_or_a_reason_and_the_thread_goes_on(
    world: World, saver: SqliteCheckpointer, returned: Any, answer: str, kind: str
) -> None:
    session = returning(returned, kind, saver)

    assert world.send(session, "go").text == "over"
    assert world.send(session, "go on").text == "over"

    for message in told(session, "mid"):
        response = DelegationResponse.load(message.artifact)
        unable = answer.startswith("[unable]")
        assert response.status == ("unable" if unable else "fulfilled")
        assert str(message.text).startswith(answer) if unable else message.text == answer


def returning(returned: Any, kind: str, saver: SqliteCheckpointer) -> Session:
    def sub(task: str) -> Any:
        return returned

    scripts: dict[str, Any] = {
        "head": lambda said: delegate("mid", f"go {len(said)}") if human(said) else "over",
        "mid": lambda said: delegate("sub", f"go {len(said)}") if human(said) else "mid done",
    }
    foreign: Any = sub if kind == "function" else RunnableLambda(sub, name="sub")
    mid = Agent("mid", subordinates=[foreign])
    return Session(Agent("head", model=ScriptedModel(scripts), subordinates=[mid]), saver)


def test_ten_megabytes_are_taken_whole(world: World, saver: SqliteCheckpointer) -> None:
    session = returning("ä" * 5_000_000, "function", saver)

    assert world.send(session, "go").text == "over"

    [message] = told(session, "mid")
    assert message.text == "ä" * 5_000_000


# What is asked for with `delegate_many`


def request(name: str) -> dict[str, Any]:
    return {"message": f"ask {name}", "subordinate": name, "reset": True}


BOTH = [request("a"), request("b")]
NO_QUORUM = "n must be a whole number from 1 to 2"
NO_JOIN = "join must be one of all, first, quorum, best"
NUMBERS: list[Any] = [0, -1, 3, "two", "2", 2.0, True, None, float("nan")]
WAYS: list[Any] = ["some", 7, None, ["all"], {}]
ASKED: list[tuple[Any, str]] = [
    ({}, "requests: Field required"),
    ({"requests": []}, "requests: List should have at least 1 item"),
    ({"requests": None}, "requests: Input should be a valid list"),
    ({"requests": "do it"}, "requests: Input should be a valid list"),
    ({"requests": {"a": request("a")}}, "requests: Input should be a valid list"),
    ({"requests": ["do it", "do that"]}, "requests.0: Input should be a valid dictionary"),
    ({"requests": [BOTH]}, "requests.0: Input should be a valid dictionary"),
    ({"requests": [None]}, "requests.0: Input should be a valid dictionary"),
    ({"requests": [*BOTH, request("z")]}, "no subordinate is called 'z'; name one of: a, b"),
    ({"requests": [request("mid")]}, "no subordinate is called 'mid'; name one of: a, b"),
    *(({"requests": BOTH, "join": "quorum", "n": each}, NO_QUORUM) for each in NUMBERS),
    *(({"requests": BOTH, "join": each}, NO_JOIN) for each in WAYS),
]


def asking(args: Any, saver: SqliteCheckpointer) -> tuple[Session, ScriptedModel]:
    scripts: dict[str, Any] = {
        "head": lambda said: delegate("mid", f"go {len(said)}") if human(said) else "over",
        "mid": lambda said: AIMessage("", tool_calls=[many(args)]) if human(said) else "mid done",
        "*": ["x"],
    }
    model = ScriptedModel(scripts)
    mid = Agent("mid", subordinates=[Agent("a"), Agent("b")])
    return Session(Agent("head", model=model, subordinates=[mid]), saver), model


def many(args: Mapping[str, Any]) -> Any:
    return {"name": "delegate_many", "args": args, "id": "many", "type": "tool_call"}


@pytest.mark.parametrize(("args", "answer"), ASKED, ids=repr)
def test_broken_requests_are_answered_with_their_faults_without_asking(
    world: World, saver: SqliteCheckpointer, args: Any, answer: str
) -> None:
    session, model = asking(args, saver)

    assert world.send(session, "go").text == "over"

    [message] = told(session, "mid")
    assert (message.status, answer in str(message.text)) == ("error", True)
    assert {call.agent for call in model.calls} == {"head", "mid"}
    assert world.send(session, "go on").text == "over"


@pytest.mark.parametrize("count", [MAX_REQUESTS + 1, 10_000])
def test_more_requests_than_anybody_means_are_refused(
    saver: SqliteCheckpointer, count: int
) -> None:
    session, model = asking({"requests": [request("a")] * count}, saver)

    assert session.send("go").result().text == "over"

    [message] = told(session, "mid")
    assert f"at most {MAX_REQUESTS} items after validation, not {count}" in str(message.text)
    assert {call.agent for call in model.calls} == {"head", "mid"}


@pytest.mark.parametrize("join", ["all", "first", "best"])
def test_one_may_be_asked_for_several_things(
    world: World, saver: SqliteCheckpointer, join: str
) -> None:
    thrice = [{**request("a"), "message": f"task {n}"} for n in range(3)]
    session, _ = asking({"requests": thrice, "join": join, "n": 99}, saver)

    assert world.send(session, "go").text == "over"

    [message] = told(session, "mid")
    assert DelegationResponse.load(message.artifact).status == "fulfilled"
