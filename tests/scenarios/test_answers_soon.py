"""An answer reaches its agent while the agents beside it are still at work.

Nothing here waits for time: a sibling stands in its first step until the test lets it go, and in
its second until the answer has been heard. So an answer that waits for the sibling's end is never
heard.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from echelons import Agent, Session, SqliteCheckpointer
from echelons.errors import QuestionClosed
from echelons.testing import Call, FakeClock, ScriptedModel, delegate
from tests.fork_server import ForkServer
from tests.proof import sample
from tests.scenarios.drivers.elsewhere import Elsewhere
from tests.scenarios.drivers.steppers import STEPS, Shape, Steppers

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

SECONDS = 120
"""How long anything waits at most: for ever, if the answer waited for the sibling's end."""
SHAPES: tuple[Shape, ...] = ("beside", "nested", "deep", "race")


class Stage:
    """A tree at work in a thread of its own, whose stepper takes its steps as the test lets it.

    Attributes:
        team: The tree.
        session: Its session.
        running: Its run.
        results: How the run ended.
        questions: The ids of the questions that its events have handed out, by question.
    """

    def __init__(
        self,
        saver: Any,
        world: World,
        shape: Shape,
        *,
        askers: int = 1,
        timeout: float | None = None,
        make: Callable[[Callable[[int], None], Callable[[str], None]], Any] | None = None,
    ) -> None:
        if make is None:
            self.team: Any = Steppers(shape, self.step, askers, self.note, timeout)
        else:
            self.team = make(self.step, self.note)
        self.session = Session(self.team.agent, saver)
        self.running: Any = None
        self.results: list[Any] = []
        self.questions: dict[str, str] = {}
        self._world = world
        self._asked = threading.Semaphore(0)
        self._begun = threading.Semaphore(0)
        self._permits = threading.Semaphore(0)
        self._heard: dict[str, threading.Event] = {
            each: threading.Event() for each in self.team.questions
        }
        self._thread = threading.Thread(target=self._run)

    def step(self, number: int) -> None:
        """Take a step of the stepper."""
        self._begun.release()
        assert self._permits.acquire(timeout=SECONDS), f"step {number} was never let go"

    def note(self, line: str) -> None:
        """Note what the tree does."""
        question, _, said = line.partition(" heard ")
        if said:
            self._heard[question].set()

    def start(self) -> None:
        """Let the run begin, until all have asked and the stepper is in its first step."""
        self._thread.start()
        for _ in self._heard:
            assert self._asked.acquire(timeout=SECONDS), "the question was not handed out"
        self.await_step()

    def await_step(self) -> None:
        """Wait until the stepper is in its next step."""
        assert self._begun.acquire(timeout=SECONDS)

    def let_go(self, steps: int = 1) -> None:
        """Let the stepper end its step, and so many more."""
        self._permits.release(steps)

    def await_heard(self, question: str) -> None:
        """Wait until the answer to a question is heard."""
        assert self._heard[question].wait(SECONDS), "the answer waits for the stepper's end"

    def end(self) -> Any:
        """Let all steps go, and return the result of the run."""
        self.let_go(100)
        self._thread.join(SECONDS)
        [result] = self.results
        return result

    def _run(self) -> None:
        async def arun() -> None:
            self.running = running = await self.session.asend("go")
            async for event in running:
                self._see(event)
            self.results.append(await running.result())

        if type(self._world).__name__ == "Async":
            asyncio.run(arun())
            return
        self.running = running = self.session.send("go")
        for event in running:
            self._see(event)
        self.results.append(running.result())

    def _see(self, event: Any) -> None:
        if event.kind == "question":
            self.questions[event.content] = event.data["id"]
            self._asked.release()


@pytest.fixture(scope="module")
def elsewhere(fork_server: ForkServer) -> Iterator[Elsewhere]:
    """Another process, which lives as long as these tests."""
    place = Elsewhere(fork_server)
    yield place
    place.end()


@pytest.mark.parametrize("shape", SHAPES)
def test_an_answer_is_heard_before_the_siblings_next_step_ends(
    tmp_path: Path, world: World, shape: Shape
) -> None:
    with SqliteCheckpointer(tmp_path / "t.sqlite") as saver:
        stage = Stage(saver, world, shape)
        stage.start()
        [question] = stage.session.inbox()
        assert question.id == stage.questions["q1"]
        assert question.path.parts[-1] == "asker-q1"

        assert stage.session.answer(question.id, "yes").result().queued
        assert stage.session.inbox() == []
        stage.let_go()
        stage.await_heard("q1")

        assert stage.end().text == "all is done"
        stage.team.check_end({"q1": "yes"})
        assert stage.team.done["ask q1"] == 2


@pytest.mark.parametrize("shape", SHAPES)
def test_an_answer_of_another_process_is_heard_before_the_siblings_next_step_ends(
    tmp_path: Path, world: World, shape: Shape, elsewhere: Elsewhere
) -> None:
    database = tmp_path / "t.sqlite"
    with SqliteCheckpointer(database) as saver:
        stage = Stage(saver, world, shape)
        stage.start()
        elsewhere.do("open", str(database), 1, 1, False)
        [identity] = elsewhere.do("inbox")

        assert elsewhere.do("answer", {identity: "yes"})["queued"]
        stage.let_go()
        stage.await_heard("q1")

        assert stage.end().text == "all is done"
        stage.team.check_end({"q1": "yes"})


@pytest.mark.filterwarnings("ignore::echelons.errors.ForeignSaverWarning")
@pytest.mark.parametrize("shape", ["nested"])
def test_an_answer_is_heard_soon_with_a_saver_that_is_not_ours(world: World, shape: Shape) -> None:
    stage = Stage(InMemorySaver(), world, shape)
    stage.start()

    assert stage.session.answer(stage.questions["q1"], "yes").result().queued
    stage.let_go()
    stage.await_heard("q1")

    assert stage.end().text == "all is done"
    stage.team.check_end({"q1": "yes"})


@pytest.mark.parametrize("shape", SHAPES)
def test_answers_that_come_one_after_the_other_are_each_heard_soon(
    tmp_path: Path, world: World, shape: Shape
) -> None:
    with SqliteCheckpointer(tmp_path / "t.sqlite") as saver:
        stage = Stage(saver, world, shape, askers=2)
        stage.start()
        order = [each.value for each in stage.session.inbox()]
        assert order == ["q1", "q2"]

        for question in ("q2", "q1"):
            stage.session.answer(stage.questions[question], f"yes to {question}").result()
            stage.let_go()
            stage.await_heard(question)
            if question == "q2":
                stage.await_step()

        assert stage.end().text == "all is done"
        stage.team.check_end({"q1": "yes to q1", "q2": "yes to q2"})
        with pytest.raises(QuestionClosed):
            stage.session.answer(stage.questions["q2"], "no")


def test_both_answers_that_wait_are_delivered_together(tmp_path: Path, world: World) -> None:
    with SqliteCheckpointer(tmp_path / "t.sqlite") as saver:
        stage = Stage(saver, world, "nested", askers=2)
        stage.start()

        for question in ("q1", "q2"):
            stage.session.answer(stage.questions[question], "yes").result()
        stage.let_go()
        stage.await_heard("q1")
        stage.await_heard("q2")

        stage.end()
        stage.team.check_end({"q1": "yes", "q2": "yes"})
        assert [stage.team.done[f"ask {each}"] for each in ("q1", "q2")] == [2, 2]


@pytest.mark.parametrize("seed", range(sample(3, 200)))
def test_answers_and_steps_in_any_order_come_to_the_same_end(
    tmp_path: Path, world: World, seed: int
) -> None:
    chance = Random(seed)
    shape = chance.choice(SHAPES)
    with SqliteCheckpointer(tmp_path / "t.sqlite") as saver:
        stage = Stage(saver, world, shape, askers=3)
        stage.start()
        answers = {question: f"yes to {question}" for question in stage.team.questions}
        # Not the last step: a run that ends before would leave the answers to another one.
        turns: list[str | None] = [*answers, *[None] * (STEPS - 1)]
        chance.shuffle(turns)

        for question in turns:
            if question is None:
                stage.let_go()
            else:
                given = {stage.questions[question]: answers[question]}
                assert stage.session.answer(given).result().queued

        assert stage.end().text == "all is done"
        stage.team.check_end(answers)
        assert stage.session.inbox() == []


def test_run_without_answers_holds_no_step(tmp_path: Path, world: World) -> None:
    with SqliteCheckpointer(tmp_path / "t.sqlite") as saver:
        stage = Stage(saver, world, "nested")
        stage.start()

        result = stage.end()

        assert [each.id for each in result.questions] == [stage.questions["q1"]]
        assert stage.team.done["ask q1"] == 1
        assert stage.team.model.repeated_calls == []


def test_agent_stopped_meanwhile_gets_no_answer_and_the_others_continue(
    tmp_path: Path, world: World
) -> None:
    with SqliteCheckpointer(tmp_path / "t.sqlite") as saver:
        stage = Stage(saver, world, "nested")
        stage.start()

        stage.session.answer(stage.questions["q1"], "yes").result()
        stage.session.stop("head/mid/asker-q1")
        stage.let_go()

        assert stage.end().finished
        stage.team.check_end({})


def test_a_pause_comes_before_an_answer_which_a_resume_delivers(
    tmp_path: Path, world: World
) -> None:
    with SqliteCheckpointer(tmp_path / "t.sqlite") as saver:
        stage = Stage(saver, world, "nested")
        stage.start()

        stage.session.answer(stage.questions["q1"], "yes").result()
        stage.session.pause("head/mid/stepper")
        stage.let_go()
        stage.await_heard("q1")
        result = stage.end()

        assert result.status == "paused"
        assert stage.team.done["step 2"] == 0
        assert world.resume(stage.session).text == "all is done"
        stage.team.check_end({"q1": "yes"})


def test_the_time_of_a_sibling_that_was_held_goes_on(
    tmp_path: Path, world: World, clock: FakeClock
) -> None:
    with SqliteCheckpointer(tmp_path / "t.sqlite") as saver:
        stage = Stage(saver, world, "beside", timeout=1000)
        stage.start()

        clock.advance(600)
        stage.session.answer(stage.questions["q1"], "yes").result()
        stage.let_go()
        stage.await_heard("q1")
        stage.await_step()
        clock.advance(600)

        assert stage.end().text == "all is done"
        assert stage.team.done["step 3"] == 0
        [late] = [each for each in stage.session.trace().walk() if each.agent == "stepper"]
        assert late.requests[0].reason == "timeout: 'stepper' has not answered within 1000 s"


def test_the_time_of_an_agent_in_which_a_person_has_answered_starts_again(
    tmp_path: Path, world: World, clock: FakeClock
) -> None:
    with SqliteCheckpointer(tmp_path / "t.sqlite") as saver:
        stage = Stage(saver, world, "nested", timeout=1000)
        stage.start()

        clock.advance(900)
        stage.session.answer(stage.questions["q1"], "yes").result()
        stage.let_go()
        stage.await_heard("q1")
        stage.await_step()
        clock.advance(600)

        assert stage.end().text == "all is done"
        stage.team.check_end({"q1": "yes"})
        [mid] = stage.session.trace().subordinates
        assert mid.status == "fulfilled"


class Walkers:
    """A foreign graph of three steps beside an agent that asks."""

    def __init__(self, step: Any, log: Any) -> None:
        self.questions = ["q1"]
        self._inner = Steppers("beside", step, log=log)
        builder = StateGraph(MessagesState)
        for number in (1, 2, 3):
            builder.add_node(f"step{number}", self._make(number))
        builder.add_edge(START, "step1")
        builder.add_edge("step1", "step2")
        builder.add_edge("step2", "step3")
        walker = builder.compile(name="walker")
        asker = Agent("asker-q1", tools=[self._inner.ask])
        self.model = ScriptedModel(
            {
                "head": [[delegate("asker-q1", "go"), delegate("walker", "go")], "all is done"],
                "asker-q1": [Call("ask", {"question": "q1"}), "asked"],
            }
        )
        self.agent = Agent("head", model=self.model, subordinates=[asker, walker])
        self.check_end = self._inner.check_end

    def _make(self, number: int) -> Any:
        def walk(state: MessagesState) -> Any:
            said = self._inner.step(number)
            return {"messages": [AIMessage(said)]}

        return walk


def test_the_steps_of_a_foreign_graph_are_held_too(tmp_path: Path, world: World) -> None:
    with SqliteCheckpointer(tmp_path / "t.sqlite") as saver:
        stage = Stage(saver, world, "beside", make=Walkers)
        stage.start()

        stage.session.answer(stage.questions["q1"], "yes").result()
        stage.let_go()
        stage.await_heard("q1")

        assert stage.end().text == "all is done"
        stage.team.check_end({"q1": "yes"})


def test_a_run_that_is_paused_as_an_answer_comes_ends_and_a_resume_delivers_it(
    tmp_path: Path, world: World
) -> None:
    with SqliteCheckpointer(tmp_path / "t.sqlite") as saver:
        stage = Stage(saver, world, "nested")
        stage.start()

        stage.session.answer(stage.questions["q1"], "yes").result()
        stage.running.pause()
        result = stage.end()

        assert result.status == "paused"
        assert (stage.team.done["q1 heard yes"], stage.team.done["step 2"]) == (0, 0)
        assert stage.session.inbox() == []
        assert world.resume(stage.session).text == "all is done"
        stage.team.check_end({"q1": "yes"})


class Consultants:
    """An agent whose tool runs a tree of its own, which works in steps, beside one that asks."""

    def __init__(self, step: Callable[[int], None], log: Callable[[str], None]) -> None:
        self.questions = ["q1"]
        inner = Steppers("beside", step, askers=0, log=log)
        outer = Steppers("beside", step, log=log)
        self.consulted = 0

        def consult() -> str:
            """Ask a tree of its own."""
            self.consulted += 1
            given: Any = {"messages": [("user", "go")]}
            return str(inner.agent.compile().invoke(given)["messages"][-1].text)

        self.model = ScriptedModel(
            {
                "head": [[delegate("asker-q1", "go"), delegate("consultant", "go")], "all is done"],
                "asker-q1": [Call("ask", {"question": "q1"}), "asked"],
                "consultant": [Call("consult"), "consulted"],
            }
        )
        below = [Agent("asker-q1", tools=[outer.ask]), Agent("consultant", tools=[consult])]
        self.agent = Agent("head", model=self.model, subordinates=below)
        self.done, self.inner = outer.done, inner


def test_a_tree_that_a_tool_runs_is_not_held_for_the_tool_would_begin_again(
    tmp_path: Path, world: World
) -> None:
    with SqliteCheckpointer(tmp_path / "t.sqlite") as saver:
        stage = Stage(saver, world, "beside", make=Consultants)
        stage.start()

        stage.session.answer(stage.questions["q1"], "yes").result()

        assert stage.end().text == "all is done"
        assert stage.team.consulted == 1
        assert stage.team.done["q1 heard yes"] == 1
        stage.team.inner.check_end({})
        assert stage.team.inner.model.repeated_calls == []


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_answer_survives_the_death_of_a_run_that_was_about_to_deliver_it(
    tmp_path: Path, kind: str, fork_server: ForkServer
) -> None:
    driver = "tests.scenarios.drivers.steppers"
    reports = fork_server.load(driver, str(tmp_path), kind, str(sample(3, 100)))

    assert len(reports) >= sample(3, 40)
    for report in reports:
        done = [line for line in report["lines"] if not line.startswith("ask ")]
        assert report["text"] == "all is done"
        assert sorted(done) == ["q1 heard yes", "step 1", "step 2", "step 3"]
        assert "q1" not in report["asked"]
