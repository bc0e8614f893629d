"""The results and values of all agents below a root, in the response to its turn."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import interrupt
from pydantic import BaseModel

from echelons import Agent, Contract, Session, SqliteCheckpointer
from echelons.delegation import DelegationResponse
from echelons.testing import Call, ScriptedModel, delegate, report

if TYPE_CHECKING:
    from tests.scenarios.conftest import World


class Hotel(BaseModel):
    name: str


@tool
def ask() -> str:
    """Ask the human."""
    return f"heard {interrupt('Which way?')}"


def team() -> Agent:
    """Return a head that asks one agent, then two at once, then candidates of which one fails."""
    join = [{"subordinate": name, "message": "go"} for name in ("south", "west")]
    scripts: dict[str, Any] = {
        "head": [
            delegate("north", "go"),
            Call("delegate_many", {"requests": join, "join": "all"}),
            Call("call_subordinate", {"message": "Book flights"}),
            "over",
        ],
        "north": [delegate("camp", "go"), "north is done"],
        "camp": [delegate("tent", "go"), Call("ask"), "camp is done"],
        "tent": ['{"name": "Ibis"}'],
        "south": [delegate("beach", "go"), "south is done"],
        "beach": ["beach is done"],
        "west": ["west is done"],
        "rail": [report("partial", "half of it", reason="on strike")],
        "charter": ["C 1"],
    }
    tent = Agent("tent", contract=Contract(output=Hotel))
    camp = Agent("camp", tools=[ask], subordinates=[tent])
    below = [
        Agent("north", subordinates=[camp]),
        Agent("south", subordinates=[Agent("beach")]),
        Agent("west"),
        Agent("rail", capabilities={"flights": 0.9}),
        Agent("charter", capabilities={"flights": 0.7}),
    ]
    return Agent("head", model=ScriptedModel(scripts), subordinates=below)


def show(response: DelegationResponse) -> Any:
    """Return the agent, the result and the value of a response, with the same of all below."""
    value = response.value.model_dump() if response.value else None
    return response.agent, response.result, value, *map(show, response.subordinate_responses)


TENT = ("tent", '{"name": "Ibis"}', {"name": "Ibis"})
NORTH = ("north", "north is done", None, ("camp", "camp is done", None, TENT))
SOUTH = ("south", "south is done", None, ("beach", "beach is done", None))
PARTS = [SOUTH, ("west", "west is done", None)]
TRIED = [("rail", "half of it", None), ("charter", "C 1", None)]


def check(response: DelegationResponse | None) -> None:
    assert response is not None
    north, joined, flights = response.subordinate_responses
    assert show(north) == NORTH
    assert [*map(show, joined.subordinate_responses)] == PARTS
    assert "south is done" in joined.result
    assert [*map(show, flights.subordinate_responses)] == TRIED
    assert "C 1" in flights.result


def test_results_of_all_levels_survive_resume_and_replay(world: World, tmp_path: Path) -> None:
    path = tmp_path / "team.db"
    with SqliteCheckpointer(path) as saver:
        asked = world.send(Session(team(), saver), "go", turn_id="7").questions
    with SqliteCheckpointer(path) as saver:
        session = Session(team(), saver)
        ended = world.answer(session, {asked[0].id: "left"})
        check(ended.response)
        world.send(session, "again")
    with SqliteCheckpointer(path) as saver:
        again = world.send(Session(team(), saver), "go", turn_id="7")

    assert again.replayed
    check(again.response)


@pytest.mark.filterwarnings("ignore::echelons.errors.ForeignSaverWarning")
def test_results_of_all_levels_with_a_saver_in_memory(world: World) -> None:
    session = Session(team(), InMemorySaver())
    [question] = world.send(session, "go").questions

    check(world.answer(session, {question.id: "left"}).response)


def test_compiled_tree_shows_results_of_all_levels(world: World) -> None:
    head = Agent("head", model=ScriptedModel(SHORT), subordinates=[short_branch()])

    ended = world.invoke(head.compile(), {"messages": [("user", "go")]})

    [answer] = [message for message in ended["messages"] if message.type == "tool"]
    assert show(DelegationResponse.load(answer.artifact)) == (
        *("north", "north is done", None),
        ("camp", "camp is done", None),
    )


SHORT: dict[str, Any] = {
    "head": [delegate("north", "go"), "over"],
    "north": [delegate("camp", "go"), "north is done"],
    "camp": ["camp is done"],
}


def short_branch() -> Agent:
    return Agent("north", subordinates=[Agent("camp")])


def test_results_below_are_not_stored_again_and_are_read_back(world: World, tmp_path: Path) -> None:
    path, text = tmp_path / "team.db", "a long text of the camp"
    scripts = {**SHORT, "camp": [text]}
    head = Agent("head", model=ScriptedModel(scripts), subordinates=[short_branch()])
    with SqliteCheckpointer(path) as saver:
        result = world.send(Session(head, saver), "go", turn_id="7")
    with sqlite3.connect(path) as database:
        tables = [
            name
            for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type='table'")
        ]
        rows = [row for name in tables for row in database.execute(f"SELECT * FROM {name}")]
    kept = [
        str(value)
        for row in rows
        for value in row
        if text in (value.decode(errors="ignore") if isinstance(value, bytes) else str(value))
    ]
    superiors = [value for value in kept if "north is done" in value]

    assert result.response is not None
    assert result.response.subordinate_responses[0].subordinate_responses[0].result == text
    assert kept, "the thread of the agent and the message of its superior have it"
    assert not superiors, "the message to the root has it as well"
    assert json.dumps(text) not in str(result.response.stored())
