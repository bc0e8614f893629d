"""Matches tasks with agents by embeddings: how near a task is to an agent's texts and centroids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from math import exp, fsum, isfinite, sqrt
from operator import add, mul
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

from echelons.errors import matcher_failed
from echelons.routing.lexical_matcher import LexicalMatcher, PreparedWords
from echelons.routing.matcher import (
    ERROR_TOLERANCE,
    MAX_COMPARISONS,
    Match,
    Profile,
    find_equals,
    limit_examples,
    saturate_evidence,
    shorten_task,
)
from echelons.tree.names import PATH_SEPARATOR

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings


Vector = tuple[float, ...]


def normalize_vector(values: Sequence[float]) -> Vector:
    """Return the unit vector in the same direction; a zero vector stays zero."""
    length = sqrt(fsum(value * value for value in values)) or 1.0
    return tuple(value / length for value in values)


def dot(one: Vector, other: Vector) -> float:
    """Return the inner product: for unit vectors, the cosine of their angle."""
    return float(sum(map(mul, one, other)))


def add_vectors(one: Vector, other: Vector) -> Vector:
    """Return the sum of two vectors."""
    return tuple(map(add, one, other))


def compute_centroid(vectors: Sequence[Vector]) -> Vector:
    """Return the centroid of vectors, scaled to length 1."""
    return normalize_vector([fsum(column) for column in zip(*vectors, strict=True)])


def compute_mean_cosine(vectors: Sequence[Vector]) -> float:
    """Return the mean cosine over pairs of unit vectors; 0 for fewer than two vectors."""
    many = len(vectors)
    if many < 2:
        return 0.0
    total = [fsum(column) for column in zip(*vectors, strict=True)]
    # The square of the sum has every pair twice, and every vector once with itself.
    return (fsum(value * value for value in total) - many) / (many * (many - 1))


def is_vector(vector: Any, size: int | None) -> bool:
    """Return whether a value is a non-empty list of finite numbers, of length `size` if given."""
    if not isinstance(vector, Sequence) or isinstance(vector, str) or not len(vector):
        return False
    numbers = all(isinstance(value, (int, float)) and isfinite(value) for value in vector)
    return numbers and size in (None, len(vector))


TEAM_WEIGHT: Final = 0.25
"""Weight of the mean of all agents with the same superior; that of the agent itself is 1."""

NEIGHBOUR_COUNT: Final = 20
"""Nearest neighbours whose mean cosine measures how much of a hub a name is."""

PENALTY_FRACTION: Final = 0.25
"""Fraction of a name's excess hubness that is subtracted from its likeness to a task."""

STEPS: Final = 4
"""Passes over the examples."""

STEP_SIZE: Final = 0.5
"""How far a centroid moves in a step if all of its agent's examples would go to others."""

RIVAL_COUNT: Final = 5
"""Rivals that an example is compared with: the agents with the nearest centroids."""

INVERSE_TEMPERATURE: Final = 10.0
"""Inverse temperature of the softmax: a cosine of 1 has e to this power the odds of 0."""


def blend_with_team(
    middles: Sequence[Vector], paths: Sequence[Sequence[str]], named: Sequence[int]
) -> list[Vector]:
    """Return the centroids, those at the positions `named` moved towards their team's mean."""
    teams: dict[tuple[str, ...], list[Vector]] = {}
    for path, middle in zip(paths, middles, strict=True):
        teams.setdefault(tuple(path[:-1]), []).append(middle)
    means = {
        superior: [TEAM_WEIGHT * fsum(column) / len(team) for column in zip(*team, strict=True)]
        for superior, team in teams.items()
    }
    blended = list(middles)
    for place in named:
        mean = means[tuple(paths[place][:-1])]
        blended[place] = normalize_vector(
            [x + y for x, y in zip(middles[place], mean, strict=True)]
        )
    return blended


def compute_penalties(middles: Sequence[Vector], named: Sequence[int]) -> Mapping[int, float]:
    """Return the penalty on the cosine for each position in `named`, negative for non-hubs.

    The penalty follows cross-domain similarity local scaling (Conneau et al. 2018, "Word
    Translation Without Parallel Data"). Empty if the tree is too large to compare all pairs.
    """
    if len(middles) < 2 or len(named) * len(middles) > MAX_COMPARISONS:
        return {}
    near: dict[int, float] = {}
    for place in named:
        others = (dot(middles[place], item) for at, item in enumerate(middles) if at != place)
        near[place] = fmean(nlargest(NEIGHBOUR_COUNT, others))
    usual = fmean(near.values()) if near else 0.0
    return {place: PENALTY_FRACTION * (item - usual) for place, item in near.items()}


@dataclass(slots=True)
class CentroidExample:
    """An example, with its similarity to its own agent and to the rivals."""

    place: int
    vector: Vector
    cosines: Mapping[int, float]
    weight: float

    def compute_errors(self, shifts: Mapping[int, Vector]) -> list[tuple[int, float]]:
        """Return for each position how far its centroid should move, below 0 for away."""
        odds = {
            place: exp(
                INVERSE_TEMPERATURE
                * (like + (dot(self.vector, shifts[place]) if place in shifts else 0.0))
            )
            for place, like in self.cosines.items()
        }
        whole = sum(odds.values())
        return [(place, (place == self.place) - item / whole) for place, item in odds.items()]


@dataclass(slots=True)
class CentroidUpdates:
    """Computes the centroid shifts of a tree."""

    examples: Mapping[int, Sequence[Vector]]
    centroids: Mapping[int, Vector]
    _shifts: dict[int, Vector] = field(default_factory=dict)

    def compute_shifts(self) -> Mapping[int, Vector]:
        """Return the shift of each centroid that moves, by position."""
        lessons = self._build_examples()
        for _ in range(STEPS):
            pushes: dict[int, list[tuple[float, Vector]]] = {}
            for lesson in lessons:
                for place, much in lesson.compute_errors(self._shifts):
                    if abs(much) > ERROR_TOLERANCE:
                        push = (STEP_SIZE * much * lesson.weight, lesson.vector)
                        pushes.setdefault(place, []).append(push)
            for place, item in pushes.items():
                shift = list(self._shifts.get(place, (0.0,) * len(item[0][1])))
                for much, vector in item:
                    shift = [one + much * other for one, other in zip(shift, vector, strict=True)]
                self._shifts[place] = tuple(shift)
        return self._shifts

    def _build_examples(self) -> list[CentroidExample]:
        limit = limit_examples(len(self.examples))
        examples: list[CentroidExample] = []
        for place, vectors in self.examples.items():
            if len(vectors) < 2 or not limit:
                continue
            centroid = self.centroids[place]
            near = {at: dot(centroid, other) for at, other in self.centroids.items() if at != place}
            rivals = nlargest(RIVAL_COUNT, near, key=near.__getitem__)
            total = [fsum(column) for column in zip(*vectors, strict=True)]
            for vector in vectors[:limit]:
                # Leave-one-out: the agent's centroid without this example.
                rest = normalize_vector(
                    [whole - centroid for whole, centroid in zip(total, vector, strict=True)]
                )
                likeness = {rival: dot(vector, self.centroids[rival]) for rival in rivals}
                likeness[place] = dot(vector, rest)
                examples.append(
                    CentroidExample(place, vector, likeness, 1 / min(len(vectors), limit))
                )
        return examples


LIKENESS_SCALE: Final = 5.0
"""Evidence of a text with the same meaning."""

NAME_WORDS_WEIGHT: Final = 0.35
"""Weight of word evidence for an agent without examples; with examples it is 1."""

EXAMPLES_OFFSET: Final = 0.25
"""Scaled likeness to an agent's examples above which it is evidence."""

NAMES_OFFSET: Final = 0.0
"""The same for an agent without examples: no task is very similar to a name."""

PHRASINGS: Final = ("{} please", "can you tell me {}?", "{} for me")
"""Phrasings of a name: a task resembles a question or a request more than a bare name."""


class EmbeddingMatcher:
    """Compares the meaning of a task with that of each agent's example tasks, or of its names.

    An agent is represented by the centroid of its examples' vectors, moved away from the examples
    of its rivals; without examples, by that of its names in several phrasings, corrected for
    hubness (see `centroids`).
    The scale of cosines depends on the model, so a likeness is measured relative to the mean
    cosine among this tree's agents. The vectors of a tree are requested at its first task and
    cached by text, as long as the matcher lives.

    Args:
        embeddings: Any LangChain `Embeddings`.
        words: Compares words in addition to meanings; `None` for meanings alone.
    """

    threshold: float = 0.6

    def __init__(
        self,
        embeddings: Embeddings,
        words: LexicalMatcher | None = LexicalMatcher(),  # noqa: B008
    ) -> None:
        self._embeddings = embeddings
        self._words = words
        self._vectors: dict[str, Vector] = {}

    def prepare(self, profiles: Sequence[Profile]) -> PreparedEmbeddings:
        """Prepare the profiles; their vectors are requested at the first task."""
        words = self._words.prepare(profiles) if self._words else None
        return PreparedEmbeddings(profiles, self._embeddings, self._vectors, words)


class PreparedEmbeddings:
    """The meanings of a tree's profiles, ready to be compared with tasks.

    New vectors are added to `kept`, those cached so far by text. With `words`, words are compared
    too.
    """

    def __init__(
        self,
        profiles: Sequence[Profile],
        embeddings: Embeddings,
        kept: dict[str, Vector],
        words: PreparedWords | None,
    ) -> None:
        self._profiles = profiles
        self._embeddings = embeddings
        self._vectors = kept
        self._words = words
        self._texts = [_build_texts(profile) for profile in profiles]
        self._centroids: list[Vector] = []
        self._mean_cosine = 0.0
        self._penalties: Mapping[int, float] = {}
        self._word_weights = [
            1.0 if profile.examples else NAME_WORDS_WEIGHT for profile in profiles
        ]
        shown = _has_shown_examples(profiles)
        self._offsets = [EXAMPLES_OFFSET if item else NAMES_OFFSET for item in shown]

    def match(self, task: str) -> Mapping[int, Match]:
        """Return the matches above 0, by position of the profile.

        Raises:
            RoutingError: The embeddings returned something other than vectors.
        """
        if not self._centroids:
            missing = self._find_missing_texts()
            self._add_vectors(missing, self._embeddings.embed_documents(missing) if missing else [])
        return self._build_matches(task, self._embeddings.embed_query(shorten_task(task)))

    async def amatch(self, task: str) -> Mapping[int, Match]:
        """Async version of `match`."""
        if not self._centroids:
            missing = self._find_missing_texts()
            made = await self._embeddings.aembed_documents(missing) if missing else []
            self._add_vectors(missing, made)
        return self._build_matches(task, await self._embeddings.aembed_query(shorten_task(task)))

    def reasons(self, task: str, place: int) -> Sequence[str]:
        """Return what the task was compared with, and the reasons by words."""
        number = len(self._profiles[place].examples)
        meant = f"{number} example{'s' if number > 1 else ''}" if number else None
        reason = f"the meaning of {meant or repr(self._texts[place][0])}"
        return [reason, *(self._words.reasons(task, place) if self._words else ())]

    def _find_missing_texts(self) -> list[str]:
        every = dict.fromkeys(text for texts in self._texts for text in texts)
        return [text for text in every if text not in self._vectors]

    def _add_vectors(self, texts: Sequence[str], vectors: Any) -> None:
        if not isinstance(vectors, Sequence) or len(vectors) != len(texts):
            raise matcher_failed("EmbeddingMatcher", f"{len(texts)} texts gave no list of as many")
        size = next((len(vector) for vector in self._vectors.values()), None)
        made: list[Vector] = []
        for vector in vectors:
            made.append(_check_vector(vector, size))
            size = len(made[0])
        # All or none are cached: a service that fails half-way is asked again.
        self._vectors.update(zip(texts, made, strict=True))
        vectors_of = [[self._vectors[text] for text in texts] for texts in self._texts]
        named = [place for place, entry in enumerate(self._profiles) if not entry.examples]
        paths = [profile.path for profile in self._profiles]
        middles = blend_with_team([compute_centroid(item) for item in vectors_of], paths, named)
        equals = find_equals(self._profiles, by_examples=True)
        # Equal agents count as one: else each would be corrected for being like the others.
        distinct = [at for at, first in enumerate(equals) if at == first]
        self._mean_cosine = compute_mean_cosine([middles[at] for at in distinct])
        penalties = compute_penalties(
            [middles[at] for at in distinct],
            [number for number, at in enumerate(distinct) if not self._profiles[at].examples],
        )
        held_back = {distinct[number]: much for number, much in penalties.items()}
        self._penalties = {at: held_back.get(first, 0.0) for at, first in enumerate(equals)}
        example_vectors = {at: vectors_of[at] for at in distinct if self._profiles[at].examples}
        moved = CentroidUpdates(
            example_vectors, {at: middles[at] for at in example_vectors}
        ).compute_shifts()
        self._centroids = [
            add_vectors(middle, moved[first]) if first in moved else middle
            for middle, first in zip(middles, equals, strict=True)
        ]

    def _build_matches(self, task: str, vector: Any) -> Mapping[int, Match]:
        meant = _check_vector(vector, len(self._centroids[0]) if self._centroids else None)
        evidence = self._words.compute_evidence(task) if self._words else {}
        room = max(1 - self._mean_cosine, 1e-9)
        matches: dict[int, Match] = {}
        for place, middle in enumerate(self._centroids):
            much, confidence = evidence.get(place, (0.0, 0.0))
            usual = self._mean_cosine + self._penalties.get(place, 0.0)
            alike = LIKENESS_SCALE * ((dot(meant, middle) - usual) / room - self._offsets[place])
            value = saturate_evidence(alike + self._word_weights[place] * much)
            if value > 0:
                sure = confidence if much > 0 else self._profiles[place].confidence
                matches[place] = Match(value, sure)
        return matches


def _check_vector(vector: Any, size: int | None) -> Vector:
    if not is_vector(vector, size):
        raise matcher_failed("EmbeddingMatcher", "a text gave no vector of finite numbers")
    return normalize_vector(vector)


def _build_texts(profile: Profile) -> Sequence[str]:
    """Return the texts whose centroid represents an agent."""
    if profile.examples:
        return tuple(text for text, _ in profile.examples)
    can = ", ".join(profile.capabilities) or profile.name
    description = ": ".join([can, *profile.texts[:1]])
    team = PATH_SEPARATOR.join(profile.path[1:-1]).replace("_", " ")
    return (
        f"{description} ({team})" if team else description,
        *(way.format(can) for way in PHRASINGS),
    )


def _has_shown_examples(profiles: Sequence[Profile]) -> list[bool]:
    """Return for each agent whether examples show what it can do: its own, or its subordinates'.

    A superior that declares no capabilities delegates what its name says. So it is held to the
    same likeness as the examples below it.
    """
    shown = [profile.path for profile in profiles if profile.examples]
    prefixes = {path[:depth] for path in shown for depth in range(1, len(path))}
    return [
        bool(profile.examples) or (profile.derived and profile.path in prefixes)
        for profile in profiles
    ]
