"""What an agent has answered in a turn it is not asked again in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import ToolMessage

from echelons import Agent, Session, SqliteCheckpointer
from echelons.delegation.policy import DelegationPolicy
from echelons.delegation.request import DelegationResponse
from echelons.errors import InvalidSetting
from echelons.testing import Call, ScriptedModel, delegate, delegate_many, per_conversation, report

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

FIND = Call("call_subordinate", {"message": "cook dinner"})


def told(session: Session) -> list[DelegationResponse]:
    messages = session.thread_store.get(session.thread_id).messages
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
        "repeated: 'eat' has answered 'cook dinner' in this turn already, and nothing else has "
        "been done since; use that answer, ask for something else, or begin anew with reset=true"
    )
    assert len(session.thread_store.verify(session.thread_id)) == 1


@pytest.mark.parametrize("again", [delegate("eat", "cook dinner"), FIND], ids=["named", "not"])
def test_only_subordinate_is_recognised_without_its_name(
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
def test_unfinished_agent_may_be_asked_again(
    world: World, saver: SqliteCheckpointer, status: str
) -> None:
    asked = delegate("eat", "cook dinner")
    session = team(world, saver, [asked, asked], [report(status, "so far"), "pizza"])

    assert [each.status for each in told(session)] == [status, "fulfilled"]


def test_failed_agent_may_be_tried_again(world: World, saver: SqliteCheckpointer) -> None:
    asked = delegate("eat", "cook dinner")
    ends = iter([ValueError("no gas"), "pizza"])
    session = team(world, saver, [asked, asked], lambda _: next(ends))

    assert [each.status for each in told(session)] == ["unable", "fulfilled"]


def test_a_reset_asks_anew(world: World, saver: SqliteCheckpointer) -> None:
    calls = [delegate("eat", "cook dinner"), delegate("eat", "cook dinner", True)]
    session = team(world, saver, calls, ["pizza"])

    assert [each.result for each in told(session)] == ["pizza", "pizza"]
    assert (
        len({each.sub_agent_thread_id for each in session.thread_store.verify(session.thread_id)})
        == 2
    )


def test_another_turn_may_ask_the_same(world: World, saver: SqliteCheckpointer) -> None:
    session = team(world, saver, [delegate("eat", "cook dinner")], ["pizza", "pasta"])

    assert world.send(session, "and again").text == "done"

    assert [each.result for each in told(session)] == ["pizza", "pasta"]


def test_two_of_one_message_are_both_asked(world: World, saver: SqliteCheckpointer) -> None:
    asked = delegate("eat", "cook dinner")
    session = team(world, saver, [[asked, asked]], ["pizza", "pasta"])

    assert [each.result for each in told(session)] == ["pizza", "pizza"]


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


def test_task_sent_to_all_at_once_is_not_sent_again(
    world: World, saver: SqliteCheckpointer
) -> None:
    rules = DelegationPolicy(exploring="parallel")
    session = team(world, saver, [FIND, FIND], ["pizza"], delegation=rules)

    one, two = told(session)
    assert [each.status for each in one.subordinate_responses] == ["fulfilled"] * 2
    assert [each.reason[:16] for each in two.subordinate_responses] == [
        "repeated: 'eat' ",
        "repeated: 'deli'",
    ]


TASK = "bake bread"
ROUTED = Call("call_subordinate", {"message": TASK})
CANNOT = report("unable", "", reason="no oven")
FAILS = ValueError("no gas")


def bakers(
    world: World, saver: SqliteCheckpointer, head: list[Any], x: Any, y: Any, **more: Any
) -> tuple[list[DelegationResponse], list[str]]:
    """Return what the head is told, and which of x and y was called; x is the better one."""
    ends = {"x": iter([*x, "x again"]), "y": iter([*y, "y again"])}
    model = ScriptedModel(
        {
            "head": [*head, "done"],
            "x": lambda _: next(ends["x"]),
            "y": lambda _: next(ends["y"]),
            "z": ["la"],
        }
    )
    below = [
        Agent("x", capabilities={TASK: 0.9}),
        Agent("y", capabilities={TASK: 0.8}),
        Agent("z", capabilities={"sing": 0.9}),
    ]
    session = Session(Agent("head", model=model, subordinates=below, **more), saver)
    assert world.send(session, "go").text == "done"
    assert all(link.holds for link in session.thread_store.verify(session.thread_id))
    return told(session), [str(each.agent) for each in model.calls if each.agent in ("x", "y")]


@pytest.mark.parametrize(
    ("x", "y", "again", "asked"),
    [
        ([FAILS], ["rye"], "x", ["x", "y", "x"]),
        ([FAILS], ["rye"], "y", ["x", "y"]),
        ([CANNOT], ["rye"], "x", ["x", "y"]),
        ([CANNOT], ["rye"], "y", ["x", "y"]),
        ([CANNOT], [FAILS], "x", ["x", "y"]),
        ([CANNOT], [FAILS], "y", ["x", "y", "y"]),
        ([FAILS], [CANNOT], "y", ["x", "y"]),
        ([report("partial", "flour")], ["rye"], "x", ["x", "y", "x"]),
    ],
)
def test_of_those_asked_in_turn_each_counts_for_what_it_has_said_itself(
    world: World, saver: SqliteCheckpointer, x: Any, y: Any, again: str, asked: list[str]
) -> None:
    (_, second), calls = bakers(world, saver, [ROUTED, delegate(again, TASK)], x, y)

    assert calls == asked
    assert second.reason.startswith(f"repeated: '{again}'") == (len(asked) == 2)


@pytest.mark.parametrize(
    ("x", "y", "asked", "reason"),
    [
        # It is fulfilled: another failure of x would lead to y again.
        ([FAILS], ["rye"], ["x", "y"], "repeated: 'y'"),
        ([CANNOT], ["rye"], ["x", "y"], "repeated: 'y'"),
        ([CANNOT], [CANNOT], ["x", "y"], "repeated: 'x'"),
        # Only who has failed is tried again.
        ([CANNOT], [FAILS], ["x", "y", "y"], ""),
        ([FAILS, FAILS], [CANNOT], ["x", "y", "x"], "ValueError"),
    ],
)
def test_task_without_name_goes_again_to_agents_without_answer(
    world: World, saver: SqliteCheckpointer, x: Any, y: Any, asked: list[str], reason: str
) -> None:
    (_, second), calls = bakers(world, saver, [ROUTED, ROUTED], x, y)

    assert calls == asked
    assert second.reason.startswith(reason) if reason else second.status == "fulfilled"


def test_parts_of_an_answer_that_make_it_whole_are_not_asked_for_again(
    world: World, saver: SqliteCheckpointer
) -> None:
    task = Call("call_subordinate", {"message": "I need bread and cakes"})
    part: list[Any] = [report("partial", "half"), "again"]
    model = ScriptedModel({"head": [task, task, "done"], "x": part, "y": part})
    rules = DelegationPolicy(splitting=False)
    below = [
        Agent("x", capabilities={"bread": 0.9}),
        Agent("y", capabilities={"cakes": 0.9}),
    ]
    session = Session(Agent("head", model=model, subordinates=below, delegation=rules), saver)

    world.send(session, "go")

    first, second = told(session)
    assert first.status == "fulfilled"
    assert second.reason.startswith("repeated: ")


@pytest.mark.parametrize(
    ("again", "asked", "reason"),
    [
        (delegate("mid", TASK), ["x", "mid"], ""),
        (ROUTED, ["x"], "repeated: 'mid/x' has answered"),
    ],
    ids=["named", "routed"],
)
def test_agent_that_only_passed_a_task_on_has_not_answered_it(
    world: World, saver: SqliteCheckpointer, again: Call, asked: list[str], reason: str
) -> None:
    model = ScriptedModel({"head": [ROUTED, again, "done"], "x": ["rye"], "mid": ["a cake"]})
    mid = Agent("mid", subordinates=[Agent("x", capabilities={TASK: 0.9})])
    below = [mid, Agent("other", capabilities={"sing": 0.9})]
    session = Session(Agent("head", model=model, subordinates=below), saver)

    world.send(session, "go")

    first, second = told(session)
    assert first.path == "head/mid/x"
    assert second.reason.startswith(reason) if reason else second.result == "a cake"
    assert [each.agent for each in model.calls if each.agent != "head"] == asked


@pytest.mark.parametrize(
    ("again", "asked"),
    [
        ([delegate("x", TASK)], ["x", "y", "x"]),
        ([delegate("y", TASK)], ["x", "y"]),
        ([delegate_many(delegate("x", TASK), delegate("y", TASK))], ["x", "y", "x"]),
        ([delegate_many(ROUTED, delegate("z", "sing on"))], ["x", "y"]),
    ],
)
def test_agent_asked_in_turn_for_a_part_counts_for_its_answer(
    world: World, saver: SqliteCheckpointer, again: list[Call], asked: list[str]
) -> None:
    first = delegate_many(ROUTED, delegate("z", "sing"))
    _, calls = bakers(world, saver, [first, *again], [FAILS], ["rye"])

    assert calls == asked


def test_part_goes_again_to_agents_without_answer(world: World, saver: SqliteCheckpointer) -> None:
    several = delegate_many(ROUTED, delegate("z", "sing"))
    (_, second), calls = bakers(world, saver, [several, several], [CANNOT], [FAILS])

    assert calls == ["x", "y", "y"]
    part = second.subordinate_responses[0]
    assert (part.agent, part.status, part.path) == ("y", "fulfilled", "head/y")


DINNER = delegate("eat", "cook dinner")
SANDWICH = delegate("deli", "make a sandwich")


def look() -> str:
    """Look into the oven."""
    return "hot"


@pytest.mark.parametrize(
    "between",
    [
        [SANDWICH],
        [delegate("eat", "wash up")],
        [Call("look")],
        [[SANDWICH, Call("nope")]],
        [delegate_many(SANDWICH, delegate("eat", "wash up"))],
    ],
    ids=["another", "itself", "tool", "with a refused call", "several"],
)
@pytest.mark.parametrize("again", [DINNER, FIND], ids=["named", "routed"])
def test_what_is_answered_may_be_asked_again_when_something_else_was_done(
    world: World, saver: SqliteCheckpointer, between: list[Any], again: Call
) -> None:
    script = [DINNER, *between, again, again]
    eat = {"cook dinner": "pizza", "wash up": "clean"}
    session = team(world, saver, script, lambda said: eat[said[-1].text], tools=[look])

    messages = session.thread_store.get(session.thread_id).messages
    last, refused = [each.text for each in messages if isinstance(each, ToolMessage)][-2:]
    assert last == "pizza"
    assert refused.startswith("[unable] repeated: 'eat'")


@pytest.mark.parametrize(
    "between",
    [
        [Call("nope")],
        [delegate("nobody", "go")],
        [Call("call_subordinate", {"message": "fly to Mars"})],
        [delegate("deli", "cook dinner")],
    ],
    ids=["no tool", "nobody", "no candidate", "same task"],
)
def test_refused_calls_and_the_task_itself_are_nothing_else(
    world: World, saver: SqliteCheckpointer, between: list[Any]
) -> None:
    session = team(world, saver, [DINNER, *between, DINNER], ["pizza"])

    messages = session.thread_store.get(session.thread_id).messages
    answers = [each.text for each in messages if isinstance(each, ToolMessage)]
    assert answers[-1].startswith("[unable] repeated: 'eat'")


def test_what_was_done_beside_an_answer_was_not_done_since(
    world: World, saver: SqliteCheckpointer
) -> None:
    session = team(world, saver, [[DINNER, SANDWICH], DINNER], ["pizza"])

    assert told(session)[-1].reason.startswith("repeated: 'eat'")


def test_a_policy_may_allow_repeated_tasks(world: World, saver: SqliteCheckpointer) -> None:
    policy = DelegationPolicy(repeats="allow")
    session = team(world, saver, [DINNER, DINNER, FIND], lambda _: "pizza", delegation=policy)

    assert [each.status for each in told(session)] == ["fulfilled"] * 3


def test_a_policy_on_repeats_has_one_of_two_values() -> None:
    with pytest.raises(InvalidSetting, match="repeats"):
        DelegationPolicy(repeats="twice")  # type: ignore[arg-type]  # pyright: ignore
