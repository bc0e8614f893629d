"""Folders of teams, written from a mapping of paths to texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

Write = Callable[[Mapping[str, str]], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes the files of a team into the folder `office`, and returns it."""

    def write_files(files: Mapping[str, str]) -> Path:
        root = tmp_path / "office"
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return root

    return write_files
