"""A process dies at any of its statements: what it did is there as a whole, or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.fork_server import ForkServer

pytestmark = pytest.mark.skipif(os.name == "nt", reason="forks and signals of POSIX")

BEFORE = {"mail": ["before"], "turn": "before", "epoch": 2, "next": 2, "files": []}


def deaths(fork_server: ForkServer, folder: Path, work: str) -> list[Any]:
    """Return what each death during some work left, the work itself last."""
    driver = "tests.checkpoints.ledger.drivers.killed"
    return list(fork_server.load(driver, str(folder), work))


def test_an_append_is_there_or_not_whenever_its_process_dies(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    *died, done = deaths(fork_server, tmp_path, "append")

    assert done == {**BEFORE, "mail": ["before", "new"], "next": 3}
    # To begin, to check the fence, to find the end of the stream, to append, to commit.
    assert died == [BEFORE] * 5


def test_two_changes_of_a_commit_are_there_together_whenever_its_process_dies(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    *died, done = deaths(fork_server, tmp_path, "both")

    assert done == {**BEFORE, "mail": ["before", "new"], "turn": "new", "next": 3}
    assert len(died) > 5
    assert all(left == BEFORE for left in died)


def test_a_lease_can_be_taken_whenever_the_process_that_took_it_dies(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    *died, done = deaths(fork_server, tmp_path, "lease")

    assert done == {**BEFORE, "epoch": 3}
    assert len(died) > 3
    assert all(left == BEFORE for left in died)


def test_a_migration_is_done_or_not_begun_whenever_its_process_dies(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    *died, done = deaths(fork_server, tmp_path, "migration")

    assert {"events", "ledger_entries", "echelons_schema"} <= set(done["left"])
    assert len(died) > 10
    for each in died:
        assert each["left"] == ["checkpoints", "writes"]
        assert each["after"] == done["after"] == done["left"]
