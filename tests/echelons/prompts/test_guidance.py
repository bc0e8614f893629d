"""The guidance is short, says the same to all, and quotes what an agent's author wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import echelons.prompts
from echelons.prompts import GUIDANCE_PARTS, build_guidance, fill_text, load_tool_texts
from echelons.tree.names import SHOWN_TOOLS

LONGEST_NAME = "n" * 64
MOST_CHARACTERS = 1_600


def test_the_guidance_of_a_leaf_is_short() -> None:
    text = build_guidance(LONGEST_NAME, "x", can_report=True)

    assert len(text) <= MOST_CHARACTERS


def test_the_guidance_of_a_superior_is_short_too() -> None:
    text = build_guidance(
        LONGEST_NAME, "x", has_superior=True, can_report=True, can_ask=True, has_subordinates=True
    )

    assert len(text) <= MOST_CHARACTERS


@pytest.mark.parametrize(
    ("has_superior", "has_subordinates"), [(True, True), (True, False), (False, True)]
)
def test_every_superior_is_described_in_the_same_words(
    has_superior: bool, has_subordinates: bool
) -> None:
    text = build_guidance("head", has_superior=has_superior, has_subordinates=has_subordinates)

    assert text.split("\n\n")[1].startswith("Your superior gives you tasks")


def test_only_tools_that_there_are_are_spoken_of() -> None:
    alone = build_guidance("head", can_ask=True)
    root = build_guidance("head", has_subordinates=True, can_ask=True)
    leaf = build_guidance("leaf", has_superior=True)
    inner = build_guidance(
        "inner", has_superior=True, has_subordinates=True, can_ask=True, can_report=True
    )

    tools = ("a subordinate", "call report", "call ask", "is data")
    assert [[each in text for each in tools] for text in (alone, root, leaf, inner)] == [
        [False, False, False, False],
        [True, False, True, True],
        [False, False, False, True],
        [True, True, True, True],
    ]


def test_single_agent_reads_only_its_name() -> None:
    assert build_guidance("head", "Plans trips") == "You are head."


@pytest.mark.parametrize(
    "description", ["{name}", "$name and ${name}", "$", "%s {0}", 'a "word"', "two\n\nlines"]
)
def test_a_description_is_quoted_and_never_a_template(description: str) -> None:
    first = build_guidance("head", description, has_superior=True).split("\n\n")[0]

    line = first.split("\n")[1]
    assert line.startswith('Your purpose: "')
    assert line.endswith('"')
    assert "head" not in line


@given(st.text(min_size=1))
def test_any_description_stands_on_one_line(description: str) -> None:
    text = build_guidance("head", description, has_superior=True)

    assert len(text.split("\n\n")) == len(build_guidance("head", has_superior=True).split("\n\n"))


def test_the_parts_are_the_files() -> None:
    folder = Path(echelons.prompts.__file__).parent

    assert set(GUIDANCE_PARTS) == {each.stem for each in folder.glob("*.md")}


def test_a_part_is_replaced_or_left_out_and_its_text_stays_as_it_is() -> None:
    texts = {"superior": "Obey $name {now}.", "results": ""}

    parts = build_guidance("head", has_superior=True, can_report=True, texts=texts).split("\n\n")

    own = build_guidance("head", has_superior=True, can_report=True).split("\n\n")
    assert parts == [own[0], "Obey $name {now}.", *own[2:-1]]


@pytest.mark.parametrize("tool", SHOWN_TOOLS)
def test_every_built_in_tool_has_a_text(tool: str) -> None:
    assert load_tool_texts(tool)["description"].strip()


def test_what_is_filled_in_is_never_read_as_a_template() -> None:
    assert fill_text("a $b", b="$c {d}") == "a $c {d}"
