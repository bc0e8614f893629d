"""The benchmark of routing runs on a small folder, and its figures mean what they say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import routing
from benchmarks.requests import Requests
from benchmarks.routing import auroc, chosen, main, scaled

DOMAINS = {"fun": ["play_music", "tell_joke"], "money": ["pay_bill", "check_balance"]}
WORDS = {
    "play_music": "play a song of the band",
    "tell_joke": "tell me something funny, a joke",
    "pay_bill": "pay the bill for the water",
    "check_balance": "what is the balance of my account",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pairs = [[f"{words} number {n}", agent] for agent, words in WORDS.items() for n in range(115)]
    nobody = [[f"repair bicycle {n}", "oos"] for n in range(10)]
    splits = {
        "train": [pair for n, pair in enumerate(pairs) if n % 115 < 110],
        "val": [pair for n, pair in enumerate(pairs) if n % 115 >= 110],
        "oos_train": nobody[:5],
        "oos_val": nobody[5:],
    }
    (tmp_path / "domains.json").write_text(json.dumps(DOMAINS), encoding="utf-8")
    (tmp_path / "train_val.json").write_text(json.dumps(splits), encoding="utf-8")
    return tmp_path


def test_the_benchmark_measures_and_stores(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routing, "SIZES", (20, 40))
    main([str(folder)], target=tmp_path / "figures")

    stored = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    assert [row["examples"] for row in stored["accuracy"]] == [0, 10, 100]
    assert all(row["top1"] == row["refused"] == 1.0 for row in stored["accuracy"])
    assert "| words | names only | 100.0% |" in (tmp_path / "figures.md").read_text("utf-8")


def test_no_text_to_measure_with_is_drawn(folder: Path) -> None:
    requests = Requests.read(folder)
    measured = {text for text, _ in requests.val}

    for number in (0, 10, 100):
        examples, others = requests.draw(number, seed=1)
        shown = {text for texts in examples.values() for text in texts}
        held_out = {text for text, _ in others}
        assert len(shown) == number * 4
        assert not measured & (shown | held_out)
        assert not shown & held_out


def test_the_area_under_the_curve_is_the_part_of_pairs_in_order() -> None:
    assert auroc([0.9, 0.8], [0.1]) == 1.0
    assert auroc([0.1], [0.9, 0.8]) == 0.0
    assert auroc([0.5], [0.5]) == 0.5


def test_threshold_separates_best() -> None:
    assert chosen([0.9, 0.8, 0.3], [0.1, 0.2]) == 0.3
    assert chosen([0.9, 0.8, 0.1], [0.1, 0.2, 0.3]) == 0.8


def test_a_tree_of_the_size_asked_for_is_measured() -> None:
    figures = scaled(30)

    assert figures["agents"] == 30
    assert figures["route_ms"] > 0
