"""An exception goes up as one short line: its kind and what it says first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelons.text.error_lines import LONGEST_ERROR, describe_error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no such city"), "ValueError: no such city"),
        (ValueError("first\nsecond"), "ValueError: first"),
        (ValueError("\n\n  first\nsecond"), "ValueError: first"),
        (ValueError(), "ValueError"),
        (ValueError("   "), "ValueError"),
        (KeyError("city"), "KeyError: 'city'"),
    ],
)
def test_an_error_is_told_in_one_line(error: Exception, text: str) -> None:
    assert describe_error(error) == text


@given(st.text())
def test_no_error_takes_more_than_its_line(text: str) -> None:
    line = describe_error(RuntimeError(text))

    assert len(line.splitlines()) == 1
    assert len(line) <= LONGEST_ERROR
    assert line.startswith("RuntimeError")


def test_a_long_error_is_cut_and_shows_it() -> None:
    assert (
        describe_error(ValueError("x" * LONGEST_ERROR))
        == "ValueError: " + "x" * (LONGEST_ERROR - 13) + "…"
    )
    exact = "x" * (LONGEST_ERROR - len("ValueError: "))
    assert describe_error(ValueError(exact)) == f"ValueError: {exact}"
