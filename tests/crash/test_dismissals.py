"""kill -9 around dismissals: each is committed once, and nobody dismissed is ever at work again.

A superior dismisses whom it has made, and somebody else one of its declared subordinates. The
process is killed at a statement, and one that knows nothing of that brings both turns to their end.
"""

from __future__ import annotations

import os

import pytest

from tests.crash.drivers.trials import Report, differing
from tests.fork_server import ForkServer
from tests.proof import sample

pytestmark = pytest.mark.skipif(os.name == "nt", reason="forks and signals of POSIX")


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> list[Report]:
    """What came of every trial; nothing happens to the first one."""
    folder, driver = str(tmp_path_factory.mktemp("turns")), "tests.crash.drivers.dismissals"
    return list(fork_server.load(driver, folder, str(sample(5, 300))))


def test_the_processes_did_die(reports: list[Report]) -> None:
    died = [each for each in reports if any(code == -9 for *_, code in each["deaths"])]

    assert len(died) > 0.5 * (len(reports) - 1)


def test_the_turns_that_are_left_alone_tell_of_both_dismissals(reports: list[Report]) -> None:
    end = reports[0]["end"]

    assert end["said"] == ["one is over", "two is over"]
    assert end["told"][2] == "scout is dismissed, with all below it"
    assert end["told"][3:] == [
        "Error: 'scout' was dismissed, for good; spawn another",
        "[unable] dismissed: head/north was dismissed",
        "south in two is done",
    ]
    assert end["states"] == [
        ["head", "done"],
        ["north", "dismissed"],
        ["scout", "dismissed"],
        ["south", "done"],
    ]
    assert end["effects"] == ["north in one", "scout in one", "south in two"]
    assert (end["dismissals"], end["orders"]) == (2, 2)


@pytest.mark.parametrize(
    "what",
    ["said", "told", "by", "states", "effects", "dismissals", "orders", "integrity"],
)
def test_what_was_killed_comes_to_the_same_end(reports: list[Report], what: str) -> None:
    assert differing(reports, what) == []
