"""One process at a time runs a thread, and none that was taken over writes any more."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.crash.drivers.together import task
from tests.crash.drivers.trials import Report, differing
from tests.fork_server import ForkServer
from tests.proof import sample

pytestmark = pytest.mark.skipif(os.name == "nt", reason="forks and signals of POSIX")

TURNS = sample(3, 15)
KILLS = sample(3, 20)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> list[Report]:
    """What came of trips that were stopped, taken over and woken; the first one was not."""
    folder = str(tmp_path_factory.mktemp("stopped"))
    driver = "tests.crash.drivers.stopped"
    return list(fork_server.load(driver, folder, "1", str(sample(4, 200))))


@pytest.fixture(scope="module")
def in_a_tool(stopped: list[Report]) -> list[Report]:
    """The trip that was not stopped, and those that were within a tool."""
    return [each for each in stopped if not each["deaths"] or each["deaths"][0][0] == "in a tool"]


def test_a_thread_whose_holder_is_stopped_is_busy(in_a_tool: list[Report]) -> None:
    tried = [(each["tried"], each["holder"]) for each in in_a_tool[1:]]

    assert len(tried) == 6
    assert all(said == ["ThreadBusy", holder] for said, holder in tried)


def test_a_holder_that_was_taken_over_cannot_write_when_it_wakes(in_a_tool: list[Report]) -> None:
    assert {each["taken"] for each in in_a_tool[1:]} == {"finished"}
    assert {each["woken"] for each in in_a_tool[1:]} == {"LeaseLost"}


def test_what_a_stopped_holder_had_done_is_not_done_again(in_a_tool: list[Report]) -> None:
    for each in in_a_tool[1:]:
        [[_, _, token]] = each["deaths"]
        had = Counter(each["end"]["effects"])
        assert had[token] == 1
        assert set(had) == set(in_a_tool[0]["end"]["effects"])
        # A call beside it may have been stopped before its effect, which it has when it wakes.
        again = {f"book {effect}" for effect, times in had.items() if times > 1}
        assert again | {f"book {token}"} <= set(each["end"]["unknown"])


def test_whenever_a_holder_is_stopped_nothing_is_lost_or_there_twice(
    stopped: list[Report],
) -> None:
    for what in ("said", "links", "integrity"):
        assert differing(stopped, what) == []
    # Who stops in the middle of a transaction keeps the database to itself, and goes on; who stops
    # between two runs finds the thread busy, or what it was asked answered.
    ends = {"LeaseLost", "finished", "ThreadBusy", "QuestionClosed"}
    assert {each["woken"] for each in stopped[1:]} <= ends
    for each in stopped[1:]:
        assert re.search("^finished$|database is locked|locking protocol", each["taken"])


@pytest.mark.parametrize("processes", [2, 4])
def test_every_acknowledged_turn_of_several_processes_is_there_once_though_many_die(
    processes: int, tmp_path: Path, fork_server: ForkServer
) -> None:
    arguments = str(tmp_path), str(processes), str(TURNS), str(KILLS)
    found = fork_server.load("tests.crash.drivers.together", *arguments)

    tasks = [[task(each, number) for number in range(TURNS)] for each in range(processes)]
    assert found["died"] == KILLS
    assert found["acknowledged"] == [[f"{each} is over" for each in own] for own in tasks]
    told = [each.removeprefix("human: ") for each in found["said"]["head"] if "human: " in each]
    assert sorted(told) == sorted(each for own in tasks for each in own)
    for own in tasks:  # in the order in which they were submitted
        assert [each for each in told if each in own] == own
    assert set(Counter(found["effects"]).values()) == {1}
    assert len(found["effects"]) == 3 * len(told)
    assert (found["integrity"], set(found["links"])) == (["ok"], {"ok"})
