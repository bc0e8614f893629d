"""Selection of the rows to quote from a window that matched. `search` calls this."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from echelons.teams.research.headings import TextRow
from echelons.teams.research.passages import PassageIndex, Window

MOST_GROWTH_ROWS: Final = 12
"""Most rows by which each end may grow, to the end of its paragraph, list, table or code."""


def cut_excerpt(index: PassageIndex, window: Window, stems: Collection[str]) -> tuple[TextRow, ...]:
    """Return the rows of a window from the first to the last block that contains `extract_stems`.

    One more block is added, because the answer often follows in the sentence after the
    words of the question. Then the ends grow to blank lines, and an excerpt that starts a
    section includes its heading.
    """
    speaking = [at for at in window.block_indices if index.stems_in_block(at, stems)] or [
        window.first,
        window.end - 1,
    ]
    first, last = speaking[0], min(speaking[-1] + 1, window.end - 1)
    start, end = index.blocks[first].first, index.blocks[last].end
    lowest = max(window.section.start, start - MOST_GROWTH_ROWS)
    highest = min(window.section.end, end + MOST_GROWTH_ROWS)
    while start > lowest and _is_continued(index.rows[start - 1], index.rows[start]):
        start -= 1
    while end < highest and _is_continued(index.rows[end], index.rows[end - 1]):
        end += 1
    return tuple(
        index.rows[window.section.opening if start == window.section.start else start : end]
    )


def _is_continued(beyond: TextRow, edge: TextRow) -> bool:
    """Whether a row continues its neighbour; the pieces of a very long line do not."""
    return bool(beyond.text.strip()) and beyond.line != edge.line
