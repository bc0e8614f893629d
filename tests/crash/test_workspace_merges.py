"""kill -9 at every boundary of a merge: another process goes on, and every file is there once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.fork_server import ForkServer
from tests.proof import sample

pytestmark = pytest.mark.skipif(os.name == "nt", reason="forks and signals of POSIX")

MERGED = {
    "a.md": "a.md, new\n",
    "b.md": "b.md, new\n",
    "docs/deep/new.md": "new.md, new\n",
    "docs/taken.md": "theirs\n",
}


@pytest.fixture(scope="module")
def reports(
    tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer
) -> list[dict[str, Any]]:
    """What came of each merge."""
    folder = str(tmp_path_factory.mktemp("merges"))
    return list(fork_server.load("tests.crash.drivers.merges", folder, str(sample(17, 1))))


def test_the_processes_did_die_before_files_and_at_statements(
    reports: list[dict[str, Any]],
) -> None:
    died = [each["name"] for each in reports if each["code"] == -9]

    assert len([each for each in died if each.startswith("file")]) > sample(15, 100)
    assert len([each for each in died if not each.startswith("file")]) >= 20


def test_all_is_merged_whatever_was_killed_and_nothing_is_left_behind(
    reports: list[dict[str, Any]],
) -> None:
    for each in reports:
        newer = {"a.md": "a.md, newer\n"} if each["was_changed_again"] else {}
        assert each["files"] == {**MERGED, **newer}, each["name"]


def test_only_the_file_that_others_have_changed_is_left(reports: list[dict[str, Any]]) -> None:
    for each in reports:
        assert [path for path, _ in each["left"]] == ["docs/taken.md"], each["name"]
        assert each["open"] == ["docs/taken.md"], each["name"]
        assert each["again"][0] == [], each["name"]
        assert each["integrity"] == [], each["name"]


def test_a_disk_that_is_full_leaves_the_file_as_it_was_and_the_change_for_later(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    (tmp_path / "plan.md").write_text("Rome\n")

    assert fork_server.load("tests.crash.drivers.full_disk", str(tmp_path)) == {
        "full": [["new.md"], [["plan.md", "file too large"]]],
        "between": "Rome\n",
        "again": [["plan.md"], []],
        "long": True,
    }
    assert sorted(each.name for each in tmp_path.iterdir()) == ["new.md", "plan.md"]
