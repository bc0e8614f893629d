"""`stop` and then `send` gives a usable thread, whatever the turn has failed with."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage
from langgraph.types import interrupt

from echelons import Agent, Session, SqliteCheckpointer
from echelons.errors import ControlError, StorageError, UnfinishedTurn
from echelons.memory import Memory
from echelons.testing import Call, ScriptedModel, delegate
from echelons.testing.crash import die, fork

if TYPE_CHECKING:
    from tests.scenarios.conftest import World


class Switch:
    """What fails until it is mended."""

    def __init__(self) -> None:
        self.is_broken = True

    def check(self) -> None:
        if self.is_broken:
            raise KeyError("broken")


def build_middleware(name: str, switch: Switch) -> AgentMiddleware[Any, Any]:
    """Return a middleware of which one method fails, in both worlds."""

    def hook(self: Any, state: Any, runtime: Any) -> None:
        switch.check()

    async def ahook(self: Any, state: Any, runtime: Any) -> None:
        switch.check()

    def wrap(self: Any, request: Any, handler: Any) -> Any:
        switch.check()
        return handler(request)

    async def awrap(self: Any, request: Any, handler: Any) -> Any:
        switch.check()
        return await handler(request)

    methods = (wrap, awrap) if name.startswith("wrap") else (hook, ahook)
    kind: Any = type("Failing", (AgentMiddleware,), {name: methods[0], f"a{name}": methods[1]})
    middleware: AgentMiddleware[Any, Any] = kind()
    return middleware


def look() -> str:
    """Look."""
    return "seen"


HOOKS = (
    "before_agent",
    "before_model",
    "after_model",
    "after_agent",
    "wrap_model_call",
    "wrap_tool_call",
)


def build_agent(kind: str, switch: Switch) -> Agent:
    """Return an agent of which something fails."""

    def answer(messages: Any) -> Any:
        if kind == "model":
            switch.check()
        return Call("look") if messages[-1].type == "human" else "done"

    def write_prompt(state: Any) -> str:
        if kind == "prompt":
            switch.check()
        return "x" * (9000 if kind == "memory" and switch.is_broken else 1)

    def choose_model(state: Any, runtime: Any) -> Any:
        switch.check()
        return model

    model = ScriptedModel({"*": answer})
    more: dict[str, Any] = {"model": choose_model if kind == "function" else model}
    if kind in HOOKS:
        more["middleware"] = [build_middleware(kind, switch)]
    if kind == "memory":
        more["memory"] = Memory(budget=600, summarizer="extractive")
    return Agent("head", prompt=write_prompt, tools=[look], **more)


@pytest.mark.parametrize("resumes", [True, False])
@pytest.mark.parametrize("kind", ["model", "prompt", "function", "memory", *HOOKS])
def test_a_failed_turn_is_stopped_and_the_next_one_answers(
    world: World, kind: str, resumes: bool, tmp_path: Path
) -> None:
    switch = Switch()
    with Session(build_agent(kind, switch), tmp_path / "s.sqlite") as session:
        with pytest.raises(Exception, match=r"broken|tokens"):
            world.send(session, "go")
        with pytest.raises(UnfinishedTurn):
            world.send(session, "again")
        world.do(session, "stop")
        if resumes:
            assert world.resume(session).status == "stopped"
        switch.is_broken = False
        assert world.send(session, "again").text == "done"
        # The calls of the ended turn have answers.
        messages = session.thread_store.get(session.thread_id).messages
        asked = [call["id"] for each in messages for call in getattr(each, "tool_calls", ())]
        assert asked == [each.tool_call_id for each in messages if each.type == "tool"]  # type: ignore[attr-defined]


def ask_person() -> str:
    """Ask a person."""
    return str(interrupt("Sure?"))


@pytest.mark.parametrize("levels", [1, 3])
def test_an_open_question_of_a_stopped_turn_is_withdrawn_by_the_next_task(
    world: World, levels: int
) -> None:
    def answer(messages: Any) -> Any:
        return Call("ask_person") if str(messages[-1].text).endswith("go") else "done"

    def pass_on(below: str) -> Any:
        def reply(messages: Any) -> Any:
            return delegate(below, "go") if str(messages[-1].text).endswith("go") else "done"

        return reply

    model = ScriptedModel({"leaf": answer, "mid": pass_on("leaf"), "head": pass_on("mid")})
    agent = Agent("leaf", model=model, tools=[ask_person])
    for name in ("mid", "head")[: levels - 1]:
        agent = Agent(name, model=model, subordinates=[agent])
    with Session(agent, ":memory:") as session:
        assert world.send(session, "go").questions
        world.do(session, "stop")
        assert world.send(session, "again").text == "done"
        assert not session.inbox()


def test_a_stopped_turn_of_a_changed_tree_is_ended(world: World, tmp_path: Path) -> None:
    model = ScriptedModel({"*": [Call("ask_person"), "done"]})
    with Session(Agent("head", model=model, tools=[ask_person]), tmp_path / "s.sqlite") as session:
        assert world.send(session, "go").questions
        world.do(session, "stop")
    other = Agent("head", model=ScriptedModel({"*": ["done"]}))
    with Session(other, tmp_path / "s.sqlite") as session:
        assert world.send(session, "again").text == "done"


LONG = "long " * 20_000
"""More than the free pages of a small database hold."""


def fill_disk(saver: SqliteCheckpointer) -> Callable[[], object]:
    """Let no page be added to a database; return what lets it."""
    saver.conn.execute("PRAGMA max_page_count = 1")
    return lambda: saver.conn.execute(f"PRAGMA max_page_count = {2**31}")


def lock_database(saver: SqliteCheckpointer) -> Callable[[], object]:
    """Hold the lock of a database as another process would; return what gives it back."""
    other = sqlite3.connect(saver.path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    return other.close


def interrupt_by_keyboard(saver: SqliteCheckpointer) -> Callable[[], object]:
    raise KeyboardInterrupt


def refuse(saver: SqliteCheckpointer) -> Callable[[], object]:
    raise ValueError("Error code: 400 - a provider refuses what is in the thread")


BREAKS: dict[str, tuple[Callable[[SqliteCheckpointer], Callable[[], object]], type]] = {
    "full disk": (fill_disk, StorageError),
    "locked database": (lock_database, StorageError),
    "keyboard": (interrupt_by_keyboard, KeyboardInterrupt),
    "provider": (refuse, ValueError),
}


def build_breaking(levels: int, place: str, break_it: Callable[[], object]) -> Agent:
    """Return a tree whose leaf breaks something, in its model or in a tool, in its first turn."""

    def work() -> str:
        """Work."""
        if place == "tool":
            break_it()
        return LONG

    def answer(messages: Any) -> Any:
        is_first = str(messages[-1].text) == "go"
        if is_first and place == "model":
            break_it()
        if not is_first:
            return "done"
        return Call("work") if place == "tool" else AIMessage(LONG)

    def pass_on(below: str) -> Any:
        return lambda said: (
            delegate(below, str(said[-1].text)) if said[-1].type == "human" else "done"
        )

    model = ScriptedModel({"leaf": answer, "mid": pass_on("leaf"), "head": pass_on("mid")})
    agent = Agent("leaf", model=model, tools=[work])
    for name in ("mid", "head")[: levels - 1]:
        agent = Agent(name, model=model, subordinates=[agent])
    return agent


@pytest.mark.parametrize("levels", [1, 3])
@pytest.mark.parametrize("place", ["model", "tool"])
@pytest.mark.parametrize("kind", BREAKS)
def test_what_a_turn_has_raised_does_not_keep_its_thread(
    world: World, tmp_path: Path, kind: str, place: str, levels: int
) -> None:
    if kind == "keyboard" and type(world).__name__ == "Async":
        pytest.skip("an event loop does not survive it")
    break_it, error = BREAKS[kind]
    mends = list[Callable[[], object]]()
    saver = SqliteCheckpointer(tmp_path / "s.sqlite", busy_timeout=0.05)
    agent = build_breaking(levels, place, lambda: mends.append(break_it(saver)))
    with saver, Session(agent, saver) as session:
        try:
            world.send(session, "go")
        except BaseException as raised:
            assert isinstance(raised, error), raised
        else:
            # A subordinate, or a tool, that fails tells its superior, or its model.
            assert kind == "provider" and (levels == 3 or place == "tool")
        for mend in mends:
            mend()
        with suppress(ControlError):
            world.do(session, "stop")
        assert world.send(session, "again").text == "done"
        assert world.send(session, "and again").text == "done"
        assert session.trace() and session.usage().total.model_calls


@pytest.mark.parametrize("levels", [1, 3])
@pytest.mark.parametrize("place", ["model", "tool"])
def test_a_turn_that_its_process_has_not_survived_does_not_keep_its_thread(
    world: World, tmp_path: Path, place: str, levels: int
) -> None:
    path = tmp_path / "s.sqlite"

    def run() -> None:
        Session(build_breaking(levels, place, die), path).send("go").result()

    assert fork(run).wait() < 0
    with Session(build_breaking(levels, place, die), path) as session:
        with pytest.raises(UnfinishedTurn):
            world.send(session, "again")
        world.do(session, "stop")
        assert world.send(session, "again").text == "done"
        assert world.send(session, "and again").text == "done"
