"""Lines are counted, extracted and replaced; what is not there is told."""

from __future__ import annotations

import pytest

from echelons.tools import build_text_tools
from echelons.tools.text_lines import MAX_TEXT_LENGTH

COUNT, EXTRACT, REPLACE = build_text_tools()


def test_words_are_counted() -> None:
    assert COUNT.invoke({"text": ""}) == "0 lines, 0 words, 0 characters"
    assert COUNT.invoke({"text": "a  b\nc\n"}) == "2 lines, 3 words, 7 characters"


def test_lines_are_extracted_with_their_numbers() -> None:
    text = "Error: disk\nfine\nan ERROR again"

    assert (
        EXTRACT.invoke({"text": text, "containing": "error"}) == "1: Error: disk\n3: an ERROR again"
    )
    told = EXTRACT.invoke({"text": text, "containing": "warning"})
    assert told == "InvalidLines: no lines: none of 3 contains 'warning'; ask for less"


@pytest.mark.parametrize(
    ("first", "last", "replacement", "result"),
    [(1, 1, "x", "x\nb\nc\n"), (2, 3, "", "a\n"), (1, 3, "x\ny", "x\ny\n")],
)
def test_lines_are_replaced(first: int, last: int, replacement: str, result: str) -> None:
    given = {"first_line": first, "last_line": last, "replacement": replacement}

    assert REPLACE.invoke({"text": "a\nb\nc\n", **given}) == result


@pytest.mark.parametrize(("first", "last"), [(0, 1), (2, 1), (1, 4)])
def test_lines_that_are_not_there_are_refused(first: int, last: int) -> None:
    given = {"first_line": first, "last_line": last, "replacement": "x"}

    assert "are not in 1 to 3" in REPLACE.invoke({"text": "a\nb\nc", **given})


def test_a_text_that_is_too_long_is_refused() -> None:
    assert "the limit is 1000000" in COUNT.invoke({"text": "x" * (MAX_TEXT_LENGTH + 1)})
