"""`EmbeddingMatcher`: compares meanings, by the vectors of any LangChain `Embeddings`.

For trees whose users ask in other words than the agents are described in. It adds to the evidence
of `LexicalMatcher`, because vectors represent names and numbers poorly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from echelons.errors import matcher_failed
from echelons.routing.centroids import CentroidUpdates, blend_with_team, compute_penalties
from echelons.routing.lexical_matcher import LexicalMatcher, PreparedWords
from echelons.routing.matcher import (
    Match,
    Profile,
    find_equals,
    saturate_evidence,
    shorten_task,
)
from echelons.routing.vectors import (
    Vector,
    add_vectors,
    compute_centroid,
    compute_mean_cosine,
    dot,
    is_vector,
    normalize_vector,
)
from echelons.tree.names import PATH_SEPARATOR

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings

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
        self._word_weights = [1.0 if each.examples else NAME_WORDS_WEIGHT for each in profiles]
        shown = _has_shown_examples(profiles)
        self._offsets = [EXAMPLES_OFFSET if each else NAMES_OFFSET for each in shown]

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
        named = [place for place, each in enumerate(self._profiles) if not each.examples]
        paths = [each.path for each in self._profiles]
        middles = blend_with_team([compute_centroid(each) for each in vectors_of], paths, named)
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
        own = {at: vectors_of[at] for at in distinct if self._profiles[at].examples}
        moved = CentroidUpdates(own, {at: middles[at] for at in own}).compute_shifts()
        self._centroids = [
            add_vectors(middle, moved[first]) if first in moved else middle
            for middle, first in zip(middles, equals, strict=True)
        ]

    def _build_matches(self, task: str, vector: Any) -> Mapping[int, Match]:
        meant = _check_vector(vector, len(self._centroids[0]) if self._centroids else None)
        said = self._words.compute_evidence(task) if self._words else {}
        room = max(1 - self._mean_cosine, 1e-9)
        found: dict[int, Match] = {}
        for place, middle in enumerate(self._centroids):
            much, confidence = said.get(place, (0.0, 0.0))
            usual = self._mean_cosine + self._penalties.get(place, 0.0)
            alike = LIKENESS_SCALE * ((dot(meant, middle) - usual) / room - self._offsets[place])
            value = saturate_evidence(alike + self._word_weights[place] * much)
            if value > 0:
                sure = confidence if much > 0 else self._profiles[place].confidence
                found[place] = Match(value, sure)
        return found


def _check_vector(vector: Any, size: int | None) -> Vector:
    if not is_vector(vector, size):
        raise matcher_failed("EmbeddingMatcher", "a text gave no vector of finite numbers")
    return normalize_vector(vector)


def _build_texts(profile: Profile) -> Sequence[str]:
    """Return the texts whose centroid represents an agent."""
    if profile.examples:
        return tuple(text for text, _ in profile.examples)
    can = ", ".join(profile.capabilities) or profile.name
    own = ": ".join([can, *profile.texts[:1]])
    above = PATH_SEPARATOR.join(profile.path[1:-1]).replace("_", " ")
    return (f"{own} ({above})" if above else own, *(way.format(can) for way in PHRASINGS))


def _has_shown_examples(profiles: Sequence[Profile]) -> list[bool]:
    """Return for each agent whether examples show what it can do: its own, or its subordinates'.

    A superior that declares no capabilities delegates what its name says. So it is held to the
    same likeness as the examples below it.
    """
    shown = [each.path for each in profiles if each.examples]
    above = {path[:depth] for path in shown for depth in range(1, len(path))}
    return [bool(each.examples) or (each.derived and each.path in above) for each in profiles]
