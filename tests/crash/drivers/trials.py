"""Trials: each has a trip of its own, and several are made at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from echelons.testing.crash import fork
from tests.crash.drivers.trip import Place

Report = dict[str, Any]
WORLDS = ("sync", "async")
AT_ONCE = 2


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


def differing(reports: Sequence[Report], what: str) -> list[Any]:
    """Return the trips that ended otherwise than the first one, to which nothing happened."""
    expected = reports[0]["end"][what]
    return [
        (each["trial"], each["deaths"], each["end"].get("error") or each["end"][what])
        for each in reports
        if each["end"].get(what) != expected
    ]
