"""Kills trips, at random moments or at chosen statements, and has another process finish them.

``python -m tests.crash.drivers.killed FOLDER random FIRST COUNT`` and
``… FOLDER statements STEP FIRST`` print a report for each trip, as JSON; ``clocks`` instead of
``random`` sets the clock wrong in each life. Each process is a fork of this one, and two trips
are under way at once.
"""

from __future__ import annotations

import gc
import json
import random
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from echelons.testing.crash import Count, Death, Process, ProcessFailed, Side, Watch, fork, watched
from tests.crash.drivers.trials import WORLDS, Report, place_in, spread
from tests.crash.drivers.trip import Place, live, look

OFFSETS = (-10 * 365 * 86400, -86400, -60, 0, 60, 86400, 10 * 365 * 86400)
SIDES: tuple[Side, Side] = ("before", "after")


def killed_at_random(
    folder: Path, length: float, statements: int, seed: int, offsets: Sequence[int] = (0,)
) -> Report:
    """Kill a trip once or more, by the clock or by the count, and return what came of it.

    Args:
        folder: Where it is kept.
        length: Seconds that a trip takes.
        statements: How many SQL statements it takes.
        seed: Decides everything.
        offsets: Seconds by which the machine's clock may be wrong in each of its lives.
    """
    chance = random.Random(seed)
    place = place_in(folder, seed)
    deaths: list[Any] = []
    while not deaths or chance.random() < 0.3:
        world, offset = chance.choice(WORLDS), chance.choice(offsets)
        if chance.random() < 0.5:
            moment = chance.uniform(0, length)
            code = _living(place, world, Watch(), offset).kill_after(moment)
            deaths.append([world, offset, round(moment * 1e6), code])
        else:
            at, when = chance.randint(1, statements), chance.choice(SIDES)
            code = _living(place, world, Death(at, when), offset).wait()
            deaths.append([world, offset, f"{when} {at}", code])
    return _report(place, seed, deaths, chance.choice(WORLDS), chance.choice(offsets))


def wrong_by(seconds: int) -> None:
    """Set this process's clock: what LangGraph makes ids of, and what our events tell."""
    tell, tell_ns = time.time, time.time_ns
    time.time = lambda: tell() + seconds
    time.time_ns = lambda: tell_ns() + seconds * 10**9


def killed_at_statement(folder: Path, at: int) -> Report:
    """Kill a trip on one side of a statement: odd ones before it, even ones after."""
    place = place_in(folder, at)
    statement, side = divmod(at + 1, 2)
    world, when = WORLDS[statement % 2], SIDES[side]
    code = _living(place, world, Death(statement, when)).wait()
    return _report(place, at, [[world, f"{when} {statement}", code]], WORLDS[statement // 2 % 2])


def _living(place: Place, world: str, watch: Watch, offset: int = 0) -> Process:
    def work() -> None:
        wrong_by(offset)
        with watched(watch):
            live(place, world, clock=_clock)

    return fork(work)


def _clock() -> datetime:
    return datetime.fromtimestamp(time.time(), UTC)


def _report(place: Place, name: int, deaths: Sequence[Any], world: str, offset: int = 0) -> Report:
    def finish() -> Any:
        wrong_by(offset)
        live(place, world, clock=_clock)
        return look(place)

    codes = [code for *_, code in deaths]
    assert set(codes) <= {0, -signal.SIGKILL}, (name, deaths)
    try:
        end = fork(finish).result()
    except ProcessFailed as failed:
        return {"trial": name, "deaths": deaths, "end": {"error": str(failed)}}
    shutil.rmtree(place.folder)
    return {"trial": name, "deaths": deaths, "end": end}


def undisturbed(folder: Path) -> tuple[Report, float, int]:
    """Return what a trip comes to that nothing happens to, its seconds, and its statements."""
    place, count = place_in(folder, 0), Count()
    for world in WORLDS:  # what is imported and made here need not be in each fork
        live(place_in(folder, -1 - WORLDS.index(world)), world)
    gc.freeze()  # or each fork copies every object that its collector looks at
    begun = time.perf_counter()
    with watched(count):
        live(place)
    took = time.perf_counter() - begun
    return {"trial": 0, "deaths": [], "end": look(place)}, took, len(count.statements)


def main(place: str, kind: str, first: str, second: str) -> None:
    """Make the trials, and print what came of them; the first report is of no death at all."""
    folder = Path(place)
    end, length, statements = undisturbed(folder)
    trials: Sequence[int] = range(int(first), int(first) + int(second))
    if kind == "random":
        trial = partial(killed_at_random, folder, length, statements)
    elif kind == "clocks":
        trial = partial(killed_at_random, folder, length, statements, offsets=OFFSETS)
    else:
        trials = range(int(second), 2 * statements + 3, int(first))
        trial = partial(killed_at_statement, folder)
    print(json.dumps([end, *spread(trial, trials)]))


if __name__ == "__main__":
    main(*sys.argv[1:])
