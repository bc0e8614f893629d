"""The subordinates of an agent, by the words they offer, and a task split among them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from math import log
from statistics import median_low
from typing import Final

from echelons.errors import ConfigurationError
from echelons.offline.lexicon import GENERIC_REQUEST_VERBS, to_word_set
from echelons.offline.words import Token, TokenizedText, mark_requested
from echelons.text.stemming import STOPWORDS, extract_stems, extract_words, stem
from echelons.tree.members import RosterEntry, parse_roster

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
    """A phrase of a task that subordinates of the team can serve."""

    words: str
    offers: Mapping[str, float]
    """Confidences from 0 to 1 by subordinate name."""

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
        self, tokens: Sequence[Token], requested: Sequence[bool]
    ) -> list[CapabilityMention]:
        """Return the phrases in `tokens` that can be served, each as long as possible, in order."""
        mentions: list[CapabilityMention] = []
        i = 0
        while i < len(tokens):
            end, phrase = self._match_phrase(tokens, requested, i) if requested[i] else (i + 1, ())
            if phrase:
                words = " ".join(token.word for token in tokens[i:end])
                mentions.append(CapabilityMention(words, self._offers[phrase]))
            i = end
        return mentions

    def find_hinted_mentions(
        self, tokens: Sequence[Token], requested: Sequence[bool]
    ) -> list[CapabilityMention]:
        """Return words known from descriptions only, offered by those with the most of them."""
        hints: dict[str, str] = {}
        for token, wanted in zip(tokens, requested, strict=True):
            if wanted and token.is_content_word and token.stem in self._hints:
                hints.setdefault(token.stem, token.word)
        scores = dict.fromkeys(self.names, 0.0)
        for hint in hints:
            for name in self._hints[hint]:
                scores[name] += self.get_rarity(len(self._hints[hint]))
        best = max(scores.values(), default=0.0)
        leaders = [name for name in self.names if best and scores[name] >= best]
        return [
            CapabilityMention(word, dict.fromkeys(owners, 1.0))
            for hint, word in hints.items()
            if (owners := [name for name in leaders if name in self._hints[hint]])
        ]

    def is_broad(self, name: str) -> bool:
        """Return whether `name` offers far more than its colleagues, as a head of a team does."""
        return self._sizes[name] > BROAD_RATIO * median_low(self._sizes.values())

    def get_rarity(self, having: int) -> float:
        """Return the inverse document frequency, `log(1 + n / having)`, for `having` agents."""
        return log(1 + len(self.names) / max(having, 1))

    def _add_phrase(self, phrase: str, name: str, confidence: float) -> None:
        words = extract_words(phrase)[:MAX_PHRASE_WORDS]
        key = tuple(map(stem, words))
        if len(key) > 2 and STOPWORDS.issuperset(words[1:-1]):
            self._loose_phrases[key[0], key[-1]] = key
        if key and confidence > 0:
            offers = self._offers.setdefault(key, {})
            offers[name] = max(confidence, offers.get(name, 0.0))

    def _match_phrase(
        self, tokens: Sequence[Token], requested: Sequence[bool], i: int
    ) -> tuple[int, StemPhrase]:
        """Return the end of the longest phrase of the index at `i`, and the phrase, if any."""
        last = i + 1
        while last < min(len(tokens), i + self._longest_phrase) and requested[last]:
            last += 1
        raw = tokens[i].raw
        # A small word is no offer: "it" is none, the department "IT" is.
        meaningful = tokens[i].is_content_word or (len(raw) > 1 and raw.isupper())
        for end in range(last, i, -1):
            phrase = tuple(token.stem for token in tokens[i:end])
            if phrase in self._offers and (end > i + 1 or meaningful):
                return end, phrase
        # The inner small words of a phrase vary: "what can we see" is "what to see".
        for end in range(i + 3, min(len(tokens), i + MAX_PHRASE_WORDS + 1) + 1):
            between = tokens[end - 2]
            if between.is_content_word or between.word in _FIXED_WORDS or not requested[end - 1]:
                break
            if phrase := self._loose_phrases.get((tokens[i].stem, tokens[end - 1].stem), ()):
                return end, phrase
        return i + 1, ()


@lru_cache(maxsize=64)
def parse_team(description: str, names: tuple[str, ...]) -> TeamIndex:
    """Return the team described by a `call_subordinate` tool."""
    entries = {entry.name: entry for entry in parse_roster(description)}
    team: list[RosterEntry] = []
    for name in dict.fromkeys(names) or entries:
        with suppress(ConfigurationError):  # a foreign tool with the name of ours may list anything
            team.append(entries.get(name) or RosterEntry(name))
    return TeamIndex(team)


MAX_SUBORDINATES: Final = 10
"""Subordinates asked at once; a team with more of them is large."""

COVERING_FRACTION: Final = 0.75
"""Fraction of the best confidence for a word from which on a subordinate covers the word."""

SELECTED_FRACTION: Final = 0.3
"""Fraction of the best score from which on a subordinate of a large team is asked."""


@dataclass(frozen=True)
class TaskShare:
    """The words of a task, in lower case, that the subordinate `name` serves."""

    name: str
    words: tuple[str, ...]


def split_task(
    team: TeamIndex, task: TokenizedText, part: Sequence[str] = ()
) -> tuple[TaskShare, ...]:
    """Return the shares of `task`, or of the `part` of it that is meant, among the subordinates.

    In a small team each word goes to the subordinates with the highest confidence for it, in the
    roster's order. In a large one (a folder of documents, say) a few are selected by how rare
    their words are in the team, the best first.
    """
    requested = mark_requested(task)
    large = len(team) > MAX_SUBORDINATES
    # The scores of a large team weigh all words against each other, so none may be left out.
    mentions = _select_mentions(team, task, requested, () if large else part)
    excluded = _find_excluded(team, task, requested, mentions)
    if large:
        offers = [(mention.words, [*mention.offers]) for mention in mentions]
        names = _select_best(team, mentions)
    else:
        offers = [(mention.words, mention.best_names) for mention in mentions]
        owners = {owner for _, best in offers for owner in best}
        names = [name for name in team.names if name in owners]
    return tuple(
        TaskShare(name, tuple(dict.fromkeys(words for words, owners in offers if name in owners)))
        for name in names
        if name not in excluded
    )


def _select_mentions(
    team: TeamIndex, task: TokenizedText, requested: Sequence[bool], part: Sequence[str]
) -> list[CapabilityMention]:
    part_tokens = TokenizedText(", ".join(part)).tokens
    return (
        team.find_mentions(part_tokens, [True] * len(part_tokens))
        or team.find_mentions(task.tokens, requested)
        or team.find_hinted_mentions(task.tokens, requested)
    )


def _find_excluded(
    team: TeamIndex,
    task: TokenizedText,
    requested: Sequence[bool],
    mentions: Sequence[CapabilityMention],
) -> set[str]:
    """Return the names of subordinates not to ask, because their work is refused or settled.

    In "plan a trip, no hotels" all subordinates offer the trip, so it is no reason to ask for
    hotels. A subordinate stays if it alone serves another word, or if it offers much more than
    the usual, unless it is refused by name.
    """
    refused = {
        owner: mention.words
        for mention in team.find_mentions(task.tokens, [not wanted for wanted in requested])
        for owner in mention.best_names
    }
    alone = {mention.best_names[0] for mention in mentions if len(mention.best_names) == 1}
    return {
        name
        for name, words in refused.items()
        if name not in alone
        and (not team.is_broad(name) or extract_stems(words) == extract_stems(name))
    }


def _select_best(team: TeamIndex, mentions: Iterable[CapabilityMention]) -> list[str]:
    """Return the names of a large team's subordinates to ask, the best first.

    Their score is the sum of confidence times rarity over the words that they can serve.
    """
    scores: dict[str, float] = {}
    for mention in {mention.words: mention for mention in mentions}.values():
        rarity = team.get_rarity(len(mention.offers))
        for name, confidence in mention.offers.items():
            scores[name] = scores.get(name, 0.0) + confidence * rarity
    lowest = SELECTED_FRACTION * max(scores.values(), default=0.0)
    near = [name for name, score in scores.items() if score >= lowest]
    return sorted(near, key=lambda name: -scores[name])[:MAX_SUBORDINATES]
