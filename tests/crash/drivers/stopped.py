"""Stops a process in the middle of a trip, has another take the thread over, and wakes it.

``python -m tests.crash.drivers.stopped FOLDER FIRST COUNT`` prints, as JSON, a report for the
trip that stops within a tool, and for COUNT that stop at random moments.
"""

from __future__ import annotations

import gc
import json
import random
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

from echelons import EchelonsError, Session, SqliteCheckpointer
from echelons.checkpoints.ledger import build_key
from echelons.testing.crash import Process, fork
from tests.crash.drivers.trials import WORLDS, Report, place_in, spread
from tests.crash.drivers.trip import TURNS, Client, Place, live, look, tree


def hold(place: Place, world: str, stop_after: str = "") -> str:
    """Have every turn done, or say why not; perhaps stop after an effect."""

    def booked(token: str) -> None:
        if token == stop_after:
            with saver.lock:  # not while another thread of this process is in a transaction
                # To this thread: of a signal to the process it may run on until another takes it.
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

    with SqliteCheckpointer(place.database) as saver:
        session = Session(tree(place, booked), saver, thread="trip")
        try:
            Client(session, place, world).finish()
        except EchelonsError as error:
            return type(error).__name__
    return "finished"


def attempt(place: Place) -> list[Any]:
    """Try to go on while another process holds the thread, and return what it says."""
    with SqliteCheckpointer(place.database, busy_timeout=0.02) as saver:
        try:
            Session(tree(place), saver, thread="trip").send(TURNS["t1"], turn_id="t1").result()
        except EchelonsError as error:
            return [type(error).__name__, getattr(error, "pid", 0)]
    return ["finished", 0]


def take_over(place: Place, world: str) -> str:
    """Take the thread from whoever holds it, and have every turn done."""
    try:
        with SqliteCheckpointer(place.database, busy_timeout=0.02) as saver:
            session = Session(tree(place), saver, thread="trip")
            saver.ledger.take_over(build_key(session.thread_id)).release()
            Client(session, place, world).finish()
    except EchelonsError as error:
        return f"{type(error).__name__}: {error}"
    return "finished"


def met(place: Place, holder: Process, worlds: tuple[str, str], tries: bool) -> Report:
    """Have a stopped process's thread taken over, wake it, and return what came of both."""
    tried = fork(partial(attempt, place)).result() if tries else None
    taken = fork(partial(take_over, place, worlds[0])).result()
    holder.wake()
    woken = holder.result()

    def finish() -> Any:
        live(place, worlds[1])
        return look(place)

    end = fork(finish).result()
    return {"tried": tried, "holder": holder.pid, "taken": taken, "woken": woken, "end": end}


def in_a_tool(folder: Path, seed: int) -> Report:
    """Stop a process after it has had an effect, before it can say so."""
    place, world = place_in(folder, seed), WORLDS[seed % 2]
    token = f"{list(TURNS.values())[seed % 2]}: {('head', 'north', 'scout')[seed % 3]}"
    holder = fork(partial(hold, place, world, token))
    holder.wait_until_stopped()
    met_ = met(place, holder, (world, WORLDS[1 - seed % 2]), tries=True)
    return {"trial": seed, "deaths": [["in a tool", world, token]], **met_}


def at_random(folder: Path, length: float, seed: int) -> Report:
    """Stop a process at a random moment, perhaps in the middle of a transaction."""
    chance = random.Random(seed)
    place, world = place_in(folder, seed), chance.choice(WORLDS)
    moment = chance.uniform(0, length)
    holder = fork(partial(hold, place, world))
    time.sleep(moment)
    holder.stop()
    met_ = met(place, holder, (chance.choice(WORLDS), chance.choice(WORLDS)), tries=False)
    return {"trial": seed, "deaths": [[round(moment * 1e6), world]], **met_}


def main(place: str, first: str, count: str) -> None:
    """Make the trials, and print what came of them; the first report is of no stop at all."""
    folder, undisturbed = Path(place), place_in(Path(place), -1)
    for world in WORLDS:
        live(place_in(folder, -2 - WORLDS.index(world)), world)
    gc.freeze()
    begun = time.perf_counter()
    live(undisturbed)
    length = time.perf_counter() - begun
    seeds = range(int(first), int(first) + int(count))
    reports = [
        {"trial": 0, "deaths": [], "end": look(undisturbed)},
        *spread(partial(in_a_tool, folder), range(-15, -9)),
        *spread(partial(at_random, folder, length), seeds),
    ]
    print(json.dumps(reports))


if __name__ == "__main__":
    main(*sys.argv[1:])
