"""An exception goes up as one short line: its kind and what it says first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelons.nodes.failures import LONGEST, describe


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
    assert describe(error) == text


@given(st.text())
def test_no_error_takes_more_than_its_line(text: str) -> None:
    line = describe(RuntimeError(text))

    assert len(line.splitlines()) == 1
    assert len(line) <= LONGEST
    assert line.startswith("RuntimeError")


def test_a_long_error_is_cut_and_shows_it() -> None:
    assert describe(ValueError("x" * LONGEST)) == "ValueError: " + "x" * (LONGEST - 13) + "…"
    exact = "x" * (LONGEST - len("ValueError: "))
    assert describe(ValueError(exact)) == f"ValueError: {exact}"
