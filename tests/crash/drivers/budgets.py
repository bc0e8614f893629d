"""Kills a fan-out of twenty under one budget, and has another process let it go on.

``python -m tests.crash.drivers.budgets FOLDER TRIALS`` prints, as JSON, a report of a turn that
nothing happens to, and of one for each of so many trials, with a death at a statement or two. Each
process is a fork of this one.
"""

from __future__ import annotations

import asyncio
import sys
from decimal import Decimal
from typing import Any

from echelons import Agent, Result, Session, SqliteCheckpointer, effect
from echelons.guards.budget import Budget
from echelons.guards.prices import Price, Prices, add_money, format_money
from echelons.testing import Call, Reply, ScriptedModel
from tests.accounts import check_accounts, read_charges
from tests.crash.drivers.trials import main
from tests.crash.drivers.trip import Place

SCOUTS = 20
# What two deaths may lose, up to twenty calls each, leaves enough for the rest.
BUDGET = Budget(tokens=200_000, money="2", calls=200, tool_calls=100)
GRANTED = {"tokens": 150_000, "money": "1.5", "calls": 150}
PRICES = Prices("EUR", {"scripted": Price(input="1.25", output="10")})


@effect(idempotent=True)
def look(at: str) -> str:
    """Look at something.

    Args:
        at: What.
    """
    return f"seen {at}"


def build_tree() -> Agent:
    """Return a superior with twenty scouts, each of whom looks once; no two use as many tokens."""
    names = [f"scout{number}" for number in range(SCOUTS)]
    requests = [{"subordinate": name, "message": "Look"} for name in names]
    many = Call("delegate_many", {"requests": requests, "budget": GRANTED})
    script: dict[str, Any] = {
        "head": [Reply("", calls=[many], usage=(7, 3)), Reply("Done.", usage=(11, 5))]
    }
    for number, name in enumerate(names):
        script[name] = [
            Reply("", calls=[Call("look", {"at": name})], usage=(100 + number, 10)),
            Reply("Seen.", usage=(200, 20 + number)),
        ]
    scouts = [Agent(name, tools=[look]) for name in names]
    return Agent("head", model=ScriptedModel(script), subordinates=scouts)


def live(place: Place, world: str) -> dict[str, Any]:
    """Bring the turn to its end, whatever was done of it, and return its accounts."""
    with (
        SqliteCheckpointer(place.database) as saver,
        Session(build_tree(), saver, thread="t", prices=PRICES) as session,
    ):
        result = asyncio.run(_asend(session)) if world == "async" else _send(session)
        root = check_accounts(saver, session.thread_id)["head"]
        charges = read_charges(saver, session.thread_id).values()
        calls = [each for each in charges if each.kind == "model"]
        kept = [each for each in calls if each.state == "charged"]
        lost = [each for each in calls if each.state == "lost"]
        return {
            "text": result.text,
            "states": sorted({each.state for each in charges} - {"lost"}),
            "charged": [
                sum(each.tokens for each in kept),
                format_money(add_money(*(Decimal(each.money) for each in kept))),
                len(kept),
                len(charges) - len(calls),
            ],
            "adds up": root.spent
            == {
                "tokens": sum(each.tokens for each in (*kept, *lost)),
                "money": add_money(*(Decimal(each.money) for each in (*kept, *lost))),
                "calls": len(kept) + len(lost),
                "tool_calls": len(charges) - len(calls),
            },
            "reserved": {unit: str(each) for unit, each in root.reserved.items() if each},
            "lost": len(lost),
        }


def _send(session: Session) -> Result:
    return session.send("go", turn_id="1", budget=BUDGET).result()


async def _asend(session: Session) -> Result:
    return await (await session.asend("go", turn_id="1", budget=BUDGET)).result()


if __name__ == "__main__":
    main(live, *sys.argv[1:])
