"""A request is the same wherever it is told: in the stream, the events, the trace and in SQL."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from echelons import Agent, Session
from echelons.checkpoints.sqlite import SqliteCheckpointer
from echelons.checkpoints.tracing import Trace
from echelons.delegating import Delegating
from echelons.delegation import DelegationRequest
from echelons.runtime.events import RunEvent
from echelons.testing import ScriptedModel, delegate

DINNER, TOUR, WALK = "find a restaurant for dinner", "book a museum tour", "plan a walk"


def tree() -> Agent:
    """Return a tree in which requests are routed, passed on, split, timed and named."""
    model = ScriptedModel(
        {
            "head": [delegate("", DINNER), delegate("walks", WALK), "planned"],
            "restaurants": ["pizza"],
            "walks": ["along the river"],
        }
    )
    restaurants = Agent(
        "restaurants", "Finds a restaurant", capabilities={"restaurant dinner": 1.0}
    )
    return Agent(
        "head",
        model=model,
        delegating=Delegating(timeout=60, request_timeout=90),
        subordinates=[
            Agent("experiences", "Museums", subordinates=[restaurants]),
            Agent("walks", "Plans walks", capabilities={"walk": 1.0}),
        ],
    )


def of_stream(events: list[RunEvent], kind: str) -> dict[str, DelegationRequest]:
    """Return the requests that events of a kind tell, by id."""
    told = [DelegationRequest.load(each.data["request"]) for each in events if each.kind == kind]
    return {each.id: each for each in told}


def of_trace(trace: Trace) -> dict[str, DelegationRequest]:
    """Return the requests of a trace, by id."""
    return {each.sent.id: each.sent for one in trace.walk() for each in one.requests}


def of_rows(saver: SqliteCheckpointer) -> dict[str, Mapping[str, Any]]:
    """Return what the rows of the events say of their requests, by id."""
    rows = saver.conn.execute("SELECT data FROM events WHERE kind = 'delegation'")
    told = [json.loads(data)["request"] for (data,) in rows]
    return {each["id"]: each for each in told}


@pytest.mark.parametrize("world", ["sync", "async"])
async def test_a_request_is_the_same_wherever_it_is_told(world: str, tmp_path: Path) -> None:
    with SqliteCheckpointer(tmp_path / "trip.sqlite") as saver:
        session = Session(tree(), saver, thread="trip")
        if world == "sync":
            events = list(session.send("Plan."))
        else:
            events = [each async for each in await session.asend("Plan.")]
        traced, rows = of_trace(session.trace()), of_rows(saver)

    asked = of_stream(events, "delegation")
    assert sorted(each.task for each in asked.values()) == [DINNER, DINNER, WALK]
    assert asked == of_stream(events, "response") == traced
    assert rows == {
        request: {k: v for k, v in each.stored().items() if k not in ("model", "version", "task")}
        for request, each in asked.items()
    }


def test_sql_tells_of_a_request_on_its_way_whose_it_is_and_by_when_it_must_be_answered(
    tmp_path: Path,
) -> None:
    with SqliteCheckpointer(tmp_path / "trip.sqlite") as saver:
        session = Session(tree(), saver, thread="trip")
        session.send("Plan.").result()
        rows = saver.conn.execute(
            "SELECT superior_path, origin, current, hops, route, budget_seconds, deadline > 0"
            " FROM delegations ORDER BY at, superior_path"
        ).fetchall()

    assert sorted(rows) == [
        ("head", "head", "experiences", 1, "restaurants", 90, 1),
        ("head", "head", "walks", 1, None, 90, 1),
        ("head/experiences", "head", "restaurants", 2, None, 90, 1),
    ]
