"""Kills a turn whose agent is redirected, and has another process finish it.

``python -m tests.crash.drivers.interventions FOLDER TRIALS`` prints, as JSON, a report of a turn
that nothing happens to, and of one for each of so many deaths, at a statement after the
intervention was sent. Each process is a fork of this one.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from echelons import Session, SqliteCheckpointer
from echelons.checkpoints.coordination.mailbox import MAILBOX
from echelons.checkpoints.ledger import build_key
from echelons.testing import FakeClock
from echelons.testing.crash import Count, Death, Watch, fork, watched
from tests.crash.drivers.trials import WORLDS, Report, place_in, spread
from tests.crash.drivers.trip import Place
from tests.scenarios.drivers.steered import SCOUT, tree


class Beats(FakeClock):
    """A clock that steers the scout at the sixth chunk of its reply, and writes to its superior."""

    def __init__(self, session: Callable[[], Session], sent: Callable[[], object]) -> None:
        super().__init__()
        self._session = session
        self._sent = sent
        self._beat = 0

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        self._beat += 1
        if self._beat == 4:
            self._session().send_message("head/north", "Wait for the scout.")
        if self._beat == 6:
            self._session().steer(SCOUT, "Come back.")
            self._sent()


def live(place: Place, world: str, sent: Callable[[], object] = lambda: None) -> None:
    """Run the turn, and redirect the scout."""
    with SqliteCheckpointer(place.database) as saver:
        clock = Beats(lambda: session, sent)
        session = Session(tree(clock=clock), saver, thread="t")
        submit(session, world)


def submit(session: Session, world: str) -> str:
    """Run the turn to its end, whatever was done of it."""
    if world == "sync":
        return session.send("go", turn_id="1").result().text

    async def run() -> str:
        return (await (await session.asend("go", turn_id="1")).result()).text

    return asyncio.run(run())


def finish(place: Place, world: str) -> dict[str, Any]:
    """Bring a turn to its end, and return what its agents were sent and told."""
    with (
        SqliteCheckpointer(place.database) as saver,
        Session(tree(latency=0.0), saver, thread="t") as session,
    ):
        text = submit(session, world)
        sent: dict[str, int] = {}
        for path in ("head/north", SCOUT):
            key = build_key(session.thread_id, MAILBOX.name, path.replace("/", "%2F"))
            box = saver.ledger.get_record(MAILBOX, key)
            sent[path.rpartition("/")[2]] = box.value.sent if box else 0
            assert box is None or box.value.unread == 0
        told = {each.agent: [mail.text for mail in each.mail] for each in session.trace().walk()}
        return {"text": text, "sent": sent, "told": told}


def trial(folder: Path, statements: list[tuple[int, int]], number: int) -> Report:
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
        before: list[Any] = []
        with watched(count):
            live(place, world, partial(_copy_into, before, count.statements))
        # The steering itself, too.
        ranges.append((len(before) - 12, len(count.statements)))
        reports.append({"trial": world, "deaths": [], "end": finish(place, world)})
    gc.freeze()  # or each fork copies every object that its collector looks at
    print(json.dumps([*reports, *spread(partial(trial, folder, ranges), range(int(trials)))]))


def _copy_into(target: list[Any], source: list[Any]) -> None:
    target[:] = source


if __name__ == "__main__":
    main(*sys.argv[1:])
