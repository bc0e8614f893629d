"""Selection of the rows to quote from a window that matched. `search` calls this."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from echelons.teams.research.headings import Row
from echelons.teams.research.passages import Index, Window

GROWTH: Final = 12
"""Most rows by which each end may grow, to the end of its paragraph, list, table or code."""


def excerpt(index: Index, window: Window, stems: Collection[str]) -> tuple[Row, ...]:
    """Return the rows of a window from the first to the last block that contains `stems`.

    One more block is added, because the answer often follows in the sentence after the
    words of the question. Then the ends grow to blank lines, and an excerpt that starts a
    section includes its heading.
    """
    speaking = [at for at in window.inside if index.said(at, stems)] or [
        window.first,
        window.end - 1,
    ]
    first, last = speaking[0], min(speaking[-1] + 1, window.end - 1)
    start, end = index.blocks[first].first, index.blocks[last].end
    lowest = max(window.place.start, start - GROWTH)
    highest = min(window.place.end, end + GROWTH)
    while start > lowest and _goes_on(index.rows[start - 1], index.rows[start]):
        start -= 1
    while end < highest and _goes_on(index.rows[end], index.rows[end - 1]):
        end += 1
    return tuple(index.rows[window.place.opening if start == window.place.start else start : end])


def _goes_on(beyond: Row, edge: Row) -> bool:
    """Whether a row continues its neighbour; the pieces of a very long line do not."""
    return bool(beyond.text.strip()) and beyond.line != edge.line
