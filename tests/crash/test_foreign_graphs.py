"""kill -9 around the questions of somebody else's graph: no answer is lost, none goes astray.

The process is killed at a statement, and one that knows nothing of that answers what is asked.
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
    folder, driver = str(tmp_path_factory.mktemp("turns")), "tests.crash.drivers.foreign_graph"
    return list(fork_server.load(driver, folder, str(sample(6, 600))))


def test_the_processes_did_die(reports: list[Report]) -> None:
    died = [each for each in reports if any(code == -9 for *_, code in each["deaths"])]

    assert len(died) > 0.5 * (len(reports) - 1)


def test_the_graph_that_is_left_alone_has_both_answers(reports: list[Report]) -> None:
    end = reports[0]["end"]

    assert end["said"] == "where? where? yes / when? when? yes"
    assert (end["asked"], end["noted"], end["left"]) == (2, ["where? where? yes"], 0)


@pytest.mark.parametrize("what", ["said", "asked", "noted", "left", "threads", "integrity"])
def test_what_was_killed_comes_to_the_same_end(reports: list[Report], what: str) -> None:
    assert differing(reports, what) == []
