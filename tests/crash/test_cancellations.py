"""A run that is cancelled anywhere leaves nothing behind that does not belong to its thread."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from echelons import EchelonsError, Session, SqliteCheckpointer
from echelons.checkpoints.ledger import build_key
from tests.crash.drivers.trip import TURNS, Client, Place, seen, told, tree
from tests.proof import sample


@pytest.fixture(params=["in the loop", "in threads"])
def saver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqliteCheckpointer]:
    """A database whose work is done in the event loop, or in threads beside it."""
    offload = request.param == "in threads"
    with SqliteCheckpointer(tmp_path / "trips.sqlite", offload=offload) as opened:
        yield opened


class Trip:
    """A trip of its own thread."""

    def __init__(self, saver: SqliteCheckpointer, folder: Path, name: str) -> None:
        self.saver = saver
        self.place = Place(folder / name)
        self.place.folder.mkdir()
        self.session = Session(tree(self.place), saver, thread=name)
        self.client = Client(self.session, self.place, "async")

    async def run(self) -> list[str]:
        """Have every turn done, and return the answers."""
        return [await self.client.asettle(turn, task) for turn, task in TURNS.items()]

    async def cancelled_after(self, rounds: int) -> bool:
        """Cancel the trip after so many rounds of the loop; return whether that was in time."""
        running = asyncio.create_task(self.run())
        for _ in range(rounds):
            await asyncio.sleep(0)
        in_time = running.cancel()
        with pytest.raises(asyncio.CancelledError) if in_time else pytest.MonkeyPatch.context():
            await running
        return in_time

    def broken(self) -> list[str]:
        """Return the links that do not hold."""
        try:
            links = self.session.thread_store.verify(self.session.thread_id)
        except EchelonsError:  # cancelled before anything was stored
            return []
        return [str(link.state) for link in links if link.state == "broken"]


async def rounds_of(running: Any) -> int:
    """Return how many rounds of the loop something takes."""
    task, rounds = asyncio.create_task(running), 0
    while not task.done():
        await asyncio.sleep(0)
        rounds += 1
    return rounds


async def test_a_run_that_is_cancelled_anywhere_leaves_no_orphan_and_no_lease_and_goes_on(
    saver: SqliteCheckpointer, tmp_path: Path
) -> None:
    undisturbed = Trip(saver, tmp_path, "undisturbed")
    rounds = await rounds_of(undisturbed.run())
    end, chance, in_time = told(undisturbed.session), random.Random(6), 0

    for number in itertools.count():
        if in_time == sample(4, 500):
            break
        trip = Trip(saver, tmp_path, f"trip {number}")
        moment = chance.randrange(rounds)
        if await trip.cancelled_after(moment):
            in_time += 1
        else:  # this machine was slower when the rounds were counted
            rounds = max(rounds * 3 // 4, 1)

        assert trip.broken() == [], moment
        assert saver.ledger.get_holder(build_key(trip.session.thread_id)) is None, moment
        assert await trip.run() == [f"{task} is over" for task in TURNS.values()], moment
        assert told(trip.session) == end, moment
        assert set(seen(trip.place)["effects"]) == set(seen(undisturbed.place)["effects"])
