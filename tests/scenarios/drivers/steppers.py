"""Trees in which an agent asks a human beside others that work in steps, with a record of them.

The driver kills a process at each statement between an answer that is left to its run and the
tool that hears it, and lets another go on from the file: ``main(FOLDER, WORLD, NUMBER)`` prints a
report for about NUMBER of these statements. Each process is a fork of this one.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any, Literal

from langchain_core.messages import BaseMessage, ToolMessage
from langgraph.types import interrupt

from echelons import Agent, DelegationPolicy, Session
from echelons.errors import NothingToResume
from echelons.testing import Call, ScriptedModel, delegate, delegate_many
from echelons.testing.crash import Watch, die, fork, watched

Shape = Literal["beside", "nested", "deep", "race"]
STEPS = 3


class Steppers:
    """A tree with one agent that asks, or several, and one that works in steps beside them.

    Args:
        shape: Where they are: below the root (``beside``), below one of its subordinates, in the
            same step there (``nested``) or in a race of which all are needed (``race``), or in
            branches of their own (``deep``).
        step: What each step does, given its number from 1.
        askers: How many ask.
        log: Takes a line for each thing done.
        timeout: Seconds for each subordinate of the root; `None` for the default.
    """

    def __init__(
        self,
        shape: Shape,
        step: Callable[[int], None],
        askers: int = 1,
        log: Callable[[str], None] = lambda line: None,
        timeout: float | None = None,
    ) -> None:
        self.done: Counter[str] = Counter()
        self._lock = Lock()
        self._step = step
        self._log = log
        self.questions = [f"q{place}" for place in range(1, askers + 1)]
        scripts: dict[str, Any] = {
            f"asker-{each}": [Call("ask", {"question": each}), f"{each} is asked"]
            for each in self.questions
        }
        scripts["stepper"] = self._say_next
        below = [Agent(f"asker-{each}", tools=[self.ask]) for each in self.questions]
        below.append(Agent("stepper", tools=[self.step]))
        if shape in ("nested", "race"):
            calls = [delegate(each.name, "go") for each in below]
            race = delegate_many(*calls, join="quorum", n=len(calls))
            scripts["mid"] = [calls if shape == "nested" else race, "mid is done"]
            patient = DelegationPolicy(timeout=timeout * 10) if timeout else None
            below = [Agent("mid", subordinates=below, delegation=patient)]
        elif shape == "deep":
            lower = below
            below = [Agent(f"over-{each.name}", subordinates=[each]) for each in lower]
            for above, each in zip(below, lower, strict=True):
                scripts[above.name] = [delegate(each.name, "go"), f"{above.name} is done"]
        scripts["head"] = [[delegate(each.name, "go") for each in below], "all is done"]
        self.model = ScriptedModel(scripts)
        policy = DelegationPolicy(timeout=timeout) if timeout else None
        self.agent = Agent("head", model=self.model, subordinates=below, delegation=policy)

    def ask(self, question: str) -> str:
        """Ask a human.

        Args:
            question: What to ask.
        """
        self._note(f"ask {question}")
        answer = interrupt(question)
        self._note(f"{question} heard {answer}")
        return f"{question} heard {answer}"

    def step(self, number: int) -> str:
        """Take a step.

        Args:
            number: Which.
        """
        self._note(f"step {number}")
        self._step(number)
        return f"stepped {number}"

    def check_end(self, answers: dict[str, str]) -> None:
        """Check that each was heard once, and that nothing was done twice."""
        steps = {f"step {number + 1}": 1 for number in range(STEPS)}
        heard = {f"{question} heard {said}": 1 for question, said in answers.items()}
        once = {line: times for line, times in self.done.items() if not line.startswith("ask ")}
        assert once == {**steps, **heard}
        assert self.model.repeated_calls == []

    def _note(self, line: str) -> None:
        with self._lock:
            self.done[line] += 1
        self._log(line)

    def _say_next(self, messages: Sequence[BaseMessage]) -> Any:
        taken = sum(isinstance(each, ToolMessage) for each in messages)
        return Call("step", {"number": taken + 1}) if taken < STEPS else "it is there"


class _Window(Watch):
    """Counts the statements after an answer was left, and kills the process after one of them."""

    def __init__(self, at: int) -> None:
        self.heard_at = 0
        self._at = at
        self._count: Iterator[int] | None = None
        self._last = 0

    def open(self) -> None:
        """Begin to count."""
        self._count = count(1)

    def after(self, connection: sqlite3.Connection, statement: str) -> None:
        if self._count is not None:
            self._last = next(self._count)
            if self._last == self._at:
                die()

    def log(self, line: str) -> None:
        """Note when the answer is heard."""
        if line.startswith("q1 heard"):
            self.heard_at = self._last


def live(folder: Path, world: str, at: int) -> int:
    """Run the tree, to death if `at` is not 0; return after how many statements it has heard."""
    window = _Window(at)
    with watched(window):
        _run(folder, world, window)
    return window.heard_at


def _run(folder: Path, world: str, window: _Window) -> None:
    def log(line: str) -> None:
        window.log(line)
        _write(folder, line)

    team = Steppers("nested", lambda number: None, log=log)
    session = Session(team.agent, folder / "t.sqlite")

    async def arun() -> None:
        async for event in await session.asend("go"):
            if event.kind == "question":
                assert (await (await session.aanswer(event.data["id"], "yes")).result()).queued
                window.open()

    if world == "async":
        asyncio.run(arun())
        return
    for event in session.send("go"):
        if event.kind == "question":
            assert session.answer(event.data["id"], "yes").result().queued
            window.open()


def go_on(folder: Path) -> dict[str, Any]:
    """Bring a run to its end; whoever is asked a second time says ``again``."""
    team = Steppers("nested", lambda number: None, log=partial(_write, folder))
    asked: list[Any] = []
    with Session(team.agent, folder / "t.sqlite") as session:
        with suppress(NothingToResume):
            while True:
                answers: dict[str, Any] = {}
                for each in session.inbox():
                    asked.append(each.value)
                    is_ours = isinstance(each.value, str)
                    answers[each.id] = "again" if is_ours else _judge(folder, each.value)
                (session.answer(answers) if answers else session.resume()).result()
        last = session.thread_store.get(session.thread_id).messages[-1]
    return {"text": str(last.text), "lines": _read(folder), "asked": asked}


def _judge(folder: Path, asked: dict[str, Any]) -> dict[str, str]:
    """Return the outcome of a call that was cut short, as the log has it."""
    arguments = asked["arguments"]
    done = {
        "ask": f"{arguments.get('question')} heard yes",
        "step": f"step {arguments.get('number')}",
    }[asked["tool"]]
    if done in _read(folder):
        return {"outcome": "happened", "result": done}
    return {"outcome": "run_again"}


def _write(folder: Path, line: str) -> None:
    with (folder / "log.txt").open("a", encoding="utf-8") as log:
        log.write(line + "\n")


def _read(folder: Path) -> list[str]:
    return (folder / "log.txt").read_text(encoding="utf-8").splitlines()


def main(place: str, world: str, number: str) -> None:
    """Report on some statements of the window."""
    whole = Path(place) / "whole"
    whole.mkdir()
    last = fork(partial(live, whole, world, 0)).result()
    reports = []
    for at in range(1, last + 1, max(1, last // int(number))):
        folder = Path(place) / str(at)
        folder.mkdir()
        # A run whose agents take turns in another way may hear the answer before.
        if fork(partial(live, folder, world, at)).wait() == -signal.SIGKILL:
            reports.append(fork(partial(go_on, folder)).result())
    print(json.dumps(reports))


if __name__ == "__main__":
    main(*sys.argv[1:])
