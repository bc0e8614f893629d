"""Trials: each has a trip of its own, and several are made at once."""

from __future__ import annotations

import gc
import json
import random
import shutil
import signal
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from echelons.testing.crash import Count, Death, fork, watched
from tests.crash.drivers.trip import Place

Report = dict[str, Any]
WORLDS = ("sync", "async")
AT_ONCE = 2
Live = Callable[[Place, str], Any]
"""Brings what is kept at a place to its end in one of the worlds, and returns what came of it."""


def place_in(folder: Path, name: int) -> Place:
    """Return where a trip of that number is kept."""
    place = Place(folder / str(name))
    place.folder.mkdir()
    return place


def spread(trial: Callable[[int], Report], trials: Sequence[int]) -> list[Report]:
    """Make some trials, several at once."""
    shares = [trials[place::AT_ONCE] for place in range(AT_ONCE)]
    workers = [fork(partial(_all, trial, share)) for share in shares]
    return [report for worker in workers for report in worker.result()]


def _all(trial: Callable[[int], Report], trials: Iterable[int]) -> list[Report]:
    return [trial(each) for each in trials]


def kill(live: Live, folder: Path, statements: int, number: int) -> Report:
    """Kill what is under way at a statement, and once more at another one, perhaps."""
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


def main(live: Live, given: str, trials: str) -> None:
    """Make the trials, and print what came of them; nothing happens to the first."""
    folder, count = Path(given), Count()
    with watched(count):
        first = {"trial": -1, "deaths": [], "end": live(place_in(folder, -1), "sync")}
    gc.freeze()  # or each fork copies every object that its collector looks at
    trial = partial(kill, live, folder, len(count.statements))
    print(json.dumps([first, *spread(trial, range(int(trials)))]))


def differing(reports: Sequence[Report], what: str) -> list[Any]:
    """Return the trips that ended otherwise than the first one, to which nothing happened."""
    expected = reports[0]["end"][what]
    return [
        (each["trial"], each["deaths"], each["end"].get("error") or each["end"][what])
        for each in reports
        if each["end"].get(what) != expected
    ]
