"""A request is the same wherever it is told: in the stream, the events, the trace and in SQL."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage

from echelons import Agent, Session
from echelons.checkpoints.checkpointer import SqliteCheckpointer
from echelons.checkpoints.threads.trace import Trace
from echelons.delegation.policy import DelegationPolicy
from echelons.delegation.questions import build_question_id
from echelons.delegation.request import DelegationRequest
from echelons.identity.lineage import THREADS_KEY
from echelons.runtime.run_events import RunEvent
from echelons.testing import Call, ScriptedModel, delegate, report

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
        delegation=DelegationPolicy(timeout=60, request_timeout=90),
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
async def test_request_is_the_same_in_every_view(world: str, tmp_path: Path) -> None:
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


def test_sql_shows_owner_and_deadline_of_a_request(
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


def test_agent_asked_after_others_is_reported_with_its_route(tmp_path: Path) -> None:
    model = ScriptedModel(
        {
            "head": [delegate("", "bake bread"), "done"],
            "baker": [report("unable", "", reason="ill")],
            "cook": ["bread"],
        }
    )
    baker = Agent("baker", capabilities={"bake bread": 0.9})
    cook = Agent("cook", capabilities={"bake bread": 0.5})
    head = Agent("head", model=model, subordinates=[Agent("kitchen", subordinates=[baker]), cook])
    with SqliteCheckpointer(tmp_path / "trip.sqlite") as saver:
        session = Session(head, saver, thread="trip")
        session.send("Bread.").result()
        told = [
            (sent.attempts, sent.current, sent.route, sent.deadline is None, each.response)
            for thread in session.trace().subordinates
            for each in thread.requests
            for sent in [each.sent]
        ]
        rows = saver.conn.execute(
            "SELECT attempt, current, route, deadline IS NULL FROM delegations"
            " WHERE superior_path = 'head' ORDER BY attempt"
        ).fetchall()

    assert [each[:4] for each in told] == [
        (1, "kitchen", ("baker",), False),
        (2, "cook", (), True),
    ]
    assert [each[4] and each[4].path for each in told] == [
        "head/kitchen/baker",
        "head/cook",
    ]
    assert rows == [(1, "kitchen", "baker", 0), (2, "cook", None, 1)]


def test_a_request_that_waits_for_another_is_given_its_time_when_it_begins(
    tmp_path: Path,
) -> None:
    def ask(messages: Sequence[BaseMessage]) -> Any:
        replies = [each for each in messages if isinstance(each, AIMessage)]
        if not replies:
            return delegate("walks", "a stroll")
        [thread] = replies[0].response_metadata[THREADS_KEY].values()
        named = {"answers": build_question_id(thread)}
        tasks = ("a walk", "another")
        both = [Call("call_subordinate", {"message": each, **named}) for each in tasks]
        return both if len(replies) == 1 else "done"

    model = ScriptedModel({"head": ask, "walks": lambda _: "by the river"})
    rules = DelegationPolicy(timeout=60)
    head = Agent("head", model=model, delegation=rules, subordinates=[Agent("walks")])
    with SqliteCheckpointer(tmp_path / "trip.sqlite") as saver:
        events = list(Session(head, saver, thread="trip").send("Two walks."))

    queued = ("a walk", "another")
    asked, begun = (
        sorted(
            (each for each in of_stream(events, kind).values() if each.task in queued),
            key=lambda each: each.task,
        )
        for kind in ("delegation", "response")
    )
    assert [each.deadline is None for each in asked] == [False, True]
    first, second = (each.deadline for each in begun)
    assert first and second and first < second
