"""A tool that ends after its agent's time is reported where it was called, and never run again."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, ToolMessage
from langgraph.checkpoint.base import BaseCheckpointSaver

from echelons import Agent, ThreadStore, effect
from echelons.checkpoints.ledger import build_key, get_ledger
from echelons.checkpoints.threads.graph_state import LATE_KEY, UNKNOWN_OUTCOME_TEXT
from echelons.delegation.policy import DelegationPolicy
from echelons.delegation.request import DelegationResponse
from echelons.testing import Call, FakeClock, ScriptedModel, delegate

CONFIG: Any = {"configurable": {"thread_id": "1"}}
GO: Any = {"messages": [("user", "go")]}
BOOK = Call("book", {"city": "Rome"}, "b")
BOOKED = "It is booked."
PATIENCE = 0.2
"""Seconds that the scout has."""
Saver = BaseCheckpointSaver[Any]


@pytest.fixture
def saver(any_saver: Saver) -> Saver:
    return any_saver


class Booking:
    """A tool that takes longer than its agent has."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.go = threading.Event()
        self.runs: list[str] = []

    def book(self, city: str) -> str:
        """Book a room."""
        self.runs.append(city)
        self.clock.advance(PATIENCE)
        assert self.go.wait(120)
        return f"booked {city}"

    def book_slowly(self, city: str) -> str:
        """Book a room, a little too late."""
        self.runs.append(city)
        self.clock.advance(PATIENCE)
        return f"booked {city}"


def team(tool: Callable[..., Any], *said: Any) -> tuple[Agent, ScriptedModel]:
    """Return a head whose scout has little time, and is called twice."""
    effect()(getattr(tool, "__func__", tool))
    steps = iter([delegate("scout", "go"), *said, delegate("scout", "well?"), "over"])

    def scout(messages: Any) -> Any:
        told = any(isinstance(each, ToolMessage) for each in messages)
        return BOOKED if told else BOOK

    model = ScriptedModel({"head": lambda _: next(steps), "scout": scout})
    below = Agent("scout", tools=[tool])
    patience = DelegationPolicy(timeout=PATIENCE)
    return Agent("head", model=model, delegation=patience, subordinates=[below]), model


def named(function: Callable[..., Any]) -> Any:
    """Return a method as a function that is a tool called ``book``."""

    def book(city: str) -> Any:
        """Book a room."""
        return function(city)

    return book


def responses(result: dict[str, Any]) -> list[DelegationResponse]:
    answers = (each for each in result["messages"] if isinstance(each, ToolMessage))
    return [DelegationResponse.load(each.artifact) for each in answers]


def scouts(saver: Saver) -> list[BaseMessage]:
    """Return the conversation of the scout, as people are shown it."""
    store = ThreadStore(saver)
    [thread] = store.subordinates("1")
    return list(store.get(thread).messages)


def states(saver: Saver) -> list[str]:
    ledger = get_ledger(saver)
    found = [ledger.get(name) for name in ledger.list_keys(build_key("1", "effect", ""))]
    return [each.value["state"] for each in found if each]


async def ended(saver: Saver) -> None:
    async with asyncio.timeout(120):
        while states(saver) != ["done"]:
            await asyncio.to_thread(threading.Event().wait, 0.005)


async def test_a_tool_that_ends_late_is_in_the_journal_and_in_its_agents_thread(
    saver: Saver, loop_clock: FakeClock
) -> None:
    booking = Booking(loop_clock)
    agent, model = team(named(booking.book), "late, then")
    graph = agent.compile(saver)

    result = await graph.ainvoke(GO, CONFIG)

    [response] = responses(result)
    assert (response.status, response.reason) == (
        "unable",
        "timeout: 'scout' has not answered within 0.2 s",
    )
    assert states(saver) == ["started"]
    assert isinstance(scouts(saver)[-1], ToolMessage) is False
    booking.go.set()
    await ended(saver)
    last = scouts(saver)[-1]
    assert isinstance(last, ToolMessage)
    assert (last.text, last.tool_call_id, last.status) == ("booked Rome", "b", "success")
    assert last.additional_kwargs == {LATE_KEY: True}

    again = await graph.ainvoke(GO, CONFIG)

    shown = [re.sub(r"^~\d{12} ", "", each.text) for each in model.calls[-2].messages]
    assert shown[-3:] == ["", "booked Rome", "well?"]
    assert responses(again)[-1].result == BOOKED
    assert [each.text for each in scouts(saver)][-3:] == ["booked Rome", "well?", BOOKED]
    assert booking.runs == ["Rome"]


def test_in_threads_it_is_awaited_and_its_agent_ends_behind_it(
    saver: Saver, clock: FakeClock
) -> None:
    booking = Booking(clock)
    agent, model = team(named(booking.book_slowly), "late, then")
    graph = agent.compile(saver)

    [response] = responses(graph.invoke(GO, CONFIG))
    again = graph.invoke(GO, CONFIG)

    assert (response.status, response.reason) == (
        "unable",
        "timeout: 'scout' has not answered within 0.2 s",
    )
    assert [each.text for each in scouts(saver)][1:3] == ["", "booked Rome"]
    assert "booked Rome" in [each.text for each in model.calls[-2].messages]
    assert responses(again)[-1].result == BOOKED
    assert booking.runs == ["Rome"]


@pytest.mark.parametrize("world", ["async", "in threads"])
async def test_a_turn_that_is_gone_on_with_runs_no_late_tool_again(
    saver: Saver, world: str, loop_clock: FakeClock
) -> None:
    booking = Booking(loop_clock)
    tool = booking.book if world == "async" else booking.book_slowly
    agent, _ = team(named(tool), ConnectionError("down"), "over")
    graph = agent.compile(saver)

    async def run(given: Any) -> dict[str, Any]:
        if world == "async":
            return dict(await graph.ainvoke(given, CONFIG))
        return dict(await asyncio.to_thread(graph.invoke, given, CONFIG))

    with pytest.raises(ConnectionError):
        await run(GO)
    booking.go.set()
    if world == "async":
        await ended(saver)
    result = await run(None)

    assert [each.status for each in responses(result)] == ["unable"]
    assert result["messages"][-1].text == "over"
    assert booking.runs == ["Rome"]


async def test_tool_cut_short_is_never_reported_as_not_run(
    saver: Saver, loop_clock: FakeClock
) -> None:
    runs: list[str] = []

    async def book(city: str) -> str:
        """Book a room, for ever."""
        runs.append(city)
        loop_clock.advance(PATIENCE)
        await asyncio.Event().wait()
        return "never"

    agent, model = team(book, "late, then")
    graph = agent.compile(saver)
    await graph.ainvoke(GO, CONFIG)

    await graph.ainvoke(GO, CONFIG)

    shown = [re.sub(r"^~\d{12} ", "", each.text) for each in model.calls[-2].messages]
    assert shown[-3:] == ["", UNKNOWN_OUTCOME_TEXT, "well?"]
    assert states(saver) == ["started"]
    assert runs == ["Rome"]
