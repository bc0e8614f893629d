"""Search for the passages of one document that answer a question. `tools` calls this.

The formula is BM25 with weighted fields, as in S. Robertson and H. Zaragoza, "The
Probabilistic Relevance Framework: BM25 and Beyond", Foundations and Trends in Information
Retrieval 3(4), 2009, sections 3.4 and 3.5; the fields are a passage's own text and the
headings above it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from echelons.teams.research.excerpts import excerpt
from echelons.teams.research.headings import Row
from echelons.teams.research.passages import Index, Window
from echelons.teams.research.question import Question

K1: Final = 1.2
B: Final = 0.75
"""BM25's saturation of a word's count and correction for length, with the usual values."""
HEADING_BOOST: Final = 2.0
"""Weight of a word in a heading above, in occurrences in the text."""
NUMBER_BOOST: Final = 1.3
"""Factor for a passage with a number, if the question asks for one."""
PASSAGES: Final = 3
"""Most passages returned."""
LEAST: Final = 0.35
"""Least confidence of a passage that answers a question."""
LEAST_ALONE: Final = 0.5
"""The same if only one of several words is found: it must outweigh all others."""
NEARLY: Final = 0.75
"""Share of the best score with which a further passage may contain the answer as well."""
UNSURE: Final = 0.5
"""Below this confidence, further passages as good as the best would only add noise."""
GAIN: Final = 0.25
"""Least share of the question that any other further passage must add."""
FURTHER: Final = 0.8
"""Weight of the share that only a further passage adds."""


@dataclass(frozen=True, slots=True)
class Found:
    """The passages of a document that answer a question.

    Attributes:
        passages: The rows of each passage, best first; at least one.
        confidence: Share of the question's telling words in the passages, weighted by
            rarity; higher if the words are close together or in the headings above.
            In (0, 1].
    """

    passages: tuple[tuple[Row, ...], ...]
    confidence: float


def find(index: Index, question: Question) -> Found | None:
    """Return the passages that answer a question; `None` if there are none."""
    return _Search(index, question).found()


@dataclass(frozen=True, slots=True)
class _Hit:
    window: Window
    score: float
    spoken: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Search:
    index: Index
    question: Question

    def found(self) -> Found | None:
        hits = sorted(self._hits(), key=lambda hit: (-hit.score, hit.window.first))
        whole = frozenset(self.question.shares)
        parts = (whole, *self.question.parts)
        best = next((hit for hit in hits if any(self._answers(hit, part) for part in parts)), None)
        if best is None:
            return None
        # A good answer to one of several questions counts for more than its share of the whole.
        confidence = self._sure(best, whole) / 2 + max(self._sure(best, each) for each in parts) / 2
        chosen, covered = [best], best.spoken
        for hit in hits:
            apart = not any(_overlap(hit.window, other.window) for other in chosen)
            as_good = confidence >= UNSURE and hit.score >= NEARLY * best.score
            if len(chosen) < PASSAGES and apart and (as_good or self._adds(hit, covered)):
                chosen.append(hit)
                confidence += FURTHER * self._sure(hit, whole, covered)
                covered |= hit.spoken
        passages = tuple(excerpt(self.index, hit.window, whole) for hit in chosen)
        return Found(passages, round(min(confidence, 1.0), 3))

    def _hits(self) -> Iterator[_Hit]:
        index, shares = self.index, self.question.shares
        counts = {each: _weighted(index, each) for each in shares}
        weights = {each: shares[each] * _idf(count) for each, count in counts.items()}
        lengths = index.lengths()
        average = sum(lengths) / len(lengths) if any(lengths) else 1.0
        for at, window in enumerate(index.windows):
            spoken = frozenset(each for each in shares if counts[each][at] or each in index.named)
            if spoken:
                norm = K1 * (1 - B + B * lengths[at] / average)
                score = sum(
                    weights[each] * counts[each][at] * (K1 + 1) / (counts[each][at] + norm)
                    for each in spoken
                )
                yield self._weighed(_Hit(window, score, spoken))

    def _weighed(self, hit: _Hit) -> _Hit:
        # Many rare words close together beat one rare word that is frequent.
        score = hit.score * self._sure(hit, frozenset(self.question.shares))
        numbered = not self.index.numbered.isdisjoint(hit.window.inside)
        boost = NUMBER_BOOST if self.question.for_a_number and numbered else 1.0
        return _Hit(hit.window, score * boost, hit.spoken)

    def _answers(self, hit: _Hit, part: frozenset[str]) -> bool:
        alone = len(hit.spoken & part) == 1
        return self._sure(hit, part) >= (LEAST_ALONE if alone else LEAST)

    def _adds(self, hit: _Hit, covered: frozenset[str]) -> bool:
        """Whether a hit adds enough new words, or answers a part that is still open."""
        added = hit.spoken - covered
        gain = sum(self.question.shares[each] for each in added)
        if len(added) > 1 and gain >= GAIN:
            return True
        return any(part & added and self._answers(hit, part) for part in self.question.parts)

    def _sure(
        self, hit: _Hit, part: frozenset[str], covered: frozenset[str] = frozenset()
    ) -> float:
        """Return the confidence that a hit answers a part of the question, from 0 to 1.

        Nine tenths are the share of the part's weight that the hit contains: half of them
        in all its blocks, half in its best single block. The last tenth is the share in the
        headings above it.

        Args:
            hit: The hit.
            part: The stems of the part.
            covered: Stems that do not count because another passage contains them.
        """
        shares = self.question.shares
        said = (hit.spoken & part) - covered
        above = said & (hit.window.place.context.keys() | self.index.named)
        headed = sum(shares[each] for each in above)
        closest = headed + max(
            sum(shares[each] for each in self.index.said(at, said - above))
            for at in hit.window.inside
        )
        whole = sum(shares[each] for each in part)
        sure = 0.45 * sum(shares[each] for each in said) + 0.45 * closest + 0.1 * headed
        return round(sure / whole, 6)  # thirds must add up to one


def _weighted(index: Index, stem: str) -> list[float]:
    return [
        count + HEADING_BOOST * window.place.context.get(stem, 0)
        for count, window in zip(index.counts(stem), index.windows, strict=True)
    ]


def _idf(counts: Sequence[float]) -> float:
    having = sum(count > 0 for count in counts)
    return math.log(1 + (len(counts) - having + 0.5) / (having + 0.5))


def _overlap(one: Window, other: Window) -> bool:
    return one.first < other.end and other.first < one.end
