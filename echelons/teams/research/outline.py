"""The structure of a document: its title, its headings and its blocks.

`word_weights` counts title and headings, `passages` joins the blocks to windows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final

from echelons.teams.research.headings import (
    LONGEST_TITLE,
    PROSE,
    Heading,
    TextRow,
    find_front_matter_end,
    find_headings,
    strip_markup,
)

LONGEST_ROW: Final = 600
"""Most characters of a row; a longer line is split at the ends of sentences or words."""
LONGEST_BLOCK: Final = 800
"""Characters after which a long paragraph is split between lines."""

_ITEM: Final = re.compile(r"[ \t]*(?:[-*+•][ \t]|\d{1,3}[.)][ \t]|\|)")
_FRONT_TITLE: Final = re.compile(r"title:[ \t]*[\"']?(.*?)[\"']?[ \t]*$", re.IGNORECASE)
_UP_TO: Final = f".{{1,{LONGEST_ROW}}}"
_PIECE: Final = re.compile(rf"{_UP_TO}(?:(?<=[.!?;])\s|$)|{_UP_TO}(?:\s|$)|{_UP_TO}")


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, list item, table row, or piece of code between blank lines.

    It has the rows from the index `first` up to, not including, `end`.
    """

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Section:
    """The blocks under one heading.

    Attributes:
        headings: The headings above the blocks, highest first.
        opening: Index of the first row of its own heading, or of the document.
        blocks: Its blocks, in order; empty for a heading directly above another.
    """

    headings: tuple[str, ...]
    opening: int
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Outline:
    """The parsed structure of a document.

    Attributes:
        title: The title in the front matter, the highest heading, the first line of a text,
            or the file's name: the first of these that exists.
        title_and_path: Title and path together, which describe the whole document.
        headings: All headings, in order.
        rows: All rows, in order.
    """

    title: str
    title_and_path: str
    headings: tuple[Heading, ...]
    rows: tuple[TextRow, ...] = field(repr=False)

    def iterate_sections(self) -> Iterator[Section]:
        """Yield the sections in order; text before the first heading is one too."""
        ends = [*(heading.first for heading in self.headings), len(self.rows)]
        yield Section((), 0, tuple(_split_blocks(self.rows, 0, ends[0])))
        trail: list[Heading] = []
        for heading, end in zip(self.headings, ends[1:], strict=True):
            trail = [*(above for above in trail if above.level < heading.level), heading]
            texts = tuple(each.text for each in trail)
            yield Section(texts, heading.first, tuple(_split_blocks(self.rows, heading.end, end)))


def parse_outline(path: str, text: str) -> Outline:
    """Parse the structure of a document, whose text has line feeds at the line ends.

    The suffix of its path gives the syntax; the name is the last choice for a title.
    """
    place = PurePosixPath(path)
    rows = tuple(_split_rows(text))
    found = tuple(find_headings(rows, place.suffix.lower()))
    title = _choose_title(place, rows, found)
    return Outline(title, f"{title} {place.with_suffix('')}", found, rows)


def _split_rows(text: str) -> Iterator[TextRow]:
    for number, line in enumerate(text.split("\n"), start=1):
        if len(line) <= LONGEST_ROW:
            yield TextRow(number, line)
        else:
            yield from (TextRow(number, piece) for piece in _PIECE.findall(line))


def _choose_title(path: PurePosixPath, rows: Sequence[TextRow], found: Sequence[Heading]) -> str:
    front = find_front_matter_end(rows)
    for row in rows[:front]:
        if (named := _FRONT_TITLE.match(row.text)) and strip_markup(named[1]):
            return strip_markup(named[1])[:LONGEST_TITLE]
    if found:
        highest = min(found, key=lambda heading: heading.level)
        alone = sum(heading.level == highest.level for heading in found) == 1
        # Of several equal headings, only one that opens the document is its title.
        if alone or not any(row.text.strip() for row in rows[front : highest.first]):
            return highest.text[:LONGEST_TITLE]
    elif path.suffix.lower() in PROSE:
        first = next((strip_markup(row.text) for row in rows[front:] if strip_markup(row.text)), "")
        if 0 < len(first) <= LONGEST_TITLE:
            return first
    return path.stem.replace("_", " ").replace("-", " ")


def _split_blocks(rows: Sequence[TextRow], first: int, end: int) -> Iterator[Block]:
    start, size = first, 0
    for place in range(first, end):
        text = rows[place].text
        telling = any(char.isalnum() for char in text)
        ended = not text.strip() or (telling and _ITEM.match(text)) or size > LONGEST_BLOCK
        if size and ended:
            yield Block(start, place)
            size = 0
        if telling:
            start = start if size else place
            size += len(text)
    if size:
        yield Block(start, end)
