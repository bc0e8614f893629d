"""The search index of a document: overlapping windows of blocks, and word counts.

`tools` builds the index of a document at its first question, and caches it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from echelons.teams.research.headings import TextRow
from echelons.teams.research.outline import Block, Outline
from echelons.teams.research.question import has_number
from echelons.text.stemming import extract_stems

WINDOW_ROWS: Final = 24
WINDOW_CHARACTERS: Final = 1500
"""Limits of a window, as many blocks of one section as fit: answers are rarely one line."""


@dataclass(frozen=True, slots=True)
class SectionBounds:
    """The rows of a section, from its heading, its first block and to its last block's end.

    Attributes:
        context: Count of each stem in the headings above it, without the title.
    """

    opening: int
    start: int
    end: int
    context: Mapping[str, int] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Window:
    """Consecutive blocks of one section: the index of the first, and that after the last."""

    first: int
    end: int
    section: SectionBounds

    @property
    def block_indices(self) -> range:
        """The indices of its blocks."""
        return range(self.first, self.end)


@dataclass(frozen=True, slots=True)
class PassageIndex:
    """The counted words of one document.

    Attributes:
        title_stems: The stems of its title and path.
        rows: Its rows.
        blocks: Its blocks, in order.
        windows: Its windows, in order; one begins at each block.
        numbered: The blocks that contain a number or a time.
        postings: For each stem, its count in each block that contains it.
        words_before: Number of words before each block, and at the end in all blocks.
    """

    title_stems: frozenset[str]
    rows: Sequence[TextRow]
    blocks: Sequence[Block]
    windows: Sequence[Window]
    numbered: frozenset[int]
    postings: Mapping[str, Mapping[int, int]]
    words_before: Sequence[int]

    def window_lengths(self) -> list[int]:
        """Return the number of words in each window."""
        return [
            self.words_before[each.end] - self.words_before[each.first] for each in self.windows
        ]

    def stems_in_block(self, block: int, stems: Iterable[str]) -> set[str]:
        """Return those of the stems that the text of a block contains."""
        return {stem for stem in stems if block in self.postings.get(stem, ())}

    def window_counts(self, stem: str) -> list[int]:
        """Return the count of a stem in the text of each window."""
        posted = self.postings.get(stem, {})
        reached = [0, *accumulate(posted.get(at, 0) for at in range(len(self.blocks)))]
        return [reached[each.end] - reached[each.first] for each in self.windows]


def build_index(document: Outline) -> PassageIndex:
    """Return the index of a document: its windows, and the word counts of its blocks."""
    blocks = [block for section in document.iterate_sections() for block in section.blocks]
    postings: dict[str, dict[int, int]] = {}
    lengths = []
    numbered = set()
    for at, block in enumerate(blocks):
        text = "\n".join(row.text for row in document.rows[block.first : block.end])
        counts = Counter(extract_stems(text))
        lengths.append(counts.total())
        for found, count in counts.items():
            postings.setdefault(found, {})[at] = count
        if has_number(text):
            numbered.add(at)
    return PassageIndex(
        title_stems=frozenset(extract_stems(document.title_and_path)),
        rows=document.rows,
        blocks=blocks,
        windows=list(_cut_windows(document)),
        numbered=frozenset(numbered),
        postings=postings,
        words_before=[0, *accumulate(lengths)],
    )


def _cut_windows(document: Outline) -> Iterator[Window]:
    before = 0
    for section in document.iterate_sections():
        if section.blocks:
            # The title is above all windows, so it does not distinguish them.
            above = "\n".join(each for each in section.headings if each != document.title)
            edges = (section.opening, section.blocks[0].first, section.blocks[-1].end)
            place = SectionBounds(*edges, Counter(extract_stems(above)))
            for first, end in _iterate_spans(document.rows, section.blocks):
                yield Window(before + first, before + end, place)
            before += len(section.blocks)


def _iterate_spans(rows: Sequence[TextRow], blocks: Sequence[Block]) -> Iterator[tuple[int, int]]:
    """Yield for each block the range of blocks in the window that begins there."""
    size = [0, *accumulate(len(row.text) for row in rows)]
    for first, block in enumerate(blocks):
        end = first + 1
        while (
            end < len(blocks)
            and blocks[end].end - block.first <= WINDOW_ROWS
            and size[blocks[end].end] - size[block.first] <= WINDOW_CHARACTERS
        ):
            end += 1
        yield first, end
