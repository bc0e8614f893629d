"""Two processes answer, redirect and approve at the same moment: each thing is done once."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage

from echelons import Agent, Session
from echelons.testing import Call, ScriptedModel, delegate
from tests.fork_server import ForkServer
from tests.proof import sample
from tests.scenarios.drivers.elsewhere import Elsewhere
from tests.scenarios.drivers.office import CLERK, GUIDE, build_office

REFUSED = ("QuestionClosed", "NoQuestionPending", "ThreadBusy")
"""The errors of who comes second."""
ACTIONS: dict[str, tuple[list[Any], list[Any]]] = {
    "both answer": (["answer", GUIDE, "left"], ["answer", GUIDE, "right"]),
    "both decide": (["answer", CLERK, "approve"], ["answer", CLERK, "reject"]),
    "both redirect": (["steer", GUIDE, "one"], ["steer", GUIDE, "two"]),
    "one answers, one decides": (["answer", GUIDE, "left"], ["answer", CLERK, "approve"]),
    "one redirects, one answers": (["steer", GUIDE, "one"], ["answer", GUIDE, "left"]),
    "one redirects, one decides": (["steer", CLERK, "one"], ["answer", CLERK, "approve"]),
}
"""What each process does."""


@pytest.fixture(scope="module")
def pair(fork_server: ForkServer) -> Iterator[list[Elsewhere]]:
    """Two processes, which live as long as these tests."""
    both = [Elsewhere(fork_server) for _ in range(2)]
    yield both
    for each in both:
        each.end()


@pytest.mark.parametrize("round_", range(sample(1, 25)))
@pytest.mark.parametrize("way", ACTIONS)
def test_nothing_is_lost_shown_twice_or_done_twice(
    pair: list[Elsewhere], tmp_path: Path, way: str, round_: int
) -> None:
    database, log = tmp_path / "t.sqlite", tmp_path / "log.txt"
    with Session(build_office(log), database) as session:
        questions = session.send("go", turn_id="1").result().questions
        asked = {str(each.path): each.id for each in questions}
        assert set(asked) == {CLERK, GUIDE}
        for each in pair:
            each.do("visit", str(database), str(log))
        actions = ACTIONS[way][:: 1 if round_ % 2 else -1]
        for process, (method, path, what) in zip(pair, actions, strict=True):
            given = [{asked[path]: what}] if method == "answer" else [path, what]
            process.tell(method, *given)
        ended = [each.told() for each in pair]

        done = [
            action
            for action, end in zip(actions, ended, strict=True)
            if not (end and end.get("error") in REFUSED)
        ]
        assert not any(end and "error" in end and end["error"] not in REFUSED for end in ended)
        taken = {path: what for method, path, what in done if method == "answer"}
        answered = [path for method, path, _ in done if method == "answer"]
        assert len(answered) == len(set(answered)), "one question was answered twice"
        assert set(taken) == {path for method, path, _ in actions if method == "answer"}
        for path, left in (GUIDE, "back"), (CLERK, "approve"):
            if path not in taken:
                taken[path] = left
                session.answer(asked[path], left).result()

        assert session.inbox() == []
        assert session.send("go", turn_id="1").result().text == "over"
        steered = sorted((path, what) for method, path, what in actions if method == "steer")
        traces = {each.agent: each for each in session.trace().walk()}
        told = [(f"head/{name}", mail.text) for name in traces for mail in traces[name].mail]
        assert sorted(told) == steered
        messages = session.thread_store.get(traces["guide"].thread_id).messages
        assert [each.text for each in messages if isinstance(each, ToolMessage)] == [taken[GUIDE]]
        mails = log.read_text().splitlines() if log.exists() else []
        assert len(mails) == (taken[CLERK] == "approve")


def test_of_two_processes_one_dismisses_an_agent(pair: list[Elsewhere], tmp_path: Path) -> None:
    database, log = tmp_path / "t.sqlite", tmp_path / "log.txt"
    with Session(build_office(log), database) as session:
        questions = session.send("go").result().questions
        asked = {str(each.path): each.id for each in questions}
        for each in pair:
            each.do("visit", str(database), str(log))
        for each in pair:
            each.tell("dismiss", GUIDE)
        assert sorted(each.told() for each in pair) == [False, True]

        assert pair[0].do("answer", {asked[GUIDE]: "left"})["error"] == "AgentDismissed"
        assert [each.id for each in session.inbox()] == [asked[CLERK]]
        pair[1].do("answer", {asked[CLERK]: "approve"})

        assert session.registry().get(GUIDE).state == "dismissed"
        statuses = {each.agent: str(each.status) for each in session.trace().walk()}
        assert statuses["guide"] == "unable"
        assert log.read_text().splitlines()


def test_what_another_process_dismisses_is_cancelled_within_a_fifth_of_a_second(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    def dismiss(database: Path) -> float:
        given = ("head/mid", "--yes", "--json", "--db", str(database))
        said = json.loads(fork_server.run("-m", "echelons", "dismiss", *given).stdout)
        return datetime.fromisoformat(said["at"]).timestamp()

    async def measure(database: Path) -> float:
        begun, ended = asyncio.Event(), list[float]()

        async def wait() -> str:
            """Wait for ever."""
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(time.time())
            return ""

        model = ScriptedModel(
            {
                "head": [delegate("mid", "x"), "over"],
                "mid": [delegate("low", "y")],
                "low": [Call("wait")],
            }
        )
        mid = Agent("mid", subordinates=[Agent("low", tools=[wait])])
        async with Session(Agent("head", model=model, subordinates=[mid]), database) as session:
            run = await session.asend("go")
            turn = asyncio.create_task(run.result())
            await begun.wait()
            dismissed = await asyncio.to_thread(dismiss, database)
            assert (await turn).text == "over"
            return ended[0] - dismissed

    # A machine under load may delay one of them, but hardly all.
    delays = [asyncio.run(measure(tmp_path / f"{trial}.sqlite")) for trial in range(3)]
    assert min(delays) < 0.2
