"""kill -9 in a fan-out of twenty under one budget: the sums are right to the last token and cent.

The process is killed at a statement, once or twice, and one that knows nothing of that goes on. A
call that was lost with it stays charged as it was reserved; all else is charged once.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.crash.drivers.budgets import SCOUTS
from tests.crash.drivers.trials import Report, differing
from tests.fork_server import ForkServer
from tests.proof import sample

pytestmark = pytest.mark.skipif(os.name == "nt", reason="forks and signals of POSIX")


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> list[Report]:
    """What came of every turn; nothing happens to the first one."""
    folder = str(tmp_path_factory.mktemp("budgets"))
    return list(fork_server.load("tests.crash.drivers.budgets", folder, str(sample(4, 1000))))


def test_the_processes_did_die_and_calls_were_lost_with_them(reports: list[Report]) -> None:
    died = [each for each in reports if any(code == -9 for *_, code in each["deaths"])]

    assert len(died) > 0.5 * (len(reports) - 1)
    assert any(each["end"]["lost"] for each in died)


def test_the_turn_that_nothing_happens_to_is_charged_what_its_models_report(
    reports: list[Report],
) -> None:
    first = reports[0]["end"]
    read = 7 + 11 + sum(100 + number + 200 for number in range(SCOUTS))
    written = 3 + 5 + sum(10 + 20 + number for number in range(SCOUTS))

    assert first["charged"] == [
        read + written,
        f"{(read * 125 + written * 1000) / 100_000_000:.8f}".rstrip("0"),
        2 + 2 * SCOUTS,
        SCOUTS,
    ]
    assert (first["lost"], first["reserved"]) == (0, {})


@pytest.mark.parametrize("what", ["text", "states", "charged", "adds up", "reserved"])
def test_every_killed_turn_has_the_same_sums_and_what_was_lost(
    reports: list[Report], what: str
) -> None:
    assert reports[0]["end"]["adds up"] is True
    assert not differing(reports, what)


@pytest.mark.parametrize("dies", ["head/1", "scout/1", "scout/2", "head/2"])
def test_a_call_lost_within_a_foreign_graph_is_charged_as_reserved(
    tmp_path: Path, fork_server: ForkServer, dies: str
) -> None:
    driver, database = "tests.crash.drivers.embedded_budget", str(tmp_path / "t.sqlite")
    first = fork_server.start("-m", driver, database, dies)
    first.communicate()

    end = fork_server.load(driver, database)

    assert first.returncode == -signal.SIGKILL
    assert end["text"] == "head is done"
    [[path, state, is_counted]] = [each for each in end["charges"] if each[1] != "charged"]
    assert (path.rpartition("/")[2], state, is_counted) == (dies[:-2], "lost", True)
    assert len(end["charges"]) == 5
