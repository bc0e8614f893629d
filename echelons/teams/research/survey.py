"""The words of all documents, with their weights."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final

from echelons.checkpoints.default_path import expand_home
from echelons.teams.research.documents import (
    Document,
    DocumentFolder,
    ProgressTracker,
    SkippedFile,
    build_folder_tree,
    parse_outline,
    read_documents,
    track_silently,
)
from echelons.text.stemming import STOPWORDS, count_words, extract_stems, extract_words, stem

MOST_DOCUMENT_WORDS: Final = 40
"""Most telling words of one document."""
MOST_FOLDER_WORDS: Final = 60
"""Most telling words of a folder."""

LIGHT_STEMS: Final = frozenset(
    extract_stems(
        "tell explain describe show find give list say said mean know answer question look "
        "document documents documentation text according summarise summarize summary information "
        "let lets make made get got take took become became use used come came go goes"
    )
)
"""Stems of words for asking, and of verbs that mean little without their object."""

RARE_EXPONENT: Final = 0.8
"""Exponent of the inverse document frequency of a question's word: less for rare ones."""
UNKNOWN_WEIGHT: Final = 0.6
"""Weight of a question's word that is in no document; that of a word in a single one is 1."""

_SHORTEST, _LONGEST_MIXED, _LONGEST = 2, 8, 30
_ADDRESSES: Final = frozenset({"http", "https", "www", "com", "org", "html"})
_TITLE: Final = (0.4, 0.6)
_HEADING: Final = (0.3, 0.5)
_BODY: Final = (0.1, 0.5)
"""Confidence of the least telling word, and the addition for the most telling one."""


@dataclass(frozen=True)
class WordProfile:
    """The word counts of one document."""

    counts: Mapping[str, int]
    spelled: Mapping[str, str]
    title: frozenset[str]
    headings: frozenset[str]

    @cached_property
    def length(self) -> int:
        """The number of words in the document."""
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The document frequency of each stem in a folder."""

    documents: int
    frequency: Mapping[str, int]

    def idf(self, stem: str) -> float:
        """Return the inverse document frequency, greater than 0.

        The Robertson/Spärck Jones weight with 1 added inside the logarithm, so that it
        stays positive. A stem in no document weighs as much as one in a single document: a
        misspelt or needless word of a question must not outweigh all others.
        """
        return compute_idf(max(self.documents, 1), max(self.frequency.get(stem, 0), 1))

    def weigh_word(self, stem: str) -> float:
        """Return the weight of a word of a question, greater than 0.

        A word that hardly any document has weighs less than its `idf`, and one that none has
        still less: it is often only a matter of wording, and must not outweigh all others.
        """
        weight = float(self.idf(stem) ** RARE_EXPONENT)
        return weight if self.frequency.get(stem) else UNKNOWN_WEIGHT * weight

    def rarity(self, stem: str) -> float:
        """Return `idf` relative to that of a stem in one document only, which is 1."""
        return self.idf(stem) / self.idf("")


@lru_cache(maxsize=1 << 12)
def compute_idf(documents: int, having: int) -> float:
    """Return the inverse document frequency of a stem that `having` of the documents contain."""
    return math.log(1 + (documents - having + 0.5) / (having + 0.5))


def build_profile(title: str, headings: Iterable[str], text: str) -> WordProfile:
    """Return the word counts of a document."""
    written = count_words(text)
    counts: Counter[str] = Counter()
    spelled: dict[str, str] = {}
    for word, count in written.items():
        if word not in STOPWORDS:
            root = stem(word)
            counts[root] += count
            # The most frequent spelling of a stem is shown; ties go to the first by alphabet.
            other = spelled.setdefault(root, word)
            if other != word and (-count, word) < (-written[other], other):
                spelled[root] = word
    named = frozenset(_stem_words(title, spelled))
    return WordProfile(counts, spelled, named, frozenset(_stem_words("\n".join(headings), spelled)))


def count_documents(profiles: Iterable[WordProfile]) -> Vocabulary:
    """Return the number of documents in which each stem occurs."""
    listed = list(profiles)
    frequency: Counter[str] = Counter()
    for profile in listed:
        frequency.update(profile.counts.keys() | profile.title)
    return Vocabulary(len(listed), frequency)


def select_telling_words(document: WordProfile, vocabulary: Vocabulary) -> dict[str, float]:
    """Return the most telling words of a document, each with a confidence in [0, 1].

    TF-IDF with a logarithmic count; words of the title count most, then those of headings.
    The best come first, ties by alphabet.
    """
    highest = 1 + math.log(max(document.counts.values(), default=1))
    confidences: dict[str, float] = {}
    for word in document.counts.keys() | document.title:
        if word in LIGHT_STEMS or not _is_word(document.spelled[word]):
            continue
        rarity = vocabulary.rarity(word)
        value = rarity * (1 + math.log(document.counts.get(word, 0) or 1)) / highest
        if word in document.title:
            confidences[document.spelled[word]] = _TITLE[0] + _TITLE[1] * rarity
        else:
            least, more = _HEADING if word in document.headings else _BODY
            confidences[document.spelled[word]] = least + more * value
    return _select_best(confidences, MOST_DOCUMENT_WORDS)


def merge_telling_words(below: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the most telling words of a folder, from those of its contents."""
    confidences: dict[str, float] = {}
    for child in below:
        for word, confidence in child.items():
            confidences[word] = max(confidence, confidences.get(word, 0.0))
    return _select_best(confidences, MOST_FOLDER_WORDS)


def _select_best(confidences: Mapping[str, float], limit: int) -> dict[str, float]:
    ranked = sorted(confidences.items(), key=lambda item: (-round(item[1], 3), item[0]))
    return {word: round(confidence, 3) for word, confidence in ranked[:limit]}


def _stem_words(text: str, spelled: dict[str, str]) -> Iterable[str]:
    for word in extract_words(text):
        if word not in STOPWORDS:
            spelled.setdefault(stem(word), word)
            yield stem(word)


@lru_cache(maxsize=1 << 18)
def _is_word(word: str) -> bool:
    letters = sum(char.isalpha() for char in word)
    # Longer mixtures of letters and digits are keys or digests.
    plain = letters == len(word) if len(word) > _LONGEST_MIXED else 2 * letters >= len(word)
    return plain and _SHORTEST <= len(word) <= _LONGEST and word not in _ADDRESSES


MOST_LEVELS: Final = 24
"""Most levels of folders; a tree of agents may have 32 levels, some of them above ours."""
FIRST_NAMES: Final = 3
"""Skipped files of a kind that a report names."""

# The rest of a reason: the size of a file, a remedy.
_REASON_DETAIL = re.compile(r": \d.*|;.*")


@dataclass(frozen=True, slots=True)
class SurveyedDocument:
    """A document and its topics."""

    document: Document
    title: str
    headings: tuple[tuple[int, str], ...]
    capabilities: Mapping[str, float]
    words: WordProfile = field(repr=False)


@dataclass(frozen=True, slots=True)
class Survey:
    """The documents of a folder that was read."""

    root: Path
    tree: DocumentFolder
    surveyed: Mapping[str, SurveyedDocument]
    vocabulary: Vocabulary
    skipped: tuple[SkippedFile, ...]

    def report(self) -> str:
        """Return a line: how many files were read, how many were not, why, and the first names."""
        counts = f"{self.root}: {len(self.surveyed)} read, {len(self.skipped)} skipped"
        return "; ".join([counts, *self._describe_skipped()])

    def _describe_skipped(self) -> Iterator[str]:
        paths: dict[str, list[str]] = {}
        for file in self.skipped:
            paths.setdefault(_REASON_DETAIL.sub("", file.reason), []).append(file.path)
        for reason, names in sorted(paths.items(), key=lambda item: -len(item[1])):
            more = ", …" if len(names) > FIRST_NAMES else ""
            yield f"{reason}: {len(names)} ({', '.join(names[:FIRST_NAMES])}{more})"


def survey(docs: Path | str, track: ProgressTracker = track_silently) -> Survey:
    """Read a folder of documents.

    Hidden files and folders are ignored; other files that are not readable text are listed
    in `skipped`.

    Raises:
        TeamError: There is nothing at `docs`; `docs` is a file; there is no readable document in
            it.
    """
    root = expand_home(Path(docs))
    documents, skipped = read_documents(root, track)
    outlines = {item.path: parse_outline(item.path, item.text) for item in documents}
    profiles = {
        item.path: build_profile(
            outlines[item.path].title_and_path,
            (heading.text for heading in outlines[item.path].headings),
            item.text,
        )
        for item in track(documents, description="Counting words")
    }
    vocabulary = count_documents(profiles.values())
    surveyed = {}
    for item in track(documents, description="Choosing words"):
        outline, words = outlines[item.path], profiles[item.path]
        headings = tuple((heading.level, heading.text) for heading in outline.headings)
        telling = select_telling_words(words, vocabulary)
        surveyed[item.path] = SurveyedDocument(item, outline.title, headings, telling, words)
    return Survey(
        root, build_folder_tree(documents, MOST_LEVELS), surveyed, vocabulary, tuple(skipped)
    )
