"""kill -9 in the middle of a race: one winner before and after, and nothing is done again.

Of three that are asked at the same time, two ask a person. One of these gets an answer and wins;
the process is killed when that is written down and nothing else is, while nobody has won, and at
chosen statements. A process that knows nothing of that brings the race to its end.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.crash.drivers.trials import Report, differing
from tests.fork_server import ForkServer
from tests.proof import sample
from tests.scenarios.drivers.races import ENDS, PLACES

pytestmark = pytest.mark.skipif(os.name == "nt", reason="forks and signals of POSIX")

BRANCHES = 3
"""Tasks that a race has under way at most."""


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> list[Report]:
    """What came of every race."""
    folder = str(tmp_path_factory.mktemp("races"))
    return list(fork_server.load("tests.crash.drivers.joins", folder, str(sample(5401, 29))))


@pytest.fixture(params=["first", "quorum"])
def reports(request: pytest.FixtureRequest, every: list[Report]) -> list[Report]:
    """The races of one join; nothing happens to the first one."""
    return [each for each in every if each["join"] == request.param]


def test_the_processes_did_die(every: list[Report]) -> None:
    chosen, at_statements = every[2:10], every[10:]

    assert [code for each in chosen for *_, code in each["deaths"]] == [-9] * 8
    assert any(code == -9 for each in at_statements for *_, code in each["deaths"])


def test_the_winners_are_the_same_and_the_answer_is_theirs(reports: list[Report]) -> None:
    first, join = reports[0]["end"], reports[0]["join"]

    assert (first["done"], first["places"]) == ([ENDS[join]], [PLACES[join]])
    for each in reports:
        [places], [done] = each["end"]["places"], each["end"]["done"]
        # Killed before anybody has won, those of a quorum may come in in another order.
        assert sorted(places) == sorted(PLACES[join]), each["trial"]
        assert done == answer_of(places), each["trial"]


def answer_of(places: list[int]) -> str:
    """Return what the winners of a race say together, in their order."""
    said = ["abc"[place - 1] for place in places]
    if len(said) == 1:
        return f"{said[0]} knows"
    return "\n\n".join(f"{n}. {each}: {each} knows" for n, each in enumerate(said, start=1))


def test_every_thread_is_marked_and_no_question_is_left(reports: list[Report]) -> None:
    first = reports[0]["end"]

    assert "open" not in first["statuses"].values()
    assert (first["links"], first["integrity"], first["inbox"]) == (["ok"], ["ok"], [])
    for what in ("statuses", "links", "integrity", "inbox"):
        assert differing(reports, what) == []


def test_every_effect_is_had_once(reports: list[Report]) -> None:
    assert reports[0]["end"]["effects"] == ["ascout", "bscout", "c"]
    assert differing(reports, "effects") == []


def test_what_was_under_way_is_thought_again_once_and_nothing_else(reports: list[Report]) -> None:
    first = Counter(reports[0]["end"]["thoughts"])
    again = {each["trial"]: Counter(each["end"]["thoughts"]) - first for each in reports}

    for name, thoughts in again.items():
        if str(name).startswith("winning"):
            assert not thoughts
        elif str(name).startswith("at_work"):
            assert thoughts == {"bscout": 1}
        assert len(thoughts) <= BRANCHES
        assert set(thoughts.values()) <= {1}
