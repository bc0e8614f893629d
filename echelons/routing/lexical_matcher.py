"""Matches tasks with agents by words: names, capabilities, descriptions and examples."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import chain
from math import exp, log, log1p
from typing import Final, NamedTuple

from echelons.routing.matcher import (
    FEATURE_KINDS,
    IMAGINED_GROUPS,
    MAX_EXAMPLES,
    SMOOTHING,
    STOPWORD_STEMS,
    Features,
    FeatureStatistics,
    Match,
    Profile,
    WeightExample,
    WordSequence,
    compute_learning_rates,
    correct_weights,
    find_equals,
    limit_examples,
    read_words,
    saturate_evidence,
    select_competitors,
    shorten_task,
    sum_weights,
)
from echelons.text.stemming import STOPWORDS

CAPABILITY_WEIGHT: Final = 1.0
"""Weight of a capability."""

OWN_NAME_WEIGHT: Final = 0.5
"""Weight of the agent's name."""

DESCRIPTION_WEIGHT: Final = 0.8
"""Weight of a description."""

DESCRIPTION_EXPONENT: Final = 0.25
"""Exponent of the length by which words of a description are divided; names have 0.5."""

SUPERIOR_WEIGHT: Final = 0.3
"""Weight of the superiors' names, which describe the agent too."""

STOPWORD_WEIGHT: Final = 0.3
"""Weight of a stop word ("my", "who"); that of a content word is 1."""

SIMILAR_TERM_WEIGHT: Final = 0.7
"""Weight of a word with the same beginning as another, times the fraction in common."""

MIN_COMMON_FRACTION: Final = 0.6
"""Fraction of the longer of two stems that must be in common ("defin", "definit")."""

MIN_COMMON_PREFIX: Final = 4
"""Characters that two similar stems have in common at least."""

ABBREVIATION_LENGTHS: Final = range(3, 5)
"""Lengths of abbreviations: "pto" is found in "paid time off"."""


class ProfilePhrase(NamedTuple):
    """A text of a profile, with its weight and the confidence of what it describes."""

    words: WordSequence
    weight: float
    confidence: float
    is_name: bool = True


class TermEntry(NamedTuple):
    """An occurrence of a term in the profile at `place`, with its weight and confidence."""

    place: int
    weight: float
    confidence: float


def _iterate_phrases(profile: Profile) -> Iterator[ProfilePhrase]:
    """Yield the texts of a profile, the heaviest first."""
    best = profile.confidence
    for name, capability in profile.capabilities.full.items():
        yield ProfilePhrase(read_words(name), CAPABILITY_WEIGHT, capability.confidence)
    if not profile.derived:
        yield ProfilePhrase(read_words(profile.name), OWN_NAME_WEIGHT, best)
    for text in profile.texts:
        yield ProfilePhrase(read_words(text), DESCRIPTION_WEIGHT, best, is_name=False)
    for superior in profile.path[:-1]:
        yield ProfilePhrase(read_words(superior), SUPERIOR_WEIGHT, best)


class NameIndex:
    """An index from stems to the profiles of a tree that contain them, by position."""

    def __init__(self, profiles: Sequence[Profile]) -> None:
        every = [list(_iterate_phrases(profile)) for profile in profiles]
        self._rarity = _compute_rarities(profiles, every)
        self._entries: dict[str, list[TermEntry]] = {}
        self._words: set[str] = set()
        self._joined: set[str] = set()
        self._heads: dict[str, list[str]] = {}
        for place, profile in enumerate(every):
            self._index_profile(place, profile)
        for term in self._entries:
            if not term.startswith("+") and len(term) >= MIN_COMMON_PREFIX:
                self._heads.setdefault(term[:MIN_COMMON_PREFIX], []).append(term)
        self._similar_terms: dict[str, list[tuple[str, float]]] = {}

    def find_entries(self, task: WordSequence) -> Iterator[tuple[str, float, Sequence[TermEntry]]]:
        """Yield for each known term of a task: its words, the certainty, and its occurrences."""
        terms: dict[str, tuple[str, float]] = {}
        words = zip(task.stems, task.forms, strict=True)
        for term, word in chain(words, self._find_compounds(task), self._find_abbreviations(task)):
            terms.setdefault(term, (word, 1.0))
        for word, stem in zip(task.forms, task.stems, strict=True):
            # The indexed terms with the same beginning as a stem, each with a certainty.
            if stem not in self._similar_terms:
                self._similar_terms[stem] = [
                    (term, SIMILAR_TERM_WEIGHT * part)
                    for term in self._heads.get(stem[:MIN_COMMON_PREFIX], ())
                    if term != stem and (part := _compare_prefix(stem, term)) >= MIN_COMMON_FRACTION
                ]
            for term, sure in self._similar_terms[stem]:
                terms.setdefault(term, (word, sure))
        for term, (word, sure) in terms.items():
            if entries := self._entries.get(term):
                yield word, sure, entries

    def _index_profile(self, place: int, phrases: Sequence[ProfilePhrase]) -> None:
        best: dict[str, TermEntry] = {}
        for phrase in phrases:
            # Stop words are noise in a description; in a name they are part of it.
            weights = {
                stem: self._rarity[stem] * (STOPWORD_WEIGHT if word in STOPWORDS else 1.0)
                for word, stem in zip(*phrase.words, strict=True)
                if phrase.is_name or word not in STOPWORDS
            }
            whole = (
                sum(weights.values()) ** (0.5 if phrase.is_name else DESCRIPTION_EXPONENT) or 1.0
            )
            if phrase.weight == CAPABILITY_WEIGHT:
                self._words.update(phrase.words.forms)
                weights.update(self._weigh_compounds(phrase.words, weights))
            for term, weight in weights.items():
                entry = TermEntry(place, phrase.weight * weight / whole, phrase.confidence)
                if term not in best or best[term].weight < entry.weight:
                    best[term] = entry
        for term, entry in best.items():
            self._entries.setdefault(term, []).append(entry)

    def _weigh_compounds(self, phrase: WordSequence, weights: dict[str, float]) -> dict[str, float]:
        compounds: dict[str, float] = {}
        for place in range(len(phrase.forms) - 1):
            one, other = phrase.forms[place : place + 2]
            if one not in STOPWORDS and other not in STOPWORDS:
                self._joined.add(one + other)
                stems = phrase.stems[place : place + 2]
                compounds[f"+{one}{other}"] = sum(weights[stem] for stem in stems)
        return compounds

    def _find_compounds(self, task: WordSequence) -> Iterator[tuple[str, str]]:
        """Yield terms of words written apart or together, each with the words: "time zone"."""
        for one, other in zip(task.forms, task.forms[1:], strict=False):
            if one + other in self._words:
                yield read_words(one + other).stems[0], f"{one} {other}"
        for word in task.forms:
            if word in self._joined:
                yield f"+{word}", word

    def _find_abbreviations(self, task: WordSequence) -> Iterator[tuple[str, str]]:
        initials = "".join(word[0] for word in task.forms)
        for size in ABBREVIATION_LENGTHS:
            for at in range(len(initials) - size + 1):
                short = initials[at : at + size]
                if short in self._words:
                    yield read_words(short).stems[0], " ".join(task.forms[at : at + size])


def _compute_rarities(
    profiles: Sequence[Profile], every: Sequence[Sequence[ProfilePhrase]]
) -> dict[str, float]:
    """Return the inverse document frequency of each stem, scaled to at most 1.

    It is `log(1 + n / having) / log(1 + n)`, where a profile counts among those having the stem
    by the best weight that it gives to it. Equal profiles count as one, and so do profiles that
    have the stem in the same declared capabilities, whatever else they can do.
    """
    equals = find_equals(profiles)
    best: dict[str, dict[Hashable, float]] = {}
    for profile, phrases, first in zip(profiles, every, equals, strict=True):
        declared: dict[str, list[tuple[str, ...]]] = {}
        for phrase in () if profile.derived else phrases:
            if phrase.weight == CAPABILITY_WEIGHT:
                for stem in phrase.words.stems:
                    declared.setdefault(stem, []).append(phrase.words.stems)
        for phrase in phrases:
            for stem in phrase.words.stems:
                rarities = best.setdefault(stem, {})
                key = frozenset(declared[stem]) if stem in declared else first
                rarities[key] = max(rarities.get(key, 0.0), phrase.weight)
    size = len(set(equals))
    highest = log(1 + size)
    return {
        stem: log(1 + size / max(sum(weights.values()), 1.0)) / highest
        for stem, weights in best.items()
    }


def _compare_prefix(one: str, other: str) -> float:
    same = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        same += 1
    return same / max(len(one), len(other))


POOLED_WEIGHT: Final = 0.8
"""Weight of the pooled examples of all agents under one superior; that of the own ones is 1."""


class ExampleIndex:
    """An index of the examples of all profiles of a tree, by position."""

    def __init__(self, profiles: Sequence[Profile]) -> None:
        self._examples = {
            place: profile.examples for place, profile in enumerate(profiles) if profile.examples
        }
        self.example_counts = {place: len(entry) for place, entry in self._examples.items()}
        # Users also ask for capabilities by name.
        self._texts = {
            place: (*entry, *profiles[place].capabilities.items())
            for place, entry in self._examples.items()
        }
        # Capabilities are compared, not agents. Equal ones count as one, whatever else their agents
        # can do: else they would take each other's evidence away.
        numbers: dict[tuple[tuple[str, ...], frozenset[str]], int] = {}
        self._numbers: dict[int, list[int]] = {}
        examples: list[list[WordSequence]] = []
        for place in self._examples:
            mine = self._numbers[place] = []
            for name, entry in profiles[place].capabilities.full.items():
                key = read_words(name).stems, frozenset(entry.examples)
                mine.append(numbers.setdefault(key, len(numbers)))
                if len(examples) < len(numbers):
                    examples.append([read_words(text) for text in (*entry.examples, name)])
        teams: dict[tuple[str, ...], set[int]] = {}
        for place, mine in self._numbers.items():
            teams.setdefault(profiles[place].path[:-1], set()).update(mine)
        members = {path: tuple(sorted(entry)) for path, entry in teams.items()}
        groups = {entry: at for at, entry in enumerate(dict.fromkeys(members.values()))}
        self._group = {place: groups[members[profiles[place].path[:-1]]] for place in self._numbers}
        # The group of each capability's first agent, and what its agents can do besides.
        self._homes: dict[int, int] = {}
        self._beside: dict[int, set[int]] = {}
        for place, mine in self._numbers.items():
            for number in mine:
                self._homes.setdefault(number, self._group[place])
                self._beside.setdefault(number, set()).update(mine)
        self._counts = [len(item) - 1 for item in examples]
        self._size = len(examples)
        self._groups = len(groups)
        self._own: list[FeatureStatistics] = []
        self._pooled: list[FeatureStatistics] = []
        # The unit of evidence: the weight of a word in the examples of only one agent.
        unit = log1p((len(examples) + IMAGINED_GROUPS) / SMOOTHING) - log1p(1 / SMOOTHING)
        extracted = [
            {
                number: [kind.extract(text) for text in entry]
                for number, entry in enumerate(examples)
            }
            for kind in FEATURE_KINDS
        ]
        for kind, features in zip(FEATURE_KINDS, extracted, strict=True):
            pooled = {
                group: [text for number in entry for text in features[number]]
                for entry, group in groups.items()
            }
            self._own.append(FeatureStatistics(kind, features, unit))
            self._pooled.append(FeatureStatistics(kind, pooled, unit))
        self._correct_weights(extracted)

    def compute_evidence(self, task: WordSequence) -> Mapping[int, float]:
        """Return the evidence above 0 by position, in units of one distinctive word.

        The pooled examples of a team count for an agent only in addition to its own. Words that
        occur in no examples are no evidence against the evidence of names.
        """
        if not self._examples or not task.forms:
            return {}
        features = [kind.extract(task) for kind in FEATURE_KINDS]
        scores, pooled = self._compute_scores(features)
        best = {
            place: max(scores[number] for number in mine) for place, mine in self._numbers.items()
        }
        return {
            place: much + POOLED_WEIGHT * max(pooled[self._group[place]], 0.0)
            for place, much in best.items()
            if much > 0
        }

    def _compute_scores(self, text: Sequence[Features]) -> tuple[list[float], list[float]]:
        scores, pooled = [0.0] * self._size, [0.0] * self._groups
        for features, mine, ours in zip(text, self._own, self._pooled, strict=True):
            mine.add_scores(features, scores)
            ours.add_scores(features, pooled)
        return scores, pooled

    def _correct_weights(self, lessons: Sequence[Mapping[int, Sequence[Features]]]) -> None:
        """Correct weights by the first few `lessons`: features by kind and capability."""
        limit = limit_examples(self._size)
        texts = [
            (number, [features[number][position] for features in lessons])
            for number, count in enumerate(self._counts)
            # Leaving out an only example would leave nothing to compare.
            if count > 1
            for position in range(min(count, limit))
        ]
        learning = [at for at, kind in enumerate(FEATURE_KINDS) if kind.is_corrected]
        rates = [compute_learning_rates([text[at] for _, text in texts]) for at in learning]
        fast = [list(zip(learning, column, strict=True)) for column in zip(*rates, strict=True)]
        correct_weights(
            [self._build_example(*text, item) for text, item in zip(texts, fast, strict=True)]
        )

    def _build_example(
        self, number: int, text: Sequence[Features], fast: Sequence[tuple[int, Sequence[float]]]
    ) -> WeightExample:
        weights = [self._own[at].get_weights(feature) for at, _ in fast for feature in text[at]]
        # The more examples a capability has, the less each of them needs to correct.
        part = min(1.0, MAX_EXAMPLES / self._counts[number])
        evidence = self._leave_one_out(text, number)
        scores = {
            item: evidence.get(item, 0.0) - sum_weights(item, weights)
            for item in select_competitors(number, evidence)
        }
        others = sum(exp(much) for entry, much in evidence.items() if entry not in scores)
        nothing = self._size - len({*evidence, *self._beside[number]})
        rates = [part * rate for _, entry in fast for rate in entry]
        return WeightExample(number, scores, others + nothing, weights, rates)

    def _leave_one_out(self, text: Sequence[Features], number: int) -> Mapping[int, float]:
        """Return the evidence of capabilities for an example of one, leaving that example out.

        Other capabilities of the same agents do not compete for it.
        """
        scores, pooled = self._compute_scores(text)
        home = self._homes[number]
        for features, mine, ours in zip(text, self._own, self._pooled, strict=True):
            scores[number] -= mine.compute_loss(features, number)
            pooled[home] -= ours.compute_loss(features, home)
        return {
            item: much + POOLED_WEIGHT * max(pooled[self._homes[item]], 0.0)
            for item, much in enumerate(scores)
            if much > 0 and (item == number or item not in self._beside[number])
        }

    def find_nearest(self, task: WordSequence, place: int) -> str:
        """Return the example that shares most words with a task."""
        return _find_nearest_text(task, self._examples[place])[0]

    def find_confidence(self, task: WordSequence, place: int) -> float:
        """Return the confidence of the example or capability name nearest to a task."""
        texts = self._texts[place]
        if len({confidence for _, confidence in texts}) == 1:
            return texts[0][1]
        return _find_nearest_text(task, texts)[1]


def _find_nearest_text(task: WordSequence, texts: Sequence[tuple[str, float]]) -> tuple[str, float]:
    """Return the text that shares most words with a task, and its confidence."""
    every = set(task.stems)

    def likeness(text: tuple[str, float]) -> float:
        stems = set(read_words(text[0]).stems)
        shared = every & stems
        return len(shared - STOPWORD_STEMS) + len(shared) / max(len(every | stems), 1)

    return max(texts, key=likeness)


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
        results = {place: (much, sure[place] / much) for place, much in named.items()}
        for place, telling in self._examples.compute_evidence(words).items():
            much, confidence = results.get(place, (0.0, 0.0))
            shown = telling / WORDS_PER_EVIDENCE
            if shown > much:
                confidence = self._examples.find_confidence(words, place)
            results[place] = (much + shown, confidence)
        return results

    def reasons(self, task: str, place: int) -> Sequence[str]:
        """Return the words that an agent's names share with a task, and its nearest example."""
        words = read_words(shorten_task(task))
        weights: dict[str, float] = {}
        for word, certain, entries in self._names.find_entries(words):
            for entry in entries:
                if entry.place == place:
                    weights[word] = max(weights.get(word, 0.0), certain * entry.weight)
        weights = {word: much for word, much in weights.items() if word not in STOPWORDS} or weights
        heaviest = sorted(weights, key=lambda word: (-weights[word], word))
        lines = [f"words: {', '.join(heaviest)}"] if heaviest else []
        if self._examples.example_counts.get(place):
            text = self._examples.find_nearest(words, place)
            shown = self._examples.compute_evidence(words).get(place, 0.0)
            lines.append(f"like the example: {text!r} ({shown:.1f} telling words)")
        return lines
