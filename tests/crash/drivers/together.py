"""Processes that submit turns to one thread, all at the same time, and are killed.

``python -m tests.crash.drivers.together FOLDER PROCESSES TURNS KILLS`` prints, as JSON, which
turns were acknowledged, and what the thread holds in the end. A killed process is started again
at once; it knows which of its turns were acknowledged, and submits the next one again.
"""

from __future__ import annotations

import gc
import json
import random
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from echelons import Session, SqliteCheckpointer
from echelons.errors import InterventionPending, ThreadBusy, UnfinishedTurn
from echelons.testing.crash import fork
from tests.crash.drivers.trials import WORLDS, Report, place_in
from tests.crash.drivers.trip import Client, Place, live, look, tree

TAKEN = (ThreadBusy, UnfinishedTurn, InterventionPending)
"""What somebody else's turn gives: it is under way, or was cut short and will go on."""


def task(worker: int, number: int) -> str:
    """Return what a worker's turn is about; no two are alike."""
    return f"leg {number} of {worker}"


def work(place: Place, worker: int, turns: int) -> None:
    """Submit one turn after the other until each is acknowledged."""
    chance = random.Random()
    with SqliteCheckpointer(place.database) as saver:
        session = Session(tree(place), saver, thread="trip")
        client = Client(session, place, WORLDS[worker % 2])
        done = place.lines(f"done by {worker}")
        for number in range(len(done), turns):
            answer = ""
            while not answer:
                try:
                    answer = client.settle(f"{worker}-{number}", task(worker, number))
                except TAKEN:
                    time.sleep(chance.uniform(0.001, 0.01))
            place.add(f"done by {worker}", answer)


def worked(place: Place, workers: int, turns: int, kills: int) -> int:
    """Start the workers, kill one after the other at random, and return how many did die."""
    chance, died = random.Random(workers), 0
    at_work = {each: fork(partial(work, place, each, turns)) for each in range(workers)}
    while at_work:
        worker = chance.choice(sorted(at_work))
        if died == kills:
            at_work.pop(worker).result()
            continue
        code = at_work[worker].kill_after(chance.uniform(0, 0.1))
        if code == -signal.SIGKILL:
            died += 1
            at_work[worker] = fork(partial(work, place, worker, turns))
        else:
            at_work.pop(worker).result()
    return died


def seen(place: Place, workers: int) -> Report:
    """Return what was acknowledged, and what is there."""
    acknowledged = [place.lines(f"done by {each}") for each in range(workers)]
    return {"acknowledged": acknowledged, **look(place)}


def main(folder: str, workers: str, turns: str, kills: str) -> None:
    """Have them work, and print what came of it."""
    place = place_in(Path(folder), int(workers))
    for world in WORLDS:
        live(place_in(Path(folder), -1 - WORLDS.index(world)), world)
    gc.freeze()
    died = worked(place, int(workers), int(turns), int(kills))
    found: Any = fork(partial(seen, place, int(workers))).result()
    print(json.dumps({"died": died, **found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
