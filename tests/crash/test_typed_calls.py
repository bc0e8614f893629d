"""kill -9 while typed subordinates are at work: the same inputs, outputs and answer.

A host asks three of them side by side: one with an input that is refused and corrected, one that
answers in a wrong form first, one that fails. The process is killed at a statement, once or twice,
and one that knows nothing of that goes on.
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
    """What came of every turn; nothing happens to the first one."""
    folder = str(tmp_path_factory.mktemp("typed_calls"))
    return list(fork_server.load("tests.crash.drivers.typed_calls", folder, str(sample(6, 300))))


def test_the_processes_did_die(reports: list[Report]) -> None:
    died = [each for each in reports if any(code == -9 for *_, code in each["deaths"])]

    assert len(died) > 0.5 * (len(reports) - 1)


def test_the_answer_is_whole_and_typed_though_one_has_failed(reports: list[Report]) -> None:
    first = reports[0]["end"]

    assert first["value"] == {"hotel": "Ibis", "train": "9:00", "missing": ["weather"]}
    assert first["requests"] == [
        ["hotels", {"city": "Rome", "nights": 2}, {"model": "Hotel", "value": FOUND}],
        ["trains", {"city": "Rome"}, {"model": "Train", "value": {"leaves": "9:00"}}],
        ["weather", {"city": "Rome"}, None],
    ]


def test_every_killed_turn_comes_to_the_same_end(reports: list[Report]) -> None:
    for each in reports[1:]:
        assert each["end"] == reports[0]["end"], each["deaths"]


FOUND = {"name": "Ibis", "price": 80.0}
