"""The search of one document: the question, its passages, and the confidence in them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from echelons.teams.research.documents import Block, Outline, TextRow
from echelons.teams.research.survey import LIGHT_STEMS, Vocabulary, compute_idf
from echelons.text.stemming import extract_stems, remove_accents

_HOW_MUCH: Final = re.compile(
    r"\bhow (?:long|many|much|often|far|big|large|high|deep|old|fast|soon|late)\b", re.IGNORECASE
)
_FOR_A_NUMBER: Final = re.compile(
    r"\bwhen (?:are|can|did|do|does|had|has|is|should|was|were|will|would)\b"
    r"|\b(?:what|which) (?:\w+ )?(?:age|amount|angle|date|day|depth|frequency|height"
    r"|length|limit|number|percentage|rate|share|size|speed|temperature|time|weight|year)s?\b",
    re.IGNORECASE,
)
_ASKS: Final = r"(?:what|when|where|who|whose|which|why|how|is|are|do|does|did|can|should|will)"
_BETWEEN: Final = re.compile(
    rf"[.?!;]\s+|\n+|,?\s+(?:and|or|but|then)\s+(?={_ASKS}\b)"
    r"|,\s+(?=(?:what|when|where|who|which|why|how)\b)",
    re.IGNORECASE,
)
_ASKING: Final = re.compile(rf"\s*{_ASKS}\b", re.IGNORECASE)
_NUMBER: Final = re.compile(
    r"\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|hundreds?|thousands?"
    r"|millions?|twice|daily|weekly|monthly|yearly|seconds|minutes?|hours?|days?|weeks?|months?"
    r"|years?|percent)\b|\d",
    re.IGNORECASE,
)
_ITEM_NUMBER: Final = re.compile(r"^[ \t]*\d+[.)][ \t]", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class SearchQuestion:
    """A parsed question."""

    shares: Mapping[str, float]
    wants_number: bool = False
    parts: tuple[frozenset[str], ...] = ()

    def select_part(self, part: frozenset[str]) -> SearchQuestion:
        """Return a part of it as a question of its own."""
        whole = sum(self.shares[stem] for stem in part)
        shares = {item: share / whole for item, share in self.shares.items() if item in part}
        return SearchQuestion(shares, self.wants_number)


def parse_question(text: str, vocabulary: Vocabulary) -> SearchQuestion:
    """Parse a question, weighing its words by the vocabulary of the folder."""
    # "How long" only asks; the answer says "45 seconds" and never "long".
    thing = _HOW_MUCH.sub("how", remove_accents(text))
    telling = _telling_stems(thing)
    weights = {stem: vocabulary.weigh_word(stem) for stem in telling}
    total = sum(weights.values())
    shares = {item: weight / total for item, weight in weights.items()}
    for_a_number = thing != remove_accents(text) or bool(_FOR_A_NUMBER.search(thing))
    parts = (part & shares.keys() for part in _split_parts(thing))
    return SearchQuestion(shares, for_a_number, tuple(filter(None, parts)))


def _telling_stems(text: str) -> list[str]:
    stems = list(dict.fromkeys(extract_stems(text)))
    return [item for item in stems if item not in LIGHT_STEMS] or stems


def _split_parts(text: str) -> Iterator[frozenset[str]]:
    clauses = [clause for clause in _BETWEEN.split(text) if extract_stems(clause)]
    for clause in clauses if len(clauses) > 1 else ():
        telling = frozenset(_telling_stems(clause))
        # A single word counts as a question only after a question word.
        if len(telling) > 1 or _ASKING.match(clause):
            yield telling


def has_number(text: str) -> bool:
    """Return whether a text contains a number or a time."""
    return bool(_NUMBER.search(_ITEM_NUMBER.sub("", text)))


WINDOW_ROWS: Final = 24
WINDOW_CHARACTERS: Final = 1500
"""Limits of a window, as many blocks of one section as fit: answers are rarely one line."""


@dataclass(frozen=True, slots=True)
class SectionBounds:
    """The rows of a section, from its heading, its first block and to its last block's end."""

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
    """The counted words of one document."""

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
            self.words_before[item.end] - self.words_before[item.first] for item in self.windows
        ]

    def stems_in_block(self, block: int, stems: Iterable[str]) -> set[str]:
        """Return those of the stems that the text of a block contains."""
        return {stem for stem in stems if block in self.postings.get(stem, ())}

    def window_counts(self, stem: str) -> list[int]:
        """Return the count of a stem in the text of each window."""
        posted = self.postings.get(stem, {})
        reached = [0, *accumulate(posted.get(at, 0) for at in range(len(self.blocks)))]
        return [reached[item.end] - reached[item.first] for item in self.windows]


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
        for stem, count in counts.items():
            postings.setdefault(stem, {})[at] = count
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
            headings = "\n".join(
                heading for heading in section.headings if heading != document.title
            )
            edges = (section.opening, section.blocks[0].first, section.blocks[-1].end)
            place = SectionBounds(*edges, Counter(extract_stems(headings)))
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
    """The passages of a document that answer a question."""

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
            + max(self._compute_confidence(best, part) for part in parts) / 2
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
        matches = [len(index.stems_in_block(at, best.matched)) for at in best.window.block_indices]
        block = index.blocks[best.window.first + matches.index(max(matches))]
        rows = index.rows[block.first : block.end]
        return TextRow(rows[0].line, " ".join(row.text for row in rows))

    def _find_hits(self) -> Iterator[_Hit]:
        index, shares = self.index, self.question.shares
        counts = {stem: _weigh_counts(index, stem) for stem in shares}
        weights = {
            item: shares[item] * compute_idf(len(count), sum(number > 0 for number in count))
            for item, count in counts.items()
        }
        lengths = index.window_lengths()
        average = sum(lengths) / len(lengths) if any(lengths) else 1.0
        for at, window in enumerate(index.windows):
            spoken = frozenset(
                stem for stem in shares if counts[stem][at] or stem in index.title_stems
            )
            if spoken:
                norm = K1 * (1 - B + B * lengths[at] / average)
                score = sum(
                    weights[stem] * counts[stem][at] * (K1 + 1) / (counts[stem][at] + norm)
                    for stem in spoken
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
        gain = sum(self.question.shares[stem] for stem in added)
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
        matched = (hit.matched & part) - covered
        in_headings = matched & (hit.window.section.context.keys() | self.index.title_stems)
        headed = sum(shares[stem] for stem in in_headings)
        closest = headed + max(
            sum(shares[error] for error in self.index.stems_in_block(at, matched - in_headings))
            for at in hit.window.block_indices
        )
        whole = sum(shares[stem] for stem in part)
        sure = 0.45 * sum(shares[stem] for stem in matched) + 0.45 * closest + 0.1 * headed
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
