"""kill -9 while requests wait in queues: each is done, in its order, and answered once.

A host gives two people several tasks, one as calls and the other in one `delegate_many`, and sends
an agent several messages of one conversation. The process is killed at a statement, once or twice,
and one that knows nothing of that goes on.
"""

from __future__ import annotations

import os

import pytest

from tests.crash.drivers.trials import Report, differing
from tests.fork_server import ForkServer
from tests.proof import sample

pytestmark = pytest.mark.skipif(os.name == "nt", reason="forks and signals of POSIX")

FILED = "File 1: done | File 2: done | File 3: done"
SIGNED = "Sign paper 1: yes | Sign paper 2: yes | Sign paper 3: yes"
STAMPED = (
    "1. bert: Stamp paper 1: yes\n\n2. bert: Stamp paper 2: yes\n\n3. bert: Stamp paper 3: yes"
)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> list[Report]:
    """What came of every turn; nothing happens to the first one."""
    folder = str(tmp_path_factory.mktemp("queues"))
    return list(fork_server.load("tests.crash.drivers.queues", folder, str(sample(12, 600))))


def test_the_processes_did_die(reports: list[Report]) -> None:
    died = [each for each in reports if any(code == -9 for *_, code in each["deaths"])]

    assert len(died) > 0.5 * (len(reports) - 1)


def test_each_request_is_answered_once_and_in_its_order(reports: list[Report]) -> None:
    assert reports[0]["end"]["text"] == f"Begin: done | {SIGNED} | {FILED} | {STAMPED}"
    assert reports[0]["end"]["links"] == ["ok"]
    for what in ("text", "requests", "links", "thoughts"):
        assert differing(reports, what) == []


def test_a_death_has_the_agent_do_one_request_again_at_most(reports: list[Report]) -> None:
    assert reports[0]["end"]["again"] == 0
    assert [each["deaths"] for each in reports if each["end"]["again"] > len(each["deaths"])] == []
