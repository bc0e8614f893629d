"""The benchmark of the registry runs on a small tree, and counts each of its agents."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.registry import main


def test_the_benchmark_measures_and_stores(tmp_path: Path) -> None:
    main([], tmp_path / "figures", sizes=(10, 20), width=5, spawned=(3, 12))

    stored = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    small, large = stored["registry"]
    assert (small["agents"], large["agents"]) == (13, 25)
    assert small["rows of the view"] == small["agents"]
    assert large["aliases given"] == large["agents"]
    assert 0 < small["tree bytes"] < large["tree bytes"]
    assert min(small["registry"], small["tree"], small["SQL view"], small["run"]) > 0
    text = (tmp_path / "figures.md").read_text(encoding="utf-8")
    assert "| agents | 13 | 25 |" in text
    few, many = stored["spawning"]
    assert (few["agents"], many["agents"], many["names for people"]) == (4, 13, 12)
    assert few["database bytes"] < many["database bytes"]
    assert "| agents | 4 | 13 |" in text

    main(["--spawning"], tmp_path / "figures", width=5, spawned=(2,))
    again = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    assert (again["registry"], len(again["spawning"])) == (stored["registry"], 1)
