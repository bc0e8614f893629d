"""kill -9 at any moment of a trip: whoever goes on finds all that was done, and does the rest.

A trip is two turns of three levels, with a tool at each, a question and an answer. It is
killed once or several times, and a process that knows nothing of that brings it to its end.
"""

from __future__ import annotations

import os

import pytest

from tests.crash.drivers.trials import Report, differing
from tests.fork_server import ForkServer
from tests.proof import sample

pytestmark = pytest.mark.skipif(os.name == "nt", reason="forks and signals of POSIX")

DRIVER = "tests.crash.drivers.killed"


@pytest.fixture(scope="module", params=["at random", "under wrong clocks", "at statements"])
def reports(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    fork_server: ForkServer,
) -> list[Report]:
    """What came of each trip; nothing happens to the first one."""
    folder = str(tmp_path_factory.mktemp("trips"))
    if request.param == "at random":
        return list(fork_server.load(DRIVER, folder, "random", "1", str(sample(6, 2000))))
    if request.param == "under wrong clocks":
        return list(fork_server.load(DRIVER, folder, "clocks", "1", str(sample(3, 200))))
    # Each statement has two sides; an odd step alternates between them.
    step = sample(1571, 1)
    return list(fork_server.load(DRIVER, folder, "statements", str(step), "1"))


def test_the_processes_did_die(reports: list[Report]) -> None:
    died = [each for each in reports if any(code == -9 for *_, code in each["deaths"])]

    # Half of those at random are killed by the clock, which a trip may outrun.
    assert len(died) > 0.4 * len(reports)


def test_no_turn_is_lost_and_none_is_there_twice(reports: list[Report]) -> None:
    assert reports[0]["end"]["said"]["head"][0] == "human: day one"
    assert differing(reports, "said") == []
    assert differing(reports, "done") == []


def test_every_link_holds_and_the_database_is_sound(reports: list[Report]) -> None:
    assert reports[0]["end"]["integrity"] == ["ok"]
    assert set(reports[0]["end"]["links"]) == {"ok"}
    assert differing(reports, "integrity") == []
    assert differing(reports, "links") == []


def test_every_effect_happens_once_or_a_human_is_asked(
    reports: list[Report],
) -> None:
    assert len(reports[0]["end"]["effects"]) == len(set(reports[0]["end"]["effects"])) == 6
    assert differing(reports, "effects") == []
    assert reports[0]["end"]["unknown"] == []
    if len(reports) > 100:
        assert any(each["end"]["unknown"] for each in reports)
