"""kill -9 while an agent edits files: each edit is made once, and nobody is asked about it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fork_server import ForkServer
from tests.proof import sample

pytestmark = pytest.mark.skipif(os.name == "nt", reason="forks and signals of POSIX")


def test_every_edit_is_made_once_whatever_was_killed(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    step = str(sample(73, 1))
    whole, *reports = fork_server.load("tests.crash.drivers.edits", str(tmp_path), step)

    kinds = [(path, kind) for path, kind, _ in whole["end"]["changes"]]
    assert kinds == [("new.md", "added"), ("old.md", "deleted"), ("plan.md", "changed")]
    assert "+Rome, Rome, Rome\n" in whole["end"]["changes"][2][2]
    assert len([each for each in reports if each["code"] == -9]) >= sample(5, 100)
    for each in reports:
        assert each["end"] == whole["end"], each["name"]
    assert whole["end"]["inbox"] == []
    assert whole["end"]["finished"]
