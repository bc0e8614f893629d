"""What OpenAI's client reports of a real answer is counted, and what it does not is told."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from langchain_openai import ChatOpenAI

from echelons import Agent, Budget, RunEvent, Session, Usage
from echelons.guards.prices import Price, Prices
from echelons.testing import OpenAIServer, Reply, delegate
from tests.accounts import check_accounts

Serve = Callable[..., tuple[ChatOpenAI, OpenAIServer]]
PRICES = Prices("EUR", {"test-model": Price(input="1", output="2")}, per=1)
KNOWN = Usage(input_tokens=160, output_tokens=16, model_calls=3)
UNKNOWN = Usage(model_calls=3, unknown_calls=3)


def build_script(reports: bool) -> list[Reply]:
    """Return the replies of a root, its subordinate and the root again."""
    usages = [(30, 4), (100, 10), (30, 2)] if reports else [None] * 3
    first, second, third = usages
    return [
        Reply("", [delegate("north", "Look")], usage=first),
        Reply("Seen.", usage=second),
        Reply("Done.", usage=third),
    ]


def check(session: Session, told: Usage, expected: Usage) -> None:
    """Check that what a run has told, and what is stored of it, is what was expected."""
    total = session.usage().total
    assert told == expected
    assert (total.input_tokens, total.output_tokens) == (told.input_tokens, told.output_tokens)
    assert (total.model_calls, total.unknown_calls) == (told.model_calls, told.unknown_calls)
    known = expected.unknown_calls == 0
    assert (total.cost, total.unpriced_calls) == ((Decimal(192), 0) if known else (None, 3))
    assert [*session.usage().group("model")] == ["test-model"]


def watch(session: Session) -> Usage:
    """Return the usage of a turn whose events are taken, so that its model streams."""
    run = session.send("Go")
    streamed: list[RunEvent] = [each for each in run if each.kind == "token"]
    assert "".join(each.content for each in streamed) == "Seen.Done."
    return run.result().usage


@pytest.mark.parametrize("reports", [True, False], ids=["reported", "silent"])
@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "whole"])
def test_what_a_server_reports_is_counted(serve: Serve, reports: bool, streams: bool) -> None:
    served, server = serve(*build_script(reports))
    model: Any = served.model_copy(update={"disable_streaming": not streams})
    tree = Agent("head", model=model, subordinates=[Agent("north")])
    with Session(tree, ":memory:", prices=PRICES) as session:
        told = watch(session) if streams else session.send("Go").result().usage

        check(session, told, KNOWN if reports else UNKNOWN)
    assert {each.wants_usage for each in server.requests} == {streams}


@pytest.mark.parametrize("reports", [True, False], ids=["reported", "silent"])
async def test_it_is_in_an_event_loop_too(serve: Serve, reports: bool) -> None:
    model, _ = serve(*build_script(reports))
    tree = Agent("head", model=model, subordinates=[Agent("north")])
    async with Session(tree, ":memory:", prices=PRICES) as session:
        async with await session.asend("Go") as run:
            kinds = {each.kind async for each in run}
            told = (await run.result()).usage

        assert "token" in kinds
        check(session, told, KNOWN if reports else UNKNOWN)


def test_stream_without_request_has_no_usage(serve: Serve) -> None:
    served, server = serve(*build_script(reports=True))
    # As a client with an address of its own is by default.
    model: Any = served.model_copy(update={"stream_usage": False})
    tree = Agent("head", model=model, subordinates=[Agent("north")])
    with Session(tree, ":memory:", prices=PRICES) as session:
        check(session, watch(session), UNKNOWN)
    assert {each.wants_usage for each in server.requests} == {False}


@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(
    ("reports", "budget", "calls", "reason"),
    [
        (True, Budget(tokens=10_000), 3, ""),
        (True, Budget(money="100"), 2, "budget: 158 of 100 EUR"),
        (False, Budget(calls=3), 3, ""),
        (False, Budget(tokens=10_000), 1, "budget: usage unknown: test-model reports none"),
    ],
)
def test_a_budget_is_charged_what_the_client_reports(
    serve: Serve, reports: bool, budget: Budget, calls: int, reason: str, streams: bool
) -> None:
    served, server = serve(*build_script(reports))
    model: Any = served.model_copy(update={"disable_streaming": not streams})
    tree = Agent("head", model=model, subordinates=[Agent("north")])
    with Session(tree, ":memory:", prices=PRICES) as session:
        run = session.send("Go", budget=budget)
        if streams:
            list(run)
        result = run.result()
        check_accounts(session.graph.checkpointer, session.thread_id)
        states = {each.state for each in session.usage().calls}

    assert (result.status, result.reason) == ("limited" if reason else "finished", reason)
    assert states == {"charged" if reports else "estimated" if reason else "unknown"}
    assert len(server.requests) == calls
