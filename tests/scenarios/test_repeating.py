"""What an agent has answered in a turn it is not asked again in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import ToolMessage

from echelons import Agent, Session, SqliteCheckpointer
from echelons.delegating import Delegating
from echelons.delegation import DelegationResponse
from echelons.testing import Call, ScriptedModel, delegate, delegate_many, per_conversation, report

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

FIND = Call("call_subordinate", {"message": "cook dinner"})


def told(session: Session) -> list[DelegationResponse]:
    messages = session.store.get(session.thread_id).messages
    return [DelegationResponse.load(m.artifact) for m in messages if isinstance(m, ToolMessage)]


def team(world: World, saver: SqliteCheckpointer, head: Any, eat: Any, **more: Any) -> Session:
    scripts = {
        "head": [*head, "done"],
        "eat": eat if callable(eat) else per_conversation(eat),
        "deli": ["bread"],
    }
    below = [
        Agent("eat", capabilities={"cook dinner": 0.9}),
        Agent("deli", capabilities={"dinner": 0.5}),
    ]
    model = ScriptedModel(scripts)
    session = Session(Agent("head", model=model, subordinates=below, **more), saver)
    assert world.send(session, "go").text == "done"
    return session


@pytest.mark.parametrize("again", [delegate("eat", "cook dinner"), FIND], ids=["named", "routed"])
@pytest.mark.parametrize("first", [delegate("eat", "cook dinner"), FIND], ids=["named", "routed"])
def test_what_is_answered_is_refused_with_the_reason(
    world: World, saver: SqliteCheckpointer, first: Call, again: Call
) -> None:
    session = team(world, saver, [first, again], ["pizza"])

    one, two = told(session)
    assert (one.status, one.agent) == ("fulfilled", "eat")
    assert (two.status, two.agent, two.failed) == ("unable", "head", False)
    assert two.reason == (
        "repeated: 'eat' has answered 'cook dinner' in this turn already; use that answer, "
        "ask for something else, or begin anew with reset=true"
    )
    assert len(session.store.verify(session.thread_id)) == 1


@pytest.mark.parametrize("again", [delegate("eat", "cook dinner"), FIND], ids=["named", "not"])
def test_an_only_subordinate_is_known_again_though_nobody_named_it(
    world: World, saver: SqliteCheckpointer, again: Call
) -> None:
    model = ScriptedModel({"head": [FIND, again, "done"], "eat": per_conversation(["pizza"])})
    session = Session(Agent("head", model=model, subordinates=[Agent("eat")]), saver)

    world.send(session, "go")

    assert [each.reason.split(":")[0] for each in told(session)] == ["", "repeated"]


def test_an_honest_unable_is_an_answer(world: World, saver: SqliteCheckpointer) -> None:
    asked = delegate("eat", "cook dinner")
    session = team(world, saver, [asked, asked], [report("unable", "", reason="no oven")])

    assert [each.reason.partition(":")[0] for each in told(session)] == ["no oven", "repeated"]


@pytest.mark.parametrize("status", ["partial", "needs_input"])
def test_who_has_not_finished_may_be_asked_again(
    world: World, saver: SqliteCheckpointer, status: str
) -> None:
    asked = delegate("eat", "cook dinner")
    session = team(world, saver, [asked, asked], [report(status, "so far"), "pizza"])

    assert [each.status for each in told(session)] == [status, "fulfilled"]


def test_who_has_failed_may_be_tried_again(world: World, saver: SqliteCheckpointer) -> None:
    asked = delegate("eat", "cook dinner")
    ends = iter([ValueError("no gas"), "pizza"])
    session = team(world, saver, [asked, asked], lambda _: next(ends))

    assert [each.status for each in told(session)] == ["unable", "fulfilled"]


def test_a_reset_asks_anew(world: World, saver: SqliteCheckpointer) -> None:
    calls = [delegate("eat", "cook dinner"), delegate("eat", "cook dinner", True)]
    session = team(world, saver, calls, ["pizza"])

    assert [each.result for each in told(session)] == ["pizza", "pizza"]
    assert len({each.sub_agent_thread_id for each in session.store.verify(session.thread_id)}) == 2


def test_another_turn_may_ask_the_same(world: World, saver: SqliteCheckpointer) -> None:
    session = team(world, saver, [delegate("eat", "cook dinner")], ["pizza", "pasta"])

    assert world.send(session, "and again").text == "done"

    assert [each.result for each in told(session)] == ["pizza", "pasta"]


def test_two_of_one_message_are_both_asked(world: World, saver: SqliteCheckpointer) -> None:
    asked = delegate("eat", "cook dinner")
    session = team(world, saver, [[asked, asked]], ["pizza", "pasta"])

    assert [each.result for each in told(session)] == ["pizza", "pasta"]


def test_of_several_requests_only_those_are_refused_that_are_answered(
    world: World, saver: SqliteCheckpointer
) -> None:
    both = delegate_many(delegate("eat", "cook dinner"), delegate("deli", "make a sandwich"))
    calls = [delegate("eat", "cook dinner"), both, delegate("deli", "make a sandwich")]
    session = team(world, saver, calls, ["pizza"])

    _, several, last = told(session)
    assert several.status == "partial"
    refused, fulfilled = several.subordinate_responses
    assert refused.reason.startswith("repeated: 'eat'")
    assert (fulfilled.agent, fulfilled.status) == ("deli", "fulfilled")
    assert last.reason.startswith("repeated: 'deli'")


def test_what_everybody_was_asked_at_once_is_not_asked_again(
    world: World, saver: SqliteCheckpointer
) -> None:
    rules = Delegating(exploring="parallel")
    session = team(world, saver, [FIND, FIND], ["pizza"], delegating=rules)

    one, two = told(session)
    assert [each.status for each in one.subordinate_responses] == ["fulfilled"] * 2
    assert [each.reason[:16] for each in two.subordinate_responses] == [
        "repeated: 'eat' ",
        "repeated: 'deli'",
    ]
