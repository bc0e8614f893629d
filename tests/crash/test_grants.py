"""kill -9 at the statements of a turn with budgets: no grant of the finished turn stays open."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fork_server import ForkServer
from tests.proof import sample

pytestmark = pytest.mark.skipif(os.name == "nt", reason="forks and signals of POSIX")


@pytest.mark.parametrize("world", ["sync", "async", "watched"])
def test_grants_of_killed_turn_are_closed_at_its_end(
    tmp_path: Path, fork_server: ForkServer, world: str
) -> None:
    step = str(sample(149, 1))

    report = fork_server.load("tests.crash.drivers.grants", str(tmp_path), step, world)

    assert report["statements"] > 200
    assert report["open"] == {}
