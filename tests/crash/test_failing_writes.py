"""A write that fails is named, changes nothing, and can be made up for.

Each of a trip's writes fails in six ways: as SQLite would say of a full disk, a locked database
and a broken disk, and with a database that cannot grow, a foreign writer that never ends, and
a system that writes nothing more, until the process ends.
"""

from __future__ import annotations

import itertools
import os
import sqlite3
from pathlib import Path

import pytest

from echelons.errors import StorageError
from echelons.testing.crash import Fault, Watch, watched
from tests.crash.drivers.trials import Report, differing
from tests.crash.drivers.trip import EFFECTS, Place, live, seen
from tests.fork_server import ForkServer
from tests.proof import sample

pytestmark = pytest.mark.skipif(os.name == "nt", reason="forks and signals of POSIX")

TEXTS = {
    "full": "database or disk is full",
    "locked": "database is locked",
    "unwritable": "disk I/O error",
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> list[Report]:
    """What came of each trip; nothing happens to the first one."""
    folder = str(tmp_path_factory.mktemp("failures"))
    step = sample(631, 1)
    return list(fork_server.load("tests.crash.drivers.failing", folder, str(step)))


def test_a_write_that_fails_is_named(reports: list[Report]) -> None:
    hit = [each for each in reports[1:] if each["hit"]]

    assert len(hit) > 0.9 * (len(reports) - 1)
    for each in hit:
        way, _, world = each["deaths"][0]
        # What is left to write may fit into a full database; a lock in an event loop is waited for.
        unharmed = way == "full" or (way, world) == ("BUSY", "async")
        assert each["error"].startswith("StorageError") or (unharmed and not each["error"])


def test_what_is_stored_is_as_it_was_before_a_write_that_failed(reports: list[Report]) -> None:
    assert [each["deaths"] for each in reports[1:] if each["changed"]] == []


@pytest.mark.parametrize("way", TEXTS)
def test_sqlite_did_fail(reports: list[Report], way: str) -> None:
    errors = [each["error"] for each in reports[1:] if each["deaths"][0][0] == way]
    errors = [each for each in errors if each]

    assert errors
    assert all(TEXTS[way] in each for each in errors)


def test_going_on_comes_to_the_same_end(reports: list[Report]) -> None:
    for what in ("said", "done", "links", "integrity"):
        assert differing(reports, what) == []


def test_every_effect_is_had_once(reports: list[Report]) -> None:
    assert len(reports[0]["end"]["effects"]) == 6
    assert differing(reports, "effects") == []


class Unstored(Watch):
    """Lets one checkpoint fail, and notes what the world has seen by then.

    Args:
        at: Which, counted from 1.
        place: Where the world looks.
    """

    def __init__(self, at: int, place: Place) -> None:
        self.effects: list[str] = []
        self._at = at
        self._place = place
        self._checkpoints = itertools.count(1)

    def before(self, connection: sqlite3.Connection, statement: str) -> None:
        """Fail here, if this is the place."""
        if "INTO checkpoints" in statement and next(self._checkpoints) == self._at:
            self.effects = self._place.lines("effects")
            raise Fault.IOERR.error()


@pytest.mark.parametrize("at", range(1, 14))
def test_nothing_is_done_in_the_world_beneath_a_checkpoint_that_was_not_stored(
    at: int, tmp_path: Path
) -> None:
    place = Place(tmp_path)
    unstored = Unstored(at, place)
    with watched(unstored), pytest.raises(StorageError, match="disk I/O error"):
        live(place, "async")

    # A tool that was at work already comes to its end.
    assert len(place.lines("effects")) <= len(unstored.effects) + 1
    live(place)
    assert seen(place)["effects"] == sorted(EFFECTS)
