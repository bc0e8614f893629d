"""A name is a node of a graph, a part of a namespace and a name in a provider's message."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelons.checkpoints.run_config import SEPARATOR
from echelons.errors.base import ShortRepr
from echelons.tree.names import NAME_PATTERN, PATH_SEPARATOR, RESERVED_NAMES, check_name
from tests.error_codes import raises_code


@given(st.from_regex(NAME_PATTERN, fullmatch=True).filter(lambda name: name not in RESERVED_NAMES))
def test_a_valid_name_is_returned_as_it_is(name: str) -> None:
    assert check_name(name) == name


@given(st.text())
def test_other_text_is_refused_and_reported(text: str) -> None:
    if NAME_PATTERN.fullmatch(text) and text not in RESERVED_NAMES:
        return
    with raises_code("invalid_name") as refused:
        check_name(text)
    assert refused.value.name == text
    assert ShortRepr(200).repr(text) in str(refused.value)


@pytest.mark.parametrize("thing", [None, 5, b"head", ("head",), object()])
def test_what_is_no_text_is_refused(thing: Any) -> None:
    with raises_code("invalid_name") as refused:
        check_name(thing)
    assert refused.value.name is thing


@pytest.mark.parametrize("name", ["reason", "act", "delegate", "refuse", "dispatch", "run"])
def test_a_node_that_every_level_has_is_no_name_for_an_agent(name: str) -> None:
    with raises_code("invalid_name", match="a node of every level"):
        check_name(name)


def test_no_name_can_pass_for_a_path_or_a_namespace() -> None:
    for character in (PATH_SEPARATOR, SEPARATOR, ":"):
        assert not re.fullmatch(NAME_PATTERN, f"a{character}b")


def test_64_characters_are_the_most() -> None:
    assert check_name("a" * 64) == "a" * 64
    with raises_code("invalid_name"):
        check_name("a" * 65)
