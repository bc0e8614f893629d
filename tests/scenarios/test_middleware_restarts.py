"""Middleware over the death of its process: what it asked, decided and ran is not done again."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from echelons import SqliteCheckpointer, ThreadStore
from tests.fork_server import ForkServer
from tests.proof import sample
from tests.scenarios.drivers.forks import Ended, Forks
from tests.scenarios.drivers.stock import CASES, TASK, build_logged_model, build_logged_tools

Step = Callable[..., Ended]


@pytest.fixture(scope="module")
def forks(fork_server: ForkServer) -> Iterator[Forks]:
    """Runs steps, each in a process of its own."""
    forks = Forks(fork_server, "tests.scenarios.drivers.wrapped")
    yield forks
    forks.end()


@pytest.fixture(params=["sync", "async"])
def go(request: pytest.FixtureRequest, forks: Forks, tmp_path: Path) -> Step:
    """Takes a step of a tree with some middleware in a new process."""

    def step(middleware: str, action: str, given: Any = None) -> Ended:
        paths = (str(tmp_path / "runs.sqlite"), str(tmp_path / "log.txt"))
        return forks.run(*paths, middleware, str(request.param), json.dumps([action, given]))

    return step


def read_log(folder: Path, name: str = "log.txt") -> list[str]:
    log = folder / name
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


@pytest.fixture(scope="module")
def stock_forks(fork_server: ForkServer) -> Iterator[Forks]:
    """Runs steps of trees with stock middleware, each in a process of its own."""
    forks = Forks(fork_server, "tests.scenarios.drivers.stock")
    yield forks
    forks.end()


MODES = ("sync", "async")
STOCK = [
    (case, mode) for place, case in enumerate(CASES) for mode in sample((MODES[place % 2],), MODES)
]
"""Each in one of the two worlds; the proof has both."""


@pytest.mark.parametrize(("case", "mode"), STOCK)
def test_a_stock_middleware_goes_on_in_another_process_as_in_create_agent(
    stock_forks: Forks, tmp_path: Path, case: str, mode: str
) -> None:
    theirs, ours = tmp_path / "theirs.txt", tmp_path / "ours.txt"
    graph: Any = create_agent(
        build_logged_model(theirs, case),
        build_logged_tools(theirs, case),
        middleware=[CASES[case].build()],
        checkpointer=InMemorySaver(),
    )
    config: Any = {"configurable": {"thread_id": "t"}}
    graph.invoke({"messages": [("user", TASK)]}, config)
    expected = graph.invoke(Command(resume="noon"), config)["messages"][-1]

    def go(action: str, given: Any) -> Any:
        paths = (str(tmp_path / "runs.sqlite"), str(ours))
        return stock_forks.run(*paths, case, mode, json.dumps([action, given])).returned

    asked = go("send", "go")
    [question] = asked["questions"]
    done = go("answer", {question: "noon"})

    assert read_log(tmp_path, ours.name) == read_log(tmp_path, theirs.name)
    assert done["text"] == str(expected.text)


@pytest.mark.parametrize("middleware", ["review", "review of each"])
@pytest.mark.parametrize(
    ("decision", "log"),
    [
        ({"type": "approve"}, ["paid 3"]),
        ({"type": "reject"}, []),
        ({"type": "edit", "edited_action": {"name": "pay", "args": {"amount": 5}}}, ["paid 5"]),
    ],
)
def test_what_a_human_decides_in_another_process_is_done_once(
    go: Step, tmp_path: Path, middleware: str, decision: Any, log: list[str]
) -> None:
    asked = go(middleware, "send", "go")
    [question] = asked.returned["questions"]
    assert read_log(tmp_path) == []
    done = go(middleware, "answer", {question: decision})
    assert done.returned == {"questions": {}, "text": "end"}
    assert read_log(tmp_path) == log


def test_a_retry_that_is_killed_between_two_runs_decides_as_before(
    go: Step, tmp_path: Path
) -> None:
    assert go("retry, killed between", "send", "go").code == -signal.SIGKILL
    assert read_log(tmp_path) == ["paid 3"]
    done = go("retry, killed between", "resume")
    assert done.returned == {"questions": {}, "text": "end"}
    # The first run was not repeated: its exception was, and led to the second.
    assert read_log(tmp_path) == ["paid 3"] * 2


def test_a_run_of_a_retry_that_is_killed_is_not_repeated_before_a_human_says_so(
    go: Step, tmp_path: Path
) -> None:
    killed = "retry, killed in the tool"
    assert go(killed, "send", "go").code == -signal.SIGKILL
    asked = go(killed, "resume")
    [question] = asked.returned["questions"]
    assert read_log(tmp_path) == ["paid 3"] * 2
    done = go(killed, "answer", {question: {"outcome": "happened", "result": "paid 3"}})
    assert done.returned == {"questions": {}, "text": "end"}
    assert read_log(tmp_path) == ["paid 3"] * 2


def test_a_second_attempt_that_is_killed_repeats_nothing_of_the_first(
    go: Step, tmp_path: Path
) -> None:
    killed = "verify, killed in the tool"
    assert go(killed, "send", "go").code == -signal.SIGKILL
    assert read_log(tmp_path) == ["paid 3"] * 2
    asked = go(killed, "resume")
    [question] = asked.returned["questions"]
    done = go(killed, "answer", {question: {"outcome": "happened", "result": "paid 3"}})
    assert done.returned == {"questions": {}, "text": "end"}
    assert read_log(tmp_path) == ["paid 3"] * 2


def test_a_reviewer_that_is_killed_reviews_the_answer_that_there_is(
    go: Step, tmp_path: Path
) -> None:
    killed = "reviewed, killed in the reviewer"
    assert go(killed, "send", "go").code == -signal.SIGKILL
    assert read_log(tmp_path) == ["paid 3"]
    done = go(killed, "resume")
    assert done.returned == {"questions": {}, "text": "end"}
    assert read_log(tmp_path) == ["paid 3"] * 2
    with SqliteCheckpointer(tmp_path / "runs.sqlite") as saver:
        store = ThreadStore(saver)
        [root] = store.roots()
        assert all(link.holds for link in store.verify(root.id))
        agents = [each.agent for each in store.trace(root.id).walk()]
    assert agents == ["boss", "head", "mid", "reviewer"]


def test_a_plan_that_is_reported_to_a_superior_that_is_killed_is_not_written_again(
    go: Step, tmp_path: Path
) -> None:
    planned = "planned, killed in the superior"
    assert go(planned, "send", "go").code == -signal.SIGKILL
    assert read_log(tmp_path) == ["plans"]
    done = go(planned, "resume")
    assert done.returned == {"questions": {}, "text": "end"}
    # Rejected once, then accepted, and only then is the tool run.
    assert read_log(tmp_path) == ["plans", "plans", "paid 3"]
