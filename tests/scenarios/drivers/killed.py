"""Kills a process at each of its writes in turn, and lets another go on from the file.

``python -m tests.scenarios.drivers.killed FOLDER WORLD WHEN FIRST`` prints, as JSON, a report
for every second write of a whole run, from the FIRST: WHEN says whether the process dies
``before`` that write or ``after`` it. Each process is a fork of this one.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata

from echelons import Agent, Result, Session, SqliteCheckpointer
from echelons.errors import EchelonsError, NothingToResume
from echelons.testing import Call, ScriptedModel, delegate
from echelons.testing.crash import die, fork
from tests.scenarios.drivers.expedition import Log, atake, script, stored, take, tools
from tests.told_lines import without_told, without_user_answers

T = TypeVar("T")

SCRIPTS: Mapping[str, Sequence[Any]] = {
    "head": [
        [delegate("north", "find a pass"), Call("note", {"text": "set out"})],
        delegate("north", "and back"),
        "The expedition is over.",
    ],
    "north": [delegate("scout", "which pass?"), "North is done.", "North is back."],
    "scout": [
        [Call("ask", {"question": "Which pass?"}), Call("note", {"text": "scouted"})],
        "The scout knows.",
    ],
}
ANSWERS = {"head/north/scout": "the high one"}
TASK = ["send", "Find a way."]


class Mortal(SqliteCheckpointer):
    """A checkpointer whose process dies at one of its writes."""

    def __init__(self, path: Path, at: int, when: str) -> None:
        super().__init__(path)
        self._at = at
        self._when = when
        self._count = 0
        self._counting = threading.Lock()
        self._written = threading.Semaphore(0)
        self._has_few_left = False

    def await_writes(self, number: int) -> None:
        """Wait until so many more writes are made by other threads, which may have few left."""
        while self._written.acquire(blocking=False):
            pass
        for _ in range(number):
            assert self._has_few_left or self._written.acquire(timeout=300)

    def end_waiting(self) -> None:
        """Let nothing wait for writes any more."""
        self._has_few_left = True
        self._written.release(10)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        put = super().put
        return self._writing(lambda: put(config, checkpoint, metadata, new_versions))

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        put_writes = super().put_writes
        self._writing(lambda: put_writes(config, writes, task_id, task_path))

    def _writing(self, write: Callable[[], T]) -> T:
        with self._counting:
            self._count += 1
            last = self._count == self._at
            if last and self._when == "before":
                die()
            written = write()
            if last:
                die()
            self._written.release()
        return written


class SlowLog(Log):
    """A log whose first note takes as long as two writes of the branch beside it.

    So the process dies at one of them, whichever half of the writes is tried, while the tool that
    writes the note is under way.
    """

    def __init__(self, path: Path, saver: Mortal) -> None:
        super().__init__(path)
        self._saver = saver

    def write(self, line: str) -> None:
        super().write(line)
        if line == "model scout 0":
            self._saver.end_waiting()
        if line == "tool note set out":
            self._saver.await_writes(2)


def tree(log: Log) -> Agent:
    """Return a tree of three levels."""
    note, ask = tools(log)
    model = ScriptedModel({agent: script(agent, log, SCRIPTS) for agent in SCRIPTS})
    north = Agent("north", subordinates=[Agent("scout", tools=[note, ask])])
    return Agent("head", model=model, tools=[note], subordinates=[north])


def step(session: Session, world: str, what: Sequence[Any]) -> Result:
    """Take a step in a world."""
    return asyncio.run(atake(session, what)) if world == "async" else take(session, what)


def live(folder: Path, world: str, at: int, when: str) -> None:
    """Run the tree to its end, or to death."""
    saver = Mortal(folder / "trip.sqlite", at, when)
    session = Session(tree(SlowLog(folder / "log.txt", saver)), saver, thread="trip")
    step(session, world, TASK)
    step(session, world, ["answer", ANSWERS])


def go_on(folder: Path, world: str) -> dict[str, Any]:
    """Bring a run to its end, as a person would who knows nothing of what happened."""
    with Session(tree(Log(folder / "log.txt")), folder / "trip.sqlite", thread="trip") as session:
        found = {"lines": lines(folder), "stored": work_stored(session)}
        try:
            found["links"] = [
                str(each.state) for each in session.thread_store.verify(session.thread_id)
            ]
        except EchelonsError:  # it died before anything was stored
            found["links"] = []
        unknown: list[str] = []
        with suppress(NothingToResume):
            while True:
                step(session, world, next_step(session, folder, unknown))
        at_end = stored(session)
        # What a superior is told of differs with the tools that death has cut short.
        for path, messages in at_end["threads"].items():
            at_end["threads"][path] = [*map(without_user_answers, messages)]
        end = {"end": at_end, "all_lines": lines(folder), "unknown": unknown}
        return {**found, **end}


def next_step(session: Session, folder: Path, unknown: list[str]) -> Sequence[Any]:
    """Return what moves a thread: answers if it asks, its task if it has none yet."""
    if inbox := session.inbox():
        unknown += [each.value["tool"] for each in inbox if not isinstance(each.value, str)]
        return ["say", {each.id: said(each.value, folder) for each in inbox}]
    return ["resume"] if session.graph.get_state(session.config).values else TASK


def said(asked: Any, folder: Path) -> Any:
    """Return what a person answers who looks into the world before saying what happened."""
    if isinstance(asked, str):
        return "the high one"
    done = {"note": "noted: {text}", "ask": "{question} the high one"}[asked["tool"]]
    line = {"note": "tool note {text}", "ask": "tool ask {question} the high one"}[asked["tool"]]
    if line.format(**asked["arguments"]) not in lines(folder):
        return {"outcome": "run_again"}
    return {"outcome": "happened", "result": done.format(**asked["arguments"])}


def lines(folder: Path) -> list[str]:
    """Return what was done so far."""
    log = folder / "log.txt"
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def work_stored(session: Session) -> list[str]:
    """Return the lines of the work whose results are in the database."""
    saver = session.graph.checkpointer
    assert isinstance(saver, SqliteCheckpointer)
    rows = saver.conn.execute("SELECT key, data FROM events WHERE kind = 'message'").fetchall()
    found = []
    for key, data in rows:
        said = json.loads(data)
        if said["role"] == "ai":
            found.append("model {} {}".format(*key.rsplit("-", 1)))
        elif said["role"] == "tool" and said["content"].startswith("noted: "):
            found.append(f"tool note {said['content'].removeprefix('noted: ')}")
        elif said["role"] == "tool" and "?" in without_told(said["content"]):
            found.append(f"tool ask {said['content']}")
    return found


def main(place: str, world: str, when: str, first: str) -> None:
    """Report on each write, until a run comes to its end."""
    reports = []
    # What is imported and compiled here need not be in each process.
    tree(Log(Path(os.devnull))).compile(":memory:").invoke(
        {"messages": [("user", "x")]}, {"configurable": {"thread_id": "x"}}
    )
    for at in itertools.count(int(first), 2):
        folder = Path(place) / str(at)
        folder.mkdir()
        living = fork(partial(live, folder, world, at, when))
        if living.wait() != -signal.SIGKILL:
            living.result()
            break
        reports.append(fork(partial(go_on, folder, world)).result())
    print(json.dumps(reports))


if __name__ == "__main__":
    main(*sys.argv[1:])
