"""An agent that makes the same refused call again and again is ended, with the reason."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage

from echelons import Agent, DelegationPolicy, Limits, Session, SqliteCheckpointer
from echelons.delegation.request import DelegationResponse
from echelons.testing import Call, Reply, ScriptedModel, delegate, delegate_many, report

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

BRIEF = delegate("eat", "cook dinner")


def look(place: str) -> str:
    """Look at a place."""
    return f"{place} is fine"


def end(world: World, saver: SqliteCheckpointer, head: Any, **more: Any) -> tuple[str, int]:
    """Return the root's last words, and how often its model was called."""
    model = ScriptedModel({"head": head, "eat": lambda _: "pizza", "deli": lambda _: "bread"})
    below = [Agent("eat"), Agent("deli")]
    more.setdefault("limits", Limits(calls=30))
    agent = Agent("head", model=model, tools=[look], subordinates=below, **more)
    with Session(agent, saver) as session:
        text = world.send(session, "go").text
        messages = session.thread_store.get(session.thread_id).messages
    assert len(model.calls) < 50
    if text != "done":
        halt = messages[-1].response_metadata["halt"]
        assert (halt["kind"], f"Not finished ({halt['reason']}).") == ("refused", text)
    asked = {
        call["id"] for each in messages if isinstance(each, AIMessage) for call in each.tool_calls
    }
    assert asked <= {each.tool_call_id for each in messages if isinstance(each, ToolMessage)}
    return text, sum(each.agent == "head" for each in model.calls)


@pytest.mark.parametrize(
    ("again", "why"),
    [
        (Call("nope", {"a": 1}), "'nope' was refused 3 times in a row, as often as max_refusals"),
        (Call("nope"), "the last answer was: Error: there is no such tool; the tools are: "),
        (Call("look", {"town": "Rome"}), "Error: not run: Error invoking tool 'look'"),
        (Call("nope", "[[["), "'nope' was refused 3 times in a row"),
        (delegate("nobody", "go"), "Error: no subordinate is called 'nobody'"),
        (delegate_many(delegate("nobody", "go")), "'delegate_many' was refused 3 times"),
        (Call("call_subordinate", {"message": "fly to Mars"}), "no_candidate: no agent below"),
        (Reply(calls=[Call("look", {"place": "R"})], finish_reason="length"), "was cut off"),
    ],
)
def test_after_three_refusals_of_the_same_call_in_a_row_the_agent_ends(
    world: World, saver: SqliteCheckpointer, again: Any, why: str
) -> None:
    text, calls = end(world, saver, lambda _: again)

    assert text.startswith("Not finished (refused: the same call of ")
    assert why in text
    assert calls == 3


def test_a_brief_that_is_refused_as_repeated_is_not_made_for_ever(
    world: World, saver: SqliteCheckpointer
) -> None:
    text, calls = end(world, saver, lambda _: BRIEF)

    assert "'call_subordinate' was refused 3 times in a row" in text
    assert "repeated: 'eat' has answered 'cook dinner'" in text
    assert calls == 4


def test_a_call_too_wide_is_not_made_for_ever(world: World, saver: SqliteCheckpointer) -> None:
    many = delegate_many(*(delegate("eat", f"dish {n}") for n in range(3)))

    text, calls = end(world, saver, lambda _: many, limits=Limits(width=2))

    assert "width: 0 of 2 calls" in text
    assert calls == 3


def test_what_is_left_of_a_call_that_was_cut_off_does_not_matter(
    world: World, saver: SqliteCheckpointer
) -> None:
    place = count()

    def half(_: Any) -> Reply:
        return Reply(calls=[Call("look", {"place": str(next(place))})], finish_reason="length")

    assert end(world, saver, half)[1] == 3


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_the_limit_of_refusals_can_be_set(
    world: World, saver: SqliteCheckpointer, limit: int
) -> None:
    limits = Limits(max_refusals=limit)

    assert end(world, saver, lambda _: Call("nope"), limits=limits)[1] == limit


def test_without_a_limit_of_refusals_other_limits_hold(
    world: World, saver: SqliteCheckpointer
) -> None:
    limits = Limits(max_refusals=None)

    assert end(world, saver, [*[Call("nope")] * 9, "done"], limits=limits) == ("done", 10)


NOPE, OTHER, WORK = Call("nope"), Call("other"), Call("look", {"place": "Rome"})


@pytest.mark.parametrize(
    "script",
    [
        [NOPE, NOPE],
        [NOPE, NOPE, WORK, NOPE, NOPE],
        [NOPE, NOPE, BRIEF, NOPE, NOPE],
        [NOPE, NOPE, [NOPE, WORK], NOPE, NOPE],
        [Call("nope", {"n": 1}), Call("nope", {"n": 2}), Call("nope", {"n": 3})],
        [NOPE, OTHER, NOPE, OTHER],
    ],
    ids=["two", "tool", "delegation", "mixed", "changed", "others"],
)
def test_an_agent_that_gets_on_is_not_ended(
    world: World, saver: SqliteCheckpointer, script: list[Any]
) -> None:
    assert end(world, saver, [*script, "done"]) == ("done", len(script) + 1)


def test_two_refused_calls_in_turn_are_counted_each(
    world: World, saver: SqliteCheckpointer
) -> None:
    assert end(world, saver, [NOPE, OTHER, NOPE, OTHER, NOPE, "never"])[1] == 5


def test_each_turn_counts_anew(world: World, saver: SqliteCheckpointer) -> None:
    model = ScriptedModel([NOPE, NOPE, "done"])
    with Session(Agent("head", model=model), saver) as session:
        assert world.send(session, "go").text == "done"
        assert world.send(session, "on").text == "done"


def test_a_failing_tool_is_no_refusal(world: World, saver: SqliteCheckpointer) -> None:
    def fail() -> str:
        """Fail."""
        raise ValueError("no line")

    model = ScriptedModel([*[Call("fail")] * 5, "done"])
    with Session(Agent("head", model=model, tools=[fail]), saver) as session:
        assert world.send(session, "go").text == "done"


@pytest.mark.parametrize("named", [True, False])
def test_a_superior_reads_partial_with_the_reason_and_a_next_candidate_is_asked(
    world: World, saver: SqliteCheckpointer, named: bool
) -> None:
    task = "bake bread"
    ask = delegate("x", task) if named else Call("call_subordinate", {"message": task})
    stuck = Reply("Half a loaf.", calls=[report("great", "")])
    model = ScriptedModel({"head": [ask, "done"], "x": lambda _: stuck, "y": ["rye"]})
    below = [Agent("x", capabilities={task: 0.9}), Agent("y", capabilities={task: 0.8})]
    with Session(Agent("head", model=model, subordinates=below), saver) as session:
        assert world.send(session, "go").text == "done"
        messages = session.thread_store.get(session.thread_id).messages

    [answer] = [each for each in messages if isinstance(each, ToolMessage)]
    response = DelegationResponse.load(answer.artifact)
    if named:
        assert (response.status, response.result) == ("partial", "Half a loaf.")
        assert response.reason.startswith("refused: the same call of 'report' was refused 3 times")
        assert not response.failed
    else:
        assert response.status == "fulfilled"
        assert "rye" in response.result
        assert [each.agent for each in model.calls].count("y") == 1


def test_a_partial_end_is_not_turned_into_a_question(
    world: World, saver: SqliteCheckpointer
) -> None:
    ask = Call("call_subordinate", {"message": "bake bread"})
    stuck = Reply("Half a loaf.", calls=[report("great", "")])
    model = ScriptedModel({"head": [ask, "done"], "x": lambda _: stuck})
    below = [Agent("x", capabilities={"bake bread": 0.9}), Agent("z", capabilities={"sing": 0.9})]
    policy = DelegationPolicy(splitting=False)
    with Session(Agent("head", model=model, subordinates=below, delegation=policy), saver) as own:
        world.send(own, "go")
        messages = own.thread_store.get(own.thread_id).messages

    [answer] = [each for each in messages if isinstance(each, ToolMessage)]
    assert DelegationResponse.load(answer.artifact).status == "partial"
