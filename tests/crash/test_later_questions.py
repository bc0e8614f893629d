"""kill -9 around a question that nobody waits for: it is asked once, and its answer told once.

An agent asks in one turn, is answered when that is over, and is told in the next. The process is
killed at a statement, and one that knows nothing of that brings both turns to their end.
"""

from __future__ import annotations

import os

import pytest

from tests.crash.drivers.later_questions import TOLD
from tests.crash.drivers.trials import Report
from tests.fork_server import ForkServer
from tests.proof import sample

pytestmark = pytest.mark.skipif(os.name == "nt", reason="forks and signals of POSIX")


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> list[Report]:
    """What came of every trial; nothing happens to the first one."""
    folder, driver = str(tmp_path_factory.mktemp("turns")), "tests.crash.drivers.later_questions"
    return list(fork_server.load(driver, folder, str(sample(5, 300))))


def test_the_processes_did_die(reports: list[Report]) -> None:
    died = [each for each in reports if any(code == -9 for *_, code in each["deaths"])]

    assert len(died) > 0.5 * (len(reports) - 1)


def test_question_is_asked_once_and_its_answer_read_once(reports: list[Report]) -> None:
    told = f'{TOLD}, after the question that you asked: "Which city?\\nRome"'
    for each in reports:
        assert each["end"] == {
            "said": ["0 told", "1 told"],
            "told": [told],
            "asked": 1,
            "left": 0,
            "integrity": ["ok"],
        }, each["trial"]
