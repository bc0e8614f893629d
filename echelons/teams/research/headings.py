"""Detection of the headings of a document. `outline` calls this.

Markdown (ATX and setext headings), reStructuredText (underlines) and plain text are read
by the same few rules, because a file's suffix is often wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
    """A heading.

    Attributes:
        level: 1 for the highest.
        text: Its words, without markup.
        first: Index of its first row.
        end: Index after its last row.
    """

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
        elif (found := _match_underlined(rows, place, "=-" if atx else "")) and found[0] >= done:
            done = place + 1
            level = levels.setdefault(found[1], len(levels) + 1)
            yield Heading(level, strip_markup(rows[place - 1].text), found[0], done)


def find_front_matter_end(rows: Sequence[TextRow]) -> int:
    """Return the index after the YAML front matter, 0 without one."""
    if rows[0].text.rstrip() == "---":
        for place, row in enumerate(rows[1:_FRONT_ROWS], start=1):
            if row.text.rstrip() == "---":
                return place + 1
    return 0


def strip_markup(text: str) -> str:
    """Return a heading without markup; empty if no letter or digit remains.

    >>> strip_markup("The `act` node, see [design](design.md)")
    'The act node, see design'
    """
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
