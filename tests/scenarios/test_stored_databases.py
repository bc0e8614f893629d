"""Databases that an earlier state of the code has left are opened, gone on with and finished.

`tests/fixtures/before_rooms.db` and `before_rooms_sealed.db` were written by commit b686887, the
last one before the modules moved into rooms. For each thread of `stored.PLAIN` and `stored.SEALED`
it opened `Session(Trees().tree(thread), SqliteCheckpointer(path), thread=thread,
metadata={"made": "before the rooms"})`, the sealed file with `seal=KEY`, sent `TASK` under
`turn_id(thread)`, with `Trees.pause` set to the session's `pause`, and took the result. The clock
stood two months back. At the end came `PRAGMA wal_checkpoint(TRUNCATE)` and `VACUUM`, so that each
is one file.

`before_circuit_paths.db` was written by commit b926a22, the last one that kept circuits by the
names of root and agent, for the thread `stored.FAILING` and in the same way, with the clock of the
day and without the session's metadata.

`step_N.db` is a database of each step of the schema, `migrations.MIGRATION_STEPS`, written by the
script `drivers/schema_steps.py` with the code of these commits: 1 by a0cb0da, 2 by 02c98db, 3 by
f78a464 (`step_3_without_journal.db` by 385ab98, as the effect journal came between), 4 by b926a22,
5 by 64cc5b1, 6 by c9fab48, and 7 to 14 each by the commit that made it. From step 10 on there are
agents that were made at run time. Steps 1 and 2 and the
earlier one of step 3 know no pause. CONTRIBUTING says when there is to be another.

`dismissed.db` has a thread in which agents were dismissed, written by the script
`drivers/dismissed_team.py` with the first code that could. `budgeted.db` has one whose turn and
requests have budgets, written likewise by `drivers/budgeted_team.py`. `waiting.db` has turns that
wait in the middle of a message, written by `drivers/waiting_team.py`, which says with what code.
So does `drivers/queued_team.py`, for the queues of a person in `queued.db`.

They are never written anew: what is stored by a release must be read by all later
ones, and a test that fails here has found a name that is stored and was changed.
"""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import ormsgpack
import pytest
from langchain_core.messages import AIMessage, ToolMessage

from echelons import Result, Session, SqliteCheckpointer, ThreadStore
from echelons.checkpoints.coordination.candidates import list_circuits
from echelons.checkpoints.storage.schema import MIGRATION_STEPS
from echelons.errors import CheckpointTampered, QuestionClosed, UnfinishedTurn
from echelons.testing import ScriptedModel
from tests.accounts import check_accounts
from tests.error_codes import raises_code
from tests.scenarios.drivers import (
    budgeted_team,
    dismissed_team,
    queued_team,
    schema_steps,
    waiting_team,
)
from tests.scenarios.drivers.stored import FAILING, KEY, PLAIN, SEALED, TASK, Trees, turn_id

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

FIXTURES = Path(__file__).parents[1] / "fixtures"
FILES = {"before_rooms": PLAIN, "before_rooms_sealed": SEALED}


class Found:
    """One stored thread, opened by today's code from a copy of its file."""

    def __init__(self, folder: Path, thread: str) -> None:
        name = next(each for each, threads in FILES.items() if thread in threads)
        path = Path(shutil.copy(FIXTURES / f"{name}.db", folder))
        self.trees = Trees()
        tree = self.trees.tree(thread)
        assert isinstance(tree.model, ScriptedModel)
        self.model = tree.model
        self.saver = SqliteCheckpointer(path, seal=KEY if thread in SEALED else None)
        assert self.saver.check().is_sound
        self.session = Session(tree, self.saver, thread=thread)
        self.store = ThreadStore(self.saver)

    def asked(self) -> dict[str, tuple[str, ...]]:
        """Return the open questions with the paths of those who ask."""
        return {each.value: each.path.parts for each in self.session.inbox()}

    def answer(self, world: World, question: str, answer: str) -> Result:
        [found] = [each for each in self.session.inbox() if each.value == question]
        return world.answer(self.session, {found.id: answer})

    def statuses(self) -> dict[str, str]:
        """Return what came of each agent that was asked."""
        return {each.agent: str(each.status) for each in self.session.trace().walk()}

    def answers(self, agent: str) -> list[str]:
        """Return what the calls of an agent were answered with."""
        [found] = [each for each in self.session.trace().walk() if each.agent == agent]
        messages = self.store.get(found.thread_id).messages
        return [str(each.text) for each in messages if isinstance(each, ToolMessage)]

    def ended_well(self, text: str, result: Result) -> None:
        """Check that a turn is over, that nothing was done twice, and that all of it is sound."""
        assert (result.finished, result.text, result.questions) == (True, text, ())
        assert self.session.inbox() == []
        assert self.model.repeated_calls == []
        links = self.store.verify(self.session.thread_id)
        assert {str(each.state) for each in links} <= {"ok", "refused"}
        report = self.saver.check()
        assert report.is_sound, report.faults


@pytest.fixture
def found(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Found]:
    found = Found(tmp_path, request.param)
    yield found
    found.saver.close()


def of(thread: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("found", [thread], indirect=True)


@of("deep")
def test_a_question_three_levels_down_is_answered(world: World, found: Found) -> None:
    assert found.asked() == {"leaf?": ("root", "middle", "leaf")}

    result = found.answer(world, "leaf?", "north")

    assert found.answers("leaf") == ["leaf dug", "leaf heard north"]
    assert found.trees.dug == []
    found.ended_well("root is done", result)


@of("queue")
def test_a_request_that_waits_behind_another_begins_when_that_is_answered(
    world: World, found: Found
) -> None:
    assert found.asked() == {"clerk?": ("head", "clerk")}

    result = found.answer(world, "clerk?", "yes")

    assert found.answers("head") == [
        "one, clerk heard yes",
        "one, clerk heard yes, two",
    ]
    found.ended_well("head is done", result)


@of("first")
def test_a_race_is_decided_by_the_first_answer(world: World, found: Found) -> None:
    assert found.asked() == {"ann?": ("head", "ann"), "bob?": ("head", "bob")}
    other = next(each.id for each in found.session.inbox() if each.value == "ann?")

    result = found.answer(world, "bob?", "east")

    assert found.statuses() == {"head": "root", "ann": "unable", "bob": "fulfilled"}
    assert found.trees.dug == []
    found.ended_well("head is done", result)
    with pytest.raises(QuestionClosed):
        world.answer(found.session, {other: "too late"})


@of("quorum")
def test_quorum_is_completed_by_the_agent_that_asks(world: World, found: Found) -> None:
    assert found.asked() == {"ann?": ("head", "chief", "ann")}

    result = found.answer(world, "ann?", "west")

    assert found.answers("chief") == ["1. bob: bob found\n\n2. ann: ann found"]
    assert found.trees.dug == []
    found.ended_well("head is done", result)


@of("paused")
def test_a_paused_agent_is_held_until_it_is_resumed(world: World, found: Found) -> None:
    assert found.asked() == {}
    with pytest.raises(UnfinishedTurn):
        world.send(found.session, "something else")

    result = world.resume(found.session)

    assert found.answers("head") == ["north found", "south found"]
    assert found.trees.dug == ["north"]
    found.ended_well("head is done", result)


@of("routed")
def test_next_best_is_asked_when_waiting_agent_cannot(world: World, found: Found) -> None:
    assert found.asked() == {"mechanic?": ("head", "shop", "mechanic")}

    result = found.answer(world, "mechanic?", "no")

    assert found.statuses()["mechanic"] == "unable"
    assert found.answers("head") == ["smith found"]
    assert found.trees.dug == ["smith"]
    found.ended_well("head is done", result)


@of("finished")
def test_a_finished_turn_is_known_by_its_id_and_its_conversations_go_on(
    world: World, found: Found
) -> None:
    again = world.do(found.session, "send", TASK, turn_id=turn_id("finished"))
    replayed = world.do(again, "result") if hasattr(again, "__iter__") else _result(world, again)
    assert (replayed.replayed, replayed.text, found.trees.dug) == (True, "head is done", [])

    result = world.send(found.session, "again")

    assert found.answers("head") == ["1 counted", "2 counted"]
    assert found.trees.dug == ["clerk"]
    found.ended_well("head is done", result)


def _result(world: Any, run: Any) -> Any:
    return world.wait_for(run.result())


# Seals


def test_seals_of_before_hold_and_are_broken_by_a_changed_row(tmp_path: Path) -> None:
    path = Path(shutil.copy(FIXTURES / "before_rooms_sealed.db", tmp_path))
    with SqliteCheckpointer(path, seal=KEY) as saver:
        assert saver.reseal() > 0
        thread = Session(Trees().tree("deep"), saver, thread="deep").thread_id
    with SqliteCheckpointer(path, seal=b"another key of 16") as saver:
        with raises_code("unknown_seal_key"):
            ThreadStore(saver).get(thread)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE checkpoints SET metadata = metadata || ' '")
    with SqliteCheckpointer(path, seal=KEY) as saver:
        with pytest.raises(CheckpointTampered):
            ThreadStore(saver).get(thread)


# Circuits


def test_an_open_circuit_of_before_stays_open_at_the_path_of_its_agent(
    world: World, tmp_path: Path
) -> None:
    path = Path(shutil.copy(FIXTURES / "before_circuit_paths.db", tmp_path))
    with SqliteCheckpointer(path) as saver:
        [circuit] = list_circuits(saver.ledger)
        assert (circuit.path, circuit.scope, circuit.failures) == ("head/chief/clerk", "", 3)
        tree = Trees().tree(FAILING)
        assert isinstance(tree.model, ScriptedModel)
        session = Session(tree, saver, thread=FAILING)

        assert world.send(session, "again").text == "head is done"

        assert "clerk" not in [each.agent for each in tree.model.calls]
        [refused] = [each for each in session.trace().walk() if each.agent == "clerk"][-1].requests
        assert refused.reason.startswith("circuit_open: 'clerk' failed 3 times in a row")
        assert saver.check().is_sound


# Steps of the schema

STEPS = sorted(each.stem for each in FIXTURES.glob("step_*.db"))


def list_steps(first: int) -> list[str]:
    """Return the names of the databases from a step on."""
    return [f"step_{number}" for number in range(first, len(MIGRATION_STEPS) + 1)]


@dataclass
class Step:
    """One thread of the database of a step, opened by today's code."""

    saver: SqliteCheckpointer
    thread: str
    dug: list[str] = field(default_factory=list)

    def open(self, thread: str = "") -> Session:
        is_grown = self.thread == schema_steps.GROWN
        tree = (
            schema_steps.build_growing_tree()
            if is_grown
            else schema_steps.build_tree(self.thread, self.dug.append)
        )
        return Session(tree, self.saver, thread=thread or self.thread)

    def ask(self, session: Session) -> dict[str, str]:
        """Return the ids of the open questions by the name of the agent that asks."""
        return {each.path.name: each.id for each in session.inbox()}


@pytest.fixture
def step(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Step]:
    name, thread = request.param
    with SqliteCheckpointer(shutil.copy(FIXTURES / f"{name}.db", tmp_path)) as saver:
        yield Step(saver, thread)
        assert saver.check().is_sound


def at_each_step(thread: str, names: Sequence[str] = STEPS) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "step", [pytest.param((each, thread), id=each) for each in names], indirect=True
    )


def test_each_step_of_the_schema_has_a_database() -> None:
    assert {f"step_{number + 1}" for number in range(len(MIGRATION_STEPS))} <= set(STEPS)


@at_each_step(schema_steps.CUT)
def test_a_call_that_any_step_has_cut_short_is_asked_about(world: World, step: Step) -> None:
    session = step.open()

    result = world.resume(session)

    kinds = {each.path.name: each.value["kind"] for each in result.questions}
    assert kinds == dict.fromkeys(schema_steps.LEVELS, "outcome_unknown")
    assert step.dug == []
    asked = step.ask(session)
    happened = {"outcome": "happened", "result": "a hole"}
    result = world.answer(session, {asked["head"]: happened})
    assert (len(result.questions), step.dug) == (2, [])

    result = world.answer(
        session, {asked["chief"]: {"outcome": "not_happened"}, asked["clerk"]: "run_again"}
    )

    assert (result.text, result.questions, step.dug) == ("head is done", (), ["clerk"])


@at_each_step(schema_steps.CUT, ["step_1", "step_3", *list_steps(6)])
def test_a_copy_of_a_thread_of_any_step_asks_the_same(world: World, step: Step) -> None:
    copied = str(uuid4())
    step.saver.copy_thread(step.open().thread_id, copied)

    for session in (step.open(copied), step.open()):
        assert len(world.resume(session).questions) == 3

    assert step.dug == []


@at_each_step(schema_steps.ASKING)
def test_a_question_that_any_step_has_asked_is_answered(world: World, step: Step) -> None:
    session = step.open()
    asked = step.ask(session)
    assert asked.keys() == set(schema_steps.LEVELS)

    for who in ("clerk", "head"):
        assert world.answer(session, {asked[who]: "yes"}).questions
    result = world.answer(session, {asked["chief"]: "yes"})

    assert (result.text, result.questions) == ("head is done", ())
    heard = {
        message.text
        for agent in session.trace().walk()
        for message in ThreadStore(step.saver).get(agent.thread_id).messages
        if isinstance(message, ToolMessage) and "heard" in str(message.text)
    }
    assert heard == {f"{who} heard yes" for who in schema_steps.LEVELS}


@at_each_step(schema_steps.PAUSED, ["step_3", *list_steps(4)])
def test_an_agent_that_any_step_has_paused_is_resumed(world: World, step: Step) -> None:
    session = step.open()
    assert step.ask(session) == {}

    result = world.resume(session)

    assert (result.text, sorted(step.dug)) == ("head is done", ["chief", "clerk"])


@at_each_step(schema_steps.GROWN, list_steps(10))
def test_an_agent_that_any_step_has_made_is_answered_and_keeps_its_name(
    world: World, step: Step
) -> None:
    session = step.open()
    before = world.do(session, "registry").agents
    assert [each.role for each in before] == ["", "scout", "digger"]
    assert {str(each.kind) for each in before[1:]} == {"mortal"}
    assert len({each.alias for each in before[1:]} - {""}) == 2
    view = "SELECT agent_path, kind, coalesce(alias, '') FROM agents WHERE thread_id = ?"
    rows = step.saver.conn.execute(f"{view} ORDER BY level", (session.thread_id,)).fetchall()
    assert rows == [(each.path, str(each.kind), each.alias) for each in before]

    [question] = session.inbox()
    result = world.answer(session, {question.id: "ten feet"})

    assert "ten feet" in result.text
    after = world.do(session, "registry").agents
    assert [(each.path, each.alias) for each in after] == [
        (each.path, each.alias) for each in before
    ]
    assert {str(each.state) for each in after} == {"done"}


# Names


def test_earlier_dismissal_holds(world: World, tmp_path: Path) -> None:
    path = Path(shutil.copy(FIXTURES / "dismissed.db", tmp_path))
    with (
        SqliteCheckpointer(path) as saver,
        Session(dismissed_team.build_team(), saver, thread=dismissed_team.THREAD) as session,
    ):
        assert saver.check().is_sound
        agents = {each.name.partition("-")[0]: each for each in session.registry().agents}
        scout = agents["scout"].path
        assert {name: str(each.state) for name, each in agents.items()} == {
            # Its turn has not ended, and no process is at work on it.
            "head": "idle",
            "north": "dismissed",
            "scout": "dismissed",
            "digger": "done",
        }
        assert session.inbox() == []
        with raises_code("agent_dismissed", match="dismissed by 'anna' at 20"):
            world.do(session, "steer", scout, "Hurry")
        assert not world.do(session, "dismiss", scout, by="berta").is_new

        assert world.resume(session).text == "go is over"
        assert world.send(session, "look again").text == "look again is over"

        [*_, told] = [
            str(each.text)
            for each in ThreadStore(saver).get(session.thread_id).messages
            if isinstance(each, ToolMessage)
        ]
        assert told == "[unable] dismissed: head/north was dismissed"


def test_a_budget_of_before_holds_and_its_grants_are_closed(world: World, tmp_path: Path) -> None:
    path = Path(shutil.copy(FIXTURES / "budgeted.db", tmp_path))
    with (
        SqliteCheckpointer(path) as saver,
        Session(
            budgeted_team.build_team(),
            saver,
            thread=budgeted_team.THREAD,
            prices=budgeted_team.PRICES,
        ) as session,
    ):
        assert saver.check().is_sound
        before = check_accounts(saver, session.thread_id)["head"]
        assert before.reserved == {"tokens": 2500, "money": Decimal("0.01")}
        [question] = session.inbox()
        assert world.answer(session, {question.id: "A mile"}).text == "Done."
        after = check_accounts(saver, session.thread_id)["head"]

    assert after.spent.keys() == {"tokens", "money", "calls", "seconds"}
    assert (after.spent["tokens"], after.spent["calls"]) == (1360, 9)
    assert not any(after.reserved.values())


@pytest.mark.parametrize(("name", "threads"), FILES.items())
def test_what_is_stored_today_has_every_name_that_was_stored_before(
    tmp_path: Path, name: str, threads: Sequence[str]
) -> None:
    before = Path(shutil.copy(FIXTURES / f"{name}.db", tmp_path))
    today = tmp_path / "today.db"
    with SqliteCheckpointer(today, seal=KEY if threads is SEALED else None) as saver:
        for thread in threads:
            trees = Trees()
            session = Session(trees.tree(thread), saver, thread=thread, metadata={"made": "today"})
            trees.pause = session.pause
            session.send(TASK, turn_id=turn_id(thread)).result()

    lost = names(before) - names(today)
    # Of a message are stored the fields that have not their default.
    lost -= {("key", each) for each in AIMessage.model_fields}
    # The end of a delegation, which named its subordinates, is stored by the superior alone.
    lost -= {("key", each[2]) for each in names(before) if each[0] == "row"}

    assert not lost, f"stored names have gone or were changed: {sorted(lost)}"


def names(path: Path) -> set[tuple[str, ...]]:
    """Return every name in a database that later code must know to go on with it."""
    with closing(sqlite3.connect(path)) as connection:
        return set(_names(connection))


def _names(connection: sqlite3.Connection) -> Iterator[tuple[str, ...]]:
    ask = connection.execute
    tables = ask("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')").fetchall()
    for (table,) in tables:
        columns = ask("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()
        yield from (("column", table, column) for (column,) in columns)
    for thread, place, metadata in ask(
        "SELECT thread_id, checkpoint_ns, metadata FROM checkpoints"
    ):
        yield "place", _without_ids(place)
        noted = json.loads(metadata)
        yield from (("metadata", key) for key in noted)
        same = ("agent", "agent_path", "tree", "turn_id", "thread_name")
        yield ("row", thread, *(noted[key] for key in same))
    yield from (("channel", channel) for (channel,) in ask("SELECT DISTINCT channel FROM writes"))
    kept = "SELECT type, checkpoint FROM checkpoints UNION SELECT type, value FROM writes"
    for kind, stored in ask(kept):
        yield "tag", kind
        if kind == "msgpack":
            yield from _stored_names(ormsgpack.unpackb(stored, ext_hook=_extension, option=_ANY))
    for kind, data in ask("SELECT kind, data FROM events"):
        yield from (("event", kind, key) for key in json.loads(data))
    for key, value in ask("SELECT key, value FROM ledger_values"):
        yield "ledger", _without_ids(key)
        held = json.loads(value)
        parts = held if isinstance(held, dict) else ()
        yield from (("ledger", _without_ids(key), part) for part in parts)


_ANY = ormsgpack.OPT_NON_STR_KEYS
SNAPSHOT = "form 7"
"""A channel's value as a whole: the only extension that names no type."""


def _extension(code: int, stored: bytes) -> dict[str, Any]:
    return {f"form {code}": ormsgpack.unpackb(stored, ext_hook=_extension, option=_ANY)}


def _stored_names(value: Any) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict):
        for key, below in value.items():
            yield "key", _without_ids(str(key))
            if str(key).startswith("form ") and key != SNAPSHOT:
                yield ("type", str(key), *map(str, below[:2]))
            yield from _stored_names(below)
    elif isinstance(value, list):
        for below in value:
            yield from _stored_names(below)
            if below in ("DelegationRequest", "DelegationResponse"):
                yield "model", below


def _without_ids(text: str) -> str:
    return re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{32}|\d+\.\d{16}|call_\d+_\d+", "*", text)


# Turns that wait


def answer_question(world: World, path: Path, thread: str, answer: str) -> tuple[Result, Session]:
    """Answer the waiting question about Diana in a thread of `waiting.db`."""
    team = waiting_team.TEAMS[thread]()
    session = Session(team, path, thread=thread)
    [question] = [each for each in session.inbox() if each.value == "Book Diana?"]
    return world.answer(session, {question.id: answer}), session


@pytest.fixture
def waiting(tmp_path: Path) -> Path:
    return Path(shutil.copy(FIXTURES / "waiting.db", tmp_path))


def test_tasks_that_were_queued_stay_queued(world: World, waiting: Path) -> None:
    result, session = answer_question(world, waiting, "tasks", "yes")
    with session:
        answers = [line.partition("\n")[0] for line in result.text.split(" | ")]
        assert answers == ["Roma is task 1", "booked Diana: yes", "Sole is task 3"]
        [clerk] = session.trace().subordinates
        assert [request.task for request in clerk.requests] == ["Roma", "Diana", "Sole"]


def test_report_that_was_taken_beside_a_call_stays_the_answer(world: World, waiting: Path) -> None:
    result, session = answer_question(world, waiting, "report", "yes")
    with session:
        assert result.text.partition("\n")[0] == "All is booked."


def test_question_asked_for_later_is_answered_in_the_next_turn(world: World, waiting: Path) -> None:
    result, session = answer_question(world, waiting, "later", "yes")
    with session:
        assert result.text == "booked; heard []"
        [question] = session.inbox()
        world.answer(session, {question.id: "Rome"})
        assert "Rome" in world.send(session, "go on").text


@pytest.mark.parametrize("thread", queued_team.THREADS)
def test_queue_of_a_person_goes_on_where_it_stood(
    world: World, tmp_path: Path, thread: str
) -> None:
    path = Path(shutil.copy(FIXTURES / "queued.db", tmp_path))
    with Session(queued_team.build_team(thread), path, thread=thread) as session:
        assert not world.answer(session, queued_team.build_answer(session)).finished
        text = world.answer(session, queued_team.build_answer(session)).text

        places = [text.index(f"the {paper} is signed") for paper in queued_team.PAPERS]
        assert places == sorted(places)
        [anna] = session.trace().subordinates
        tasks = [(request.task, request.status) for request in anna.requests]
        assert tasks == [(f"Sign the {paper}", "fulfilled") for paper in queued_team.PAPERS]
        assert all(link.holds for link in session.thread_store.verify(session.thread_id))
