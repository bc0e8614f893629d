"""kill -9 while a tree is grown by its own agents: the same agents under the same names.

Each agent makes three others, six levels deep, and has an effect. The process is killed at ten
moments, each time another one goes on with what it finds.
"""

from __future__ import annotations

import os
import re

import pytest

from tests.crash.drivers.grown import DEATHS
from tests.crash.drivers.trials import Report
from tests.fork_server import ForkServer
from tests.proof import sample

pytestmark = pytest.mark.skipif(os.name == "nt", reason="forks and signals of POSIX")
AGENTS = sample(12, 200)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> list[Report]:
    """What came of every tree; nothing happens to the first one."""
    folder = str(tmp_path_factory.mktemp("grown"))
    trials = str(sample(2, 10))
    return list(fork_server.load("tests.crash.drivers.grown", folder, str(AGENTS), trials))


def test_the_processes_did_die(reports: list[Report]) -> None:
    died = [code for each in reports for *_, code in each["deaths"] if code == -9]

    assert len(died) > 0.5 * DEATHS * (len(reports) - 1)


def test_the_tree_that_is_left_alone_has_all_its_agents_each_with_its_own_name(
    reports: list[Report],
) -> None:
    first = reports[0]["end"]

    names = [name for name, *_ in first["tree"]]
    numbers = [int(re.sub(r"node-|-[0-9a-f]{8}$", "", name)) for name in names]
    assert sorted(numbers) == [*range(1, AGENTS)]
    assert len({thread for _, thread, _ in first["tree"]}) == AGENTS - 1
    assert first["effects"] == [str(each) for each in range(AGENTS)]


def test_every_killed_tree_grows_into_the_same_one(reports: list[Report]) -> None:
    for each in reports[1:]:
        assert each["end"] == reports[0]["end"], each["deaths"]
