"""A rerun goes on where the run before it ended, also after a start at a past checkpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest
from langgraph.types import interrupt

from echelons import Agent, SqliteCheckpointer
from echelons.checkpoints.coordination.candidates import TreeRaces
from echelons.delegation.join import RaceEntry
from echelons.testing import Call, ScriptedModel, delegate

THREAD: Any = {"configurable": {"thread_id": "t"}}
CALLS = ["head", "head", "north", "north", "scout", "south"]
"""The model calls of the whole turn, sorted."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Event:
    """Is set when the entrant that asks a person waits, which ends the run with its question."""
    waits = Event()
    register = TreeRaces.register_waiting

    def register_and_tell(races: TreeRaces, entrant: RaceEntry) -> bool:
        waits.set()
        return register(races, entrant)

    monkeypatch.setattr(TreeRaces, "register_waiting", register_and_tell)
    return waits


def racing(wait: Any) -> tuple[Agent, ScriptedModel]:
    """Return a tree in which two of three are enough, and the third asks a person.

    The first of the two has answered only after the question.
    """

    def ask() -> str:
        """Ask."""
        return str(interrupt("?"))

    def west(task: str) -> str:
        """Knows the west."""
        return "west knows"

    requests = [{"message": "look", "subordinate": name} for name in ("north", "west", "south")]
    race = Call("delegate_many", {"requests": requests, "join": "quorum", "n": 2})
    scripts: dict[str, Any] = {
        "head": [race, "done"],
        "north": [delegate("scout", "look"), "north knows"],
        "scout": lambda _: wait(),
        "south": [Call("ask"), "south knows"],
    }
    model = ScriptedModel(scripts)
    north = Agent("north", subordinates=[Agent("scout")])
    below = [north, west, Agent("south", tools=[ask])]
    return Agent("head", model=model, subordinates=below), model


@pytest.fixture
def saver() -> Iterator[SqliteCheckpointer]:
    with SqliteCheckpointer(":memory:") as saver:
        yield saver


def starts(states: Any) -> list[Any]:
    """Return the configs of the states before the first model call, the latest first."""
    found = [each.config for each in states if each.next in (("reason",), ("__start__",))]
    return found[-2:]


def check(model: ScriptedModel, begun: int, state: dict[str, Any]) -> None:
    assert sorted(str(call.agent) for call in model.calls[begun:]) == CALLS
    [last] = [call for call in model.calls[begun:] if call.agent == "north"][1:]
    assert last.messages[-1].text == "waited: True", "the run ended with the question"
    assert "__interrupt__" not in state
    assert state["messages"][-1].text == "done"
    assert [each.type for each in state["messages"]] == ["human", "ai", "tool", "ai"]


def identify(state: Any) -> list[tuple[str | None, str]]:
    """Return the ids and texts of messages; the results below an answer are not stored with it."""
    return [(message.id, message.text) for message in state["messages"]]


@pytest.mark.parametrize("way", ["invoke", "stream"])
def test_a_race_gone_on_with_from_the_past_is_run_once(
    saver: SqliteCheckpointer, asked: Event, way: str
) -> None:
    head, model = racing(lambda: f"waited: {asked.wait(120)}")
    graph = head.compile(saver)
    graph.invoke({"messages": "go"}, THREAD)
    for config in starts(graph.get_state_history(THREAD)) * 2:
        asked.clear()
        begun = len(model.calls)
        if way == "invoke":
            state = graph.invoke(None, config)
        else:
            *_, state = graph.stream(None, config, stream_mode="values")
        check(model, begun, state)
        assert identify(graph.get_state(THREAD).values) == identify(state)


@pytest.mark.parametrize("way", ["invoke", "stream"])
async def test_in_an_event_loop_it_is_run_once_too(
    saver: SqliteCheckpointer, asked: Event, way: str
) -> None:

    async def wait() -> str:
        return f"waited: {await asyncio.to_thread(asked.wait, 120)}"

    head, model = racing(wait)
    graph = head.compile(saver)
    await graph.ainvoke({"messages": "go"}, THREAD)
    for config in starts([each async for each in graph.aget_state_history(THREAD)]) * 2:
        asked.clear()
        begun = len(model.calls)
        if way == "invoke":
            state = await graph.ainvoke(None, config)
        else:
            stream = graph.astream(None, config, stream_mode="values")
            *_, state = [part async for part in stream]
        check(model, begun, state)
        assert identify((await graph.aget_state(THREAD)).values) == identify(state)
