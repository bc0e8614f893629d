"""Kills a turn while its monitor judges it, and has another process finish it.

``python -m tests.crash.drivers.watched FOLDER TRIALS`` prints, as JSON, a report of a turn that
nothing happens to, and of one for each of so many deaths, at a statement between the moment at
which the monitor is asked and the end of the turn. Each process is a fork of this one.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage

from echelons import Agent, Session, SqliteCheckpointer
from echelons.checkpoints.coordination.orders import read_orders
from echelons.testing.crash import Count, Death, Watch, fork, watched
from tests.crash.drivers.trials import WORLDS, Report, place_in, spread
from tests.crash.drivers.trip import Place
from tests.scenarios.drivers.watched import SCOUT, WATCH, Field, build_tree, call_when_told, once

LOOKS = 30
"""Looks of a scout that nobody stops."""
WAITS_AT = 8
"""The look of each process at which its scout waits for the alert: there are 20 events by then."""


def build(asked: Callable[[], object], field: Field) -> Agent:
    """Return the tree, whose monitor alerts once, as far as it remembers."""
    alert = once()

    def watch(messages: Sequence[BaseMessage]) -> Any:
        asked()
        return alert(messages)

    return build_tree(watch, field, most=LOOKS)


def submit(session: Session, world: str) -> str:
    """Run the turn to its end, whatever was done of it."""
    if world == "sync":
        return session.send("go", turn_id="1").result().text

    async def run() -> str:
        return (await (await session.asend("go", turn_id="1")).result()).text

    return asyncio.run(run())


def live(place: Place, world: str, asked: Callable[[], object] = lambda: None) -> None:
    """Run the turn; the scout waits until the monitor's alert is stored."""
    field = Field(waits_at=WAITS_AT)
    with SqliteCheckpointer(place.database) as saver:
        call_when_told(saver, field.go_on.set)
        with Session(build(asked, field), saver, thread="t") as session:
            submit(session, world)


def finish(place: Place, world: str) -> dict[str, Any]:
    """Bring a turn to its end, and return what was said and told of it."""
    field = Field(waits_at=WAITS_AT)
    with (
        SqliteCheckpointer(place.database) as saver,
        Session(build(lambda: None, field), saver, thread="t") as session,
    ):
        call_when_told(saver, field.go_on.set)
        text = submit(session, world)
        stored = saver.read_events(session.thread_id, 0)
        orders = saver.ledger.query(lambda open_: read_orders(open_, session.thread_id, "1"))
        [head, *_] = session.trace().walk()
        return {
            "text": text,
            "alerts": [
                each.event.kind
                for each in stored
                if each.agent_path == WATCH and each.event.kind != "message"
            ],
            "orders": [(each.order, each.path, each.by) for each in orders.given],
            "told": [(each.kind, each.to) for each in head.mail],
            "looks": sum(
                each.event.kind == "tool_call" for each in stored if each.agent_path == SCOUT
            ),
        }


def trial(folder: Path, statements: Sequence[tuple[int, int]], number: int) -> Report:
    """Kill a turn at a statement, on one side of it."""
    chance = random.Random(number)
    world, side = WORLDS[number % 2], ("before", "after")[number // 2 % 2]
    at = chance.randint(*statements[number % 2])
    place = place_in(folder, number)
    watch: Watch = Death(at, side)  # type: ignore[arg-type]

    def living() -> None:
        with watched(watch):
            live(place, world)

    code = fork(living).wait()
    assert code in (0, -signal.SIGKILL), (number, code)
    end = fork(partial(finish, place, WORLDS[chance.randrange(2)])).result()
    shutil.rmtree(place.folder)
    return {"trial": [world, side, at], "deaths": [[world, code]], "end": end}


def main(given: str, trials: str) -> None:
    """Make the trials, and print what came of them; nothing happens to the first two."""
    folder, reports, ranges = Path(given), list[Report](), list[tuple[int, int]]()
    for number, world in enumerate(WORLDS):
        place, count = place_in(folder, -1 - number), Count()
        begun: list[int] = []

        def note(count: Count = count, begun: list[int] = begun) -> None:
            begun.append(len(count.statements))

        with watched(count):
            live(place, world, note)
        # From the transaction that counts the call, before it is made.
        ranges.append((begun[0] - 10, len(count.statements)))
        reports.append({"trial": world, "deaths": [], "end": finish(place, world)})
    gc.freeze()  # or each fork copies every object that its collector looks at
    print(json.dumps([*reports, *spread(partial(trial, folder, ranges), range(int(trials)))]))


if __name__ == "__main__":
    main(*sys.argv[1:])
