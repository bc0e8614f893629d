"""What a subtree may spend: granted from above, reserved before it is spent, and given back."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import interrupt

from echelons import Agent, DelegationPolicy, Permissions, Session, Spawn, SqliteCheckpointer
from echelons.errors import InvalidSetting
from echelons.graphs import entry
from echelons.guards.budget import Budget
from echelons.guards.prices import Price, Prices
from echelons.testing import Call, FakeClock, Reply, ScriptedModel, delegate, report
from tests.accounts import check_accounts, read_charges, read_grants

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

SPENT = (100, 20)
"""Tokens that a reply of most scripts reports to have read and written."""


def look(at: str) -> str:
    """Look at something.

    Args:
        at: What.
    """
    return f"seen {at}"


def grant(subordinate: str, message: str, **budget: Any) -> Call:
    """Return the call with which a part of a budget is granted."""
    args = {"subordinate": subordinate, "message": message, "budget": budget}
    return Call("call_subordinate", args)


def ask(*calls: Call, usage: tuple[int, int] | None = SPENT, text: str = "") -> Reply:
    return Reply(text, calls=calls, usage=usage)


def say(text: str, usage: tuple[int, int] | None = SPENT) -> Reply:
    return Reply(text, usage=usage)


def look_about(messages: Any) -> Reply:
    return ask(Call("look", {"at": str(len(messages))}))


def build_session(root: Agent, saver: Any, **more: Any) -> Session:
    return Session(root, saver, thread="budget", **more)


def test_a_turn_ends_limited_when_its_budget_is_used_up(
    world: World, saver: SqliteCheckpointer
) -> None:
    model = ScriptedModel(
        {"head": [ask(Call("look", {"at": str(n)}), text=f"Looking at {n}") for n in range(9)]}
    )
    with build_session(Agent("head", model=model, tools=[look]), saver) as session:
        result = world.send(session, "Look around", budget=Budget(tokens=300))
        root = check_accounts(saver, session.thread_id)["head"]

    assert (result.status, result.reason) == ("limited", "budget: 360 of 300 tokens")
    assert result.response is not None
    assert (result.response.result, result.response.partial_results) == (
        "Looking at 2",
        ("seen 0", "seen 1", "seen 2"),
    )
    assert len(model.calls) == 3
    assert (root.spent, root.get_overdraft("tokens")) == ({"tokens": 360}, 60)


def test_a_subordinate_that_has_spent_its_grant_is_partial_and_its_superior_goes_on(
    world: World, saver: SqliteCheckpointer
) -> None:
    model = ScriptedModel(
        {
            "head": [ask(grant("scout", "Look around", tokens=200)), say("Enough.")],
            "scout": [
                ask(Call("look", {"at": "one"}), text="First"),
                ask(Call("look", {"at": "two"})),
                say("never"),
            ],
        }
    )
    head = Agent("head", model=model, subordinates=[Agent("scout", tools=[look])])
    with build_session(head, saver) as session:
        result = world.send(session, "Go", budget=Budget(tokens=5000))
        grants = check_accounts(saver, session.thread_id)

    assert result.response is not None
    [scout] = result.response.subordinate_responses
    assert (scout.status, scout.reason) == ("partial", "budget: 240 of 200 tokens")
    assert (scout.partial_results, scout.failed) == (("seen one", "seen two"), False)
    assert (result.status, result.text) == ("finished", "Enough.")
    assert grants["head"].spent == {"tokens": 480}
    assert grants["head/scout"].record.closed


def test_what_is_not_spent_is_given_back_and_more_than_is_free_is_refused(
    world: World, saver: SqliteCheckpointer
) -> None:
    model = ScriptedModel(
        {
            "head": [
                ask(grant("scout", "Look", tokens=500)),
                ask(grant("scout", "Look again", tokens=500)),
                ask(grant("scout", "And again", tokens=500)),
                say("Done."),
            ],
            "scout": [say("Seen."), say("Seen again.")],
        }
    )
    head = Agent("head", model=model, subordinates=[Agent("scout")])
    with build_session(head, saver) as session:
        result = world.send(session, "Go", budget=Budget(tokens=1000))
        check_accounts(saver, session.thread_id)

    assert result.response is not None
    last = result.response.subordinate_responses[-1]
    assert (last.status, last.reason) == ("unable", "over_grant: asked 500, free 400 tokens")
    assert result.status == "finished"


def test_each_of_six_levels_grants_half_of_what_it_has(
    world: World, saver: SqliteCheckpointer
) -> None:
    names = ["head", "one", "two", "three", "four", "five"]
    halves = [6400 // 2**n for n in range(1, 6)]
    script: dict[str, Any] = {
        name: [ask(grant(below, "Go on", tokens=half)), say(f"{name} is done")]
        for name, below, half in zip(names[:-1], names[1:], halves, strict=True)
    }
    agent = Agent(names[-1])
    for name in reversed(names[1:-1]):
        agent = Agent(name, subordinates=[agent])
    head = Agent(
        "head", model=ScriptedModel({**script, "five": [say("deep")]}), subordinates=[agent]
    )
    with build_session(head, saver) as session:
        result = world.send(session, "Go", budget=Budget(tokens=6400))
        grants = check_accounts(saver, session.thread_id)

    assert result.status == "finished"
    assert [grants["/".join(names[: n + 1])].spent["tokens"] for n in range(6)] == [
        120 * (2 * (5 - n) + 1) for n in range(6)
    ]


def test_twenty_side_by_side_spend_no_more_than_they_share(
    world: World, saver: SqliteCheckpointer
) -> None:
    names = [f"scout{n}" for n in range(20)]
    requests = [{"subordinate": name, "message": f"Look at {name}"} for name in names]
    many = Call("delegate_many", {"requests": requests, "budget": {"tokens": 2000}})
    script: dict[str, Any] = {"head": [ask(many), say("Done.")], **dict.fromkeys(names, look_about)}
    model = ScriptedModel(script)
    scouts = [Agent(name, tools=[look]) for name in names]
    with build_session(Agent("head", model=model, subordinates=scouts), saver) as session:
        result = world.send(session, "Go", budget=Budget(tokens=9000))
        grants = read_grants(saver, session.thread_id)
        check_accounts(saver, session.thread_id)

    shared = next(each for each in grants.values() if each.id != "root")
    assert result.status == "finished"
    assert shared.record.closed
    assert 2000 <= shared.spent["tokens"] < 2000 + 20 * 120


def test_three_candidates_draw_on_one_grant(world: World, saver: SqliteCheckpointer) -> None:
    names = ["north", "south", "west"]
    unable = report("unable", "", reason="nothing here")
    model = ScriptedModel(
        {
            "head": [
                ask(Call("call_subordinate", {"message": "Find water", "budget": {"calls": 3}})),
                say("Done."),
            ],
            **{name: [ask(unable)] for name in names},
        }
    )
    scouts = [Agent(name, capabilities={"water": 0.9}) for name in names]
    with build_session(Agent("head", model=model, subordinates=scouts), saver) as session:
        world.send(session, "Go", budget=Budget(calls=10))
        grants = read_grants(saver, session.thread_id)
        check_accounts(saver, session.thread_id)

    [shared] = [each for each in grants.values() if each.id != "root"]
    assert (shared.spent, shared.record.closed) == ({"calls": 3}, True)


def test_the_permissions_of_an_agent_cap_each_of_its_requests(
    world: World, saver: SqliteCheckpointer
) -> None:
    model = ScriptedModel(
        {
            "head": [ask(delegate("scout", "Look")), ask(delegate("scout", "More")), say("Done.")],
            "scout": look_about,
        }
    )
    cautious = Agent("scout", tools=[look], permissions=Permissions(budget=Budget(tool_calls=2)))
    with build_session(Agent("head", model=model, subordinates=[cautious]), saver) as session:
        result = world.send(session, "Go")
        check_accounts(saver, session.thread_id)

    assert result.response is not None
    reasons = [each.reason for each in result.response.subordinate_responses]
    assert reasons == ["budget: 2 of 2 tool calls"] * 2


def test_agent_reads_once_what_is_left_of_a_unit(world: World, saver: SqliteCheckpointer) -> None:
    model = ScriptedModel({"head": [*[ask(Call("look", {"at": "it"}))] * 4, say("Done.")]})
    with build_session(Agent("head", model=model, tools=[look]), saver) as session:
        result = world.send(session, "Go", budget=Budget(tokens=1000, calls=6, warn_at=0.3))
        thread = session.thread_store.get(session.thread_id)

    warning = "Warning from your budget; come to an end before it is used up"
    told = [
        str(each.text)
        for each in thread.messages
        if isinstance(each, HumanMessage) and "your budget" in str(each.text)
    ]
    assert result.finished
    assert told == [
        f'{warning}: "4 of 6 model calls are left"',
        f'{warning}: "640 of 1,000 tokens are left"',
    ]


def test_a_question_to_the_superior_goes_on_with_the_same_grant(
    world: World, saver: SqliteCheckpointer
) -> None:
    def scout(messages: Any) -> Reply:
        is_told = "left" in str(messages[-1].text)
        return say("Seen.") if is_told else ask(Call("ask_superior", {"question": "Which?"}))

    model = ScriptedModel(
        {
            "head": [
                ask(grant("scout", "Look", tokens=500)),
                ask(Call("call_subordinate", {"subordinate": "scout", "message": "The left one"})),
                say("Done."),
            ],
            "scout": scout,
        }
    )
    head = Agent("head", model=model, subordinates=[Agent("scout")])
    with build_session(head, saver) as session:
        world.send(session, "Go", budget=Budget(tokens=2000))
        grants = read_grants(saver, session.thread_id).values()
        check_accounts(saver, session.thread_id)

    first, second = sorted(
        (each for each in grants if each.id != "root"), key=lambda g: g.record.after
    )
    assert (first.granted, first.spent) == ({"tokens": 500}, {"tokens": 120})
    assert (second.granted, second.spent) == ({"tokens": 380}, {"tokens": 120})
    assert all(each.record.closed for each in (first, second))


def test_seconds_do_not_pass_while_a_human_is_asked(
    world: World, saver: SqliteCheckpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    monkeypatch.setattr(entry, "monotonic", clock.now)

    def think(messages: Any) -> Reply:
        clock.advance(4)
        return say("Done.") if messages[-1].type == "tool" else ask(Call("check", {"what": "it"}))

    def check(what: str) -> str:
        """Check with a person.

        Args:
            what: What.
        """
        return str(interrupt(what))

    head = Agent("head", model=ScriptedModel({"head": think}), tools=[check])
    with build_session(head, saver) as session:
        result = world.send(session, "Go", budget=Budget(seconds=10))
        clock.advance(24 * 3600)
        result = world.answer(session, {result.questions[0].id: "yes"})
        root = check_accounts(saver, session.thread_id)["head"]

    assert (result.status, result.text) == ("finished", "Done.")
    assert 4 <= root.spent["seconds"] <= 8


def test_seconds_of_work_that_are_used_up_leave_a_partial_result(
    world: World, saver: SqliteCheckpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    monkeypatch.setattr(entry, "monotonic", clock.now)

    def think(messages: Any) -> Reply:
        clock.advance(4)
        return ask(Call("look", {"at": "it"}))

    model = ScriptedModel(
        {"head": [ask(grant("scout", "Go", seconds=10)), say("Done.")], "scout": think}
    )
    head = Agent("head", model=model, subordinates=[Agent("scout", tools=[look])])
    with build_session(head, saver) as session:
        result = world.send(session, "Go")

    assert result.response is not None
    [scout] = result.response.subordinate_responses
    assert (scout.status, scout.reason) == ("partial", "budget: 12 of 10 seconds")
    assert scout.partial_results == ("seen it",) * 2


def test_a_silent_model_is_charged_as_reserved_and_not_called_again(
    world: World, saver: SqliteCheckpointer
) -> None:
    model = ScriptedModel({"head": [ask(Call("look", {"at": "it"}), usage=None), say("never")]})
    with build_session(Agent("head", model=model, tools=[look]), saver) as session:
        result = world.send(session, "Go", budget=Budget(tokens=9000))
        [charge] = read_charges(saver, session.thread_id).values()
        check_accounts(saver, session.thread_id)

    assert result.reason == "budget: usage unknown: scripted reports none"
    assert (charge.state, len(model.calls)) == ("estimated", 1)
    assert charge.tokens > 1024


def test_an_estimator_counts_what_a_silent_model_does_not_report(
    world: World, saver: SqliteCheckpointer
) -> None:
    model = ScriptedModel(
        {"head": [ask(Call("look", {"at": "it"}), usage=None), say("Done.", None)]}
    )
    with build_session(Agent("head", model=model, tools=[look]), saver) as session:
        budget = Budget(tokens=9000, estimator=lambda messages, reply: (len(messages), 7))
        result = world.send(session, "Go", budget=budget)
        charges = read_charges(saver, session.thread_id).values()

    assert result.finished
    assert {(each.state, each.output_tokens) for each in charges} == {("estimated", 7)}


@pytest.mark.parametrize("returned", [None, (1,), (-1, 2), (1.5, 2), "ab", ZeroDivisionError])
def test_an_estimator_that_fails_ends_the_agent_with_its_fault(
    saver: SqliteCheckpointer, returned: Any
) -> None:
    def estimate(messages: Any, reply: Any) -> Any:
        if isinstance(returned, type):
            raise returned("no")
        return returned

    model = ScriptedModel({"head": [ask(Call("look", {"at": "it"}), usage=None), say("never")]})
    with build_session(Agent("head", model=model, tools=[look]), saver) as session:
        result = session.send("Go", budget=Budget(tokens=9000, estimator=estimate)).result()

    assert result.status == "limited"
    assert "usage unknown: scripted reports none, and the estimator of its budget" in result.reason


def test_a_model_that_is_known_to_report_nothing_is_refused_before_it_runs() -> None:
    with pytest.raises(InvalidSetting, match=r"the model of 'head', OfflinePlanner, reports no"):
        Agent("head", permissions=Permissions(budget=Budget(tokens=5))).compile()
    with (
        Session(Agent("head"), ":memory:") as session,
        pytest.raises(InvalidSetting, match=r"give Budget\(estimator=...\), or limit calls"),
    ):
        session.send("Go", budget=Budget(tokens=5))

    with Session(Agent("head"), ":memory:") as session:
        assert session.send("Go", budget=Budget(calls=5)).result().finished


def test_money_is_charged_by_the_prices_to_the_last_cent(
    world: World, saver: SqliteCheckpointer
) -> None:
    model = ScriptedModel(
        {
            "head": [ask(grant("scout", "Look", money="0.01")), say("Done.")],
            "scout": [ask(Call("look", {"at": str(n)}), usage=(1000, 100)) for n in range(9)],
        }
    )
    head = Agent("head", model=model, subordinates=[Agent("scout", tools=[look])])
    prices = Prices("EUR", {"scripted": Price(input="1.25", output="10")})
    with build_session(head, saver, prices=prices) as session:
        result = world.send(session, "Go", budget=Budget(money="1"))
        grants = check_accounts(saver, session.thread_id)

    assert result.response is not None
    [scout] = result.response.subordinate_responses
    assert scout.reason == "budget: 0.01125 of 0.01 EUR"
    assert grants["head"].spent["money"] == Decimal("0.01125") + 2 * Decimal("0.000325")


@pytest.mark.parametrize(
    ("prices", "why"),
    [(None, r"give Session\(prices=...\)"), ("other", "no price for the model 'scripted'")],
)
def test_money_without_a_price_of_the_model_is_refused(prices: str | None, why: str) -> None:
    table = prices and Prices("EUR", {prices: Price(input="1", output="1")})
    model = ScriptedModel({"head": [say("never")]})
    with (
        Session(Agent("head", model=model), ":memory:", prices=table) as session,
        pytest.raises(InvalidSetting, match=why),
    ):
        session.send("Go", budget=Budget(money="1"))


def test_a_budget_beyond_that_of_the_root_is_refused() -> None:
    head = Agent(
        "head",
        model=ScriptedModel({"head": [say("Done.")]}),
        permissions=Permissions(budget=Budget(tokens=500, calls=2)),
    )
    with Session(head, ":memory:", thread="budget") as session:
        with pytest.raises(InvalidSetting, match="allow 500 tokens"):
            session.send("Go", budget=Budget(tokens=501))
        wrong: Any = 500
        with pytest.raises(InvalidSetting, match="give a Budget"):
            session.send("Go", budget=wrong)
        assert session.send("Go", budget=Budget(tokens=400)).result().finished
        root = read_grants(session.graph.checkpointer, session.thread_id)
    assert [each.granted for each in root.values()] == [{"tokens": 400, "calls": 2}]


@pytest.mark.parametrize(
    "budget",
    [{"tokens": -1}, {"tokens": 0}, {"money": "NaN"}, {"coins": 3}, {"calls": 10**20}, "all"],
)
def test_model_reads_why_its_grant_is_refused(saver: SqliteCheckpointer, budget: Any) -> None:
    args = {"subordinate": "scout", "message": "Look", "budget": budget}
    model = ScriptedModel({"head": [ask(Call("call_subordinate", args)), say("Done.")]})
    with build_session(Agent("head", model=model, subordinates=[Agent("scout")]), saver) as session:
        result = session.send("Go", budget=Budget(tokens=5000)).result()
        thread = session.thread_store.get(session.thread_id)

    assert result.finished
    assert any("budget" in str(each.text) for each in thread.messages if each.type == "tool")


def test_a_spawned_agent_spends_what_its_superior_grants(
    world: World, saver: SqliteCheckpointer
) -> None:
    spawn = Call(
        "spawn_subordinate", {"role": "Scout", "message": "Look", "budget": {"tokens": 300}}
    )
    model = ScriptedModel({"head": [ask(spawn), say("Done.")], "scout": [say("Seen.")]})
    head = Agent("head", model=model, permissions=Permissions(spawn=Spawn()))
    with build_session(head, saver) as session:
        world.send(session, "Go", budget=Budget(tokens=2000))
        grants = check_accounts(saver, session.thread_id)

    [scout] = [each for path, each in grants.items() if path != "head"]
    assert (scout.granted, scout.spent, scout.record.closed) == (
        {"tokens": 300},
        {"tokens": 120},
        True,
    )


def test_a_fork_of_the_past_reserves_anew(world: World, saver: SqliteCheckpointer) -> None:
    model = ScriptedModel(
        {
            "head": [ask(grant("scout", "Look", tokens=300)), *[say("Done.")] * 2],
            "scout": [say("Seen.")] * 2,
        }
    )
    head = Agent("head", model=model, subordinates=[Agent("scout")])
    with build_session(head, saver) as session:
        world.send(session, "Go", budget=Budget(tokens=2000))
        before = check_accounts(saver, session.thread_id)["head"].spent["tokens"]
        past = next(
            each
            for each in session.graph.get_state_history(session.config)
            if each.next == ("delegate",)
        )
        session.graph.update_state(past.config, {}, as_node="reason")
        result = world.resume(session)
        grants = read_grants(saver, session.thread_id).values()
        after = check_accounts(saver, session.thread_id)["head"].spent["tokens"]

    assert result.finished
    assert (before, after) == (360, 600)
    assert [each.spent for each in grants if each.id != "root"] == [{"tokens": 120}] * 2


def test_a_budget_holds_for_a_turn_that_another_process_goes_on_with(
    world: World, saver: SqliteCheckpointer
) -> None:
    def check(what: str) -> str:
        """Check with a person.

        Args:
            what: What.
        """
        return str(interrupt(what))

    model = ScriptedModel({"head": [*[ask(Call("check", {"what": "it"}))] * 3, say("never")]})
    head = Agent("head", model=model, tools=[check])
    with build_session(head, saver) as session:
        result = world.send(session, "Go", budget=Budget(tokens=300))
    for _ in range(3):
        with build_session(head, saver) as session:
            result = world.answer(session, {result.questions[0].id: "yes"})
    root = check_accounts(saver, session.thread_id)["head"]

    assert (result.status, result.reason) == ("limited", "budget: 360 of 300 tokens")
    assert root.spent == {"tokens": 360}


def test_a_compiled_graph_keeps_the_budget_of_its_root_with_any_saver(world: World) -> None:
    permissions = Permissions(budget=Budget(tokens=200))
    for saver in (None, InMemorySaver(), SqliteCheckpointer(":memory:")):
        model = ScriptedModel({"head": [*[ask(Call("look", {"at": "it"}))] * 3, say("never")]})
        head = Agent("head", model=model, tools=[look], permissions=permissions)
        state = world.invoke(
            head.compile(saver),
            {"messages": [("user", "go")]},
            {"configurable": {"thread_id": "1"}},
        )
        assert isinstance(state["messages"][-1], AIMessage)
        assert state["messages"][-1].text == "Not finished (budget: 240 of 200 tokens)."


def test_a_damaged_grant_has_nothing_left(world: World, saver: SqliteCheckpointer) -> None:
    def damage(at: str) -> str:
        """Damage the budget.

        Args:
            at: What.
        """
        with saver.cursor() as cursor:
            cursor.execute(
                "UPDATE ledger_values SET value = ? WHERE key GLOB '*/grant/*'", ('{"path": 7}',)
            )
        return "done"

    model = ScriptedModel({"head": [ask(Call("damage", {"at": "it"})), say("never")]})
    with build_session(Agent("head", model=model, tools=[damage]), saver) as session:
        result = world.send(session, "Go", budget=Budget(tokens=9000))

    assert result.status == "limited"
    assert result.reason.startswith("budget: its record is damaged, so nothing is free")
    assert len(model.calls) == 1


def test_parallel_exploring_draws_on_one_grant(world: World, saver: SqliteCheckpointer) -> None:
    names = ["north", "south"]
    model = ScriptedModel(
        {
            "head": [
                ask(Call("call_subordinate", {"message": "Find water", "budget": {"calls": 2}})),
                say("Done."),
            ],
            **{name: [say("Water.")] for name in names},
        }
    )
    scouts = [Agent(name, capabilities={"water": 0.9}) for name in names]
    policy = DelegationPolicy(exploring="parallel")
    head = Agent("head", model=model, subordinates=scouts, delegation=policy)
    with build_session(head, saver) as session:
        result = world.send(session, "Go", budget=Budget(calls=10))
        grants = read_grants(saver, session.thread_id)
        check_accounts(saver, session.thread_id)

    [shared] = [each for each in grants.values() if each.id != "root"]
    assert result.finished
    assert (shared.spent, shared.record.closed) == ({"calls": 2}, True)


def test_the_accounts_of_a_thread_are_copied_and_deleted_with_it(saver: SqliteCheckpointer) -> None:
    model = ScriptedModel(
        {"head": [ask(grant("scout", "Look", calls=3)), say("Done.")], "scout": [say("Seen.")]}
    )
    with build_session(Agent("head", model=model, subordinates=[Agent("scout")]), saver) as session:
        session.send("Go", budget=Budget(calls=10)).result()
        before = check_accounts(saver, session.thread_id)
        saver.copy_thread(session.thread_id, "copy")
        saver.delete_thread(session.thread_id)
        after = check_accounts(saver, "copy")
        charges = read_charges(saver, "copy").values()

    assert not read_grants(saver, session.thread_id)
    assert {path: each.spent for path, each in after.items()} == {
        path: each.spent for path, each in before.items()
    }
    assert {each.thread_id for each in charges} == {"copy"}
    assert {each.agent_thread_id == "copy" for each in charges if each.path == "head"} == {True}


def test_a_dismissed_subtree_gives_back_what_it_has_not_spent_once(
    saver: SqliteCheckpointer,
) -> None:
    def check(what: str) -> str:
        """Check with a person.

        Args:
            what: What.
        """
        return str(interrupt(what))

    model = ScriptedModel(
        {
            "head": [ask(grant("north", "Look", tokens=1000)), say("Done.")],
            "north": [ask(grant("camp", "Look", tokens=500))],
            "camp": [ask(Call("check", {"what": "it"}))],
        }
    )
    north = Agent("north", subordinates=[Agent("camp", tools=[check])])
    with build_session(Agent("head", model=model, subordinates=[north]), saver) as session:
        session.send("Go", budget=Budget(tokens=2000)).result()
        before = check_accounts(saver, session.thread_id)["head"]
        session.dismiss("head/north")
        session.dismiss("head/north")
        after = check_accounts(saver, session.thread_id)["head"]
        result = session.resume().result()
        last = check_accounts(saver, session.thread_id)["head"]

    assert (before.spent, before.reserved) == ({"tokens": 120}, {"tokens": 1000})
    assert (after.spent, after.reserved) == ({"tokens": 360}, {})
    assert result.finished
    assert last.spent == {"tokens": 480}


async def test_a_model_call_that_is_cancelled_is_charged_as_it_was_reserved(
    saver: SqliteCheckpointer,
) -> None:
    began = asyncio.Event()

    async def wait(_: Any) -> str:
        began.set()
        await asyncio.Event().wait()
        return "never"

    model = ScriptedModel(
        {"head": [ask(grant("north", "Look", tokens=5000)), say("Done.")], "north": wait}
    )
    head = Agent("head", model=model, subordinates=[Agent("north")])
    async with build_session(head, saver) as session:
        run = await session.asend("Go", budget=Budget(tokens=9000))
        going_on = asyncio.create_task(run.result())
        await began.wait()
        await session.astop("head/north")
        result = await going_on
        charges = read_charges(saver, session.thread_id).values()
        root = check_accounts(saver, session.thread_id)["head"]

    [cut] = [each for each in charges if each.path == "head/north"]
    assert result.finished
    assert cut.state == "unknown"
    assert cut.tokens > 1024
    assert (root.spent, root.reserved) == ({"tokens": 240 + cut.tokens}, {})
