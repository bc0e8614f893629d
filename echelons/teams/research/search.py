"""Search for the passages of one document that answer a question. `tools` calls this.

The formula is BM25 with weighted fields, as in S. Robertson and H. Zaragoza, "The
Probabilistic Relevance Framework: BM25 and Beyond", Foundations and Trends in Information
Retrieval 3(4), 2009, sections 3.4 and 3.5; the fields are a passage's own text and the
headings above it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from echelons.teams.research.headings import TextRow
from echelons.teams.research.passages import PassageIndex, Window
from echelons.teams.research.question import SearchQuestion
from echelons.teams.research.word_weights import compute_idf

K1: Final = 1.2
B: Final = 0.75
"""BM25's saturation of a word's count and correction for length, with the usual values."""
HEADING_BOOST: Final = 2.0
"""Weight of a word in a heading above, in occurrences in the text."""
NUMBER_BOOST: Final = 1.3
"""Factor for a passage with a number, if the question asks for one."""
MOST_GROWTH_ROWS: Final = 12
"""Most rows by which each end may grow, to the end of its paragraph, list, table or code."""
MOST_PASSAGES: Final = 3
"""Most passages returned."""
LEAST_CONFIDENCE: Final = 0.35
"""Least confidence of a passage that answers a question."""
LEAST_ALONE: Final = 0.6
"""The same if only one of several words is found: it must outweigh all others."""
NEARLY_BEST_SCORE: Final = 0.75
"""Share of the best score with which a further passage may contain the answer as well."""
UNSURE_CONFIDENCE: Final = 0.5
"""Below this confidence, further passages as good as the best would only add noise."""
LEAST_GAIN: Final = 0.25
"""Least share of the question that any other further passage must add."""
FURTHER_WEIGHT: Final = 0.8
"""Weight of the share that only a further passage adds."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The passages of a document that answer a question.

    Attributes:
        passages: The rows of each passage, best first; at least one.
        confidence: Share of the question's telling words in the passages, weighted by
            rarity; higher if the words are close together or in the headings above.
            In (0, 1].
    """

    passages: tuple[tuple[TextRow, ...], ...]
    confidence: float


def find_passages(index: PassageIndex, question: SearchQuestion) -> SearchResult | None:
    """Return the passages that answer a question; `None` if there are none."""
    return _Search(index, question).run()


def find_nearest(index: PassageIndex, question: SearchQuestion) -> TextRow | None:
    """Return the block nearest to a question as one row; `None` if none has its words."""
    return _Search(index, question).find_nearest()


@dataclass(frozen=True, slots=True)
class _Hit:
    window: Window
    score: float
    matched: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Search:
    index: PassageIndex
    question: SearchQuestion

    def run(self) -> SearchResult | None:
        hits = sorted(self._find_hits(), key=lambda hit: (-hit.score, hit.window.first))
        whole = frozenset(self.question.shares)
        parts = (whole, *self.question.parts)
        answers = (hit for hit in hits if any(self._is_answer(hit, part) for part in parts))
        best = next(answers, None)
        if best is None:
            return None
        # A good answer to one of several questions counts for more than its share of the whole.
        confidence = (
            self._compute_confidence(best, whole) / 2
            + max(self._compute_confidence(best, each) for each in parts) / 2
        )
        chosen, covered = [best], best.matched
        for hit in hits:
            apart = all(
                hit.window.end <= other.window.first or other.window.end <= hit.window.first
                for other in chosen
            )
            as_good = (
                confidence >= UNSURE_CONFIDENCE and hit.score >= NEARLY_BEST_SCORE * best.score
            )
            if (
                len(chosen) < MOST_PASSAGES
                and apart
                and (as_good or self._has_new_words(hit, covered))
            ):
                chosen.append(hit)
                confidence += FURTHER_WEIGHT * self._compute_confidence(hit, whole, covered)
                covered |= hit.matched
        passages = tuple(_cut_excerpt(self.index, hit.window, whole) for hit in chosen)
        return SearchResult(passages, round(min(confidence, 1.0), 3))

    def find_nearest(self) -> TextRow | None:
        best = max(self._find_hits(), key=lambda hit: (hit.score, -hit.window.first), default=None)
        if best is None:
            return None
        index = self.index
        found = [len(index.stems_in_block(at, best.matched)) for at in best.window.block_indices]
        block = index.blocks[best.window.first + found.index(max(found))]
        rows = index.rows[block.first : block.end]
        return TextRow(rows[0].line, " ".join(row.text for row in rows))

    def _find_hits(self) -> Iterator[_Hit]:
        index, shares = self.index, self.question.shares
        counts = {each: _weigh_counts(index, each) for each in shares}
        weights = {
            each: shares[each] * compute_idf(len(count), sum(number > 0 for number in count))
            for each, count in counts.items()
        }
        lengths = index.window_lengths()
        average = sum(lengths) / len(lengths) if any(lengths) else 1.0
        for at, window in enumerate(index.windows):
            spoken = frozenset(
                each for each in shares if counts[each][at] or each in index.title_stems
            )
            if spoken:
                norm = K1 * (1 - B + B * lengths[at] / average)
                score = sum(
                    weights[each] * counts[each][at] * (K1 + 1) / (counts[each][at] + norm)
                    for each in spoken
                )
                yield self._weigh_hit(_Hit(window, score, spoken))

    def _weigh_hit(self, hit: _Hit) -> _Hit:
        # Many rare words close together beat one rare word that is frequent.
        score = hit.score * self._compute_confidence(hit, frozenset(self.question.shares))
        numbered = not self.index.numbered.isdisjoint(hit.window.block_indices)
        boost = NUMBER_BOOST if self.question.wants_number and numbered else 1.0
        return _Hit(hit.window, score * boost, hit.matched)

    def _is_answer(self, hit: _Hit, part: frozenset[str]) -> bool:
        alone = len(hit.matched & part) == 1
        return self._compute_confidence(hit, part) >= (LEAST_ALONE if alone else LEAST_CONFIDENCE)

    def _has_new_words(self, hit: _Hit, covered: frozenset[str]) -> bool:
        """Whether a hit adds enough new words, or answers a part that is still open."""
        added = hit.matched - covered
        gain = sum(self.question.shares[each] for each in added)
        if len(added) > 1 and gain >= LEAST_GAIN:
            return True
        return any(part & added and self._is_answer(hit, part) for part in self.question.parts)

    def _compute_confidence(
        self, hit: _Hit, part: frozenset[str], covered: frozenset[str] = frozenset()
    ) -> float:
        """Return the confidence that a hit answers a part of the question, from 0 to 1.

        Nine tenths are the share of the part's weight that the hit contains: half of them
        in all its blocks, half in its best single block. The last tenth is the share in the
        headings above it.

        Stems that another passage has `covered` do not count.
        """
        shares = self.question.shares
        said = (hit.matched & part) - covered
        above = said & (hit.window.section.context.keys() | self.index.title_stems)
        headed = sum(shares[each] for each in above)
        closest = headed + max(
            sum(shares[each] for each in self.index.stems_in_block(at, said - above))
            for at in hit.window.block_indices
        )
        whole = sum(shares[each] for each in part)
        sure = 0.45 * sum(shares[each] for each in said) + 0.45 * closest + 0.1 * headed
        return round(sure / whole, 6)  # thirds must add up to one


def _weigh_counts(index: PassageIndex, stem: str) -> list[float]:
    return [
        count + HEADING_BOOST * window.section.context.get(stem, 0)
        for count, window in zip(index.window_counts(stem), index.windows, strict=True)
    ]


def _cut_excerpt(
    index: PassageIndex, window: Window, stems: Collection[str]
) -> tuple[TextRow, ...]:
    """Return the rows of a window from the first to the last block that contains one of the stems.

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
