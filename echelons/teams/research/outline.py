"""Documents as outlines: their headings, sections and rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final, NamedTuple

LONGEST_TITLE: Final = 120
"""Most characters of a title; a longer line is a sentence."""
MARKDOWN: Final = frozenset({".md", ".markdown", ".mdx", ".mkd", ".qmd", ".rmd"})
PROSE: Final = MARKDOWN | {".rst", ".txt", ".text", ""}
"""Suffixes of prose; other files are data and code."""

_ATX: Final = re.compile(r" {0,3}(#{1,6})[ \t]+(\S.*)")
_CLOSING: Final = re.compile(r"(?<=[ \t])#+$")
_UNDERLINE: Final = re.compile(r"([=\-~^\"'`#*+.:_])\1{2,}[ \t]*$")
_MARKS: Final = frozenset("=-~^\"'`#*+.:_")
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")
_IMAGE: Final = re.compile(r"!\[[^\[\]]*\]\([^()]*\)")
_MARKUP: Final = re.compile(r"\[([^\[\]]*)\]\([^()]*\)|<[^<>]*>|[*`]+|\\(?=[^\w\s])")
_NO_TITLE: Final = re.compile(r"[ \t]*(?:[-*+•>][ \t]|\|)")
_FRONT_ROWS: Final = 60


class TextRow(NamedTuple):
    """A line, numbered from 1, or a piece of a very long one."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading."""

    level: int
    text: str
    first: int
    end: int


def find_headings(rows: Sequence[TextRow], suffix: str) -> Iterator[Heading]:
    """Yield the headings in order; none inside fenced code.

    Only Markdown by its lower-case suffix, and prose that looks like it, has headings after
    `#`, which elsewhere begins a comment.
    """
    atx = suffix in MARKDOWN or (suffix in PROSE - {".rst"} and _is_like_markdown(rows))
    levels = {"=": 1, "-": 2} if atx else {}
    fence, done = "", 0
    for place in range(find_front_matter_end(rows), len(rows)):
        text = rows[place].text
        mark = _FENCE.match(text)
        if atx and (fence or mark):
            fence = _update_fence(fence, mark, text)
        elif atx and (hashes := _ATX.match(text)) and strip_markup(hashes[2]):
            done = place + 1
            yield Heading(
                len(hashes[1]), strip_markup(_CLOSING.sub("", hashes[2].rstrip())), place, done
            )
        elif (underlined := _match_underlined(rows, place, "=-" if atx else "")) and underlined[
            0
        ] >= done:
            done = place + 1
            level = levels.setdefault(underlined[1], len(levels) + 1)
            yield Heading(level, strip_markup(rows[place - 1].text), underlined[0], done)


def find_front_matter_end(rows: Sequence[TextRow]) -> int:
    """Return the index after the YAML front matter, 0 without one."""
    if rows[0].text.rstrip() == "---":
        for place, row in enumerate(rows[1:_FRONT_ROWS], start=1):
            if row.text.rstrip() == "---":
                return place + 1
    return 0


def strip_markup(text: str) -> str:
    """Return a heading without markup; empty if no letter or digit remains."""
    if not any(char.isalnum() for char in text):
        return ""
    bare = " ".join(_MARKUP.sub(lambda mark: mark[1] or "", _IMAGE.sub("", text)).split())
    return bare if any(char.isalnum() for char in bare) else ""


def _update_fence(fence: str, mark: re.Match[str] | None, text: str) -> str:
    """Return the open code fence after a line that may open or close one."""
    if not fence:
        return mark[1] if mark else ""
    closes = mark and mark[1].startswith(fence) and not text.strip().strip(fence[0])
    return "" if closes else fence


def _match_underlined(rows: Sequence[TextRow], place: int, marks: str) -> tuple[int, str] | None:
    """Return the first row and the style of a heading that is underlined in row `place`.

    Without `marks`, any may underline, but the line must be nearly as long as the title, as in
    reStructuredText.
    """
    text = rows[place].text
    line = _UNDERLINE.match(text) if text[:1] in _MARKS and place else None
    if line is None:
        return None
    title = rows[place - 1].text.strip()
    if len(title) > LONGEST_TITLE or _UNDERLINE.match(title) or not strip_markup(title):
        return None
    if line[1] not in marks if marks else len(line[0].rstrip()) < 0.8 * len(title):
        return None
    over = rows[place - 2].text.rstrip() if place > 1 else ""
    if over == line[0].rstrip():
        return place - 2, line[1] * 2
    # Below more than one line, or below an item, the line is a rule or part of a table.
    paragraph = over and not _UNDERLINE.match(over)
    return None if paragraph or _NO_TITLE.match(title) else (place - 1, line[1])


def _is_like_markdown(rows: Sequence[TextRow]) -> bool:
    """Whether the `#` lines are headings: most stand alone, or have levels and a line before."""
    deep = lonely = apart = total = 0
    for place, row in enumerate(rows):
        if hashes := _ATX.match(row.text):
            before, after = (rows[max(place - 1, 0)], rows[min(place + 1, len(rows) - 1)])
            opens = not place or not before.text.strip()
            total += 1
            deep += len(hashes[1]) > 1
            apart += opens
            lonely += opens and not after.text.strip()
    return 2 * lonely > total or (deep > 0 and 2 * apart > total)


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
    """The blocks under one heading."""

    headings: tuple[str, ...]
    opening: int
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Outline:
    """The parsed structure of a document."""

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
            trail = [*(outer for outer in trail if outer.level < heading.level), heading]
            texts = tuple(heading.text for heading in trail)
            yield Section(texts, heading.first, tuple(_split_blocks(self.rows, heading.end, end)))


def parse_outline(path: str, text: str) -> Outline:
    """Parse the structure of a document, whose text has line feeds at the line ends.

    The suffix of its path gives the syntax; the name is the last choice for a title.
    """
    place = PurePosixPath(path)
    rows = tuple(_split_rows(text))
    headings = tuple(find_headings(rows, place.suffix.lower()))
    title = _choose_title(place, rows, headings)
    return Outline(title, f"{title} {place.with_suffix('')}", headings, rows)


def _split_rows(text: str) -> Iterator[TextRow]:
    for number, line in enumerate(text.split("\n"), start=1):
        if len(line) <= LONGEST_ROW:
            yield TextRow(number, line)
        else:
            yield from (TextRow(number, piece) for piece in _PIECE.findall(line))


def _choose_title(path: PurePosixPath, rows: Sequence[TextRow], headings: Sequence[Heading]) -> str:
    front = find_front_matter_end(rows)
    for row in rows[:front]:
        if (named := _FRONT_TITLE.match(row.text)) and strip_markup(named[1]):
            return strip_markup(named[1])[:LONGEST_TITLE]
    if headings:
        highest = min(headings, key=lambda heading: heading.level)
        alone = sum(heading.level == highest.level for heading in headings) == 1
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
