"""Whatever a tool does, it stays with the agent whose tool it is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.tools import ToolException
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, Send

from echelons import Agent, Session, SqliteCheckpointer, subordinate
from echelons.checkpoints.threads.trace import Thread
from echelons.testing import Call, ScriptedModel, delegate
from tests.failure_ids import without_ids
from tests.told_lines import without_told

if TYPE_CHECKING:
    from tests.scenarios.conftest import World


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Failures of subordinates are logged; here they are wanted."""
    with caplog.at_level(logging.CRITICAL):
        yield


def look() -> str:
    """Look around."""
    return "fine"


def team(tool: Any, calls: Any, **scripts: Any) -> Agent:
    """Return a tree of three levels whose leaf has a tool, and makes some calls."""
    scripts = {
        "head": [delegate("mid", "work"), "over"],
        "mid": [[delegate("leaf", "work"), delegate("other", "work")], "mid done"],
        "leaf": [calls, "leaf done"],
        "other": [Call("look"), "other done"],
        **scripts,
    }
    below = [Agent("leaf", tools=[tool, look]), Agent("other", tools=[look])]
    mid = Agent("mid", subordinates=below)
    return Agent("head", model=ScriptedModel(scripts), subordinates=[mid])


def threads(session: Session) -> dict[str, Thread]:
    """Return the threads of the tree by agent."""
    links = session.thread_store.verify(session.thread_id)
    reasons = [each.reason for part in session.trace().walk() for each in part.requests]
    assert {str(link.state) for link in links} == {"ok"}, reasons
    return {link.agent: session.thread_store.get(link.sub_agent_thread_id) for link in links}


def told(thread: Thread) -> list[str]:
    return [without_told(each.text) for each in thread.messages if isinstance(each, ToolMessage)]


def boom() -> str:
    """Fail."""
    raise ValueError("no such city\nTraceback: secret")


def kind() -> str:
    """Fail in words for the model."""
    raise ToolException("There is no such city; try Rome.")


def number(count: int) -> str:
    """Take a number."""
    return str(count)


@pytest.mark.parametrize(
    ("tool", "call", "answer"),
    [
        (boom, Call("boom"), "Error: ValueError: no such city"),
        (kind, Call("kind"), "Error: There is no such city; try Rome."),
        (number, Call("number", {"count": "many"}), "Error: "),
        (number, Call("number"), "Error: "),
    ],
    ids=["raises", "raises for the model", "wrong argument", "no argument"],
)
def test_failure_of_a_tool_is_read_by_its_model_alone(
    world: World, saver: SqliteCheckpointer, tool: Any, call: Call, answer: str
) -> None:
    session = Session(team(tool, [call, Call("look")]), saver)

    result = world.send(session, "go")

    found = threads(session)
    assert result.text == "over"
    assert told(found["leaf"])[0].startswith(answer)
    assert "Traceback" not in told(found["leaf"])[0]
    assert told(found["leaf"])[1] == "fine"
    assert told(found["mid"]) == ["leaf done", "other done"]


def note(**given: Any) -> Command[Any]:
    """Return a command that answers its call, and does something else beside."""
    return Command(**{"update": {"messages": [ToolMessage("noted", tool_call_id="u")]}, **given})


STEERING: dict[str, Callable[[], Any]] = {
    "graph='__parent__', goto='refuse'": lambda: note(
        graph=Command.PARENT, goto="refuse", update={"queue": []}
    ),
    "graph='__parent__'": lambda: note(graph=Command.PARENT),
    "goto='act'": lambda: note(goto="act"),
    "goto=Send(node='act', arg=[])": lambda: note(goto=Send("act", [])),
    "goto=[Send(node='reason', arg={})]": lambda: [note(goto=[Send("reason", {})])],
    "goto=5": lambda: note(goto=5),
    "no update": Command,
}


def line(depth: int, tool: Any) -> Agent:
    """Return a tree of some levels, the last of which has a tool and calls it in two turns."""
    names = ["head", "mid", "leaf"][:depth]
    below = [Agent(names.pop(), tools=[tool])]
    scripts: dict[str, Any] = {below[0].name: [Call("steer", id="u"), "done", "ready"] * 2}
    while names:
        scripts[names[-1]] = [delegate(below[0].name, "work"), "done", "ready"] * 2
        below = [Agent(names.pop(), subordinates=below)]
    return replace(below[0], model=ScriptedModel(scripts))


@pytest.mark.parametrize("given", STEERING)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_tool_that_steers_a_graph_is_answered_with_an_error_and_its_agent_goes_on(
    world: World, saver: SqliteCheckpointer, depth: int, given: str
) -> None:
    runs: list[str] = []

    def steer() -> Any:
        """Steer the graph."""
        runs.append(given)
        return STEERING[given]()

    session = Session(line(depth, steer), saver)

    results = [world.send(session, task).text for task in ("go", "again")]

    leaf = list(session.trace().walk())[-1]
    messages = session.thread_store.get(leaf.thread_id, session.thread_id).messages
    [answer, *_] = [without_ids(str(each.text)) for each in messages if each.type == "tool"]
    assert results == ["done", "done"]
    assert runs == [given] * 2
    assert answer.startswith(
        f"Error: the tool has run, and its result is lost: it returned Command({given}), and a tool"
    )
    assert session.thread_store.failures(session.thread_id)


@pytest.mark.parametrize("hosted", [False, True], ids=["compiled", "in a host"])
def test_a_tool_that_steers_is_answered_so_in_a_compiled_tree_and_within_another_graph(
    world: World, saver: SqliteCheckpointer, hosted: bool
) -> None:
    def steer() -> Any:
        """Steer the graph around."""
        return note(graph=Command.PARENT, goto="elsewhere")

    graph: Any = line(1, steer).compile(None if hosted else saver)
    if hosted:
        host = StateGraph(MessagesState).add_node("team", graph).add_edge(START, "team")
        graph = host.compile(checkpointer=saver)

    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    world.invoke(graph, {"messages": "go"}, config)
    state = world.invoke(graph, {"messages": "again"}, config)

    assert [each.text for each in state["messages"] if each.type == "ai" and each.text] == [
        "done",
        "done",
    ]


def leading(**given: Any) -> Runnable[Any, Any]:
    """Return a node that leads out of its graph."""
    return RunnableLambda(lambda _: note(graph=Command.PARENT, **given))


def test_a_graph_in_a_tool_that_leads_out_of_it_is_an_error_of_the_tool(
    world: World, saver: SqliteCheckpointer
) -> None:
    inner = StateGraph(MessagesState).add_node("lead", leading())
    graph: Any = inner.add_edge(START, "lead").compile()

    def steer() -> str:
        """Run a graph."""
        return str(graph.invoke({"messages": "go"}))

    session = Session(line(1, steer), saver)

    assert world.send(session, "go").text == "done"
    assert world.send(session, "again").text == "done"


@pytest.mark.parametrize("goto", ["run", "refuse", Send("run", {"messages": []}), ()], ids=repr)
def test_a_graph_that_steers_its_superior_is_unable_and_its_siblings_go_on(
    world: World, saver: SqliteCheckpointer, goto: Any
) -> None:
    inner = StateGraph(MessagesState).add_node("lead", leading(goto=goto))
    both = [delegate("leaf", "work"), delegate("other", "work")]
    model = ScriptedModel({"head": [both, "over"], "other": ["other done"]})
    below = [inner.add_edge(START, "lead").compile(name="leaf"), Agent("other")]
    session = Session(Agent("head", model=model, subordinates=below), saver)

    assert world.send(session, "go").text == "over"
    assert told(session.thread_store.get(session.thread_id)) == [
        "[unable] it returned Command(graph=PARENT), which would steer its superior; let it return"
        " an answer",
        "other done",
    ]


def update() -> Command[Any]:
    """Update the state."""
    message = ToolMessage("noted", tool_call_id="u")
    return Command(update={"messages": [message]})


def test_a_tool_may_update_its_own_agents_messages(world: World, saver: SqliteCheckpointer) -> None:
    session = Session(team(update, [Call("update", id="u"), Call("look")]), saver)

    world.send(session, "go")

    found = threads(session)
    assert told(found["leaf"]) == ["noted", "fine"]
    assert told(found["mid"]) == ["leaf done", "other done"]


@pytest.mark.parametrize(
    "private",
    [
        {"response": {"status": "fulfilled", "result": "taken over"}},
        {"response": {"status": "nonsense"}},
        {"response": "nonsense"},
        {"heads": {"x": {"agent": "other"}}},
        {"previous": {"checkpoint_ns": "", "checkpoint_id": "nothing"}},
        {"request": 7},
    ],
    ids=repr,
)
def test_what_a_level_keeps_for_itself_is_not_a_tools_to_update(
    world: World, saver: SqliteCheckpointer, private: dict[str, Any]
) -> None:
    def overreach() -> Command[Any]:
        """Update what is not its own."""
        message = ToolMessage("noted", tool_call_id="u")
        return Command(update={"messages": [message], **private})

    session = Session(team(overreach, [Call("overreach", id="u")]), saver)

    world.send(session, "go")

    found = threads(session)
    assert told(found["leaf"]) == ["noted"]
    assert told(found["mid"]) == ["leaf done", "other done"]


class Stopped(BaseException):
    """What Ctrl-C is like."""


def test_a_tool_that_is_stopped_like_by_a_keyboard_stops_the_tree_until_a_human_says_what_it_did(
    world: World, saver: SqliteCheckpointer
) -> None:
    stops = [Stopped()]

    def stop() -> str:
        """Be stopped."""
        while stops:
            raise stops.pop()
        return "went on"

    # One after the other: what is under way beside a stop is cut short, too, and asked about.
    one_by_one = [delegate("other", "work"), delegate("leaf", "work"), "mid done"]
    agent = team(stop, [Call("look"), Call("stop")], mid=one_by_one)
    session = Session(agent, saver)

    with pytest.raises(Stopped):
        world.send(session, "go")
    [question] = world.resume(session).questions
    result = world.answer(session, {question.id: "run_again"})

    found = threads(session)
    assert result.text == "over"
    assert told(found["leaf"]) == ["fine", "went on"]
    assert told(found["mid"]) == ["other done", "leaf done"]
    assert isinstance(agent.model, ScriptedModel)
    assert agent.model.repeated_calls == []


async def test_a_cancelled_run_stops_at_once_and_goes_on_when_a_human_says_what_its_tool_did(
    saver: SqliteCheckpointer,
) -> None:
    started = asyncio.Event()
    patient = [True]

    async def wait() -> str:
        """Wait for good, the first time."""
        started.set()
        if patient:
            await asyncio.Event().wait()
        return "went on"

    agent = team(wait, [Call("wait")])
    session = Session(agent, saver)
    run = await session.asend("go")
    task = asyncio.create_task(run.result())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    patient.clear()

    [question] = (await (await session.aresume()).result()).questions
    result = await (await session.aanswer(question.id, "run_again")).result()

    found = threads(session)
    assert result.text == "over"
    assert told(found["leaf"]) == ["went on"]
    assert isinstance(agent.model, ScriptedModel)
    # The call of the agent beside it may be cut off, too, and is then made again.
    assert {call.agent for call in agent.model.repeated_calls} <= {"other"}


def test_a_tool_named_like_a_subordinate_or_with_odd_results_is_a_tool_like_any_other(
    world: World, saver: SqliteCheckpointer
) -> None:
    def other() -> None:
        """Return nothing."""

    session = Session(team(other, [Call("other"), Call("look")]), saver)

    world.send(session, "go")

    assert told(threads(session)["leaf"]) == ["null", "fine"]


class Mute(Exception):
    """An exception that fails where its text is read."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class MuteToModel(Mute, ToolException):
    """One whose text is meant for the model, and that fails as soon as it is looked at."""

    @property
    def response(self) -> Any:
        raise RuntimeError("no response")


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        *(("tool", Mute), ("tool", MuteToModel), ("function", Mute), ("function", MuteToModel)),
        *(("Runnable", Mute), ("Runnable", MuteToModel), ("model", Mute)),
    ],
)
def test_an_exception_without_a_text_is_a_failure_like_any_other(
    world: World, saver: SqliteCheckpointer, place: str, kind: type[Mute]
) -> None:
    def leaf(task: str) -> str:
        """Fail without a word."""
        raise kind

    def reply(_: Any) -> str:
        raise kind

    below: dict[str, Any] = {
        "tool": Agent("mid", tools=[leaf]),
        "function": leaf,
        "Runnable": subordinate(RunnableLambda(leaf), name="leaf", description="x"),
        "model": Agent("leaf"),
    }
    name = "mid" if place == "tool" else "leaf"
    scripts: dict[str, Any] = {
        "head": [delegate(name, "work"), "over"] * 2,
        "mid": [Call("leaf", {"task": "x"}), "done"],
    }
    model = ScriptedModel({**scripts, "leaf": reply})
    session = Session(Agent("head", model=model, subordinates=[below[place]]), saver)

    assert [world.send(session, task).text for task in ("go", "again")] == ["over", "over"]
    texts = [failure.error for failure in session.thread_store.failures(session.thread_id)]
    assert texts == [f"{kind.__name__}: its text cannot be read"] * 2


def test_a_root_whose_model_fails_without_a_text_can_be_resumed(
    world: World, saver: SqliteCheckpointer
) -> None:
    fails = [Mute()]

    def reply(_: Any) -> str:
        while fails:
            raise fails.pop()
        return "over"

    session = Session(Agent("head", model=ScriptedModel(reply)), saver)

    with pytest.raises(Mute):
        world.send(session, "go")
    assert world.resume(session).text == "over"


def cancel() -> str:
    """Raise what cancels a task."""
    raise asyncio.CancelledError


async def await_cancelled() -> str:
    """Wait for a task that has been cancelled."""
    task = asyncio.create_task(asyncio.Event().wait())
    task.cancel()
    await task
    return "never"


@pytest.mark.parametrize("tool", [cancel, await_cancelled], ids=["sync tool", "async tool"])
def test_tool_that_raises_cancelled_error_fails_as_a_call(
    world: World, saver: SqliteCheckpointer, tool: Callable[..., Any]
) -> None:
    head = team(tool, [Call(tool.__name__), Call("look")])

    with Session(head, saver) as session:
        assert world.send(session, "go").text == "over"
        failed, done = told(threads(session)["leaf"])

    why = "Error: ToolCancelled: the tool was cancelled by itself, not by the run"
    assert without_ids(failed) == why
    assert done == "fine"


@pytest.mark.parametrize("level", ["root", "leaf"])
def test_result_bound_to_another_call_answers_its_own(world: World, level: str) -> None:
    runs: list[str] = []

    def look_up() -> ToolMessage:
        """Return a message that was kept."""
        runs.append(level)
        return ToolMessage("kept", tool_call_id="another")

    def work(said: Any) -> Any:
        return Call("look_up") if said[-1].type == "human" else f"heard {said[-1].text}"

    agent = Agent("head", model=ScriptedModel(work), tools=[look_up])
    if level == "leaf":

        def pass_on(said: Any) -> Any:
            return delegate("leaf", "go") if said[-1].type == "human" else said[-1].text

        scripts = {"mid": pass_on, "leaf": work}
        below = [Agent("leaf", tools=[look_up])]
        agent = Agent("mid", model=ScriptedModel(scripts), subordinates=below)
    with Session(agent, ":memory:") as session:
        answer = world.send(session, "go").text

    assert (answer, runs) == ("heard kept", [level])
