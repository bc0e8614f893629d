"""The interrupt matrix: from any depth and any width, each agent gets its own answer.

Depth 1 to 5, width 1 to 8, and in each of the trees: all are answered, some, one by one, one
twice, one that is stale, from another process, and during a run. The cells of the sample take
turns at the synchronous and the asynchronous methods. An answer that does not fit is refused by
its name and changes nothing, and no tool runs more often than LangGraph's way to resume explains:
each delivery runs the tools that wait once more, from their first line up to their question.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pytest

from echelons import Question, Session, SqliteCheckpointer
from echelons.errors import QuestionClosed
from tests.error_codes import raises_code
from tests.fork_server import ForkServer
from tests.proof import sample
from tests.scenarios.drivers.askers import Askers, heard
from tests.scenarios.drivers.elsewhere import Elsewhere

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

CELLS = sample(
    [(1, 1), (1, 8), (3, 2), (4, 5), (5, 1)],
    [(depth, width) for depth in range(1, 6) for width in range(1, 9)],
)
"""Depths and widths."""
TURNS = ["sync", "async"]


def trees(cells: list[tuple[int, int]]) -> pytest.MarkDecorator:
    ways = [(*cell, way) for cell in cells for way in sample(TURNS[sum(cell) % 2 :][:1], TURNS)]
    return pytest.mark.parametrize(("depth", "width", "world"), ways, indirect=["world"])


every_tree = trees(CELLS)
some_trees = trees(CELLS[::3])


@pytest.fixture(scope="module")
def elsewhere(fork_server: ForkServer) -> Iterator[Elsewhere]:
    """Another process, which lives as long as these tests."""
    place = Elsewhere(fork_server)
    yield place
    place.end()


class Case:
    """A tree on a thread of a database of its own."""

    def __init__(self, database: Path, tree: tuple[int, int], world: World) -> None:
        self.depth, self.width = tree
        self.world = world
        self.database = database
        self.askers = Askers(*tree)
        self.saver = SqliteCheckpointer(database)
        self.session = Session(self.askers.agent, self.saver)

    def ask(self) -> dict[str, str]:
        """Begin a turn, and return the ids of what is asked, by question."""
        result = self.world.send(self.session, "ask")
        return self.asked(result.questions, self.askers.questions)

    def asked(self, found: Any, expected: list[str]) -> dict[str, str]:
        """Check that those who ask are those who should, and return their questions' ids."""
        questions: list[Question] = list(found)
        assert [each.value for each in questions] == expected
        paths = [self.askers.path(each.value) for each in questions]
        assert [each.path.parts for each in questions] == paths
        assert [each.id for each in self.session.inbox()] == [each.id for each in questions]
        return {each.value: each.id for each in questions}

    def reopen(self) -> None:
        """Go on in another session, on another connection."""
        self.saver.close()
        self.saver = SqliteCheckpointer(self.database)
        self.session = Session(self.askers.agent, self.saver)

    def refused(self, code: str, answers: Mapping[str, Any]) -> None:
        """Check that answers are refused by name, and change nothing."""
        before = self.stored()
        with raises_code(code):
            self.world.answer(self.session, dict(answers))
        assert self.stored() == before

    def stored(self) -> Any:
        """Return all that is stored, and what is asked."""
        tables = ("checkpoints", "writes", "events", "ledger_values", "ledger_entries")
        with self.saver.cursor(transaction=False) as cursor:
            counts = [
                cursor.execute(f"SELECT count(*), max(rowid) FROM {each}").fetchone()
                for each in tables
            ]
            values = cursor.execute("SELECT key, version FROM ledger_values").fetchall()
        return counts, values, [each.id for each in self.session.inbox()]

    def check_end(self, text: str, answers: Mapping[str, str], begun: Mapping[str, int]) -> None:
        """Check that everybody got the own answer, once, and that nothing ran too often."""
        assert set(text.split(" | ")) == self.askers.said(answers)
        last = {question: given[-1] for question, given in heard(self.session).items()}
        assert last == answers
        assert dict(self.askers.begun) == begun
        assert self.askers.model.repeated_calls == []
        assert self.session.inbox() == []


@pytest.fixture
def case(tmp_path: Path, depth: int, width: int, world: World) -> Iterator[Case]:
    case = Case(tmp_path / "t.sqlite", (depth, width), world)
    yield case
    case.saver.close()


def say(case: Case, what: str = "yes to") -> dict[str, str]:
    return {question: f"{what} {question}" for question in case.askers.questions}


def by_id(ids: Mapping[str, str], answers: Mapping[str, str]) -> dict[str, str]:
    return {ids[question]: answers[question] for question in ids}


@every_tree
def test_all_are_answered_at_once(case: Case) -> None:
    answers = say(case)
    ids = case.ask()

    result = case.world.answer(case.session, by_id(ids, answers))

    case.check_end(result.text, answers, dict.fromkeys(answers, 2))
    assert dict(case.askers.answered) == dict.fromkeys(answers, 1)


@every_tree
def test_some_are_answered_and_then_the_others_by_another_session(case: Case) -> None:
    answers = say(case)
    ids = case.ask()
    first, others = case.askers.questions[1::2], case.askers.questions[0::2]
    if first:
        some = case.world.answer(case.session, by_id({each: ids[each] for each in first}, answers))
        assert not some.finished
        assert case.asked(some.questions, others) == {each: ids[each] for each in others}
    case.reopen()

    rest = case.world.answer(case.session, by_id({each: ids[each] for each in others}, answers))

    begun = {**dict.fromkeys(first, 2), **dict.fromkeys(others, 3 if first else 2)}
    case.check_end(rest.text, answers, begun)
    assert dict(case.askers.answered) == dict.fromkeys(answers, 1)


@every_tree
def test_they_are_answered_one_by_one(case: Case) -> None:
    answers = say(case)
    ids = case.ask()
    begun, texts = dict[str, int](), list[str]()

    for delivery, question in enumerate(reversed(case.askers.questions), start=1):
        texts.append(case.world.answer(case.session, {ids[question]: answers[question]}).text)
        begun[question] = 1 + delivery

    case.check_end(texts[-1], answers, begun)
    assert dict(case.askers.answered) == dict.fromkeys(answers, 1)


@every_tree
def test_an_answer_that_is_given_twice_is_refused(case: Case) -> None:
    answers = say(case)
    ids = case.ask()
    last = case.askers.questions[-1]
    given = case.world.answer(case.session, {ids[last]: answers[last]})
    rest = {each: ids[each] for each in case.askers.questions[:-1]}

    case.refused("question_closed", {ids[last]: "no"})
    # Not even those of them that fit are taken.
    case.refused("question_closed", {**by_id(rest, answers), ids[last]: "no"})

    if rest:
        given = case.world.answer(case.session, by_id(rest, answers))
    case.check_end(given.text, answers, {**dict.fromkeys(rest, 3), last: 2})
    case.refused("question_closed", {ids[last]: answers[last]})


@every_tree
def test_a_stale_answer_and_one_that_does_not_fit_are_refused(case: Case) -> None:
    before = say(case, "then")
    stale = case.ask()
    case.world.answer(case.session, by_id(stale, before))
    answers = say(case, "now")
    ids = case.ask()

    for late in {stale["q1"], *list(stale.values())[-1:]}:
        case.refused("question_closed", {late: "late"})
    case.refused("unknown_question", {"0" * 32: "yes"})
    case.refused("wrong_answer", {**by_id(ids, answers), ids["q1"]: 1})

    result = case.world.answer(case.session, by_id(ids, answers))
    case.check_end(result.text, answers, dict.fromkeys(answers, 4))


@every_tree
def test_another_process_answers(case: Case, elsewhere: Elsewhere) -> None:
    answers = say(case)
    ids = case.ask()
    elsewhere.do("open", str(case.database), case.depth, case.width, False)
    there, here = case.askers.questions[0::2], case.askers.questions[1::2]
    answer = ("answer", "aanswer")[case.width % 2]
    assert elsewhere.do("inbox") == {ids[each]: each for each in case.askers.questions}

    told = elsewhere.do(answer, {ids[each]: answers[each] for each in there})

    assert told["questions"] == [ids[each] for each in here]
    case.refused("question_closed", {ids["q1"]: "no"})
    before = case.stored()
    assert elsewhere.do(answer, {ids["q1"]: "no"}) == {"error": "QuestionClosed"}
    assert case.stored() == before
    if here:
        told["text"] = case.world.answer(
            case.session, by_id({each: ids[each] for each in here}, answers)
        ).text
    assert elsewhere.do("runs") == [dict.fromkeys(answers, 1), dict.fromkeys(there, 1)]
    case.check_end(told["text"], answers, {**dict.fromkeys(there, 1), **dict.fromkeys(here, 2)})


@every_tree
def test_answers_come_during_a_run_and_two_at_once_from_two_places(
    tmp_path: Path, depth: int, width: int, world: World, elsewhere: Elsewhere
) -> None:
    """One more branch is at work for as long as they come; two give each at the same time."""
    begun, done = Event(), Event()

    def work() -> None:
        begun.set()
        assert done.wait(120)

    case = Case(tmp_path / "t.sqlite", (depth, width), world)
    case.askers = Askers(depth, width, work)
    case.session = Session(case.askers.agent, case.saver)
    elsewhere.do("open", str(case.database), depth, width, True)
    results: list[Any] = []
    running = Thread(target=lambda: results.append(world.send(case.session, "ask")))
    running.start()
    with SqliteCheckpointer(case.database) as saver:
        outside = Session(case.askers.agent, saver)
        while len(asked := outside.inbox()) < width:
            assert running.is_alive()
        # Were it still to begin, an answer would be delivered before it, and each tool that waits
        # for another would run once more up to its question.
        assert begun.wait(120)
        taken = {each.value: at_once(outside, elsewhere, each.id) for each in asked}
        assert outside.inbox() == []
        assert elsewhere.do("answer", {asked[0].id: "no"}) == {"error": "QuestionClosed"}
    done.set()
    running.join(120)

    [result] = results
    assert result.finished
    said = set(result.text.split(" | "))
    assert said == {*case.askers.said(taken), "worked"}
    assert heard(case.session) == {question: [given] for question, given in taken.items()}
    assert dict(case.askers.begun) == dict.fromkeys(taken, 2)
    assert case.askers.model.repeated_calls == []
    case.saver.close()


@some_trees
def test_two_answers_at_once_to_a_thread_that_rests_are_one_answer(
    case: Case, elsewhere: Elsewhere
) -> None:
    ids = case.ask()
    elsewhere.do("open", str(case.database), case.depth, case.width, False)
    question = ids["q1"]

    elsewhere.tell("answer", {question: "there"})
    taken = []
    with contextlib.suppress(QuestionClosed):
        case.world.answer(case.session, {question: "here"})
        taken.append("here")
    taken += ["there"] if elsewhere.told() != {"error": "QuestionClosed"} else []

    [only] = taken
    assert heard(case.session)["q1"] == [only]
    assert [each.value for each in case.session.inbox()] == case.askers.questions[1:]


def at_once(outside: Session, elsewhere: Elsewhere, question: str) -> str:
    """Answer from two places at the same time, and return the answer that was taken."""
    elsewhere.tell("answer", {question: "there"})
    taken = []
    with contextlib.suppress(QuestionClosed):
        taken += ["here"] if outside.answer(question, "here").result().queued else []
    told = elsewhere.told()
    if told == {"error": "QuestionClosed"}:
        assert taken == ["here"]
    else:
        assert told["queued"]
        taken.append("there")
    [only] = taken
    return only
