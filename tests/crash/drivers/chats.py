"""Kills siblings that talk to each other, and has another process let them go on.

``python -m tests.crash.drivers.chats FOLDER TRIALS`` prints, as JSON, a report of a chat that
nothing happens to, and of one for each of so many trials, with a death at a statement or two. Each
process is a fork of this one.
"""

from __future__ import annotations

import gc
import json
import random
import shutil
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

from echelons import Session, SqliteCheckpointer
from echelons.testing.crash import Count, Death, fork, watched
from tests.crash.drivers.interventions import submit
from tests.crash.drivers.trials import WORLDS, Report, place_in, spread
from tests.crash.drivers.trip import Place
from tests.scenarios.drivers.siblings import chat

MESSAGES = 10
"""How many messages each sends the other."""


def live(place: Place, world: str) -> dict[str, Any]:
    """Bring the chat to its end, whatever was done of it, and return who was told what."""
    with SqliteCheckpointer(place.database) as saver:
        session = Session(chat(MESSAGES), saver, thread="t")
        text = submit(session, world)
        told = {
            each.agent: sorted([mail.kind, mail.text] for mail in each.mail)
            for each in session.trace().walk()
        }
        order = {
            each.agent: [mail.text for mail in each.mail if mail.kind == "message"]
            for each in session.trace().walk()
        }
        return {"text": text, "told": told, "order": order}


def trial(folder: Path, statements: int, number: int) -> Report:
    """Kill a chat at a statement, and once more at another one, perhaps."""
    chance, place = random.Random(number), place_in(folder, number)
    deaths: list[Any] = []
    for _ in range(1 + number % 2):
        world, at = chance.choice(WORLDS), chance.randint(1, statements)
        watch = Death(at, chance.choice(("before", "after")))

        def living(world: str = world, watch: Death = watch) -> None:
            with watched(watch):
                live(place, world)

        code = fork(living).wait()
        assert code in (0, -signal.SIGKILL), (number, code)
        deaths.append([world, at, code])
    end = fork(partial(live, place, chance.choice(WORLDS))).result()
    shutil.rmtree(place.folder)
    return {"trial": number, "deaths": deaths, "end": end}


def main(given: str, trials: str) -> None:
    """Make the trials, and print what came of them; nothing happens to the first."""
    folder, count = Path(given), Count()
    with watched(count):
        first = {"trial": -1, "deaths": [], "end": live(place_in(folder, -1), "sync")}
    gc.freeze()  # or each fork copies every object that its collector looks at
    chats = partial(trial, folder, len(count.statements))
    print(json.dumps([first, *spread(chats, range(int(trials)))]))


if __name__ == "__main__":
    main(*sys.argv[1:])
