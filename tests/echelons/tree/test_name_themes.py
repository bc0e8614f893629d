"""Themes have names that can be told apart; a bad file is an error with its line."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from echelons import Agent, Session
from echelons.tree.name_themes import (
    MAX_NAMES,
    MIN_NAMES,
    RESERVED_ALIASES,
    THEMES,
    NameTheme,
    choose_theme,
    load_theme,
)
from tests.error_codes import raises_code

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def build_names(number: int) -> list[str]:
    """Return so many different names."""
    return [
        f"Name{''.join(LETTERS[int(digit)] for digit in str(place))}" for place in range(number)
    ]


@pytest.mark.parametrize("name", THEMES)
def test_each_theme_that_ships_has_enough_names_in_order(name: str) -> None:
    theme = load_theme(name)

    assert theme.name == name
    assert MIN_NAMES <= len(theme.names) <= MAX_NAMES
    assert list(theme.names) == sorted(theme.names)
    assert RESERVED_ALIASES.isdisjoint(each.casefold() for each in theme.names)
    assert load_theme(name) is theme


def write(folder: Path, stored: bytes) -> Path:
    path = folder / "names.txt"
    path.write_bytes(stored)
    return path


@pytest.mark.parametrize("end", ["\n", ""])
@pytest.mark.parametrize("separator", ["\n", "\r\n"])
def test_a_file_has_a_name_on_each_line(tmp_path: Path, separator: str, end: str) -> None:
    names = [*build_names(64), "O'Hara", "Anne-Marie", "Van Dyck", "a" * 32]
    stored = separator.join(names) + (separator if end else "")

    for bom in (b"", b"\xef\xbb\xbf"):
        theme = load_theme(write(tmp_path, bom + stored.encode()))
        assert theme.names == tuple(names)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"", "'' is no name"),
        (b"3po", "'3po' is no name"),
        (b"a" * 33, "is no name"),
        (b"Ada ", "'Ada ' is no name"),
        (b" Ada", "' Ada' is no name"),
        (b"Ada\x1b[31m", "is no name"),
        (b"Ada/Bob", "is no name"),
        (b"Ad\xc3\xa9", "is no name"),
        (b"Ada-2", "is no name"),
        (b"\xff", "it is no UTF-8"),
        (b"Superior", "another meaning"),
        (b"human", "another meaning"),
        (b"user", "another meaning"),
        (b"dispatch", "another meaning"),
        (b"NAMEB", "stands in line 2 already"),
    ],
)
def test_a_bad_line_is_named_with_its_number(tmp_path: Path, line: bytes, why: str) -> None:
    names = [each.encode() for each in build_names(80)]
    names[41] = line

    with raises_code("invalid_theme", match=f"line 42: .*{re.escape(why)}") as caught:
        load_theme(write(tmp_path, b"\n".join(names)))

    assert (caught.value.theme, caught.value.line) == (str(tmp_path / "names.txt"), 42)


@pytest.mark.parametrize("number", [0, MIN_NAMES - 1, MAX_NAMES + 1])
def test_a_theme_has_neither_too_few_nor_too_many_names(tmp_path: Path, number: int) -> None:
    with raises_code("invalid_theme", match=f"there are {number} names; a theme has 64 to 10000"):
        load_theme(write(tmp_path, "\n".join(build_names(number)).encode()))


def test_the_smallest_and_the_largest_theme_are_taken(tmp_path: Path) -> None:
    for number in (MIN_NAMES, MAX_NAMES):
        stored = "\n".join(build_names(number)).encode()
        assert len(load_theme(write(tmp_path, stored)).names) == number


def test_what_is_no_file_of_names_is_refused(tmp_path: Path) -> None:
    with raises_code("invalid_theme", match="none of birds, islands"):
        load_theme(tmp_path)
    with raises_code("invalid_theme", match="it is no file"):
        load_theme("fish")
    with raises_code("invalid_theme", match=r"null|no file"):
        load_theme("a\x00b")
    with raises_code("invalid_theme", match="larger than 1048576 bytes"):
        load_theme(write(tmp_path, b"a" * (1 << 21)))


def test_the_roots_own_theme_comes_before_the_sessions_and_that_before_a_drawn_one() -> None:
    own, other = load_theme("birds"), load_theme("stars")

    assert choose_theme(own, other, "s") is own
    assert choose_theme(None, other, "s") is other
    drawn = [choose_theme(None, None, str(number)) for number in range(60)]
    assert {each.name for each in drawn} == set(THEMES)
    assert drawn == [choose_theme(None, None, str(number)) for number in range(60)]


def test_an_agent_and_a_session_take_a_theme_by_name_and_by_path(tmp_path: Path) -> None:
    path = write(tmp_path, "\n".join(build_names(64)).encode())
    agent = Agent("head", theme=path)
    assert agent.theme == NameTheme(str(path), tuple(build_names(64)))
    assert replace(agent, description="x").theme == agent.theme

    with Session(agent, ":memory:", theme="stars") as session:
        assert session.theme is agent.theme
    with Session(Agent("head"), ":memory:", theme="stars") as session:
        assert session.theme is load_theme("stars")
    with Session(Agent("head"), ":memory:") as one, Session(Agent("head"), ":memory:") as two:
        assert one.theme is two.theme


@pytest.mark.parametrize("theme", [5, "", "fish", ["Ada"], b"birds"])
def test_what_is_no_theme_is_refused_when_it_is_given(theme: Any) -> None:
    with raises_code("invalid_theme"):
        Agent("head", theme=theme)
    with raises_code("invalid_theme"):
        Session(Agent("head"), ":memory:", theme=theme)


def test_theme_below_the_root_is_refused() -> None:
    with raises_code("inner_theme", match="'leaf' has a superior, and a theme"):
        Agent("head", subordinates=[Agent("leaf", theme="birds")])
