"""A task that names nobody is split among those it needs, or put to all who fit at once."""

from __future__ import annotations

import asyncio
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import ToolMessage

from echelons import Agent, Limits, Session, SqliteCheckpointer
from echelons.delegation.policy import DelegationPolicy
from echelons.delegation.request import DelegationResponse
from echelons.testing import Call, ScriptedModel, per_conversation, report

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

TRIP = "Plan flights to Rome, a hotel, and great food"
PARALLEL = DelegationPolicy(exploring="parallel")


def find(task: str) -> Call:
    return Call("call_subordinate", {"message": task})


def travel(model: ScriptedModel, **more: Any) -> Agent:
    restaurants = Agent("restaurants", capabilities={"food": 0.9, "dining": 0.8})
    tours = Agent("tours", capabilities={"tours": 0.9})
    below = [
        Agent("flights", capabilities={"flights": 0.9}),
        Agent("hotels", capabilities={"hotel": 0.9}),
        Agent("experiences", subordinates=[restaurants, tours]),
    ]
    return Agent("head", guidance="", model=model, subordinates=below, **more)


def answer_of(session: Session) -> DelegationResponse:
    root = session.thread_store.get(session.thread_id)
    answers = [m for m in root.messages if isinstance(m, ToolMessage)]
    return DelegationResponse.load(answers[-1].artifact)


def callers(model: ScriptedModel) -> list[str]:
    return sorted(str(call.agent) for call in model.calls)


# Splitting


def test_a_task_for_several_agents_becomes_a_request_to_each(
    world: World, saver: SqliteCheckpointer
) -> None:
    scripts: dict[str, Any] = {
        "head": [find(TRIP), "All planned."],
        "flights": ["AZ 609"],
        "hotels": ["Albergo"],
        "restaurants": ["Trattoria"],
    }
    model = ScriptedModel(scripts)
    session = Session(travel(model), saver)

    assert world.send(session, "go").text == "All planned."

    answer = answer_of(session)
    assert (answer.status, answer.agent) == ("fulfilled", "head")
    assert answer.result.split("\n\n") == [
        "1. flights: AZ 609",
        "2. hotels: Albergo",
        "3. experiences/restaurants: Trattoria",
    ]
    assert callers(model) == ["flights", "head", "head", "hotels", "restaurants"]
    assert {
        (call.agent, *(each.text for each in call.messages))
        for call in model.calls
        if call.agent != "head"
    } == {
        ("flights", f"part of: {TRIP}", "Plan flights to Rome"),
        ("hotels", f"part of: {TRIP}", "a hotel"),
        ("restaurants", f"part of: {TRIP}", "and great food"),
    }
    assert all(link.holds for link in session.thread_store.verify(session.thread_id))
    assert [each.agent for each in session.trace().walk()] == [
        *("head", "flights", "hotels", "experiences", "restaurants")
    ]


async def test_the_parts_of_a_task_are_worked_on_at_the_same_time(
    saver: SqliteCheckpointer,
) -> None:
    begun: set[str] = set()

    def slow(name: str) -> Any:
        async def think(_: Any) -> str:
            begun.add(name)
            while len(begun) < 3:
                await asyncio.sleep(0)
            return name

        return think

    below = {name: slow(name) for name in ("flights", "hotels", "restaurants")}
    model = ScriptedModel({"head": [find(TRIP), "done"], **below})
    session = Session(travel(model), saver)

    result = await asyncio.wait_for((await session.asend("go")).result(), 120)

    assert result.text == "done", "each has waited for the two others"


@pytest.mark.parametrize("levels", [1, 2])
async def test_requests_for_several_below_one_subordinate_do_not_wait_for_each_other(
    saver: SqliteCheckpointer, levels: int
) -> None:
    tasks = {"cook": "cook dinner", "sing": "sing a song", "dig": "dig a hole"}
    met: dict[str, set[str]] = {}
    heard: dict[str, list[list[str]]] = {name: [] for name in tasks}

    def work(name: str) -> Any:
        async def think(messages: Any) -> str:
            heard[name].append([each.text for each in messages])
            together = met.setdefault(f"turn {len(heard[name])}", set())
            together.add(name)
            while len(together) < 3:
                await asyncio.sleep(0)
            return f"{name} did it"

        return think

    calls = [find(each) for each in tasks.values()]
    again = [find(f"{each} again") for each in tasks.values()]
    model = ScriptedModel(
        {
            "head": per_conversation([calls, "done", again, "done"]),
            **{name: work(name) for name in tasks},
        }
    )
    mid = Agent("mid", subordinates=[Agent(n, capabilities={t: 0.9}) for n, t in tasks.items()])
    if levels == 2:
        mid = Agent("top", subordinates=[mid, Agent("idle")])
    session = Session(
        Agent("head", guidance="", model=model, subordinates=[mid, Agent("other")]), saver
    )

    for task in ("go", "go on"):
        result = await asyncio.wait_for((await session.asend(task)).result(), 120)
        assert result.text == "done", "each has waited for the two others"

    assert heard["cook"] == [
        ["cook dinner"],
        ["cook dinner", "cook did it", "cook dinner again"],
    ]
    assert all(link.holds for link in session.thread_store.verify(session.thread_id))


def test_a_part_that_its_agent_cannot_do_goes_to_the_next_best(
    world: World, saver: SqliteCheckpointer
) -> None:
    scripts: dict[str, Any] = {
        "head": [find("Book flights and a hotel"), "done"],
        "flights": [report("unable", "", reason="on strike")],
        "charter": ["C 1"],
        "hotels": ["Albergo"],
    }
    model = ScriptedModel(scripts)
    below = [
        Agent("flights", capabilities={"flights": 0.9}),
        Agent("charter", capabilities={"flights": 0.7}),
        Agent("hotels", capabilities={"hotel": 0.9}),
    ]
    session = Session(Agent("head", model=model, subordinates=below), saver)

    world.send(session, "go")

    answer = answer_of(session)
    assert answer.status == "fulfilled"
    assert answer.result == "1. charter: C 1\n\n2. hotels: Albergo"
    assert [each.agent for each in answer.subordinate_responses] == ["charter", "hotels"]
    assert [each.agent for each in session.trace().walk()] == [
        *("head", "flights", "charter", "hotels")
    ]


def test_unsplit_task_asks_one_agent(world: World, saver: SqliteCheckpointer) -> None:
    model = ScriptedModel({"head": [find(TRIP), "done"], "*": ["answered"]})
    session = Session(travel(model, delegation=DelegationPolicy(splitting=False)), saver)

    world.send(session, "go")

    assert len(callers(model)) == 3


# Exploring in parallel


def bakers(model: ScriptedModel, **more: Any) -> Agent:
    apprentice = Agent("apprentice", capabilities={"bake bread": 0.6})
    below = [
        Agent("baker", capabilities={"bake bread": 0.9}),
        Agent("workshop", subordinates=[apprentice], capabilities={"bake bread": 0.7}),
        Agent("smith", capabilities={"forge iron": 0.9}),
    ]
    return Agent("head", model=model, subordinates=below, **{"delegation": PARALLEL, **more})


def test_all_fitting_agents_are_asked_and_best_answer_counts(
    world: World, saver: SqliteCheckpointer
) -> None:
    scripts: dict[str, Any] = {
        "head": [find("Bake bread"), "done"],
        "baker": [report("fulfilled", "plain", confidence=0.5)],
        "workshop": [report("fulfilled", "good", confidence=0.8)],
        "apprentice": [report("fulfilled", "best", confidence=0.84)],
    }
    model = ScriptedModel(scripts)
    session = Session(bakers(model), saver)

    world.send(session, "go")

    answer = answer_of(session)
    # 0.8 - 0.05 * 2 against 0.84 - 0.05 * 3.
    assert (answer.agent, answer.result, answer.status) == ("workshop", "good", "fulfilled")
    assert callers(model) == ["apprentice", "baker", "head", "head", "workshop"]
    assert [each.agent for each in answer.subordinate_responses] == [
        *("baker", "workshop", "apprentice")
    ]
    assert all(link.holds for link in session.thread_store.verify(session.thread_id))


def test_unable_agents_say_why(world: World, saver: SqliteCheckpointer) -> None:
    cannot = {
        name: [report("unable", "", reason=f"{name} is ill")]
        for name in ("baker", "workshop", "apprentice")
    }
    model = ScriptedModel({"head": [find("Bake bread"), "sorry"], **cannot})
    session = Session(bakers(model), saver)

    world.send(session, "go")

    answer = answer_of(session)
    assert answer.status == "unable"
    assert answer.reason == (
        "no agent can: baker: baker is ill; workshop: workshop is ill; "
        "workshop/apprentice: apprentice is ill"
    )


def shop(scripts: dict[str, Any]) -> Agent:
    """Return a tree of which two may each do a part of a task, and are asked at once."""
    below = [
        Agent("baker", capabilities={"bread": 0.9}),
        Agent("confectioner", capabilities={"cakes": 0.9}),
    ]
    rules = DelegationPolicy(exploring="parallel", splitting=False)
    return Agent("head", model=ScriptedModel(scripts), subordinates=below, delegation=rules)


def test_partial_answers_that_cover_what_a_task_needs_are_put_together(
    world: World, saver: SqliteCheckpointer
) -> None:
    scripts: dict[str, Any] = {
        "head": [find("I need bread and cakes"), "done"],
        "baker": [report("partial", "bread", confidence=0.8, reason="no cakes")],
        "confectioner": [report("partial", "cakes", confidence=0.7, reason="no bread")],
    }
    session = Session(shop(scripts), saver)

    world.send(session, "go")

    answer = answer_of(session)
    assert answer.status == "fulfilled"
    assert answer.partial_results == ("bread", "cakes")


def test_partial_answers_that_leave_something_out_become_a_question(
    world: World, saver: SqliteCheckpointer
) -> None:
    scripts: dict[str, Any] = {
        "head": [find("I need bread and cakes"), "done"],
        "baker": [report("partial", "bread", confidence=0.8, reason="no cakes")],
        "confectioner": [report("unable", "", reason="ill")],
    }
    session = Session(shop(scripts), saver)

    world.send(session, "go")

    answer = answer_of(session)
    assert answer.status == "needs_input"
    assert "no cakes" in answer.reason


def test_no_more_are_asked_at_once_than_the_width_allows(
    world: World, saver: SqliteCheckpointer
) -> None:
    scripts: dict[str, Any] = {
        "head": [find("Bake bread"), "done"],
        "baker": [report("unable", "", reason="ill")],
        "workshop": [report("unable", "", reason="closed")],
        "apprentice": ["bread"],
    }
    model = ScriptedModel(scripts)
    session = Session(bakers(model, limits=Limits(width=2)), saver)

    world.send(session, "go")

    answer = answer_of(session)
    assert (answer.status, answer.result) == ("fulfilled", "bread")
    assert len(answer.subordinate_responses) == 2, "the third was asked after one of the two"


CANDIDATES = {"baker": "bread", "confectioner": "cakes", "cook": "soup"}
CHAINED = [*product(("fulfilled", "partial"), ("partial", "unable"), ("fulfilled", "partial"))]


@pytest.mark.parametrize("task", ["bread and cakes", "bread, cakes, and soup"])
@pytest.mark.parametrize("statuses", [*CHAINED, ("partial", "unable", "needs_input")], ids=" ".join)
def test_where_the_last_are_asked_one_after_the_other_all_answers_count_as_at_once(
    world: World, statuses: tuple[str, ...], task: str
) -> None:
    outcomes = []
    for width in (2, 3):
        scripts: dict[str, Any] = {
            name: [report(status, name, confidence=0.8 - 0.1 * place, reason="no more")]
            for place, (name, status) in enumerate(zip(CANDIDATES, statuses, strict=True))
        }
        scripts["head"] = [find(f"I need {task} for all, to eat"), "done"]
        below = [
            Agent(name, capabilities={skill: 0.9, "eat": 0.9}) for name, skill in CANDIDATES.items()
        ]
        rules = DelegationPolicy(exploring="parallel", splitting=False)
        more: dict[str, Any] = {"limits": Limits(width=width), "delegation": rules}
        head = Agent("head", model=ScriptedModel(scripts), subordinates=below, **more)
        messages = world.invoke(head.compile(), {"messages": [("user", "go")]})["messages"]
        [answer] = [DelegationResponse.load(m.artifact) for m in messages if m.type == "tool"]
        outcomes.append(answer.model_dump(exclude={"request_id", "subordinate_responses"}))

    one_by_one, at_once = outcomes
    assert one_by_one == at_once


@pytest.mark.parametrize("exploring", ["ordered", "parallel"])
def test_request_without_candidate_is_answered_with_the_others(
    world: World, saver: SqliteCheckpointer, exploring: Any
) -> None:
    requests = [{"message": "Bake bread"}, {"message": "Fly me to the moon"}]
    scripts: dict[str, Any] = {
        "head": [Call("delegate_many", {"requests": requests}), "done"],
        **{name: ["bread"] for name in ("baker", "workshop", "apprentice")},
    }
    model = ScriptedModel(scripts)
    session = Session(bakers(model, delegation=DelegationPolicy(exploring=exploring)), saver)

    assert world.send(session, "go").text == "done"

    answer = answer_of(session)
    assert answer.status == "partial"
    assert "no_candidate" in answer.reason


def test_requests_without_any_candidate_are_answered_at_once(
    world: World, saver: SqliteCheckpointer
) -> None:
    requests = [{"message": "Walk the dog"}, {"message": "Fly me to the moon"}]
    model = ScriptedModel({"head": [Call("delegate_many", {"requests": requests}), "sorry"]})
    session = Session(bakers(model), saver)

    assert world.send(session, "go").text == "sorry"

    assert answer_of(session).status == "unable"
    assert callers(model) == ["head", "head"]
