"""kill -9 between an intervention and the next reply: what was sent is told exactly once.

An agent is redirected in the middle of its reply, and its superior is sent a message. The process
is killed at a statement from then on, and one that knows nothing of that ends the turn.
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
    """What came of every turn; nothing happens to the first two."""
    folder = str(tmp_path_factory.mktemp("turns"))
    driver = "tests.crash.drivers.interventions"
    return list(fork_server.load(driver, folder, str(sample(5, 400))))


def test_the_processes_did_die(reports: list[Report]) -> None:
    died = [each for each in reports if any(code == -9 for *_, code in each["deaths"])]

    assert len(died) > 0.8 * (len(reports) - 2)


def test_sent_messages_alone_are_read_and_once(reports: list[Report]) -> None:
    first, second, *others = (each["end"] for each in reports)

    assert first == second
    assert first["told"]["scout"] == ["Come back."]
    assert first["told"]["north"] == ["Wait for the scout."]
    for end, report in zip(others, reports[2:], strict=True):
        told = {agent: len(texts) for agent, texts in end["told"].items() if agent != "head"}
        assert (told, end["text"]) == (end["sent"], "over"), report["trial"]
    assert all(each["sent"]["north"] == 1 for each in others)
