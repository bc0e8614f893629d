"""Processes die, stop and go on as they are told, and say what became of them."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from echelons.testing.crash import ProcessFailed, run

pytestmark = pytest.mark.skipif(os.name == "nt", reason="forks and signals of POSIX")

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process without threads says of its forks."""
    driver = "tests.echelons.testing.drivers.forks"
    place = tmp_path_factory.mktemp("forks")
    return dict(run(driver, str(place), folder=REPOSITORY))


def test_a_fork_returns_what_its_work_returned(told: dict[str, Any]) -> None:
    assert told["result"] == {"pid differs": True, "long": 1_000_000}


def test_a_fork_that_fails_says_why(told: dict[str, Any]) -> None:
    assert told["failed"][0] == 1
    assert told["failed"][1].splitlines()[-1] == "ZeroDivisionError: division by zero"


def test_a_killed_process_cleans_nothing_up(told: dict[str, Any]) -> None:
    assert told["killed"] == [-signal.SIGKILL, ""]


def test_a_process_that_ends_in_time_is_not_killed(told: dict[str, Any]) -> None:
    assert told["in time"] == 0


def test_a_stopped_process_does_nothing_until_it_is_woken(told: dict[str, Any]) -> None:
    assert told["stopped"] == ["before"]
    assert told["woken"] == ["before", "after"]


def test_a_process_that_dies_instead_does_not_stand_still(told: dict[str, Any]) -> None:
    assert told["dead"] == [False, False, -signal.SIGKILL]


def test_a_module_that_fails_says_why() -> None:
    with pytest.raises(ProcessFailed, match="No module named") as caught:
        run("tests.no_such_driver", folder=REPOSITORY)

    assert caught.value.code == 1
