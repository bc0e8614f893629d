"""kill -9 at every write: what is promised, and that a person who goes on loses nothing.

Promised is that work whose result is stored is never done again, and that what a tool has done
is not done again before a human has said so. A model call that was under way, its reply not
stored yet, is made again; so there is at most one such call for each branch that was at work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.types import interrupt

from echelons import Agent, Session, SqliteCheckpointer
from echelons.errors import QuestionClosed
from echelons.testing import Call, ScriptedModel, delegate
from tests.failure_ids import without_ids
from tests.fork_server import ForkServer

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

BRANCHES = 2
"""Tasks that the tree has under way at most."""

Report = dict[str, Any]


@pytest.fixture(
    scope="module",
    params=[("sync", "after", "1"), ("async", "before", "2")],
    ids=["sync after each", "async before each"],
)
def deaths(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    fork_server: ForkServer,
) -> list[Report]:
    """A report for every second write of a run at which its process was killed."""
    world, when, first = request.param
    place = str(tmp_path_factory.mktemp("deaths"))
    driver = "tests.scenarios.drivers.killed"
    reports = fork_server.load(driver, place, world, when, first)
    assert len(reports) > 20
    return list(reports)


def test_every_killed_run_comes_to_the_same_end(deaths: list[Report]) -> None:
    ends = [report["end"] for report in deaths]

    assert all(end == ends[0] for end in ends)
    assert ends[0]["threads"]["head"][-1]["content"] == "The expedition is over."
    assert set(ends[0]["links"].values()) == {"ok"}


def test_nothing_whose_result_was_stored_is_done_again(deaths: list[Report]) -> None:
    for report in deaths:
        times: Counter[str] = Counter(report["all_lines"])
        assert [times[line] for line in report["stored"]] == [1] * len(report["stored"])


def test_only_what_was_under_way_is_done_again_and_once(deaths: list[Report]) -> None:
    for report in deaths:
        again: Counter[str] = Counter(report["all_lines"]) - Counter(set(report["all_lines"]))
        under_way = set(report["lines"]) - set(report["stored"])
        assert set(again) <= under_way
        assert set(again.values()) <= {1}
        assert len(again) <= BRANCHES


def test_no_tool_that_has_done_its_work_is_run_again(deaths: list[Report]) -> None:
    for report in deaths:
        times: Counter[str] = Counter(report["all_lines"])
        assert [line for line in times if line.startswith("tool") and times[line] > 1] == []


def test_a_human_is_asked_about_tools_that_were_under_way_and_about_nothing_else(
    deaths: list[Report],
) -> None:
    asked = [report["unknown"] for report in deaths]

    assert any(asked)
    assert any("note" in each for each in asked)
    for report in deaths:
        assert len(report["unknown"]) <= BRANCHES


def test_a_call_that_was_stored_and_not_begun_reads_as_not_started(deaths: list[Report]) -> None:
    found = [report["links"] for report in deaths]

    assert ["not_started"] in found
    assert ["ok", "not_started"] in found
    assert all(state != "broken" for links in found for state in links)


def test_no_thread_is_ever_lost_from_sight(deaths: list[Report]) -> None:
    seen = [len(report["links"]) for report in deaths]

    assert seen == sorted(seen)


class Died(BaseException):
    """Stands for a process that ends where it is raised."""


def chain(leaf: Any) -> Agent:
    """Return a tree of three levels with a scripted leaf named ``scout``."""
    model = ScriptedModel(
        {
            "head": [delegate("north", "go"), "done"],
            "north": [delegate("scout", "go"), "done"],
            "scout": [Call("ask"), "asked"],
        }
    )
    return Agent("head", model=model, subordinates=[Agent("north", subordinates=[leaf])])


def test_an_answer_survives_the_death_of_its_run_and_never_answers_the_next(
    world: World, saver: SqliteCheckpointer
) -> None:
    deaths = [Died()]

    def ask() -> str:
        """Ask the human twice."""
        first = interrupt("Go?")
        while deaths:
            raise deaths.pop()
        return f"{first} {interrupt('Really?')}"

    session = Session(chain(Agent("scout", tools=[ask])), saver)
    [question] = world.send(session, "go").questions
    with pytest.raises(Died):
        world.answer(session, {question.id: "yes"})

    assert session.inbox() == []
    with pytest.raises(QuestionClosed):
        world.answer(session, {question.id: "no"})
    [unknown] = world.resume(session).questions
    assert unknown.value["kind"] == "outcome_unknown"
    [second] = world.answer(session, {unknown.id: "run_again"}).questions

    assert second.value == "Really?"
    with pytest.raises(QuestionClosed):
        world.answer(session, {question.id: "yes"})
    assert world.answer(session, {second.id: "no"}).text == "done"
    [scout] = [each for each in session.trace().walk() if each.agent == "scout"]
    assert [each.text for each in session.thread_store.get(scout.thread_id).messages][2] == "yes no"


class DyingAtAnAnswer(SqliteCheckpointer):
    """A checkpointer whose process dies when a subordinate's answer is to be stored."""

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        if any(channel == "heads" for channel, _ in writes) and "unable" in str(writes):
            raise Died
        super().put_writes(config, writes, task_id, task_path)


def test_a_stored_answer_is_not_asked_for_again(world: World, tmp_path: Path) -> None:
    def scout(task: str) -> str:
        raise ValueError(interrupt("Go?"))

    database = tmp_path / "trip.sqlite"
    with DyingAtAnAnswer(database) as saver:
        dying = Session(chain(scout), saver)
        [question] = world.send(dying, "go").questions
        with pytest.raises(Died):
            world.answer(dying, {question.id: "not today"})

    with Session(chain(scout), database) as session:
        assert session.inbox() == []
        with pytest.raises(QuestionClosed):
            world.answer(session, {question.id: "another"})
        world.resume(session)
        [answer] = [each for each in session.trace().walk() if each.agent == "scout"]

    assert without_ids(answer.requests[-1].reason) == "ValueError: not today"
