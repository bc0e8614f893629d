"""An exception goes up as one short line: its kind and what it says first."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelons.text.error_lines import LONGEST_ERROR, describe_error, format_traceback


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
def test_error_is_one_line(error: Exception, text: str) -> None:
    assert describe_error(error) == text


class Unreached(Exception):
    """What HTTP clients raise: with the request, and the response if there is one."""

    def __init__(self, url: str, response: object = None) -> None:
        super().__init__("Connection error.")
        self.request = SimpleNamespace(url=url)
        self.response = response


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Unreached("http://127.0.0.1:9/v1/chat"), " (http://127.0.0.1:9)"),
        (Unreached("https://me:secret@a.example/v1?key=secret"), " (https://a.example)"),
        (Unreached("http://[::1]:8000/v1"), " (http://[::1]:8000)"),
        (Unreached("http://a.example", response="404"), ""),
        (Unreached("nowhere"), ""),
        (Unreached("http://" + "a" * 900), ""),
    ],
)
def test_a_connection_that_fails_names_its_address(error: Exception, text: str) -> None:
    assert describe_error(error) == f"Unreached: Connection error.{text}"


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


def test_an_error_whose_parts_cannot_be_read_still_has_a_line_and_a_traceback() -> None:
    class Mute(Exception):
        def __getattribute__(self, name: str) -> object:
            raise RuntimeError(name)

    class Text(str):
        def strip(self, chars: str | None = None) -> str:
            raise RuntimeError

        def __str__(self) -> str:
            return self

    class Strange(Exception):
        def __str__(self) -> str:
            return Text("strange")

    assert describe_error(Strange()) == "Strange: strange"
    assert format_traceback(Mute()) == "the traceback of Mute cannot be read"
