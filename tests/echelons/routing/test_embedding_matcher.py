"""Comparing meanings, with embeddings that really tell meanings apart, though only a few."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.embeddings import Embeddings

from echelons import Agent
from echelons.capabilities import Capability, CapabilityMap
from echelons.routing import EmbeddingMatcher, Router
from echelons.routing.embedding_matcher import (
    compute_centroid,
    compute_mean_cosine,
    dot,
    normalize_vector,
)
from echelons.routing.ranking import ProfileIndex
from echelons.text.stemming import extract_words
from tests.error_codes import raises_code

MEANINGS = [
    {"eat", "food", "dinner", "restaurants", "hungry", "starving"},
    {"fly", "flights", "plane", "airport", "jet"},
    {"music", "song", "tune", "melody"},
]

HOW_ONE_ASKS = {"please", "can", "you", "tell", "me", "for"}


class Topics(Embeddings):
    """A vector has a place for each topic, one for all texts, and some for all other words.

    How one asks makes no difference to what is asked for.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.asked += texts
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        known = {word: number for number, topic in enumerate(MEANINGS) for word in topic}
        vector = [0.5, *([0.0] * 16)]
        for word in extract_words(text):
            if word in HOW_ONE_ASKS:
                continue
            vector[1 + known.get(word, 3 + sum(map(ord, word)) % 13)] += 1.0
        return vector


def team() -> CapabilityMap:
    eat = Agent("restaurants", capabilities={"food": 0.9})
    fly = Agent("flights", capabilities={"flights": 0.8})
    play = Agent("player", capabilities={"music": Capability(1.0, ["a song", "some tune"])})
    return CapabilityMap.discover(Agent("head", subordinates=[eat, fly, play]))


@pytest.mark.parametrize(
    ("task", "agent"),
    [("I am starving", "restaurants"), ("take a jet", "flights"), ("a melody", "player")],
)
def test_a_task_without_a_word_in_common_is_found_by_its_meaning(task: str, agent: str) -> None:
    best = Router(team(), EmbeddingMatcher(Topics())).route(task).best

    assert best is not None
    assert best.agent == agent
    assert Router(team()).route(task).best is None


def test_unknown_meaning_matches_no_agent() -> None:
    assert Router(team(), EmbeddingMatcher(Topics())).route("repair a bicycle").best is None


@pytest.mark.parametrize("number", [1, 10, 50])
@pytest.mark.parametrize(
    ("examples", "own"),
    [((), {}), (("a song", "some tune"), {}), (("a song", "some tune"), {"walks in {}": 1.0})],
)
def test_equal_agents_take_no_meaning_from_each_other(
    number: int, examples: list[str], own: dict[str, float]
) -> None:
    able = {"music": Capability(1.0, examples)}
    equals = [
        Agent(
            f"player{at:02}",
            capabilities=able | {name.format(chr(97 + at) * 9): sure for name, sure in own.items()},
        )
        for at in range(number)
    ]
    others = [Agent(each, capabilities={each: 0.9}) for each in ("food", "flights")]
    known = CapabilityMap.discover(Agent("head", subordinates=[*equals, *others]))
    route = Router(known, EmbeddingMatcher(Topics()), threshold=0).route("a melody")

    alone = CapabilityMap.discover(Agent("head", subordinates=[equals[0], *others]))
    expected = Router(alone, EmbeddingMatcher(Topics()), threshold=0).route("a melody").match
    assert [each.match for each in route.candidates[:number]] == pytest.approx(
        [expected] * number, abs=0.01
    )
    assert route.best and route.best.agent == "player00"


def test_words_count_beside_meanings_by_default() -> None:
    both = Router(team(), EmbeddingMatcher(Topics()), threshold=0).route("food")
    meaning = Router(team(), EmbeddingMatcher(Topics(), words=None), threshold=0).route("food")

    assert both.match > meaning.match > 0


def test_a_superior_that_is_only_named_must_be_as_like_a_task_as_examples_below_it() -> None:
    def match(*examples: str) -> float:
        player = Agent("player", capabilities={"tune": Capability(1.0, examples)})
        known = Agent("head", subordinates=[Agent("music", subordinates=[player])])
        matcher = EmbeddingMatcher(Topics(), words=None)
        route = Router(CapabilityMap.discover(known), matcher, threshold=0).route("a song")
        found = (*route.candidates, *route.short)
        return next(each.match for each in found if each.agent == "music")

    assert 0 < match("a melody") < match()


def test_the_vectors_of_a_tree_are_asked_for_once() -> None:
    topics = Topics()
    matcher = EmbeddingMatcher(topics)
    known = team()
    router = Router(known, matcher)
    router.route("food")
    router.route("flights")
    Router(known.add("head", Agent("opera", capabilities={"arias": 1.0})), matcher).route("arias")

    assert sorted(topics.asked) == sorted({*topics.asked})
    assert topics.asked[-1] == "arias for me"


async def test_waiting_finds_the_same_by_meaning() -> None:
    one, other = (Router(team(), EmbeddingMatcher(Topics())) for _ in range(2))

    assert await one.aroute("I am starving") == other.route("I am starving")


def test_reasons_say_what_was_compared() -> None:
    route = Router(team(), EmbeddingMatcher(Topics())).route("melody food")
    reasons = {each.agent: route.reasons(each) for each in route.candidates}

    assert reasons["player"][0] == "the meaning of 2 examples"
    assert reasons["restaurants"] == ["the meaning of 'food'", "words: food"]


class Broken(Topics):
    def __init__(self, *, documents: Any = None, query: Any = None) -> None:
        super().__init__()
        self._documents, self._query = documents, query

    def mend(self) -> None:
        self._documents = self._query = None

    def embed_documents(self, texts: list[str]) -> Any:
        return Topics().embed_documents(texts) if self._documents is None else self._documents

    def embed_query(self, text: str) -> Any:
        return super().embed_query(text) if self._query is None else self._query


@pytest.mark.parametrize(
    "broken",
    [
        Broken(documents=[]),
        Broken(documents="no vectors"),
        Broken(documents=[1.0, 2.0, 3.0, 4.0, 5.0]),
        Broken(documents=[[1.0, 2.0], [1.0], [1.0, 2.0], [1.0, 2.0], [1.0, 2.0]]),
        Broken(query=[1.0]),
        Broken(query=[]),
        Broken(query=[float("nan")] * 17),
        Broken(query="no vector"),
    ],
)
def test_embeddings_that_are_no_vectors_are_refused(broken: Broken) -> None:
    prepared = EmbeddingMatcher(broken).prepare(ProfileIndex(team()).profiles)

    with raises_code("matcher_failed", match="EmbeddingMatcher"):
        prepared.match("food")


def test_vectors_that_came_with_nonsense_are_asked_for_again() -> None:
    broken = Broken(documents=[[1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [1.0, 2.0], "nonsense"])
    router = Router(team(), EmbeddingMatcher(broken))
    assert "EmbeddingMatcher" in router.route("food").fallback

    broken.mend()
    assert router.route("food").fallback == ""


def test_vectors_of_zeros_are_like_nothing() -> None:
    zeros: Sequence[float] = [0.0, 0.0]

    assert dot(normalize_vector(zeros), normalize_vector([1.0, 0.0])) == 0.0
    assert compute_centroid([normalize_vector(zeros)]) == (0.0, 0.0)


def test_the_usual_likeness_is_the_mean_over_all_pairs() -> None:
    vectors = [
        normalize_vector([1.0, 0.0]),
        normalize_vector([0.0, 1.0]),
        normalize_vector([1.0, 1.0]),
    ]
    pairs = [dot(one, other) for i, one in enumerate(vectors) for other in vectors[i + 1 :]]

    assert compute_mean_cosine(vectors) == pytest.approx(sum(pairs) / 3)
    assert compute_mean_cosine(vectors[:1]) == 0.0
