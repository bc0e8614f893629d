"""The roster of a superior's subordinates, indexed by the phrases of what they offer.

`task_split` looks tasks up in it. The offline planner reads a team from the description of the
tool `call_subordinate`; it is cached by that text, which is the same at every turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import log
from statistics import median_low
from typing import Final

from echelons.errors import InvalidName
from echelons.language.lexicon import ASKING, listed
from echelons.language.requested_words import Mark
from echelons.language.tokens import Token
from echelons.text.stemming import STOPWORDS, stem, stems, words
from echelons.tree.roster import Entry, parse

NAME_WEIGHT: Final = 0.5
"""Weight of a subordinate's name; that of a declared capability is 1."""

LONGEST_PHRASE: Final = 5
"""Words of a capability that are compared; of a longer one only its beginning is."""

GENERIC: Final = frozenset(
    stem(word)
    for word in ASKING
    | listed(
        "agent answer any anything ask assistant can capability give handle help input kind new "
        "people place question request result return say something subordinate task thing tool "
        "use used user work"
    )
)
"""Stems that occur in nearly every description."""

BROAD: Final = 1.5
"""A subordinate with more than this many times the median number of capabilities is broad."""

_NOT_LOOSE: Final = listed("you dont not no")
"""Small words that change what a phrase asks: "what can you do" is about the agent."""

Phrase = tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """A phrase of a task that subordinates of the team can serve.

    Attributes:
        words: The words as the human wrote them, in lower case.
        mark: How far they belong to what is requested.
        offers: Confidences from 0 to 1 by subordinate name.
    """

    words: str
    mark: Mark
    offers: Mapping[str, float]

    @property
    def owners(self) -> list[str]:
        """The names with the best confidence; more than one if they tie."""
        best = max(self.offers.values())
        return [name for name, value in self.offers.items() if value >= best]


class Team:
    """The subordinates of one agent, indexed by what they offer.

    Args:
        entries: The roster's entries.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.names = tuple(entry.name for entry in entries)
        self.unspecified = tuple(entry.name for entry in entries if not entry.capabilities)
        self._offers: dict[Phrase, dict[str, float]] = {}
        self._loose: dict[Phrase, Phrase] = {}
        self._hints: dict[str, set[str]] = {}
        for entry in entries:
            self._index(entry)
        self._sizes = {entry.name: len(entry.capabilities) for entry in entries}
        self._longest = max((len(phrase) for phrase in self._offers), default=0)

    def __len__(self) -> int:
        return len(self.names)

    def find(self, tokens: Sequence[Token], marks: Sequence[Mark]) -> list[Found]:
        """Return the phrases in `tokens` that can be served, each as long as possible, in order."""
        return list(self._find(tokens, marks))

    def hinted(self, tokens: Sequence[Token], marks: Sequence[Mark]) -> list[Found]:
        """Return words known from descriptions only, offered by those with the most of them."""
        places: dict[str, tuple[str, Mark]] = {}
        for token, mark in zip(tokens, marks, strict=True):
            if mark > Mark.REFUSED and token.telling and token.stem in self._hints:
                places.setdefault(token.stem, (token.word, mark))
        scores = dict.fromkeys(self.names, 0.0)
        for hint in places:
            for name in self._hints[hint]:
                scores[name] += self.rarity(len(self._hints[hint]))
        best = max(scores.values(), default=0.0)
        leaders = {name for name in self.names if best and scores[name] >= best}
        return [
            Found(word, mark, dict.fromkeys(self._in_order(leaders & self._hints[hint]), 1.0))
            for hint, (word, mark) in places.items()
            if leaders & self._hints[hint]
        ]

    def is_broad(self, name: str) -> bool:
        """Return whether `name` offers far more than its colleagues, as a head of a team does."""
        usual = median_low(self._sizes.values())
        return self._sizes[name] > BROAD * usual

    def rarity(self, having: int) -> float:
        """Return the inverse document frequency, `log(1 + n / having)`, for `having` agents."""
        return log(1 + len(self.names) / max(having, 1))

    def _in_order(self, names: set[str]) -> list[str]:
        return [name for name in self.names if name in names]

    def _index(self, entry: Entry) -> None:
        for capability, confidence in entry.capabilities.items():
            self._offer(capability, entry.name, confidence)
        strongest = max(entry.capabilities.values(), default=1.0)
        self._offer(entry.name, entry.name, NAME_WEIGHT * strongest)
        for hint in {*stems(entry.name), *stems(entry.description)} - GENERIC:
            self._hints.setdefault(hint, set()).add(entry.name)

    def _offer(self, phrase: str, name: str, confidence: float) -> None:
        said = words(phrase)[:LONGEST_PHRASE]
        key = tuple(map(stem, said))
        if len(key) > 2 and STOPWORDS.issuperset(said[1:-1]):
            self._loose[key[0], key[-1]] = key
        if key and confidence > 0:
            offers = self._offers.setdefault(key, {})
            offers[name] = max(confidence, offers.get(name, 0.0))

    def _find(self, tokens: Sequence[Token], marks: Sequence[Mark]) -> Iterator[Found]:
        i = 0
        while i < len(tokens):
            end, phrase = self._phrase_at(tokens, marks, i)
            if phrase:
                said = " ".join(token.word for token in tokens[i:end])
                yield Found(said, marks[i], self._offers[phrase])
            i = end

    def _phrase_at(
        self, tokens: Sequence[Token], marks: Sequence[Mark], i: int
    ) -> tuple[int, Phrase]:
        """Return the end of the longest known phrase at `i`, and the phrase (empty if none)."""
        if marks[i] is Mark.REFUSED:
            return i + 1, ()
        alike = i + 1
        while alike < min(len(tokens), i + self._longest) and marks[alike] is marks[i]:
            alike += 1
        for end in range(alike, i, -1):
            phrase = tuple(token.stem for token in tokens[i:end])
            if phrase in self._offers and (end > i + 1 or _names_something(tokens[i])):
                return end, phrase
        return self._loosely_at(tokens, marks, i)

    def _loosely_at(
        self, tokens: Sequence[Token], marks: Sequence[Mark], i: int
    ) -> tuple[int, Phrase]:
        """Match a phrase whose inner small words vary: "what can we see" is "what to see"."""
        for last in range(i + 2, min(len(tokens), i + LONGEST_PHRASE + 1)):
            between = tokens[last - 1]
            if between.telling or between.word in _NOT_LOOSE or marks[last] is not marks[i]:
                break
            phrase = self._loose.get((tokens[i].stem, tokens[last].stem))
            if phrase:
                return last + 1, phrase
        return i + 1, ()


def _names_something(token: Token) -> bool:
    """Return whether a single word can be an offer: "it" cannot, the department "IT" can."""
    return token.word not in STOPWORDS or (len(token.raw) > 1 and token.raw.isupper())


@lru_cache(maxsize=64)
def team_of(description: str, names: tuple[str, ...]) -> Team:
    """Return the team described by a `call_subordinate` tool.

    Args:
        description: The tool's description, which contains the roster.
        names: The names that the tool accepts; empty if it does not list them. A name that is
            missing from the roster becomes an entry without capabilities.
    """
    entries = {entry.name: entry for entry in parse(description)}
    known = (entries.get(name) or _unknown(name) for name in dict.fromkeys(names) or entries)
    return Team([entry for entry in known if entry])


def _unknown(name: str) -> Entry | None:
    try:
        return Entry(name)
    except InvalidName:  # a foreign tool with the name of ours may list anything
        return None
