"""The travel team as a person would use it, with the offline planner and nothing else.

The ten tasks, and whom a person would call for each, were written down before the planner was.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from echelons import Session
from echelons.teams.travel.team import team

TASKS = json.loads((Path(__file__).parent / "trip_tasks.json").read_text())


@pytest.mark.parametrize("trip", TASKS, ids=lambda trip: str(trip["task"]))
def test_a_task_calls_the_agents_that_a_person_would_call_and_none_besides(
    trip: dict[str, Any],
) -> None:
    with Session(team(), ":memory:", thread="trip") as session:
        result = session.send(trip["task"]).result()
        trace = session.trace()

    assert result.finished
    assert {each.agent for each in trace.walk()} - {"head"} == set(trip["agents"])


def test_flights_hotels_and_the_grandchild_contribute_to_a_trip_to_italy() -> None:
    with Session(team(), ":memory:", thread="trip") as session:
        answer = session.send("Plan a trip to Italy with great food").result().text
        trace = session.trace()
        links = session.thread_store.verify(session.thread_id)

    flights, hotels, experiences = trace.subordinates
    (restaurants,) = experiences.subordinates
    assert [each.status for each in (flights, hotels, restaurants)] == ["fulfilled"] * 3
    assert "Leonardo Da Vinci" in answer
    assert "hotel:" in answer
    assert "Carbonara" in answer
    assert all(link.holds for link in links)
    assert all(each.thread_id in str(trace) for each in trace.walk())
