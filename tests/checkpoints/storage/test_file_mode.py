"""The database file is the user's alone, and a link to it is nobody else's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from echelons import SqliteCheckpointer
from tests.error_codes import raises_code


def get_modes(database: Path) -> list[int]:
    files = (database.with_name(f"{database.name}{suffix}") for suffix in ("", "-wal"))
    return [file.stat().st_mode & 0o777 for file in files]


@pytest.mark.parametrize(
    ("options", "mode"), [({}, 0o600), ({"mode": 0o660}, 0o660), ({"mode": None}, 0o644)]
)
def test_file_gets_its_mode_when_it_is_opened(
    tmp_path: Path, options: dict[str, Any], mode: int
) -> None:
    database = tmp_path / "trips.sqlite"
    with SqliteCheckpointer(database) as first:
        for suffix in ("", "-wal", "-shm"):
            database.with_name(f"trips.sqlite{suffix}").chmod(0o644)
        with SqliteCheckpointer(database, **options):
            assert get_modes(database) == [mode, mode]
        assert first.check().is_sound


@pytest.mark.parametrize("mode", [0o060, 0o1600, "600", True])
def test_mode_that_is_none_is_refused(tmp_path: Path, mode: Any) -> None:
    with raises_code("invalid_setting", match="0o660"):
        SqliteCheckpointer(tmp_path / "trips.sqlite", mode=mode)

    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("shared", ["links", "files", "files/trips.sqlite"])
def test_link_that_others_could_change_is_refused(tmp_path: Path, shared: str) -> None:
    for folder in ("links", "files"):
        (tmp_path / folder).mkdir(mode=0o755)
    target, link = tmp_path / "files" / "trips.sqlite", tmp_path / "links" / "trips.sqlite"
    link.symlink_to(target)
    SqliteCheckpointer(link).close()
    place = tmp_path / shared
    place.chmod(place.stat().st_mode | 0o020)

    with raises_code("shared_link", match=f"others may write to '{place}'"):
        SqliteCheckpointer(link)

    if place != target:
        SqliteCheckpointer(target).close()
