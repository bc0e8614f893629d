from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.loopback_server import LoopbackServer, serve_on_loopback


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with serve_on_loopback() as running:
        yield running


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """Return a folder with two documents."""
    folder = tmp_path / "notes"
    (folder / "sea").mkdir(parents=True)
    (folder / "sea" / "tides.md").write_text(
        "# Tides\n\nThe tide rises twice a day.\n\n## Spring tides\n\n"
        "Spring tides come at new moon and full moon.\n"
    )
    (folder / "bread.md").write_text("# Bread\n\nSourdough rests for twelve hours.\n")
    return folder
