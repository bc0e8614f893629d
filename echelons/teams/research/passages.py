"""A document cut into overlapping passages and counted, ready to be searched.

``search`` makes one index of a document at its first question, and keeps it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from echelons.teams.research.headings import Row
from echelons.teams.research.outline import Block, Outline
from echelons.teams.research.question import has_number
from echelons.text.stemming import stems

WINDOW_ROWS: Final = 24
WINDOW_CHARACTERS: Final = 1500
"""A window is as many blocks of one section as fit: what answers is rarely one line."""


@dataclass(frozen=True, slots=True)
class Place:
    """A section, as the windows in it need it.

    Attributes:
        opening: Index of its first row, that of its heading.
        start: Index of the first row of its first block.
        end: Index after the last row of its last block.
        context: How often each stem stands in the headings above it, the title left out.
    """

    opening: int
    start: int
    end: int
    context: Mapping[str, int] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Window:
    """Consecutive blocks of one section.

    Attributes:
        first: Index of its first block.
        end: Index after its last block.
        place: Its section.
    """

    first: int
    end: int
    place: Place

    @property
    def inside(self) -> range:
        """The indices of its blocks."""
        return range(self.first, self.end)


@dataclass(frozen=True, slots=True)
class Index:
    """The counted words of one document.

    Attributes:
        named: The stems of its title and path.
        rows: Its rows.
        blocks: Its blocks, in their order.
        windows: Its windows, in their order; one begins at each block.
        numbered: The blocks that name a number or a time.
        postings: For each stem, the blocks that have it and how often.
        reached: Words in all blocks before each block, and at last in all.
    """

    named: frozenset[str]
    rows: Sequence[Row]
    blocks: Sequence[Block]
    windows: Sequence[Window]
    numbered: frozenset[int]
    postings: Mapping[str, Mapping[int, int]]
    reached: Sequence[int]

    def lengths(self) -> list[int]:
        """Return for each window how many words stand in it."""
        return [self.reached[each.end] - self.reached[each.first] for each in self.windows]

    def said(self, block: int, stems: Iterable[str]) -> set[str]:
        """Return those of ``stems`` that stand in the text of a block."""
        return {stem for stem in stems if block in self.postings.get(stem, ())}

    def counts(self, stem: str) -> list[int]:
        """Return for each window how often a stem stands in its text."""
        posted = self.postings.get(stem, {})
        reached = [0, *accumulate(posted.get(at, 0) for at in range(len(self.blocks)))]
        return [reached[each.end] - reached[each.first] for each in self.windows]


def index(document: Outline) -> Index:
    """Cut a document into windows and count the words of its blocks."""
    blocks = [block for section in document.sections() for block in section.blocks]
    postings: dict[str, dict[int, int]] = {}
    lengths = []
    numbered = set()
    for at, block in enumerate(blocks):
        text = "\n".join(row.text for row in document.rows[block.first : block.end])
        counts = Counter(stems(text))
        lengths.append(counts.total())
        for found, count in counts.items():
            postings.setdefault(found, {})[at] = count
        if has_number(text):
            numbered.add(at)
    return Index(
        named=frozenset(stems(document.named)),
        rows=document.rows,
        blocks=blocks,
        windows=list(_windows(document)),
        numbered=frozenset(numbered),
        postings=postings,
        reached=[0, *accumulate(lengths)],
    )


def _windows(document: Outline) -> Iterator[Window]:
    before = 0
    for section in document.sections():
        if section.blocks:
            # The title stands above all of them, and tells none from the others.
            above = "\n".join(each for each in section.headings if each != document.title)
            edges = (section.opening, section.blocks[0].first, section.blocks[-1].end)
            place = Place(*edges, Counter(stems(above)))
            for first, end in _spans(document.rows, section.blocks):
                yield Window(before + first, before + end, place)
            before += len(section.blocks)


def _spans(rows: Sequence[Row], blocks: Sequence[Block]) -> Iterator[tuple[int, int]]:
    """Yield for each block how far a window goes that begins there."""
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
