"""Kills a host that has typed subordinates at work, and has another process let it go on.

``python -m tests.crash.drivers.typed_calls FOLDER TRIALS`` prints, as JSON, a report of a turn that
nothing happens to, and of one for each of so many trials, with a death at a statement or two. Each
process is a fork of this one.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from pydantic import BaseModel

from echelons import Agent, Contract, Result, Session, SqliteCheckpointer, subordinate
from echelons.testing import Call, ScriptedModel
from tests.crash.drivers.trials import main
from tests.crash.drivers.trip import Place


class Query(BaseModel):
    """What the subordinates are given."""

    city: str
    nights: int = 1


class Hotel(BaseModel):
    """What the agent finds."""

    name: str
    price: float


class Train(BaseModel):
    """What the function finds."""

    leaves: str


class Trip(BaseModel):
    """What the host answers."""

    hotel: str
    train: str
    missing: list[str]


TRIP = {"hotel": "Ibis", "train": "9:00", "missing": ["weather"]}


def find_train(query: Query) -> Train:
    """Find a train."""
    return Train(leaves="9:00")


def find_weather(query: Query) -> Train:
    """Find the weather, which fails."""
    raise ConnectionError(f"no weather of {query.city}")


def build_host() -> Agent:
    """Return a host with three typed subordinates, one of which fails."""
    at_once = [
        Call("hotels", {"city": "Rome", "nights": "two"}),
        Call("trains", {"city": "Rome"}),
        Call("weather", {"city": "Rome"}),
    ]
    model = ScriptedModel(
        {
            "head": [at_once, Call("hotels", {"city": "Rome", "nights": 2}), json.dumps(TRIP)],
            "hotels": ["A nice one.", json.dumps({"name": "Ibis", "price": 80})],
        }
    )
    found = Contract(input=Query, output=Train)
    members = [
        Agent("hotels", "Finds hotels", contract=Contract(input=Query, output=Hotel)),
        subordinate(find_train, name="trains", contract=found),
        subordinate(find_weather, name="weather", contract=found),
    ]
    return Agent("head", model=model, subordinates=members, contract=Contract(output=Trip))


def live(place: Place, world: str) -> dict[str, Any]:
    """Bring the turn to its end, whatever was done of it, and return what came of it."""
    with (
        SqliteCheckpointer(place.database) as saver,
        Session(build_host(), saver, thread="t") as session,
    ):
        result = asyncio.run(_asend(session)) if world == "async" else _send(session)
        trace = session.trace()
        return {
            "value": result.value and result.value.model_dump(),
            "requests": sorted(
                [each.agent, request.sent.input, request.response and request.response.output]
                for each in trace.walk()
                for request in each.requests
            ),
            "links": sorted(str(each.state) for each in trace.walk()),
        }


def _send(session: Session) -> Result:
    return session.send("go", turn_id="1").result()


async def _asend(session: Session) -> Result:
    return await (await session.asend("go", turn_id="1")).result()


if __name__ == "__main__":
    main(live, *sys.argv[1:])
