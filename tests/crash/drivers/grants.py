"""Kills a turn of three levels with budgets at each statement, and lets another process go on.

``python -m tests.crash.drivers.grants FOLDER STEP WORLD`` prints, as JSON, the number of
statements, and the grants that were open at the end after a death before every STEP-th of them.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from echelons import Agent, Budget, Permissions, Result, Session, SqliteCheckpointer
from echelons.testing import Call, Reply, ScriptedModel
from echelons.testing.crash import Count, Death, fork, watched
from tests.accounts import check_accounts

BUDGET = Budget(tokens=10_000, calls=20)


def build_tree() -> Agent:
    """Return a head that grants a part to one branch, and then a part that two share."""
    granted = {"tokens": 2_000}
    one = Call("call_subordinate", {"subordinate": "mid", "message": "x", "budget": granted})
    leaf = Call("call_subordinate", {"subordinate": "leaf", "message": "x", "budget": {"calls": 2}})
    requests = [{"subordinate": name, "message": "y"} for name in ("east", "west")]
    both = Call("delegate_many", {"requests": requests, "budget": granted})
    routed = Call("call_subordinate", {"message": "Book flights", "budget": granted})
    script: dict[str, Any] = {
        "head": [Reply("", calls=[call], usage=(9, 4)) for call in (one, both, routed)]
        + [Reply("over", usage=(9, 4))],
        "rail": [ConnectionError("the line is down")],
        "mid": [Reply("", calls=[leaf], usage=(9, 4)), Reply("mid", usage=(9, 4))],
        "*": [Reply("done", usage=(10, 5))],
    }
    mid = Agent("mid", subordinates=[Agent("leaf")])
    able = {"rail": 0.9, "charter": 0.7}
    candidates = [Agent(name, capabilities={"flights": sure}) for name, sure in able.items()]
    capped = Agent("east", permissions=Permissions(budget=Budget(calls=3)))
    return Agent(
        "head", model=ScriptedModel(script), subordinates=[mid, capped, Agent("west"), *candidates]
    )


def run(session: Session, world: str) -> None:
    """Bring the turn to its end, whatever was done of it."""

    async def arun() -> Result:
        run = await session.asend("go", turn_id="7", budget=BUDGET)
        return await run.result()

    if world == "async":
        result = asyncio.run(arun())
    else:
        run = session.send("go", turn_id="7", budget=BUDGET)
        if world == "watched":
            for _ in run:
                pass
        result = run.result()
    assert result.finished, result


def run_watched(path: Path, world: str, watch: Count | Death) -> int:
    """Run the turn from its beginning; the process may die in it."""
    with watched(watch), SqliteCheckpointer(path) as saver:
        run(Session(build_tree(), saver), world)
    return len(watch.statements) if isinstance(watch, Count) else 0


def list_open_grants(path: Path, world: str) -> list[str]:
    """Bring the turn to its end, and return the grants open after it and after another."""
    with SqliteCheckpointer(path) as saver:
        session = Session(build_tree(), saver)
        run(session, world)
        unread = [grant.path for grant in session.usage().grants if not grant.closed]
        # A turn that had ended is not run again: the next one finds what was not written.
        quick = replace(session.graph.agent, model=ScriptedModel({"head": ["bye"]}))
        Session(quick, saver).send("bye").result()
        stored = check_accounts(saver, session.thread_id)
        return unread + [path for path, grant in stored.items() if not grant.record.closed]


def main(folder: str, step: str, world: str) -> None:
    """Print what each death has left open."""
    count = fork(partial(run_watched, Path(folder) / "whole.sqlite", world, Count())).result()
    left: dict[int, Any] = {}
    for at in range(1, count + 1, int(step)):
        path = Path(folder) / f"{at}.sqlite"
        died = fork(partial(run_watched, path, world, Death(at, "before"))).wait()
        assert died in (0, -signal.SIGKILL), died
        if open_ := fork(partial(list_open_grants, path, world)).result():
            left[at] = open_
        path.unlink()
    print(json.dumps({"statements": count, "open": left}))


if __name__ == "__main__":
    main(*sys.argv[1:])
