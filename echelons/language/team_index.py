"""The team: the roster that a superior was given, indexed by what can be asked for.

`split` looks tasks up in it. A team is read from the description of the tool
`call_subordinate` and remembered by that text, for it is the same at every turn.
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
"""What a subordinate's name counts beside a capability that it declares (1.0)."""

LONGEST_PHRASE: Final = 5
"""Words of a capability that are compared in full; longer ones are read by their beginning."""

GENERIC: Final = frozenset(
    stem(word)
    for word in ASKING
    | listed(
        "agent answer any anything ask assistant can capability give handle help input kind new "
        "people place question request result return say something subordinate task thing tool "
        "use used user work"
    )
)
"""Stems that nearly every description has."""

BROAD: Final = 1.5
"""Times the usual number of capabilities: who has more stands for several trades."""

_NOT_LOOSE: Final = listed("you dont not no")
"""Small words that change what a phrase asks: "what can you do" is about the agent."""

Phrase = tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """A place in a task that someone of the team can serve.

    Attributes:
        words: The words as the human wrote them, in lower case.
        mark: How much they say about what is asked for.
        offers: Who can serve them, each with a confidence.
    """

    words: str
    mark: Mark
    offers: Mapping[str, float]

    @property
    def owners(self) -> list[str]:
        """Those with the best confidence; all of them if they tie."""
        best = max(self.offers.values())
        return [name for name, value in self.offers.items() if value >= best]


class Team:
    """Whom one agent may call, by what they can do.

    Args:
        entries: The roster.
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
        """All places in `tokens` that someone can serve, the longest phrases first."""
        return list(self._find(tokens, marks))

    def hinted(self, tokens: Sequence[Token], marks: Sequence[Mark]) -> list[Found]:
        """Places that only descriptions speak of, all pointing to who has most of them."""
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
        """Whether `name` can do much more than its colleagues, as one with a team can."""
        usual = median_low(self._sizes.values())
        return self._sizes[name] > BROAD * usual

    def rarity(self, having: int) -> float:
        """Inverse document frequency, `log(1 + n / having)`: what few offer says more."""
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
        """Where the longest phrase that begins at `i` ends, and which it is."""
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
        """The same for phrases whose small words vary: "what can we see" is "what to see"."""
        for last in range(i + 2, min(len(tokens), i + LONGEST_PHRASE + 1)):
            between = tokens[last - 1]
            if between.telling or between.word in _NOT_LOOSE or marks[last] is not marks[i]:
                break
            phrase = self._loose.get((tokens[i].stem, tokens[last].stem))
            if phrase:
                return last + 1, phrase
        return i + 1, ()


def _names_something(token: Token) -> bool:
    """Whether a single word can be meant: "it" cannot, the department "IT" can."""
    return token.word not in STOPWORDS or (len(token.raw) > 1 and token.raw.isupper())


@lru_cache(maxsize=64)
def team_of(description: str, names: tuple[str, ...]) -> Team:
    """The team that a `call_subordinate` tool offers.

    Args:
        description: The tool's description, with the roster in it.
        names: The names that the tool accepts; empty if it does not list them. A name that
            the roster lacks is a subordinate of which nothing is known.
    """
    entries = {entry.name: entry for entry in parse(description)}
    known = (entries.get(name) or _unknown(name) for name in dict.fromkeys(names) or entries)
    return Team([entry for entry in known if entry])


def _unknown(name: str) -> Entry | None:
    try:
        return Entry(name)
    except InvalidName:  # a tool of someone else's that is called as ours
        return None
