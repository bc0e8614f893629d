"""The benchmark of the research team runs on a small folder, and its figures mean what they say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.research import Question, judged, main, quotations

KITE = "# Kites\n\nA red kite eats mice.\n"
ASKED = [
    {"question": "What does a red kite eat?", "files": ["birds/kite.md"], "words": ["mice"]},
    {"question": "Where does a red kite nest?", "files": ["birds/kite.md"], "words": ["trees"]},
    {"question": "How deep is the harbour?", "files": ["sea.md"], "words": ["nine metres"]},
    {"question": "Who painted the Mona Lisa?", "files": [], "words": []},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data" / "birds").mkdir(parents=True)
    (tmp_path / "data" / "birds" / "kite.md").write_text(KITE, encoding="utf-8")
    sea = "# The harbour\n\nThe harbour is nine metres deep.\n"
    (tmp_path / "data" / "sea.md").write_text(sea, encoding="utf-8")
    return tmp_path / "data"


def test_the_benchmark_measures_and_stores(folder: Path, tmp_path: Path) -> None:
    asked = tmp_path / "asked.json"
    asked.write_text(json.dumps(ASKED), encoding="utf-8")

    main([str(folder), str(asked)], target=tmp_path / "figures")

    stored = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    assert [each["cited"] for each in stored["answers"]] == [True, False, True, False]
    assert [each["refused"] for each in stored["answers"]] == [False, False, False, True]
    assert [each["agents"] for each in stored["answers"]] == [2, 2, 1, 0]
    assert stored["start"]["cpu"] > 0
    written = (tmp_path / "figures.md").read_text(encoding="utf-8")
    assert "| … answered from it, with the right words and line | 2 |" in written
    assert "| documents read | 2 |" in written


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kite:\n> A red kite eats mice.\n— birds/kite.md:3", (True, True, False)),
        ("kite:\n> A red kite eats mice.\n— birds/kite.md:1", (False, False, False)),
        ("kite:\n> A red kite eats fish.\n— birds/kite.md:3", (False, False, False)),
        ("kite:\n> # Kites\n— birds/kite.md:1", (True, False, False)),
        (
            "> # The harbour\n— sea.md:1\n\n> A red kite eats mice.\n— birds/kite.md:3",
            (False, True, False),
        ),
        ("I cannot help with this.", (False, False, True)),
    ],
)
def test_only_what_stands_at_its_line_is_a_right_citation(
    folder: Path, text: str, expected: tuple[bool, bool, bool]
) -> None:
    assert judged(Question("?", ["birds/kite.md"], ["mice"]), text, folder) == expected


def test_a_quotation_of_several_lines_is_one(folder: Path) -> None:
    text = "> # Kites\n>\n> A red kite eats mice.\n— birds/kite.md:1"

    assert list(quotations(text, folder)) == [("birds/kite.md", KITE.rstrip())]
