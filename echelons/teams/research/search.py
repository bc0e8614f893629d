"""Find the passages of one document that answer a question. ``tools`` calls this.

The formula is BM25 with weighted fields, as in S. Robertson and H. Zaragoza, "The
Probabilistic Relevance Framework: BM25 and Beyond", Foundations and Trends in Information
Retrieval 3(4), 2009, sections 3.4 and 3.5; the fields are a passage's own text and the
headings above it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from echelons.matching import stems
from echelons.teams.research.excerpts import excerpt
from echelons.teams.research.headings import Row
from echelons.teams.research.passages import Index, Window
from echelons.teams.research.words import Vocabulary

K1: Final = 1.2
B: Final = 0.75
"""BM25's saturation of a word's count, and correction for length; the usual values."""
HEADING_BOOST: Final = 2.0
"""How many times in the text a word in a heading above it counts for."""
PASSAGES: Final = 3
"""Passages returned at most."""
LEAST: Final = 0.4
"""Share of a question that a passage must speak of; below, it says nothing about it."""
LEAST_ALONE: Final = 0.5
"""The same for a single word of several: it must weigh more than all others together."""
GAIN: Final = 0.25
"""Share of a question that a further passage must add to be worth its place."""
FURTHER: Final = 0.8
"""What a share that only a further passage adds counts for."""

_ASKING: Final = frozenset(
    stems(
        "tell explain describe show find give list say said mean know answer question look "
        "document documentation text according summarise summarize summary information "
        "let make made get got take took become became"
    )
)
"""Words of the asking, not of what is asked."""


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
    spoken: frozenset[str]


def asked(question: str, known: Vocabulary) -> dict[str, float]:
    """Return the telling stems of a question, with shares that add up to 1.

    Rare words weigh more. Nothing is left of a question that has no telling word.
    """
    found = list(dict.fromkeys(stems(question)))
    telling = [each for each in found if each not in _ASKING] or found
    total = sum(known.idf(each) for each in telling)
    return {each: known.idf(each) / total for each in telling}


def find(index: Index, question: Mapping[str, float]) -> Found | None:
    """Return what a document says about a question; ``None`` if that is nothing.

    Args:
        index: The document.
        question: Its telling stems with their shares, from ``asked``.
    """
    hits = sorted(_hits(index, question), key=lambda hit: (-hit.score, hit.window.first))
    chosen: list[_Hit] = []
    covered: frozenset[str] = frozenset()
    confidence = 0.0
    for hit in hits:
        added = {each: question[each] for each in hit.spoken - covered}
        enough = _adds(added) if chosen else _speaks(added)
        if enough and not any(_overlap(hit.window, other.window) for other in chosen):
            confidence += _confidence(index, hit.window, added) * (FURTHER if chosen else 1.0)
            chosen.append(hit)
            covered |= hit.spoken
        if not chosen or len(chosen) == PASSAGES:
            break
    if not chosen:
        return None
    passages = tuple(excerpt(index, hit.window, question) for hit in chosen)
    return Found(passages, round(min(confidence, 1.0), 3))


def _hits(index: Index, question: Mapping[str, float]) -> Iterator[_Hit]:
    counts = {each: _weighted(index, each) for each in question}
    idf = {each: _idf(count) for each, count in counts.items()}
    lengths = index.lengths()
    average = sum(lengths) / len(lengths) if any(lengths) else 1.0
    for at, window in enumerate(index.windows):
        spoken = frozenset(each for each in question if counts[each][at])
        norm = K1 * (1 - B + B * lengths[at] / average)
        score = sum(
            question[each] * idf[each] * counts[each][at] * (K1 + 1) / (counts[each][at] + norm)
            for each in spoken
        )
        if spoken:
            yield _Hit(window, score, spoken)


def _weighted(index: Index, stem: str) -> list[float]:
    return [
        count + HEADING_BOOST * window.place.context.get(stem, 0)
        for count, window in zip(index.counts(stem), index.windows, strict=True)
    ]


def _idf(counts: Sequence[float]) -> float:
    having = sum(count > 0 for count in counts)
    return math.log(1 + (len(counts) - having + 0.5) / (having + 0.5))


def _speaks(said: Mapping[str, float]) -> bool:
    share = sum(said.values())
    return share >= LEAST and (len(said) > 1 or share > LEAST_ALONE)


def _adds(said: Mapping[str, float]) -> bool:
    return sum(said.values()) >= GAIN and len(said) > 1


def _confidence(index: Index, window: Window, said: Mapping[str, float]) -> float:
    """Weigh what a window says: in all, in its best single block, in the headings above it."""
    above = said.keys() & window.place.context.keys()
    closest = max(
        sum(said[each] for each in above | index.said(at, said))
        for at in range(window.first, window.end)
    )
    headed = sum(said[each] for each in above)
    return 0.45 * sum(said.values()) + 0.45 * closest + 0.1 * headed


def _overlap(one: Window, other: Window) -> bool:
    return one.first < other.end and other.first < one.end
