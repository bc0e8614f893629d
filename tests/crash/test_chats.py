"""kill -9 while siblings talk: every message is told once and in order, but the one that is held.

Two siblings send each other ten messages each, and their superior holds one back. The process is
killed at a statement, once or twice, and one that knows nothing of that lets them go on.
"""

from __future__ import annotations

import os

import pytest

from tests.crash.drivers.trials import Report
from tests.fork_server import ForkServer
from tests.proof import sample

pytestmark = pytest.mark.skipif(os.name == "nt", reason="forks and signals of POSIX")


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> list[Report]:
    """What came of every chat; nothing happens to the first one."""
    folder = str(tmp_path_factory.mktemp("chats"))
    return list(fork_server.load("tests.crash.drivers.chats", folder, str(sample(4, 300))))


def test_the_processes_did_die(reports: list[Report]) -> None:
    died = [each for each in reports if any(code == -9 for *_, code in each["deaths"])]

    assert len(died) > 0.5 * (len(reports) - 1)


def test_every_message_is_read_once_and_in_order(reports: list[Report]) -> None:
    first = reports[0]["end"]

    assert first["order"]["one"] == [f"two {number}" for number in range(10)]
    assert first["order"]["two"] == [f"one {number}" for number in range(10) if number != 7]
    assert first["told"]["north"].count(["held", "one 7"]) == 1
    assert len(first["told"]["north"]) == 20
    for each in reports[1:]:
        assert each["end"] == first, each["deaths"]
