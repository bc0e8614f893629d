"""Messages that a provider refuses are hidden from the models, at any depth, and shown again."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage
from langgraph.checkpoint.memory import InMemorySaver

from echelons import Agent, Session, SqliteCheckpointer
from echelons.checkpoints.threads.repair import HideableMessage
from echelons.errors import ThreadBusy, ThreadNotFound
from echelons.memory import Memory
from echelons.models.hidden_messages import HIDDEN_RESULT
from echelons.testing import Call, ScriptedModel, delegate
from echelons.testing.crash import fork
from tests.error_codes import raises_code

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

POISON = "what no provider takes"


def fetch() -> str:
    """Fetch a page."""
    return POISON


def build_tree(levels: int, **leaf: Any) -> tuple[Agent, ScriptedModel]:
    """Return a tree whose leaf cannot go on once it has fetched."""

    def answer(messages: Sequence[BaseMessage]) -> Any:
        if POISON in str([each.content for each in messages]):
            raise ValueError("400 invalid request")
        return Call("fetch") if str(messages[-1].text) == "fetch" else "fine"

    def pass_on(below: str) -> Any:
        def reply(messages: Sequence[BaseMessage]) -> Any:
            last = messages[-1]
            return delegate(below, str(last.text)) if last.type == "human" else str(last.text)

        return reply

    model = ScriptedModel({"leaf": answer, "mid": pass_on("leaf"), "head": pass_on("mid")})
    agent = Agent("leaf", model=model, tools=[fetch], **leaf)
    for name in ("mid", "head")[: levels - 1]:
        agent = Agent(name, model=model, subordinates=[agent])
    return agent, model


def poison(world: World, session: Session, levels: int) -> None:
    """Let the leaf fetch; its turn fails, or its superior reads why."""
    if levels == 1:
        with pytest.raises(ValueError, match="400"):
            world.send(session, "fetch")
        world.do(session, "stop")
        with pytest.raises(ValueError, match="400"):
            world.send(session, "again")
        world.do(session, "stop")
    else:
        assert "400" in world.send(session, "fetch").text
        assert "400" in world.send(session, "again").text


def find_poison(found: list[HideableMessage]) -> HideableMessage:
    [result] = [each for each in found if POISON in each.preview]
    return result


@pytest.mark.parametrize("remembers", [False, True])
@pytest.mark.parametrize("levels", [1, 3])
def test_a_hidden_result_is_shown_to_no_model_and_stays_in_the_thread(
    world: World, tmp_path: Path, levels: int, remembers: bool
) -> None:
    more: dict[str, Any] = {"memory": Memory(summarizer="extractive")} if remembers else {}
    agent, model = build_tree(levels, **more)
    with Session(agent, tmp_path / "t.sqlite") as session:
        poison(world, session, levels)
        result = find_poison(world.do(session, "repair"))
        assert (result.kind, result.size, result.hidden) == ("tool", len(POISON), False)
        assert result.path == "/".join(("head", "mid", "leaf")[3 - levels :])
        assert result.why
        [hidden] = world.do(session, "repair", result.id)
        assert (hidden.id, hidden.hidden) == (result.id, True)
    # In a later process, too.
    with Session(agent, tmp_path / "t.sqlite") as session:
        assert world.send(session, "hello").text == "fine"
        shown = next(each.messages for each in reversed(model.calls) if each.agent == "leaf")
        assert HIDDEN_RESULT in [str(each.text) for each in shown]
        [trace] = [each for each in session.trace().walk() if each.hidden]
        assert trace.hidden == (result.id,)
        assert trace.agent == "leaf"
        assert f"hidden from its model: {result.id}" in str(session.trace())
        thread = session.thread_store.get(trace.thread_id)
        assert POISON in [str(each.text) for each in thread.messages]
        assert world.do(session, "repair", undo=True) == []
        assert not [each for each in session.trace().walk() if each.hidden]
        if levels == 1:
            with pytest.raises(ValueError, match="400"):
                world.send(session, "hello")
        else:
            assert "400" in world.send(session, "hello").text


@pytest.mark.parametrize("levels", [1, 3])
def test_a_hidden_reply_takes_the_results_of_its_calls_with_it(world: World, levels: int) -> None:
    agent, model = build_tree(levels)
    with Session(agent, ":memory:") as session:
        poison(world, session, levels)
        result = find_poison(session.repair())
        [leaf] = [each for each in session.trace().walk() if each.agent == "leaf"]
        messages = session.thread_store.get(leaf.thread_id).messages
        [reply] = [each for each in messages if isinstance(each, AIMessage) and each.tool_calls]
        hidden = world.do(session, "repair", reply.id)
        assert {each.id for each in hidden} == {reply.id, result.id}
        assert world.send(session, "hello").text == "fine"
        shown = next(each.messages for each in reversed(model.calls) if each.agent == "leaf")
        assert not [each for each in shown if each.type == "tool"]
        # To show the reply again shows its results.
        assert world.do(session, "repair", reply.id, undo=True) == []


def test_a_failed_turn_goes_on_after_a_repair(world: World) -> None:
    agent, _ = build_tree(1)
    with Session(agent, ":memory:") as session:
        with pytest.raises(ValueError, match="400"):
            world.send(session, "fetch")
        world.do(session, "repair", find_poison(session.repair()).id)
        assert world.resume(session).text == "fine"


def test_a_graph_without_a_session_hides_too(world: World, tmp_path: Path) -> None:
    agent, _ = build_tree(1)
    with SqliteCheckpointer(tmp_path / "t.sqlite") as saver:
        with Session(agent, saver) as session:
            poison(world, session, 1)
            world.do(session, "repair", find_poison(session.repair()).id)
            thread = session.thread_id
            world.send(session, "hello")
        graph = agent.compile(saver)
        config: Any = {"configurable": {"thread_id": thread}}
        answer = world.invoke(graph, {"messages": [("human", "hello")]}, config)
        assert answer["messages"][-1].text == "fine"


@pytest.mark.filterwarnings("ignore::echelons.errors.ForeignSaverWarning")
def test_a_foreign_saver_keeps_a_repair_too(world: World) -> None:
    agent, _ = build_tree(1)
    with Session(agent, InMemorySaver()) as session:
        poison(world, session, 1)
        world.do(session, "repair", find_poison(session.repair()).id)
        assert world.send(session, "hello").text == "fine"


def test_a_fork_from_before_a_repair_does_not_see_it(world: World) -> None:
    agent, _ = build_tree(1)
    with SqliteCheckpointer(":memory:") as saver, Session(agent, saver) as session:
        poison(world, session, 1)
        world.do(session, "repair", find_poison(session.repair()).id)
        assert world.send(session, "hello").text == "fine"
        states = list(session.graph.get_state_history(session.config))
        # At the end of the first turn, which was stopped.
        before = [each for each in states if not each.next and each.values["messages"]][-1]
        graph = agent.compile(saver)
        with pytest.raises(ValueError, match="400"):
            world.invoke(graph, {"messages": [("human", "hello")]}, before.config)


def test_what_is_pruned_keeps_the_repair(world: World, tmp_path: Path) -> None:
    agent, _ = build_tree(1)
    with SqliteCheckpointer(tmp_path / "t.sqlite") as saver, Session(agent, saver) as session:
        poison(world, session, 1)
        world.do(session, "repair", find_poison(session.repair()).id)
        for _ in range(3):
            assert world.send(session, "hello").text == "fine"
        saver.prune([session.thread_id])
        assert world.send(session, "hello").text == "fine"
        saver.copy_thread(session.thread_id, "copy")
        with Session(agent, saver, thread="copy") as copy:
            assert world.send(copy, "hello").text == "fine"
        saver.delete_thread(session.thread_id)
        with Session(agent, saver) as again, pytest.raises(ThreadNotFound):
            again.repair()


def test_a_repair_names_what_is_wrong(world: World) -> None:
    agent, _ = build_tree(1)
    with Session(agent, ":memory:", thread="rome") as session:
        with pytest.raises(ThreadNotFound, match="rome"):
            world.do(session, "repair")
        assert world.send(session, "hello").text == "fine"
        assert world.do(session, "repair") == []
        with raises_code("unknown_message", match=r"rome.*no message 'none'"):
            world.do(session, "repair", "none")


def test_a_thread_at_work_is_not_repaired(tmp_path: Path) -> None:
    agent, _ = build_tree(1)
    with (
        Session(agent, tmp_path / "t.sqlite") as session,
        Session(agent, tmp_path / "t.sqlite") as other,
    ):
        other.send("hello").result()
        run = session.send("hello")
        next(iter(run))
        assert other.repair() is not None
        with pytest.raises(ThreadBusy, match="main"):
            other.repair(undo=True)
        run.close()


def test_reasons_are_listed(world: World) -> None:
    def look() -> Any:
        """Look."""
        return [{"type": "image", "base64": "AAAA", "mime_type": "image/png"}]

    steps: Iterator[Any] = iter([Call("look"), "x" * 30_000, "fine"])
    model = ScriptedModel(lambda messages: next(steps))
    with Session(Agent("head", model=model, tools=[look]), ":memory:") as session:
        world.send(session, "go")
        world.send(session, "go")
        reasons = {each.kind: each.why for each in session.repair()}
    assert reasons == {
        "tool": ("has blocks that not all providers take: image",),
        "ai": ("is long: 30,000 characters",),
    }


def test_a_thread_that_another_process_runs_is_refused_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    agent, _ = build_tree(1)
    with Session(agent, path, thread="rome") as session:
        assert session.send("hello").result().text == "fine"

    begun, begins = os.pipe()

    def run() -> None:
        other = Session(agent, path, thread="rome").send("hello")
        next(iter(other))
        os.write(begins, b"1")
        signal.pause()

    process = fork(run)
    try:
        assert os.read(begun, 1)
        with Session(agent, path, thread="rome") as session:
            [first, *_] = session.thread_store.get(session.thread_id).messages
            assert session.repair() is not None
            with pytest.raises(ThreadBusy, match=rf"rome.*{process.pid}") as busy:
                session.repair(str(first.id))
            assert busy.value.pid == process.pid
    finally:
        process.kill()
    # With its process, the lease is gone.
    with Session(agent, path, thread="rome") as session:
        hidden = session.repair(str(first.id))
        assert [each.id for each in hidden if each.hidden] == [first.id]


@pytest.mark.parametrize("levels", [1, 3])
def test_a_repair_needs_no_model(world: World, tmp_path: Path, levels: int) -> None:
    agent, _ = build_tree(levels)
    with Session(agent, tmp_path / "t.sqlite") as session:
        poison(world, session, levels)

    def choose(state: Any, runtime: Any) -> Any:
        raise RuntimeError("no key")

    other, _ = build_tree(levels)
    broken = replace(other, model=choose)
    with Session(broken, tmp_path / "t.sqlite") as session:
        result = find_poison(world.do(session, "repair"))
        assert [each.hidden for each in world.do(session, "repair", result.id)] == [True]
        assert world.do(session, "repair", undo=True) == []
        world.do(session, "repair", result.id)
    with Session(agent, tmp_path / "t.sqlite") as session:
        assert world.send(session, "hello").text == "fine"
