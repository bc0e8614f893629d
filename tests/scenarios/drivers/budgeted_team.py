"""The team whose thread stands in `tests/fixtures/budgeted.db`, and how that was written.

``PYTHONPATH=$PWD python tests/scenarios/drivers/budgeted_team.py FILE`` writes it. The turn waits:
an agent two levels down has asked the user, under a grant within a grant, and one beside it has
asked its superior, whose grant waits for the answer.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage

from echelons import Agent, Budget, Permissions, Session, SqliteCheckpointer
from echelons.guards.prices import Price, Prices
from echelons.testing import Call, Reply, ScriptedModel
from tests.scenarios.drivers.dismissed_team import shrink
from tests.told_lines import get_last

THREAD = "budgeted"
PRICES = Prices("EUR", {"scripted": Price(input="1", output="10")})


def grant(subordinate: str, message: str, **budget: Any) -> Call:
    """Return a call that grants a part of a budget."""
    args = {"subordinate": subordinate, "message": message, "budget": budget}
    return Call("call_subordinate", args)


def build_team() -> Agent:
    """Return a head that grants north and south a part of its budget; north grants camp one."""

    def south(messages: Sequence[BaseMessage]) -> Reply:
        told = "left" in str(get_last(messages).text)
        calls = [] if told else [Call("ask_superior", {"question": "Which?"})]
        return Reply("Seen." if told else "", calls=calls, usage=(100, 10))

    both = [grant("north", "Look", tokens=2000, money="0.01"), grant("south", "Look", tokens=500)]
    left = Call("call_subordinate", {"subordinate": "south", "message": "The left one"})
    asking = Call("ask_user", {"question": "How far?"})
    scripts: dict[str, Any] = {
        "head": [
            Reply("", calls=both, usage=(100, 10)),
            Reply("", calls=[left], usage=(200, 10)),
            Reply("Done.", usage=(300, 10)),
        ],
        "north": [
            Reply("", calls=[grant("camp", "Look", tokens=900)], usage=(100, 10)),
            Reply("Found.", usage=(150, 10)),
        ],
        "camp": [Reply("", calls=[asking], usage=(100, 10)), Reply("Far.", usage=(120, 10))],
        "south": south,
    }
    camp = Agent("camp", permissions=Permissions(contact_user=True))
    members = [Agent("north", subordinates=[camp]), Agent("south")]
    return Agent("head", model=ScriptedModel(scripts), subordinates=members)


def write(file: Path) -> None:
    """Write the database."""
    with (
        SqliteCheckpointer(file) as saver,
        Session(build_team(), saver, thread=THREAD, prices=PRICES) as session,
    ):
        budget = Budget(tokens=4000, money="0.5", calls=20, seconds=600)
        assert session.send("go", budget=budget).result().questions
    shrink(file)


if __name__ == "__main__":
    write(Path(sys.argv[1]).resolve())
