"""Documents fall into titles, headings and passages with true line numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelons.teams.research.documents import LONGEST_ROW, Outline, parse_outline


def headings(found: Outline) -> list[tuple[int, str]]:
    return [(heading.level, heading.text) for heading in found.headings]


def passages(found: Outline) -> list[str]:
    return [
        "\n".join(row.text for row in found.rows[block.first : block.end])
        for section in found.iterate_sections()
        for block in section.blocks
    ]


def test_markdown_headings_are_found_with_their_levels() -> None:
    found = parse_outline(
        "a.md", "# One #\ntext\n## Two `code`\n\nThree\n=====\nFour\n---\n#no heading\n"
    )

    assert headings(found) == [(1, "One"), (2, "Two code"), (1, "Three"), (2, "Four")]
    assert found.title == "One"


def test_nothing_inside_fenced_code_is_a_heading() -> None:
    text = "# Title\n\n```sh\n# a comment\n~~~\n````\n\n~~~~\n# another\n~~~~\n## Real\n"

    assert headings(parse_outline("a.md", text)) == [(1, "Title"), (2, "Real")]


def test_underlines_of_restructured_text_rank_in_the_order_they_appear() -> None:
    text = "=====\nTitle\n=====\n\nPart\n----\n\nSub\n~~~\n\nPart 2\n------\n\ntext\n"

    assert headings(parse_outline("a.rst", text)) == [
        (1, "Title"),
        (2, "Part"),
        (3, "Sub"),
        (2, "Part 2"),
    ]


def test_a_rule_a_table_and_a_list_are_no_headings() -> None:
    text = "First line\nsecond line\n-----------\n\n- item\n---\n\n| a |\n|---|\n| b |\n\n---\n"

    assert headings(parse_outline("a.md", text)) == []


def test_text_with_markdown_in_it_is_read_as_markdown() -> None:
    text = "# Title\n\n## Part\n1. item\n```\n# comment\ncode\n```\n"

    assert headings(parse_outline("a.txt", text)) == [(1, "Title"), (2, "Part")]


def test_comments_of_scripts_and_lists_are_no_headings() -> None:
    script = "# Build it\nmake\n\n# Test it\nmake test\n"

    assert headings(parse_outline("requirements.txt", script)) == []
    assert headings(parse_outline("build.sh", "# Build\n\n# Test\n\nmake\n")) == []


@pytest.mark.parametrize(
    ("path", "text", "title"),
    [
        ("a.md", "---\ntitle: 'Given name'\ntags: x\n---\n# Other\n", "Given name"),
        ("a.md", "Some words\n\n## Section\n\n# The one title\n", "The one title"),
        ("notes.txt", "\n\nFirst line\n\nmore\n", "First line"),
        ("rate_limits.md", "## A\n\ntext\n\n## B\n", "A"),
        ("rate_limits.md", "intro\n\n## A\n\ntext\n\n## B\n", "rate limits"),
        ("dir/rate-limits.txt", "x" * 500, "rate limits"),
        ("table.csv", "a,b\n1,2\n", "table"),
        ("README", "[![build](b.svg)](https://x.org)\n\nA tool\n", "A tool"),
    ],
)
def test_the_title_is_the_best_name_there_is(path: str, text: str, title: str) -> None:
    assert parse_outline(path, text).title == title


def test_paragraphs_items_rows_and_code_are_passages_of_their_own() -> None:
    text = "# T\n\nTwo\nlines\n\n- one\n  more\n- two\n\n| a |\n|---|\n| b |\n\n```\nx\n\ny\n```\n"

    assert passages(parse_outline("a.md", text)) == [
        "Two\nlines",
        "- one\n  more",
        "- two",
        "| a |\n|---|",
        "| b |",
        "x",
        "y\n```",
    ]


def test_passages_know_the_headings_above_them() -> None:
    found = parse_outline(
        "a.md", "before\n\n# A\n\n## B\n\nunder b\n\n## C\n\nunder c\n\n# D\n\nunder d\n"
    )

    assert [section.headings for section in found.iterate_sections() if section.blocks] == [
        (),
        ("A", "B"),
        ("A", "C"),
        ("D",),
    ]


def test_a_very_long_line_is_cut_at_its_sentences_and_keeps_its_number() -> None:
    sentence = "All work and no play makes Jack a dull boy. "
    found = parse_outline("a.txt", "Title\n\n" + sentence * 100)
    pieces = [row for row in found.rows if row.line == 3]

    assert len(pieces) > 1
    assert all(len(row.text) <= LONGEST_ROW + 1 for row in pieces)
    assert all(row.text.endswith("boy. ") for row in pieces)
    assert "".join(row.text for row in pieces) == sentence * 100


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=400))
def test_rows_give_back_every_line_of_any_text(text: str) -> None:
    found = parse_outline("any.md", text)
    lines: dict[int, str] = {}
    for row in found.rows:
        lines[row.line] = lines.get(row.line, "") + row.text

    assert list(lines.values()) == text.split("\n")


@given(
    st.lists(
        st.sampled_from(
            ["# One", "Two", "---", "===", "- item", "| cell |", "", "```", "words", ">"]
        ),
        min_size=1,
        max_size=25,
    ),
    st.sampled_from(["a.md", "a.rst", "a.txt", "a.py"]),
)
def test_every_row_with_a_word_stands_in_one_heading_or_one_passage(
    lines: list[str], path: str
) -> None:
    found = parse_outline(path, "\n".join(lines))
    held = [at for heading in found.headings for at in range(heading.first, heading.end)]
    for section in found.iterate_sections():
        for block in section.blocks:
            held += range(block.first, block.end)

    assert len(held) == len(set(held))
    telling = {at for at, row in enumerate(found.rows) if any(map(str.isalnum, row.text))}
    assert telling <= set(held)
    assert found.title
