"""A request that a guard stops is a typed error inside, and ``unable`` with it to its superior."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import ToolMessage

from echelons import Agent, Limits, Session, SqliteCheckpointer
from echelons.delegation.policy import DelegationPolicy
from echelons.delegation.request import DelegationResponse
from echelons.testing import Call, ScriptedModel, delegate, delegate_many

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

WIDE = "width: 2 of 2 calls side by side in one message, and {} wanted; "
LATER = "make the others in a later message"
TRIP = Call("call_subordinate", {"message": "Book flights to Rome and a hotel"})
BREAD = Call("call_subordinate", {"message": "Bake bread"})


def told(session: Session, agent: str = "head") -> list[ToolMessage]:
    """Return what an agent's calls were answered, refusals first; every link must hold."""
    assert all(link.holds for link in session.thread_store.verify(session.thread_id))
    [found] = [each for each in session.trace().walk() if each.agent == agent]
    messages = session.thread_store.get(found.thread_id).messages
    return [each for each in messages if isinstance(each, ToolMessage)]


def responses(session: Session, agent: str = "head") -> list[DelegationResponse]:
    return [DelegationResponse.load(each.artifact) for each in told(session, agent)]


def pair(width: int | None, scripts: dict[str, Any], **more: Any) -> Agent:
    """Return a superior of two, who says "done" at last."""
    model = ScriptedModel({"north": ["N"] * 4, "south": ["S"] * 4, **scripts})
    below = [
        Agent("north", capabilities={"flights": 0.9, "bread": 0.9}),
        Agent("south", capabilities={"hotel": 0.9, "bread": 0.8}),
    ]
    return Agent("head", model=model, subordinates=below, limits=Limits(width=width), **more)


# Width


def test_a_delegation_beyond_the_width_is_unable_with_the_reason(
    world: World, saver: SqliteCheckpointer
) -> None:
    calls = [delegate("north", "a"), delegate("south", "b"), delegate("north", "c")]
    session = Session(pair(2, {"head": [calls, "done"]}), saver)

    assert world.send(session, "go").text == "done"

    refused, *_ = responses(session)
    assert (refused.status, refused.agent, refused.path) == ("unable", "head", "head")
    assert refused.reason == WIDE.format("1 more is") + LATER
    assert refused.failed, "nobody has said so himself"
    message, *_ = told(session)
    assert (message.status, message.text) == ("error", f"[unable] {refused.reason}")
    assert [each.agent for each in session.trace().walk()] == ["head", "north", "south"]


def test_several_requests_beyond_the_width_are_refused_as_one(
    world: World, saver: SqliteCheckpointer
) -> None:
    both = delegate_many(delegate("north", "a"), delegate("south", "b"))
    session = Session(pair(2, {"head": [[both, both], "done"]}), saver)

    assert world.send(session, "go").text == "done"

    refused, done = responses(session)
    assert (done.status, refused.status) == ("fulfilled", "unable")
    assert refused.reason == WIDE.format("2 more are") + LATER
    assert told(session)[0].name == "delegate_many"


def test_what_had_no_room_may_be_asked_for_in_a_later_message(
    world: World, saver: SqliteCheckpointer
) -> None:
    calls = [delegate("north", "a"), delegate("south", "b")]
    session = Session(pair(1, {"head": [calls, calls[1], "done"]}), saver)

    assert world.send(session, "go").text == "done"

    assert [each.result for each in responses(session)] == ["", "N", "S"]


def test_superior_below_the_root_reads_the_same(world: World, saver: SqliteCheckpointer) -> None:
    wide = [delegate("leaf", "a"), delegate("leaf", "b")]
    model = ScriptedModel({"head": [delegate("mid", "go"), "done"], "mid": [wide, "so far"]})
    mid = Agent("mid", subordinates=[Agent("leaf", model=ScriptedModel({"leaf": ["L"]}))])
    head = Agent("head", model=model, subordinates=[mid], limits=Limits(width=1))
    session = Session(head, saver)

    assert world.send(session, "go").text == "done"

    refused, done = responses(session, "mid")
    assert (done.result, refused.status) == ("L", "unable")
    [above] = responses(session)
    assert [each.reason[:5] for each in above.subordinate_responses] == ["width", ""]


@pytest.mark.parametrize(("width", "asked"), [(None, 2), (2, 2), (1, 1)])
def test_a_task_with_more_parts_than_may_go_side_by_side_stays_whole(
    world: World, saver: SqliteCheckpointer, width: int | None, asked: int
) -> None:
    session = Session(pair(width, {"head": [TRIP, "done"]}), saver)

    assert world.send(session, "go").text == "done"

    assert len(session.trace().subordinates) == asked
    [answer] = responses(session)
    assert answer.status == "fulfilled"


def test_of_two_tasks_that_have_parts_the_second_waits_if_both_are_too_many(
    world: World, saver: SqliteCheckpointer
) -> None:
    calls = [TRIP, Call("call_subordinate", {"message": "Find a hotel and flights to Oslo"})]
    session = Session(pair(3, {"head": [calls, "done"]}), saver)

    assert world.send(session, "go").text == "done"

    refused, done = responses(session)
    assert (done.status, refused.status) == ("fulfilled", "unable")
    assert refused.reason == (
        "width: 2 of 3 calls side by side in one message, and 2 more are wanted; " + LATER
    )
    assert len(session.trace().subordinates) == 2


def test_agents_asked_at_once_by_a_message_are_within_its_width(
    world: World, saver: SqliteCheckpointer
) -> None:
    calls = [BREAD, Call("call_subordinate", {"message": "Bake more bread"})]
    rules = DelegationPolicy(exploring="parallel")
    session = Session(pair(3, {"head": [calls, "done"]}, delegation=rules), saver)

    assert world.send(session, "go").text == "done"

    assert [each.status for each in responses(session)] == ["fulfilled"] * 2
    asked = [each.agent for each in session.trace().subordinates]
    assert sorted(asked) == ["north", "north", "south"]


# Depth


def test_a_tree_that_runs_itself_again_comes_to_an_end(
    world: World, saver: SqliteCheckpointer
) -> None:
    reached = []

    def again(task: str) -> str:
        reached.append(task)
        return str(graph.invoke({"messages": [("user", task)]})["messages"][-1].text)

    def step(said: Any) -> Any:
        return said[-1].text if isinstance(said[-1], ToolMessage) else delegate("again", "go")

    head = Agent("head", model=ScriptedModel({"head": step}), subordinates=[again])
    graph = head.compile()

    text = world.send(Session(head, saver), "go").text

    assert len(reached) == 16, "a head and a function at 32 levels"
    assert text.startswith("[unable] Depth: 'head' would go down to level 34, trees within trees")
