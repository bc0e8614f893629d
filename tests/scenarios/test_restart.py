"""Processes end at a question and others go on from the file; nothing finished runs again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.fork_server import ForkServer
from tests.scenarios.drivers.forks import Forks

SCOUT, PILOT = "head/north/camp/scout", "head/south/harbour/pilot"
TASK = ["send", "Find a way."]
TO_SCOUT, TO_PILOT = {SCOUT: "the high one"}, {PILOT: "the near one"}


@dataclass(frozen=True)
class Trip:
    """An expedition in a folder: its database, and the log of all that was done."""

    folder: Path
    forks: Forks

    def go(self, mode: str, *steps: Sequence[Any]) -> dict[str, Any]:
        """Let a new process take some steps, and return what it printed at its end."""
        paths = [str(self.folder / "trip.sqlite"), str(self.folder / "log.txt")]
        ended = self.forks.run(*paths, mode, json.dumps(steps))
        assert ended.code == 0
        return dict(ended.returned)

    @property
    def done(self) -> list[str]:
        """What models and tools of all processes did, sorted."""
        return sorted((self.folder / "log.txt").read_text(encoding="utf-8").splitlines())

    def copy(self, folder: Path) -> Trip:
        """Return the same trip elsewhere."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        return Trip(folder, self.forks)


@pytest.fixture(scope="module")
def forks(fork_server: ForkServer) -> Iterator[Forks]:
    """Runs expeditions, each in a process of its own."""
    forks = Forks(fork_server, "tests.scenarios.drivers.expedition")
    yield forks
    forks.end()


@pytest.fixture(scope="module", params=["sync", "async"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def whole(
    mode: str, tmp_path_factory: pytest.TempPathFactory, forks: Forks
) -> tuple[dict[str, Any], Trip]:
    """What one process prints that does it all."""
    trip = Trip(tmp_path_factory.mktemp("whole"), forks)
    return trip.go(mode, TASK, ["answer", TO_SCOUT], ["answer", TO_PILOT]), trip


@pytest.fixture(scope="module")
def stopped(
    mode: str, tmp_path_factory: pytest.TempPathFactory, forks: Forks
) -> tuple[dict[str, Any], Trip]:
    """What a process prints that has ended at the questions."""
    trip = Trip(tmp_path_factory.mktemp("asked"), forks)
    return trip.go(mode, TASK), trip


@pytest.fixture(scope="module")
def asked(stopped: tuple[dict[str, Any], Trip]) -> Trip:
    """A trip whose process has ended at the questions."""
    return stopped[1]


def questions(end: dict[str, Any]) -> list[list[str]]:
    """Return the paths and questions that are open at the end of a process."""
    return list(end["steps"][-1]["asked"])


def conversations(end: dict[str, Any]) -> tuple[Any, ...]:
    """Return all that is to be equal, however many processes it took."""
    return end["threads"], end["links"], end["trace"]


def test_a_process_that_ends_at_questions_shows_them_and_all_that_is_done(
    stopped: tuple[dict[str, Any], Trip],
) -> None:
    end, trip = stopped

    assert questions(end) == [[SCOUT, "Which pass?"], [PILOT, "Which harbour?"]]
    said = [message["content"] for each in end["threads"].values() for message in each]
    assert {"noted: set out", "noted: cooked", "noted: scouted", "noted: sailed"} <= set(said)
    assert "Supper is ready." in said
    [cook] = [line for line in end["trace"].splitlines() if "cook" in line]
    assert "cook  fulfilled" in cook
    assert len(trip.done) == 14


def test_three_processes_come_to_the_end_that_one_comes_to(
    tmp_path: Path, mode: str, whole: tuple[dict[str, Any], Trip], asked: Trip
) -> None:
    expected, alone = whole
    trip = asked.copy(tmp_path)

    middle = trip.go(mode, ["answer", TO_SCOUT])
    end = trip.go(mode, ["answer", TO_PILOT])

    assert questions(middle) == [[PILOT, "Which harbour?"]]
    assert end["steps"] == [{"text": "The expedition is over.", "finished": True, "asked": []}]
    assert conversations(end) == conversations(expected)
    assert trip.done == alone.done


def test_one_answer_to_both_questions_comes_to_the_same_end(
    tmp_path: Path, mode: str, whole: tuple[dict[str, Any], Trip], asked: Trip
) -> None:
    expected, alone = whole
    trip = asked.copy(tmp_path)

    end = trip.go(mode, ["answer", {**TO_SCOUT, **TO_PILOT}])

    assert end["steps"][-1]["finished"]
    assert conversations(end) == conversations(expected)
    assert trip.done == alone.done


@pytest.mark.parametrize("mode", ["sync"], indirect=True)
def test_the_other_order_in_the_other_world_comes_to_the_same_end(
    tmp_path: Path, whole: tuple[dict[str, Any], Trip], asked: Trip
) -> None:
    expected, alone = whole
    trip = asked.copy(tmp_path)

    middle = trip.go("async", ["answer", TO_PILOT])
    end = trip.go("sync", ["answer", TO_SCOUT])

    assert questions(middle) == [[SCOUT, "Which pass?"]]
    assert conversations(end) == conversations(expected)
    assert trip.done == alone.done


def test_no_work_is_done_twice_within_one_process(whole: tuple[dict[str, Any], Trip]) -> None:
    end, trip = whole

    assert len(set(trip.done)) == len(trip.done) == 25
    assert set(end["links"].values()) == {"ok"}
    assert len(end["threads"]) == 8
