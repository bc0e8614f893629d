"""The benchmark of usage runs on few agents, and sums each of their calls."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.usage import main


def test_the_benchmark_measures_and_stores(tmp_path: Path) -> None:
    main([], tmp_path / "figures", sizes=(10, 200))

    small, large = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    assert (small["charges"], large["charges"]) == (100, 2_000)
    assert small["database bytes"] < large["database bytes"] < 200 * 12_000
    assert min(small["usage"], small["SQL view of usage"], small["SQL view of grants"]) > 0
    text = (tmp_path / "figures.md").read_text(encoding="utf-8")
    assert "| agents | 10 | 200 |" in text
