"""`stop` and then `send` gives a usable thread, whatever the turn has failed with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents.middleware import AgentMiddleware
from langgraph.types import interrupt

from echelons import Agent, Session
from echelons.errors import UnfinishedTurn
from echelons.memory import Memory
from echelons.testing import Call, ScriptedModel, delegate

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
