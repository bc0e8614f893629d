"""What a thread has used is the sum of what its runs have told, on any saver, in any process."""

from __future__ import annotations

import warnings
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver

from echelons import Agent, Session, SqliteCheckpointer, ThreadStore
from echelons.delegation import Usage
from echelons.errors import CheckpointTampered, LedgerDamaged, ThreadNotFound, UnknownPath
from echelons.guards.budget import Budget
from echelons.guards.prices import Price, Prices
from echelons.testing import Call, Reply, ScriptedModel, delegate
from echelons.tree.usage_report import UsageReport, UsageTotals
from tests.scenarios.test_usage import build_library, build_team

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

PRICES = Prices("EUR", {"scripted": Price(input="1", output="2")}, per=1)


@pytest.fixture(params=["sqlite", "memory"])
def any_saver(request: pytest.FixtureRequest, saver: SqliteCheckpointer) -> Any:
    """Return our checkpointer, or one that knows nothing of usage."""
    warnings.simplefilter("ignore")
    return saver if request.param == "sqlite" else InMemorySaver()


def to_usage(totals: UsageTotals) -> Usage:
    return Usage(
        input_tokens=totals.input_tokens,
        output_tokens=totals.output_tokens,
        model_calls=totals.model_calls,
        unknown_calls=totals.unknown_calls,
    )


def check_view(saver: Any, report: UsageReport) -> None:
    """Check that the view `usage` has the same sums."""
    if not isinstance(saver, SqliteCheckpointer):
        return
    query = """SELECT agent_path, sum(input_tokens), sum(output_tokens), sum(kind = 'model'),
        sum(kind = 'tool'), sum(kind = 'model' AND state = 'unknown')
        FROM usage GROUP BY agent_path ORDER BY agent_path"""
    sums = {
        path: (
            each.input_tokens,
            each.output_tokens,
            each.model_calls,
            each.tool_calls,
            each.unknown_calls,
        )
        for path, each in report.group("agent").items()
    }
    assert {path: tuple(each) for path, *each in saver.conn.execute(query)} == sums


def look(what: str) -> str:
    """Look at something."""
    return f"a {what}"


def build_tree() -> Agent:
    model = ScriptedModel(
        {
            "head": [
                Reply("", [delegate("north", "go"), delegate("south", "go")], usage=(100, 10)),
                Reply("done", usage=(200, 20)),
            ],
            "north": [Reply("", [delegate("camp", "dig")], usage=(3, 1)), "no usage"],
            "camp": [Reply("", [Call("look", {"what": "hole"})], usage=(7, 2)), Reply("dug")],
            "south": [Reply("rested", usage=(50, 5))],
        }
    )
    camp = Agent("camp", tools=[look])
    south = Agent("south")
    return Agent("head", model=model, subordinates=[Agent("north", subordinates=[camp]), south])


def test_usage_of_a_thread_equals_usage_of_its_run(world: World, any_saver: Any) -> None:
    session = Session(build_tree(), any_saver, prices=PRICES)

    result = world.send(session, "go")

    report = session.usage()
    assert to_usage(report.total) == result.usage
    assert result.usage == Usage(input_tokens=360, output_tokens=38, model_calls=7, unknown_calls=2)
    assert (report.total.tool_calls, report.total.tokens) == (1, 398)
    assert (report.total.cost, report.total.unpriced_calls) == (Decimal(436), 2)
    assert (report.currency, report.unpriced_models) == ("EUR", ())
    tokens = {path: each.tokens for path, each in report.group("agent").items()}
    assert tokens == {"head": 330, "head/north": 4, "head/north/camp": 9, "head/south": 55}
    below = {path: each.tokens for path, each in report.group("subtree").items()}
    assert below == {"head": 398, "head/north": 13, "head/north/camp": 9, "head/south": 55}
    assert session.usage("head/north").total == report.group("subtree")["head/north"]
    assert session.usage("head/north/camp").total.tool_calls == 1
    assert len(report.group("thread")) == 4
    assert [*report.group("tree")] == [session.thread_id]
    assert [*report.group("model")] == ["scripted"]
    [day] = report.group("day").values()
    assert day == report.total
    check_view(any_saver, report)
    with pytest.raises(UnknownPath, match="head/north/camp"):
        session.usage("head/west")


@pytest.mark.parametrize("shape", ["graph", "function", "tool"])
def test_replies_within_a_graph_are_counted_once(any_saver: Any, shape: str) -> None:
    with Session(build_team(shape), any_saver) as session:
        told = sum((session.send("go").result().usage for _ in range(2)), Usage())

        assert to_usage(session.usage().total) == told
        check_view(any_saver, session.usage())


def test_the_reply_of_a_chain_is_counted(any_saver: Any) -> None:
    chain: Any = RunnableLambda(
        lambda task: AIMessage(
            "yes",
            usage_metadata={"input_tokens": 20, "output_tokens": 4, "total_tokens": 24},
        ),
        name="chain",
    )
    model = ScriptedModel({"head": [delegate("chain", "hello"), "done"]})
    with Session(Agent("head", model=model, subordinates=[chain]), any_saver) as session:
        told = session.send("go").result().usage

        assert to_usage(session.usage().total) == told
        assert session.usage("head/chain").total.tokens == 24


def test_function_and_offline_planner_differ_from_models(any_saver: Any) -> None:
    def shout(task: str) -> str:
        """Say it louder."""
        return task.upper()

    with Session(Agent("head", subordinates=[shout]), any_saver) as session:
        told = session.send("Shout hello").result().usage

        assert to_usage(session.usage().total) == told
        assert session.usage("head/shout").total == UsageTotals()


def test_what_was_given_as_history_has_cost_nothing_here(any_saver: Any) -> None:
    usage: Any = {"input_tokens": 7000, "output_tokens": 7, "total_tokens": 7007}
    history = [HumanMessage("hi"), AIMessage("hello", usage_metadata=usage), HumanMessage("go")]
    model = ScriptedModel([Reply("yes", usage=(10, 1))] * 5)
    graph = Agent("head", model=model).compile(checkpointer=any_saver)
    for _ in range(2):
        graph.invoke({"messages": history}, {"configurable": {"thread_id": "x"}})

    total = ThreadStore(any_saver).usage("x").total

    assert (total.model_calls, total.input_tokens, total.output_tokens) == (2, 20, 2)


def test_a_fork_counts_what_was_spent_on_the_branch_that_was_left(any_saver: Any) -> None:
    model = ScriptedModel(
        {
            "head": [
                Reply("", [delegate("south", "go")], usage=(1, 0)),
                Reply("done", usage=(10, 0)),
            ],
            "south": [Reply("rested", usage=(20, 0))],
        }
    )
    with Session(Agent("head", model=model, subordinates=[Agent("south")]), any_saver) as session:
        session.send("go").result()
        begin = [*session.graph.get_state_history(session.config)][-1]
        session.graph.invoke(None, begin.config)

        everything, present = session.usage(), session.usage(branch=True)

    assert everything.total.input_tokens == 62
    assert present.total.input_tokens == 31
    assert present.group("agent")["head/south"].input_tokens == 20


def test_usage_is_of_one_thread_or_of_all(any_saver: Any) -> None:
    totals: list[UsageTotals] = []
    for thread in ("one", "two"):
        with Session(build_tree(), any_saver, thread=thread) as session:
            session.send("go").result()
            totals.append(session.usage().total)
    store = ThreadStore(any_saver)

    whole = store.usage(prices=PRICES)

    assert len(whole.group("tree")) == 2
    assert whole.total.tokens == sum(each.tokens for each in totals)
    assert [each.cost for each in totals] == [None, None]
    assert whole.total.cost == 2 * Decimal(436)
    assert store.usage(branch=True).total.tokens == whole.total.tokens
    with pytest.raises(ThreadNotFound):
        store.usage("three")


def test_a_thread_that_has_never_run_has_used_nothing(any_saver: Any) -> None:
    with Session(build_tree(), any_saver) as session:
        assert session.usage() == UsageReport()
        assert session.usage("head/north").total == UsageTotals()


def test_a_model_without_a_price_is_named_and_counted(any_saver: Any) -> None:
    prices = Prices("EUR", {"other": Price(1, 1)})
    with Session(build_tree(), any_saver, prices=prices) as session:
        session.send("go").result()

        report = session.usage()

    assert report.unpriced_models == ("scripted",)
    assert (report.total.cost, report.total.unpriced_calls) == (None, 7)


@pytest.mark.parametrize(
    "change",
    [
        "data = '{'",
        "data = json_set(data, '$.usage', 7)",
        "data = json_set(data, '$.usage.input_tokens', 'many')",
        "data = json_set(data, '$.usage.output_tokens', -1)",
        "data = json_set(data, '$.usage.input_tokens', 1e99)",
        "agent_path = x'ff'",
    ],
)
def test_a_damaged_call_is_named_and_nothing_is_summed_without_it(
    tmp_path: Path, change: str
) -> None:
    saver = SqliteCheckpointer(tmp_path / "tree.sqlite")
    with Session(build_tree(), saver) as session:
        session.send("go").result()
        with saver.cursor() as cursor:
            where = "kind = 'message' AND json_extract(data, '$.usage.input_tokens') = 50"
            number = cursor.execute(f"SELECT id FROM events WHERE {where}").fetchone()[0]
            cursor.execute(f"UPDATE events SET {change} WHERE id = ?", (number,))

        with pytest.raises(CheckpointTampered, match=f"event {number}"):
            session.usage()
        seen = saver.conn.execute("SELECT state FROM usage").fetchall()
        assert "agent_path" in change or ("damaged",) in seen
    saver.close()


async def test_usage_can_be_awaited(any_saver: Any) -> None:
    async with Session(build_tree(), any_saver) as session:
        told = (await (await session.asend("go")).result()).usage

        assert to_usage((await session.ausage()).total) == told
        assert (await session.ausage(branch=True)) == await session.thread_store.ausage()


def test_a_turn_that_waits_has_used_what_was_answered(any_saver: Any) -> None:
    calls = [Reply("", [delegate("library", "look")], usage=(1000, 1)), Reply("over")]
    root = Agent("head", model=ScriptedModel(calls), subordinates=[build_library(asks=True)])
    with Session(root, any_saver) as session:
        first = session.send("go").result()
        assert to_usage(session.usage().total) == first.usage

        second = session.answer({first.questions[0].id: "yes"}).result()

        assert to_usage(session.usage().total) == first.usage + second.usage
        check_view(any_saver, session.usage())


def build_spender(usage: tuple[int, int] | None = (100, 20)) -> Agent:
    """Return a root that grants its subordinate a part of its budget."""
    args = {"subordinate": "scout", "message": "Look", "budget": {"tokens": 4000}}
    model = ScriptedModel(
        {
            "head": [
                Reply("", [Call("call_subordinate", args)], usage=(100, 20)),
                Reply("Done.", usage=(100, 20)),
            ],
            "scout": [
                Reply("", [Call("look", {"what": "hole"})], usage=usage),
                Reply("Seen.", usage=(100, 20)),
            ],
        }
    )
    return Agent("head", model=model, subordinates=[Agent("scout", tools=[look])])


def amounts(report: UsageReport) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return what was granted, spent, reserved, is free, and was spent beyond."""
    return {
        (each.path, each.unit): tuple(
            each.to_json()[name] for name in ("granted", "spent", "reserved", "free", "overdraft")
        )
        for each in report.grants
    }


def test_what_was_charged_is_counted_in_place_of_the_replies(world: World, any_saver: Any) -> None:
    session = Session(build_spender(), any_saver)

    result = world.send(session, "Go", budget=Budget(tokens=10_000, tool_calls=5))

    report = session.usage()
    assert to_usage(report.total) == result.usage
    assert (report.total.tool_calls, report.total.charged_tokens) == (1, 0)
    assert {each.state for each in report.calls if each.kind == "model"} == {"charged"}
    assert amounts(report) == {
        ("head", "tokens"): ("10000", "480", "0", "0", "0"),
        ("head", "tool_calls"): ("5", "1", "0", "0", "0"),
        ("head/scout", "tokens"): ("4000", "240", "0", "0", "0"),
    }
    assert [each.closed for each in report.grants if each.path == "head/scout"] == [True]
    assert [*amounts(session.usage("head/scout"))] == [("head/scout", "tokens")]
    assert session.usage(branch=True) == report
    check_view(any_saver, report)


def test_what_a_silent_model_was_charged_is_an_estimate(world: World, any_saver: Any) -> None:
    session = Session(build_spender(None), any_saver)

    result = world.send(session, "Go", budget=Budget(tokens=10_000))

    total = session.usage().total
    assert result.usage.unknown_calls == total.estimated_calls == 1
    assert (total.unknown_calls, total.model_calls) == (0, result.usage.model_calls)
    [root, *_] = [each for each in session.usage().grants if each.path == "head"]
    assert root.spent == total.tokens > total.input_tokens + total.output_tokens
    if isinstance(any_saver, SqliteCheckpointer):
        query = "SELECT sum(input_tokens + output_tokens + charged_tokens) FROM usage"
        assert any_saver.conn.execute(query).fetchone()[0] == total.tokens


def test_the_cost_is_what_was_charged_to_the_last_cent(world: World, any_saver: Any) -> None:
    price = Price("0.333333333", "0.7")
    prices = Prices("EUR", {"scripted": price, "ScriptedModel": price}, per=1)
    session = Session(build_spender(), any_saver, prices=prices)

    world.send(session, "Go", budget=Budget(money="1000"))

    report = session.usage()
    [root] = [each for each in report.grants if each.path == "head"]
    assert report.total.cost == root.spent == 4 * (100 * Decimal("0.333333333") + 14)
    assert (root.unit, root.currency, root.free) == ("money", "EUR", Decimal(0))
    others = session.thread_store.usage(session.thread_id)
    assert (others.currency, others.total.cost) == ("EUR", root.spent)
    # What was charged in another currency is priced by the table that is given.
    dollars = Prices("USD", {"scripted": Price("1", "1")}, per=1)
    converted = session.thread_store.usage(session.thread_id, prices=dollars)
    assert (converted.currency, converted.total.cost) == ("USD", Decimal(480))
    if isinstance(any_saver, SqliteCheckpointer):
        rows = any_saver.conn.execute("SELECT agent_path, granted, free, currency FROM grants")
        [(path, granted, free, currency)] = [row for row in rows if row[0] == "head"]
        assert (path, granted, currency) == ("head", "1000", "EUR")
        assert free == pytest.approx(float(root.free))


def test_a_call_that_its_process_has_not_survived_is_lost(
    world: World, saver: SqliteCheckpointer
) -> None:
    session = Session(build_spender(), saver)
    result = world.send(session, "Go", budget=Budget(tokens=10_000))
    key = saver.conn.execute("SELECT key FROM ledger_values WHERE key GLOB '*/charge/*'").fetchone()
    found = saver.ledger.get(key[0])
    assert found is not None
    # As a call leaves it that was made again after the death of its process.
    lost = {**found.value, "state": "reserved", "input_tokens": 0, "output_tokens": 0}
    saver.ledger.compare_and_set(f"{key[0]}x", None, {**lost, "tokens": 700})

    total = session.usage().total

    assert to_usage(total) == result.usage
    assert (total.lost_calls, total.charged_tokens, total.tokens) == (1, 700, 480 + 700)
    states = saver.conn.execute("SELECT state, charged_tokens FROM usage WHERE charged_tokens > 0")
    assert states.fetchall() == [("reserved", 700)]


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("charge", "value = '{'"),
        ("charge", "value = json_set(value, '$.tokens', -1)"),
        ("charge", "value = json_set(value, '$.tokens', 'many')"),
        ("charge", "value = json_set(value, '$.money', 'much')"),
        ("charge", "value = json_set(value, '$.state', 'paid')"),
        ("grant", "value = '7'"),
        ("grant", "value = json_set(value, '$.granted.tokens', -1)"),
        ("grant", "value = json_set(value, '$.spent.tokens', '1')"),
    ],
)
def test_a_damaged_grant_or_charge_is_named(
    world: World, saver: SqliteCheckpointer, kind: str, change: str
) -> None:
    session = Session(build_spender(), saver)
    world.send(session, "Go", budget=Budget(tokens=10_000))
    with saver.cursor() as cursor:
        cursor.execute(f"UPDATE ledger_values SET {change} WHERE key GLOB '*/{kind}/*'")

    with pytest.raises(LedgerDamaged, match=f"/{kind}/"):
        session.usage()
    # The views show what can be read, and no more is free than before.
    saver.conn.execute("SELECT * FROM usage").fetchall()
    free = saver.conn.execute("SELECT free FROM grants WHERE agent_path = 'head'").fetchall()
    assert all(each <= 9520 for (each,) in free)


def test_a_fork_counts_its_grants_on_its_own_branch(any_saver: Any) -> None:
    with Session(build_spender(), any_saver) as session:
        session.send("Go", budget=Budget(tokens=10_000)).result()
        begin = [*session.graph.get_state_history(session.config)][-1]
        session.graph.invoke(None, begin.config)

        everything, present = session.usage(), session.usage(branch=True)

    assert everything.total.tokens == 2 * 480
    assert present.total.tokens == 480


def test_another_agent_s_reply_at_a_step_that_was_charged_counts(
    world: World, saver: SqliteCheckpointer
) -> None:
    session = Session(build_spender(), saver)
    world.send(session, "Go", budget=Budget(tokens=10_000))
    # As a monitor stores its reply, which has no step of its own.
    with saver.cursor() as cursor:
        cursor.execute(
            """INSERT INTO events (thread_id, agent_thread_id, agent_path, checkpoint_ns,
                checkpoint_id, at, kind, key, data)
            SELECT thread_id, 'watch', 'head/watch', checkpoint_ns, checkpoint_id, at, kind,
                'its reply', data
            FROM events WHERE kind = 'message' AND json_extract(data, '$.role') = 'ai' LIMIT 1"""
        )

    report = session.usage()

    assert report.group("agent")["head/watch"].tokens == 120
    assert report.total.tokens == 480 + 120
    check_view(saver, report)


def test_a_question_is_no_call_of_a_tool(world: World, any_saver: Any) -> None:
    calls = [Call("ask", {"question": "Which?", "to": "user"}), Call("look", {"what": "lake"})]
    head = Agent(
        "head", model=ScriptedModel([*calls, "Done."]), tools=[look], builtin_tools=("ask",)
    )
    session = Session(head, any_saver)

    [question] = world.send(session, "Go").questions
    world.answer(session, {question.id: "Como"})

    assert session.usage().total.tool_calls == 1
    assert session.trace().tools == ("look",)
    check_view(any_saver, session.usage())
