"""One call asks several subordinates, and its answer is what the join makes of theirs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import ToolMessage
from langgraph.types import interrupt

from echelons import Agent, Session, SqliteCheckpointer
from echelons.checkpoints.coordination.candidates import TreeRaces
from echelons.delegation.join import LOST_HALT, RaceEntry
from echelons.delegation.request import DelegationResponse
from echelons.graphs import entry
from echelons.testing import Call, Reply, ScriptedModel, delegate, delegate_many, report
from tests.scenarios.drivers.steered import WORDS, Metronome

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

NAMES = ("a", "b", "c")
BAKERS = (("baker", 0.9), ("cook", 0.8))


def many(*names: str, join: str = "all", **more: Any) -> Call:
    requests = [{"message": f"Ask {name}", "subordinate": name} for name in names]
    return Call("delegate_many", {"requests": requests, "join": join, **more})


def team(scripts: dict[str, Any], **more: Any) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(scripts)
    below = [Agent(name, capabilities={f"Work of {name}": 0.9}) for name in NAMES]
    return Agent("head", model=model, subordinates=below, **more), model


def answer_of(session: Session) -> tuple[ToolMessage, DelegationResponse]:
    root = session.thread_store.get(session.thread_id)
    [answer] = [m for m in root.messages if isinstance(m, ToolMessage)]
    return answer, DelegationResponse.load(answer.artifact)


def test_all_answers_come_in_one(world: World, saver: SqliteCheckpointer) -> None:
    head, model = team(
        {
            "head": [many(*NAMES), "done"],
            "a": ["one"],
            "b": [report("unable", "", reason="no time")],
            "c": ["three"],
        }
    )
    session = Session(head, saver)

    assert world.send(session, "go").text == "done"

    message, answer = answer_of(session)
    assert (message.name, message.status, answer.status) == ("delegate_many", "success", "partial")
    assert message.text.split("\n\n") == [
        "[partial] b: no time\n1. a: one",
        "2. b: [unable] no time",
        "3. c: three",
    ]
    assert [(each.agent, each.status) for each in answer.subordinate_responses] == [
        ("a", "fulfilled"),
        ("b", "unable"),
        ("c", "fulfilled"),
    ]
    assert answer.usage.model_calls == 3
    assert [call.agent for call in model.calls if call.agent == "head"] == ["head", "head"]


def test_each_part_has_a_thread_that_can_be_traced(world: World, saver: SqliteCheckpointer) -> None:
    head, _ = team({"head": [many(*NAMES), "done"], **{name: [name] for name in NAMES}})
    session = Session(head, saver)
    world.send(session, "go")

    trace = session.trace()
    assert [(each.agent, each.status) for each in trace.walk()] == [
        ("head", "root"),
        *((name, "fulfilled") for name in NAMES),
    ]
    assert [each.requests[0].task for each in trace.subordinates] == ["Ask a", "Ask b", "Ask c"]
    assert all(link.holds for link in session.thread_store.verify(session.thread_id))
    _, answer = answer_of(session)
    assert [each.thread_id for each in answer.subordinate_responses] == [
        each.thread_id for each in trace.subordinates
    ]


async def test_the_first_stops_the_others_and_their_threads_say_so(
    saver: SqliteCheckpointer,
) -> None:
    began: set[str] = set()
    cut: list[str] = []

    def slow(name: str) -> Any:
        async def think(_: Any) -> str:
            began.add(name)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cut.append(name)
                raise
            return "never"

        return think

    async def quick(_: Any) -> str:
        while len(began) < 2:
            await asyncio.sleep(0)
        return "me"

    head, model = team(
        {"head": [many(*NAMES, join="first"), "done"], "a": slow("a"), "b": quick, "c": slow("c")}
    )
    session = Session(head, saver)

    result = await (await session.asend("go")).result()

    message, answer = answer_of(session)
    assert (result.text, message.text, answer.status) == ("done", "me", "fulfilled")
    assert sorted(cut) == ["a", "c"]
    assert [(each.agent, each.status) for each in answer.subordinate_responses] == [
        ("a", "unable"),
        ("b", "fulfilled"),
        ("c", "unable"),
    ]
    lost = answer.subordinate_responses[0]
    assert lost.reason == "stopped: others have answered, and that is enough"
    statuses = {each.agent: each.requests[0] for each in session.trace().subordinates}
    assert statuses["a"].reason == lost.reason
    assert len([call for call in model.calls if call.agent == "head"]) == 2


def test_losing_agent_in_a_thread_begins_nothing_more(saver: SqliteCheckpointer) -> None:
    used: list[str] = []

    def dig() -> str:
        """Dig."""
        used.append("dig")
        return "dug"

    scripts: dict[str, Any] = {"head": [many("a", "b", join="first"), "done"], "b": ["me"]}
    decided = threading.Event()

    def late(_: Any) -> Call:
        decided.wait(120)
        return Call("dig", {})

    model = ScriptedModel({**scripts, "a": late})
    head = Agent("head", model=model, subordinates=[Agent("a", tools=[dig]), Agent("b")])
    session = Session(head, saver)

    with signal_decision(decided):
        assert session.send("go").result().text == "done"

    _, answer = answer_of(session)
    assert (answer.result, used) == ("me", [])


def test_losing_agent_in_a_thread_ends_its_reply_at_next_chunk(saver: SqliteCheckpointer) -> None:
    decided = threading.Event()
    clock = Metronome(3, lambda: decided.wait(120))
    scripts: dict[str, Any] = {"head": [many("a", "b", join="first"), "done"], "b": ["me"]}
    model = ScriptedModel({**scripts, "a": [Reply(WORDS, latency=30.0)]}, clock=clock)
    head = Agent("head", model=model, subordinates=[Agent("a"), Agent("b")])
    session = Session(head, saver)

    with signal_decision(decided):
        assert session.send("go").result().text == "done"

    _, answer = answer_of(session)
    assert answer.subordinate_responses[0].reason == LOST_HALT.reason
    assert clock.beats <= 4


@contextmanager
def signal_decision(decided: threading.Event) -> Iterator[None]:
    """Set an event once a race is decided."""

    class SignallingRaces(TreeRaces):
        def place(self, entrant: RaceEntry) -> int:
            placed = super().place(entrant)
            decided.set()
            return placed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entry, "TreeRaces", SignallingRaces)
        yield


# Questions


def asking(name: str) -> Any:
    """Return a tool that asks a person."""

    def ask() -> str:
        """Ask."""
        return str(interrupt(f"{name} asks"))

    return ask


@pytest.mark.parametrize(("join", "more"), [("first", {}), ("quorum", {"n": 2})])
def test_question_of_losing_agent_needs_no_answer(
    world: World, saver: SqliteCheckpointer, join: str, more: dict[str, Any]
) -> None:
    scripts: dict[str, Any] = {
        "head": [many(*NAMES, join=join, **more), "done"],
        "a": [Call("ask", {}), "answered"],
        "b": ["two"],
        "c": ["three"],
    }
    model = ScriptedModel(scripts)
    below = [Agent("a", tools=[asking("a")]), Agent("b"), Agent("c")]
    session = Session(Agent("head", model=model, subordinates=below), saver)

    result = world.send(session, "go")

    assert (result.text, result.questions) == ("done", ())
    assert session.inbox() == []
    _, answer = answer_of(session)
    assert answer.status == "fulfilled"
    assert answer.subordinate_responses[0].status == "unable"
    assert [call.agent for call in model.calls].count("head") == 2


def test_while_too_few_have_answered_a_question_waits(
    world: World, saver: SqliteCheckpointer
) -> None:
    scripts: dict[str, Any] = {
        "head": [many(*NAMES, join="quorum", n=2), "done"],
        "a": [Call("ask", {}), "one"],
        "b": ["two"],
        "c": [report("unable", "", reason="no time")],
    }
    model = ScriptedModel(scripts)
    below = [Agent("a", tools=[asking("a")]), Agent("b"), Agent("c")]
    session = Session(Agent("head", model=model, subordinates=below), saver)

    world.send(session, "go")
    [question] = session.inbox()
    result = world.answer(session, {question.id: "yes"})

    _, answer = answer_of(session)
    assert (result.text, answer.status) == ("done", "fulfilled")
    assert answer.result == "1. b: two\n\n2. a: one", "in the order in which they ended"
    assert [call.agent for call in model.calls].count("b") == 1, "what was done is not done again"


def test_run_of_a_graph_shows_no_question_of_losing_agents(
    world: World, saver: SqliteCheckpointer
) -> None:
    scripts: dict[str, Any] = {
        "head": [many("a", "b", join="first"), "done"],
        "a": [Call("ask", {}), "answered"],
        "b": ["two"],
    }
    below = [Agent("a", tools=[asking("a")]), Agent("b")]
    graph = Agent("head", model=ScriptedModel(scripts), subordinates=below).compile(saver)

    state = world.invoke(
        graph, {"messages": [("user", "go")]}, {"configurable": {"thread_id": "t"}}
    )

    assert "__interrupt__" not in state
    assert state["messages"][-1].text == "done"


def test_every_part_can_be_read_with_sql(world: World, saver: SqliteCheckpointer) -> None:
    scripts: dict[str, Any] = {
        "head": [many("a", "b"), "done"],
        "a": ["one"],
        "b": [report("unable", "", reason="no time")],
    }
    head, _ = team(scripts)
    world.send(Session(head, saver), "go")

    rows = saver.conn.execute(
        "SELECT subordinate, task, status, reason, path FROM delegations ORDER BY subordinate"
    ).fetchall()

    assert rows == [
        ("a", "Ask a", "fulfilled", "", "head/a"),
        ("b", "Ask b", "unable", "no time", "head/b"),
    ]


@pytest.mark.parametrize("join", ["first", "best", "quorum"])
def test_empty_answer_wins_no_join(world: World, saver: SqliteCheckpointer, join: str) -> None:
    said = threading.Event()

    def hush(task: str) -> None:
        said.set()

    def speak(task: str) -> str:
        assert said.wait(120)
        return "me"

    requests = [delegate(name, "go") for name in ("hush", "speak")]
    both = delegate_many(*requests, join=join, n=1 if join == "quorum" else None)
    model = ScriptedModel({"head": [both, "done"]})
    session = Session(Agent("head", model=model, subordinates=[hush, speak]), saver)

    assert world.send(session, "go").text == "done"

    _, answer = answer_of(session)
    assert (answer.status, answer.result) == (
        "fulfilled",
        "1. speak: me" if join == "quorum" else "me",
    )


def test_next_agent_is_asked_after_an_empty_answer(world: World, saver: SqliteCheckpointer) -> None:
    nobody = Call("call_subordinate", {"message": "Bake bread"})
    model = ScriptedModel({"head": [nobody, "done"], "baker": [""], "cook": ["bread"]})
    below = [Agent(name, capabilities={"bake bread": sure}) for name, sure in BAKERS]
    session = Session(Agent("head", model=model, subordinates=below), saver)

    assert world.send(session, "go").text == "done"

    _, answer = answer_of(session)
    assert (answer.agent, answer.result) == ("cook", "bread")
