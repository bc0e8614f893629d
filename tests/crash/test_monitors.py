"""kill -9 around the verdict of a monitor: an alert is told exactly once, with its order.

A scout gets out of hand, its monitor alerts, and its superior has it stopped. The process is killed
at a statement from the call of the monitor's model on, between how far it has read and what it says
of it, too; and one that knows nothing of that ends the turn.
"""

from __future__ import annotations

import os

import pytest

from tests.crash.drivers.trials import Report
from tests.fork_server import ForkServer
from tests.proof import sample
from tests.scenarios.drivers.watched import SCOUT, WATCH

pytestmark = pytest.mark.skipif(os.name == "nt", reason="forks and signals of POSIX")


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> list[Report]:
    """What came of every turn; nothing happens to the first two."""
    folder = str(tmp_path_factory.mktemp("turns"))
    return list(fork_server.load("tests.crash.drivers.watched", folder, str(sample(5, 400))))


def test_the_processes_did_die(reports: list[Report]) -> None:
    died = [each for each in reports if any(code == -9 for *_, code in each["deaths"])]

    assert len(died) > 0.7 * (len(reports) - 2)


def test_alert_is_reported_once_and_stops_its_branch_once(reports: list[Report]) -> None:
    for report in reports:
        end = report["end"]
        assert end["text"] == "over", report["trial"]
        assert end["alerts"] == ["alert"], report["trial"]
        assert end["orders"] == [["stop", SCOUT, WATCH]], report["trial"]
        assert end["told"] == [["stopped", SCOUT]], report["trial"]
        assert end["looks"] < 30, report["trial"]
