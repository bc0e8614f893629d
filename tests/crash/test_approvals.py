"""kill -9 around approvals: a call is made as it was approved, once, and nobody decides it twice.

Two turns in which a subordinate and the call of its tool have to be approved are killed between
the answer and the call, and at chosen statements. A process that knows nothing of that brings them
to their end. Both decisions are for the thread, so the second turn asks nothing.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.crash.drivers.trials import Report, differing
from tests.fork_server import ForkServer
from tests.proof import sample

pytestmark = pytest.mark.skipif(os.name == "nt", reason="forks and signals of POSIX")


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> list[Report]:
    """What came of every trial; nothing happens to the first one."""
    folder = str(tmp_path_factory.mktemp("approvals"))
    return list(fork_server.load("tests.crash.drivers.approvals", folder, str(sample(601, 1))))


def test_the_processes_did_die(reports: list[Report]) -> None:
    chosen, at_statements = reports[1:3], reports[3:]

    assert [code for each in chosen for *_, code in each["deaths"]] == [-9] * 2
    assert any(code == -9 for each in at_statements for *_, code in each["deaths"])


def test_every_call_is_made_once_as_it_was_approved(reports: list[Report]) -> None:
    assert reports[0]["end"]["effects"] == ["eve", "eve"]
    for what in ("effects", "said", "inbox", "integrity"):
        assert differing(reports, what) == []


def test_superiors_read_the_decision_once(reports: list[Report]) -> None:
    lines = [
        'mid asked the user: "May clerk be given a task?" The answer was: "approve"',
        'clerk asked the user: "May mail run?" The answer was: "edit"',
    ]
    for each in reports:
        for line in lines:
            [read] = [text for text in each["end"]["said"] if text.endswith(line)]
            assert read.count(line) == 1, each["trial"]


def test_what_was_decided_is_not_asked_again(reports: list[Report]) -> None:
    assert reports[0]["end"]["asked"] == ["clerk", "mail"]
    for each in reports:
        asked = Counter(each["end"]["asked"])
        # An answer whose giver dies before it is stored is asked for again.
        assert sum((asked - Counter(["clerk", "mail"])).values()) <= 1, each["trial"]
    for each in reports[1:3]:
        assert each["end"]["asked"] == ["clerk", "mail"]


def test_only_what_was_under_way_is_thought_again(reports: list[Report]) -> None:
    first = Counter(reports[0]["end"]["thoughts"])

    for each in reports:
        again = Counter(each["end"]["thoughts"]) - first
        assert sum(again.values()) <= 1, each["trial"]
