"""Find the passages of one document that answer a question. ``tools`` calls this.

The formula is BM25 with weighted fields, as in S. Robertson and H. Zaragoza, "The
Probabilistic Relevance Framework: BM25 and Beyond", Foundations and Trends in Information
Retrieval 3(4), 2009, sections 3.4 and 3.5; the fields are a passage's own text and the
headings above it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from echelons.teams.research.excerpts import excerpt
from echelons.teams.research.headings import Row
from echelons.teams.research.passages import Index, Window
from echelons.teams.research.question import Question

K1: Final = 1.2
B: Final = 0.75
"""BM25's saturation of a word's count, and correction for length; the usual values."""
HEADING_BOOST: Final = 2.0
"""How many times in the text a word in a heading above it counts for."""
NUMBER_BOOST: Final = 1.3
"""Factor for a passage with a number in it, where the question asks for one."""
PASSAGES: Final = 3
"""Passages returned at most."""
LEAST: Final = 0.4
"""Share of a question that a passage must speak of; below, it says nothing about it."""
LEAST_ALONE: Final = 0.5
"""The same for a single word of several: it must weigh more than all others together."""
NEARLY: Final = 0.75
"""Of the best score: a further passage that reaches it may hold the answer as well."""
UNSURE: Final = 0.5
"""Below this confidence, other passages as good as the best would only be more noise."""
GAIN: Final = 0.25
"""Share of a question that any other further passage must add to be worth its place."""
FURTHER: Final = 0.8
"""What a share that only a further passage adds counts for."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a document says about a question.

    Attributes:
        passages: The best first; at least one.
        confidence: Share of the question's telling words, weighted by rarity, that the
            passages speak of; more where the words stand close together or in the headings
            above, as ``_confidence`` says. In (0, 1].
    """

    passages: tuple[tuple[Row, ...], ...]
    confidence: float


@dataclass(frozen=True, slots=True)
class _Hit:
    window: Window
    score: float
    confidence: float
    spoken: frozenset[str]


def find(index: Index, question: Question) -> Found | None:
    """Return what a document says about a question; ``None`` if that is nothing."""
    hits = sorted(_hits(index, question), key=lambda hit: (-hit.score, hit.window.first))
    best = next((hit for hit in hits if _speaks(question, hit.spoken)), None)
    if best is None:
        return None
    chosen, covered, confidence = [best], best.spoken, _sure(index, best, question)
    for hit in hits:
        apart = not any(_overlap(hit.window, other.window) for other in chosen)
        added = _shares(question, hit.spoken - covered)
        as_good = confidence >= UNSURE and hit.score >= NEARLY * best.score
        adds = len(added) > 1 and (sum(added.values()) >= GAIN or _speaks(question, added.keys()))
        if len(chosen) < PASSAGES and apart and (as_good or adds):
            chosen.append(hit)
            covered |= hit.spoken
            confidence += FURTHER * _confidence(index, hit.window, added)
    passages = tuple(excerpt(index, hit.window, question.shares) for hit in chosen)
    return Found(passages, round(min(confidence, 1.0), 3))


def _hits(index: Index, question: Question) -> Iterator[_Hit]:
    counts = {each: _weighted(index, each) for each in question.shares}
    weights = {each: question.shares[each] * _idf(count) for each, count in counts.items()}
    lengths = index.lengths()
    average = sum(lengths) / len(lengths) if any(lengths) else 1.0
    for at, window in enumerate(index.windows):
        spoken = frozenset(each for each in weights if counts[each][at] or each in index.title)
        if not spoken:
            continue
        norm = K1 * (1 - B + B * lengths[at] / average)
        score = sum(
            weights[each] * counts[each][at] * (K1 + 1) / (counts[each][at] + norm)
            for each in spoken
        )
        # Many rare words, and close together, beat one rare word that comes often.
        confidence = _confidence(index, window, _shares(question, spoken))
        score *= confidence
        if question.for_a_number and not index.numbered.isdisjoint(window.inside):
            score *= NUMBER_BOOST
        yield _Hit(window, score, confidence, spoken)


def _weighted(index: Index, stem: str) -> list[float]:
    return [
        count + HEADING_BOOST * window.place.context.get(stem, 0)
        for count, window in zip(index.counts(stem), index.windows, strict=True)
    ]


def _idf(counts: Sequence[float]) -> float:
    having = sum(count > 0 for count in counts)
    return math.log(1 + (len(counts) - having + 0.5) / (having + 0.5))


def _speaks(question: Question, said: AbstractSet[str]) -> bool:
    """Whether enough is said of the question, or of one of several questions in it."""
    for part in (question.shares.keys(), *question.parts):
        spoken = part & said
        share = sum(question.shares[each] for each in spoken)
        whole = sum(question.shares[each] for each in part)
        if share >= LEAST * whole and (len(spoken) > 1 or share > LEAST_ALONE * whole):
            return True
    return False


def _shares(question: Question, stems: Iterable[str]) -> dict[str, float]:
    return {each: question.shares[each] for each in stems}


def _confidence(index: Index, window: Window, said: Mapping[str, float]) -> float:
    """Weigh what a window says: in all, in its best single block, in the headings above it."""
    above = said.keys() & (window.place.context.keys() | index.title)
    closest = max(sum(said[each] for each in above | index.said(at, said)) for at in window.inside)
    headed = sum(said[each] for each in above)
    return 0.45 * sum(said.values()) + 0.45 * closest + 0.1 * headed


def _sure(index: Index, hit: _Hit, question: Question) -> float:
    """Return the confidence of a hit; who answers one of several questions well is surer."""
    parts = (
        _confidence(index, hit.window, _shares(question, part & hit.spoken))
        / sum(question.shares[each] for each in part)
        for part in question.parts
    )
    return (hit.confidence + max((hit.confidence, *parts))) / 2


def _overlap(one: Window, other: Window) -> bool:
    return one.first < other.end and other.first < one.end
