"""Subordinates that are late or fail: others are asked, and they are left alone for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import BaseMessage, ToolMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from echelons import Agent, Session, SqliteCheckpointer
from echelons.checkpoints.coordination.candidates import list_circuits
from echelons.delegation.policy import DelegationPolicy
from echelons.delegation.request import DelegationResponse
from echelons.errors import InvalidSetting
from echelons.guards.circuit_breaker import BreakerPolicy, CircuitState
from echelons.testing import Call, FakeClock, ScriptedModel, delegate
from tests.error_codes import raises_code
from tests.failure_ids import without_ids

if TYPE_CHECKING:
    from tests.scenarios.conftest import World


def find(task: str) -> Call:
    """Return a call that names nobody."""
    return Call("call_subordinate", {"message": task})


def responses(session: Session) -> list[DelegationResponse]:
    """Return the responses to the root's calls."""
    root = session.thread_store.get(session.thread_id)
    answers = [m for m in root.messages if isinstance(m, ToolMessage)]
    return [DelegationResponse.load(each.artifact) for each in answers]


def down(times: int) -> list[Any]:
    return [ConnectionError("down")] * times


def test_agent_that_fails_three_times_in_a_row_is_not_asked_again(
    world: World, saver: SqliteCheckpointer
) -> None:
    model = ScriptedModel(
        {"head": [delegate("eat", "dinner", reset=True)] * 4 + ["sorry"], "eat": down(3)}
    )
    session = Session(Agent("head", model=model, subordinates=[Agent("eat")]), saver)

    world.send(session, "go")

    reasons = [each.reason for each in responses(session)]
    assert [without_ids(each) for each in reasons[:3]] == ["ConnectionError: down"] * 3
    assert reasons[3].startswith("circuit_open: 'eat' failed 3 times in a row")
    assert [each.agent for each in model.calls].count("eat") == 3
    [circuit] = list_circuits(saver.ledger)
    assert (circuit.tree, circuit.agent, circuit.state) == ("head", "eat", CircuitState.OPEN)


def failing_tree(*south: Agent, scope: str = "") -> tuple[ScriptedModel, Agent]:
    """Return a tree of three levels whose `scout` fails three times, and then would answer."""
    asked = [delegate("scout", f"look {n}", reset=True) for n in range(3)]
    model = ScriptedModel(
        {
            "head": [delegate("north", "go", reset=True), "done"],
            "north": [asked, "sorry"],
            "scout": [*down(3), *["seen"] * 3],
        }
    )
    north = Agent("north", subordinates=[Agent("scout"), *south])
    rules = DelegationPolicy(breaker_scope=scope)
    return model, Agent("head", model=model, subordinates=[north], delegation=rules)


def test_an_added_agent_closes_no_circuit(world: World, saver: SqliteCheckpointer) -> None:
    world.send(Session(failing_tree()[1], saver, thread="before"), "go")
    model, grown = failing_tree(Agent("guide", description="Knows the way"))

    world.send(Session(grown, saver, thread="after"), "go")

    assert "scout" not in [each.agent for each in model.calls]
    [circuit] = list_circuits(saver.ledger)
    assert (circuit.path, circuit.state) == ("head/north/scout", CircuitState.OPEN)


def test_a_tree_with_the_same_names_shares_no_circuit_of_another_scope(
    world: World, saver: SqliteCheckpointer
) -> None:
    world.send(Session(failing_tree(scope="acme")[1], saver, thread="acme"), "go")
    model, other = failing_tree(scope="zenith")

    world.send(Session(other, saver, thread="zenith"), "go")

    assert [each.agent for each in model.calls].count("scout") == 3
    assert [(each.path, each.scope) for each in list_circuits(saver.ledger)] == [
        ("head/north/scout", "acme"),
        ("head/north/scout", "zenith"),
    ]


def test_a_tree_within_a_graph_shares_no_circuit_with_itself_elsewhere(
    world: World, saver: SqliteCheckpointer
) -> None:
    world.send(Session(failing_tree()[1], saver, thread="alone"), "go")
    model, inner = failing_tree()
    graph: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    graph.add_node("inner", inner.compile())
    graph.add_edge(START, "inner")
    asking = ScriptedModel({"top": [delegate("graph", "go"), "done"]})
    top = Agent("top", model=asking, subordinates=[graph.compile(name="graph")])

    world.send(Session(top, saver, thread="within"), "go")

    assert [each.agent for each in model.calls].count("scout") == 3
    assert [each.path for each in list_circuits(saver.ledger)] == [
        "head/north/scout",
        "top/graph/head/north/scout",
    ]


@pytest.mark.parametrize("scope", ["a/b", "acme\n", "x" * 129, 7])
def test_a_scope_that_no_key_can_have_is_refused(scope: Any) -> None:
    with pytest.raises(InvalidSetting, match="breaker_scope"):
        DelegationPolicy(breaker_scope=scope)


def test_a_failing_agent_is_passed_over_for_the_next_best(
    world: World, saver: SqliteCheckpointer
) -> None:
    model = ScriptedModel(
        {"head": [find("cook dinner"), "done"] * 4, "eat": down(3), "chef": ["pizza"] * 4}
    )
    eat = Agent("eat", capabilities={"cook dinner": 0.9})
    chef = Agent("chef", capabilities={"cook dinner": 0.8})
    head = Agent("head", model=model, subordinates=[eat, chef])

    for number in range(4):
        assert world.send(Session(head, saver, thread=str(number)), "go").text == "done"

    assert [each.agent for each in model.calls].count("eat") == 3
    assert [each.agent for each in model.calls].count("chef") == 4


def test_an_honest_unable_and_a_question_open_no_circuit(
    world: World, saver: SqliteCheckpointer
) -> None:
    def ask() -> str:
        """Ask a human."""
        return str(interrupt("Which?"))

    def eat(messages: Sequence[BaseMessage]) -> Any:
        if sum(each.type == "human" for each in messages) < 5:
            return Call("report", {"status": "unable", "reason": "no oven"})
        return "pizza" if messages[-1].type == "tool" else Call("ask")

    dinners = [delegate("eat", f"dinner {n}") for n in range(5)]
    model = ScriptedModel({"head": [*dinners, "sorry"], "eat": eat})
    head = Agent("head", model=model, subordinates=[Agent("eat", tools=[ask])])
    session = Session(head, saver)

    [question] = world.send(session, "go").questions
    assert world.answer(session, {question.id: "this"}).text == "sorry"

    assert [str(each.status) for each in responses(session)] == ["unable"] * 4 + ["fulfilled"]
    assert list_circuits(saver.ledger) == []


def test_a_superior_whose_subordinates_fail_too_often_does_not_try_on(
    world: World, saver: SqliteCheckpointer
) -> None:
    names = ("a", "b", "c", "d", "e")
    model = ScriptedModel({"head": [find("cook dinner"), "sorry"], **{n: down(1) for n in names}})
    below = [Agent(name, capabilities={"cook dinner": 0.9}) for name in names]
    rules = DelegationPolicy(breaker=BreakerPolicy(intensity=2))
    session = Session(Agent("head", model=model, subordinates=below, delegation=rules), saver)

    world.send(session, "go")

    [answer] = responses(session)
    assert answer.status == "unable"
    assert "intensity: 3 failures below 'head'" in answer.reason
    assert [each.agent for each in model.calls] == ["head", "a", "b", "c", "head"]


async def test_late_agent_is_cut_short_and_next_best_is_asked(
    saver: SqliteCheckpointer, loop_clock: FakeClock
) -> None:
    cut: list[str] = []

    async def wait() -> str:
        """Wait for ever."""
        loop_clock.advance(1.5)
        try:
            await asyncio.Event().wait()
        finally:
            cut.append("cut")
        return "never"

    model = ScriptedModel(
        {"head": [find("cook dinner"), "done"], "slow": [Call("wait")], "quick": ["pizza"]}
    )
    slow = Agent("slow", tools=[wait], capabilities={"cook dinner": 0.9})
    quick = Agent("quick", capabilities={"cook dinner": 0.8})
    rules = DelegationPolicy(timeout=1.5)
    head = Agent("head", model=model, subordinates=[slow, quick], delegation=rules)
    session = Session(head, saver)

    result = await (await session.asend("go")).result()

    [answer] = responses(session)
    assert (result.text, answer.agent, cut) == ("done", "quick", ["cut"])
    reasons = {each.agent: each.reason for each in answer.subordinate_responses}
    assert reasons["slow"] == "timeout: 'slow' has not answered within 1.5 s"
    assert all(link.holds for link in session.thread_store.verify(session.thread_id))


def below_another(model: ScriptedModel) -> Agent:
    """Return a tree in which who is asked first stands below somebody who only passes it on."""
    slow = Agent("slow", capabilities={"cook dinner": 0.9})
    quick = Agent("quick", capabilities={"cook dinner": 0.4})
    rules = DelegationPolicy(timeout=0.5)
    between = Agent("between", subordinates=[slow])
    return Agent("head", model=model, subordinates=[between, quick], delegation=rules)


async def test_late_agent_is_not_the_one_that_passed_the_request_on(
    saver: SqliteCheckpointer, loop_clock: FakeClock
) -> None:
    async def wait(_: Any) -> str:
        loop_clock.advance(0.5)
        await asyncio.Event().wait()
        return "never"

    model = ScriptedModel({"head": [find("cook dinner"), "done"], "slow": wait, "quick": ["pizza"]})
    session = Session(below_another(model), saver)

    await (await session.asend("go")).result()

    [answer] = responses(session)
    late, _ = answer.subordinate_responses
    assert (late.agent, late.path) == ("slow", "head/between/slow")
    assert late.reason == "timeout: 'slow' has not answered within 0.5 s"
    assert [(each.agent, each.failures) for each in list_circuits(saver.ledger)] == [("slow", 1)]
    assert all(link.holds for link in session.thread_store.verify(session.thread_id))


async def test_agents_asked_for_one_task_share_its_time(
    saver: SqliteCheckpointer, loop_clock: FakeClock
) -> None:
    async def wait() -> str:
        """Wait for ever."""
        loop_clock.advance(0.75)
        await asyncio.Event().wait()
        return "never"

    names = ("a", "b", "c")
    late = {name: [Call("wait")] for name in names}
    model = ScriptedModel({"head": [find("cook dinner"), "sorry"], **late})
    below = [Agent(name, tools=[wait], capabilities={"cook dinner": 0.9}) for name in names]
    rules = DelegationPolicy(timeout=0.75, request_timeout=1)
    session = Session(Agent("head", model=model, subordinates=below, delegation=rules), saver)

    assert (await (await session.asend("go")).result()).text == "sorry"

    [answer] = responses(session)
    assert answer.status == "unable"
    assert [each.agent for each in answer.subordinate_responses] == ["a", "b"]
    assert all(each.reason.startswith("timeout") for each in answer.subordinate_responses)


async def test_agent_gets_no_more_time_than_its_superior_has_left(
    saver: SqliteCheckpointer, loop_clock: FakeClock
) -> None:
    async def wait() -> str:
        """Wait for ever."""
        loop_clock.advance(1.5)
        await asyncio.Event().wait()
        return "never"

    model = ScriptedModel(
        {
            "head": [delegate("north", "go"), "sorry"],
            "north": [delegate("scout", "go"), "never said"],
            "scout": [Call("wait")],
        }
    )
    scout = Agent("scout", tools=[wait])
    north = Agent("north", subordinates=[scout], delegation=DelegationPolicy(timeout=1000))
    head = Agent(
        "head", model=model, subordinates=[north], delegation=DelegationPolicy(timeout=1.5)
    )
    session = Session(head, saver)

    assert (await (await session.asend("go")).result()).text == "sorry"

    [answer] = responses(session)
    assert answer.reason == "timeout: 'north' has not answered within 1.5 s"


def test_in_a_thread_nothing_begins_after_the_deadline(
    saver: SqliteCheckpointer, clock: FakeClock
) -> None:
    """A tool cannot be cut short there: the agent ends before its next step."""

    def wait() -> str:
        """Wait a little."""
        clock.advance(1.7)
        return "waited"

    model = ScriptedModel(
        {"head": [delegate("slow", "go"), "sorry"], "slow": [Call("wait"), "never said"]}
    )
    head = Agent(
        "head",
        model=model,
        subordinates=[Agent("slow", tools=[wait])],
        delegation=DelegationPolicy(timeout=1.5),
    )
    session = Session(head, saver)

    assert session.send("go").result().text == "sorry"

    [answer] = responses(session)
    assert answer.reason == "timeout: 'slow' has not answered within 1.5 s"
    assert [each.agent for each in model.calls] == ["head", "slow", "head"]
    assert [each.failures for each in list_circuits(saver.ledger)] == [1]


@pytest.mark.parametrize("wrong", [30, "30", {"timeout": 30}])
def test_rules_that_are_none_are_refused(wrong: Any) -> None:
    with raises_code("invalid_field"):
        Agent("head", delegation=wrong)
