"""`LexicalMatcher`: compares words. The default: deterministic, without a model or network.

`Router` uses it unless it is given another matcher; `EmbeddingMatcher` adds to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from echelons.routing.example_index import ExampleIndex
from echelons.routing.matcher import Match, Profile, saturate_evidence, shorten_task
from echelons.routing.name_index import NameIndex
from echelons.routing.text_features import read_words
from echelons.text.stemming import STOPWORDS

NAME_SCALE: Final = 1.0
"""Evidence of a one-word phrase that only one agent has."""

WORDS_PER_EVIDENCE: Final = 4.0
"""Distinctive words of one agent's examples that together make an evidence of 1."""

NAME_DISCOUNT: Final = 0.2
"""Discount on an agent's names for each of its examples, up to ten: examples are more reliable."""

THRESHOLD: Final = 0.25
"""The match an agent needs; it is low, as asking in vain costs less than refusing wrongly."""


class LexicalMatcher:
    """Compares the words of a task with capabilities, descriptions and example tasks.

    Names are compared by stems, weighted by how few agents have them; compounds, abbreviations
    and derived words are found too (see `name_index`). Example tasks are compared as a whole
    (see `example_index`). The sum of both evidences becomes the match.

    Examples:
        >>> from echelons import Agent
        >>> from echelons.capabilities import CapabilityMap
        >>> from echelons.routing import Router
        >>> eat = Agent("restaurants", "Finds places to eat")
        >>> fly = Agent("flights", "Finds flights and airports")
        >>> router = Router(CapabilityMap.discover(Agent("head", subordinates=[eat, fly])))
        >>> router.route("Where can we eat?").best.agent
        'restaurants'
    """

    threshold: float = THRESHOLD

    def prepare(self, profiles: Sequence[Profile]) -> PreparedWords:
        """Index the words of all profiles."""
        return PreparedWords(profiles)


class PreparedWords:
    """The words of a tree's profiles, ready to be compared with tasks."""

    def __init__(self, profiles: Sequence[Profile]) -> None:
        self._names = NameIndex(profiles)
        self._examples = ExampleIndex(profiles)
        self._scales = [
            NAME_SCALE / (1 + NAME_DISCOUNT * min(self._examples.example_counts.get(place, 0), 10))
            for place in range(len(profiles))
        ]

    def match(self, task: str) -> Mapping[int, Match]:
        """Return the matches above 0, by position of the profile."""
        return {
            place: Match(saturate_evidence(evidence), confidence)
            for place, (evidence, confidence) in self.compute_evidence(task).items()
        }

    async def amatch(self, task: str) -> Mapping[int, Match]:
        """Async version of `match`."""
        return self.match(task)

    def compute_evidence(self, task: str) -> Mapping[int, tuple[float, float]]:
        """Return evidence and confidence by position, for profiles with any evidence."""
        words = read_words(shorten_task(task))
        named: dict[int, float] = {}
        sure: dict[int, float] = {}
        for _, certain, entries in self._names.find_entries(words):
            for place, weight, confidence in entries:
                counted = certain * weight * self._scales[place]
                named[place] = named.get(place, 0.0) + counted
                sure[place] = sure.get(place, 0.0) + counted * confidence
        found = {place: (much, sure[place] / much) for place, much in named.items()}
        for place, telling in self._examples.compute_evidence(words).items():
            much, confidence = found.get(place, (0.0, 0.0))
            shown = telling / WORDS_PER_EVIDENCE
            if shown > much:
                confidence = self._examples.find_confidence(words, place)
            found[place] = (much + shown, confidence)
        return found

    def reasons(self, task: str, place: int) -> Sequence[str]:
        """Return the words that an agent's names share with a task, and its nearest example."""
        words = read_words(shorten_task(task))
        said: dict[str, float] = {}
        for word, certain, entries in self._names.find_entries(words):
            for entry in entries:
                if entry.place == place:
                    said[word] = max(said.get(word, 0.0), certain * entry.weight)
        said = {word: much for word, much in said.items() if word not in STOPWORDS} or said
        heaviest = sorted(said, key=lambda word: (-said[word], word))
        lines = [f"words: {', '.join(heaviest)}"] if heaviest else []
        if self._examples.example_counts.get(place):
            text = self._examples.find_nearest(words, place)
            shown = self._examples.compute_evidence(words).get(place, 0.0)
            lines.append(f"like the example: {text!r} ({shown:.1f} telling words)")
        return lines
