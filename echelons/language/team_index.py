"""The roster of a superior's subordinates, indexed by the phrases of what they offer.

`task_shares` looks tasks up in it. The offline planner reads a team from the description of the
tool `call_subordinate`; it is cached by that text, which is the same at every turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from math import log
from statistics import median_low
from typing import Final

from echelons.errors import ConfigurationError
from echelons.language.lexicon import GENERIC_REQUEST_VERBS, to_word_set
from echelons.language.tokens import Token
from echelons.language.word_marks import WordMark
from echelons.text.stemming import STOPWORDS, extract_stems, extract_words, stem
from echelons.tree.roster import RosterEntry, parse_roster

NAME_WEIGHT: Final = 0.5
"""Weight of a subordinate's name; that of a declared capability is 1."""

MAX_PHRASE_WORDS: Final = 5
"""Words of a capability that are compared; of a longer one only its beginning is."""

GENERIC_STEMS: Final = frozenset(
    stem(word)
    for word in GENERIC_REQUEST_VERBS
    | to_word_set(
        "agent answer any anything ask assistant can capability give handle help input kind new "
        "people place question request result return say something subordinate task thing tool "
        "use used user work"
    )
)
"""Stems that occur in nearly every description."""

BROAD_RATIO: Final = 1.5
"""A subordinate with more than this many times the median number of capabilities is broad."""

_FIXED_WORDS: Final = to_word_set("you dont not no")
"""Small words that change what a phrase asks: "what can you do" is about the agent."""

StemPhrase = tuple[str, ...]


@dataclass(frozen=True)
class CapabilityMention:
    """A phrase of a task that subordinates of the team can serve.

    Attributes:
        words: The words as the human wrote them, in lower case.
        mark: How far they belong to what is requested.
        offers: Confidences from 0 to 1 by subordinate name.
    """

    words: str
    mark: WordMark
    offers: Mapping[str, float]

    @property
    def best_names(self) -> list[str]:
        """The names with the best confidence; more than one if they tie."""
        best = max(self.offers.values())
        return [name for name, value in self.offers.items() if value >= best]


class TeamIndex:
    """The subordinates of one agent, indexed by what they offer."""

    def __init__(self, entries: Sequence[RosterEntry]) -> None:
        self.names = tuple(entry.name for entry in entries)
        self.without_capabilities = tuple(entry.name for entry in entries if not entry.capabilities)
        self._offers: dict[StemPhrase, dict[str, float]] = {}
        self._loose_phrases: dict[StemPhrase, StemPhrase] = {}
        self._hints: dict[str, set[str]] = {}
        for entry in entries:
            for capability, confidence in entry.capabilities.items():
                self._add_phrase(capability, entry.name, confidence)
            strongest = max(entry.capabilities.values(), default=1.0)
            self._add_phrase(entry.name, entry.name, NAME_WEIGHT * strongest)
            hints = {*extract_stems(entry.name), *extract_stems(entry.description)}
            for hint in hints - GENERIC_STEMS:
                self._hints.setdefault(hint, set()).add(entry.name)
        self._sizes = {entry.name: len(entry.capabilities) for entry in entries}
        self._longest_phrase = max((len(phrase) for phrase in self._offers), default=0)

    def __len__(self) -> int:
        return len(self.names)

    def find_mentions(
        self, tokens: Sequence[Token], marks: Sequence[WordMark]
    ) -> list[CapabilityMention]:
        """Return the phrases in `tokens` that can be served, each as long as possible, in order."""
        found: list[CapabilityMention] = []
        i = 0
        while i < len(tokens):
            end, phrase = self._match_phrase(tokens, marks, i)
            if phrase:
                said = " ".join(token.word for token in tokens[i:end])
                found.append(CapabilityMention(said, marks[i], self._offers[phrase]))
            i = end
        return found

    def find_hinted_mentions(
        self, tokens: Sequence[Token], marks: Sequence[WordMark]
    ) -> list[CapabilityMention]:
        """Return words known from descriptions only, offered by those with the most of them."""
        places: dict[str, tuple[str, WordMark]] = {}
        for token, mark in zip(tokens, marks, strict=True):
            if mark > WordMark.REFUSED and token.is_content_word and token.stem in self._hints:
                places.setdefault(token.stem, (token.word, mark))
        scores = dict.fromkeys(self.names, 0.0)
        for hint in places:
            for name in self._hints[hint]:
                scores[name] += self.rarity(len(self._hints[hint]))
        best = max(scores.values(), default=0.0)
        leaders = [name for name in self.names if best and scores[name] >= best]
        return [
            CapabilityMention(word, mark, dict.fromkeys(owners, 1.0))
            for hint, (word, mark) in places.items()
            if (owners := [name for name in leaders if name in self._hints[hint]])
        ]

    def is_broad(self, name: str) -> bool:
        """Return whether `name` offers far more than its colleagues, as a head of a team does."""
        return self._sizes[name] > BROAD_RATIO * median_low(self._sizes.values())

    def rarity(self, having: int) -> float:
        """Return the inverse document frequency, `log(1 + n / having)`, for `having` agents."""
        return log(1 + len(self.names) / max(having, 1))

    def _add_phrase(self, phrase: str, name: str, confidence: float) -> None:
        said = extract_words(phrase)[:MAX_PHRASE_WORDS]
        key = tuple(map(stem, said))
        if len(key) > 2 and STOPWORDS.issuperset(said[1:-1]):
            self._loose_phrases[key[0], key[-1]] = key
        if key and confidence > 0:
            offers = self._offers.setdefault(key, {})
            offers[name] = max(confidence, offers.get(name, 0.0))

    def _match_phrase(
        self, tokens: Sequence[Token], marks: Sequence[WordMark], i: int
    ) -> tuple[int, StemPhrase]:
        """Return the end of the longest known phrase at `i`, and the phrase (empty if none)."""
        if marks[i] is WordMark.REFUSED:
            return i + 1, ()
        alike = i + 1
        while alike < min(len(tokens), i + self._longest_phrase) and marks[alike] is marks[i]:
            alike += 1
        for end in range(alike, i, -1):
            phrase = tuple(token.stem for token in tokens[i:end])
            if phrase in self._offers and (end > i + 1 or _is_meaningful(tokens[i])):
                return end, phrase
        return self._match_loose_phrase(tokens, marks, i)

    def _match_loose_phrase(
        self, tokens: Sequence[Token], marks: Sequence[WordMark], i: int
    ) -> tuple[int, StemPhrase]:
        """Match a phrase whose inner small words vary: "what can we see" is "what to see"."""
        for last in range(i + 2, min(len(tokens), i + MAX_PHRASE_WORDS + 1)):
            between = tokens[last - 1]
            fixed = between.is_content_word or between.word in _FIXED_WORDS
            if fixed or marks[last] is not marks[i]:
                break
            phrase = self._loose_phrases.get((tokens[i].stem, tokens[last].stem))
            if phrase:
                return last + 1, phrase
        return i + 1, ()


def _is_meaningful(token: Token) -> bool:
    """Return whether a single word can be an offer: "it" cannot, the department "IT" can."""
    return token.word not in STOPWORDS or (len(token.raw) > 1 and token.raw.isupper())


@lru_cache(maxsize=64)
def parse_team(description: str, names: tuple[str, ...]) -> TeamIndex:
    """Return the team described by a `call_subordinate` tool.

    Args:
        description: The tool's description, which contains the roster.
        names: The names that the tool accepts; empty if it does not list them. A name that is
            missing from the roster becomes an entry without capabilities.
    """
    entries = {entry.name: entry for entry in parse_roster(description)}
    team: list[RosterEntry] = []
    for name in dict.fromkeys(names) or entries:
        with suppress(ConfigurationError):  # a foreign tool with the name of ours may list anything
            team.append(entries.get(name) or RosterEntry(name))
    return TeamIndex(team)
