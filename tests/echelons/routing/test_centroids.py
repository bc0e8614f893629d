"""What agents mean beside the others of their tree, with hand-made vectors."""

from __future__ import annotations

import pytest
from langchain_core.embeddings import Embeddings

from echelons import Agent
from echelons.capabilities import CapabilityMap
from echelons.routing import EmbeddingMatcher, Router, embedding_matcher
from echelons.routing.embedding_matcher import (
    CentroidUpdates,
    Vector,
    add_vectors,
    blend_with_team,
    compute_centroid,
    compute_penalties,
    dot,
    normalize_vector,
)

PLACES = {
    # What all names share, and four special things; "calendar" is a little of the first three.
    "calendar": [2.0, 1.0, 1.0, 1.0, 0.0],
    "meetings": [1.0, 2.0, 0.0, 0.0, 0.0],
    "holidays": [1.0, 0.0, 2.0, 0.0, 0.0],
    "birthdays": [1.0, 0.0, 0.0, 2.0, 0.0],
    "recipes": [1.0, 0.0, 0.0, 0.0, 2.0],
    "head": [1.0, 0.0, 0.0, 0.0, 1.0],
}


class Drawn(Embeddings):
    """A text that names one of the places stands there; any other is what a test says."""

    def __init__(self, task: list[float]) -> None:
        self._task = task

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return next((vector for name, vector in PLACES.items() if name in text), self._task)


def found(task: list[float]) -> str:
    known = Agent("head", subordinates=[Agent(name) for name in PLACES if name != "head"])
    router = Router(CapabilityMap.discover(known), EmbeddingMatcher(Drawn(task)), threshold=0)
    best = router.route("xyzzy").best
    assert best is not None
    return best.agent


def test_a_general_name_does_not_take_what_a_special_one_is_meant_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moot = [2.0, 1.52, 0.48, 0.48, 0.0]
    assert found(moot) == "meetings"

    monkeypatch.setattr(embedding_matcher, "PENALTY_FRACTION", 0.0)
    assert found(moot) == "calendar"


def test_a_name_that_is_like_all_others_is_held_back_and_a_name_apart_is_not() -> None:
    middles = [normalize_vector(vector) for name, vector in PLACES.items() if name != "head"]
    back = compute_penalties(middles, range(len(middles)))

    assert max(back, key=back.__getitem__) == 0
    assert min(back, key=back.__getitem__) == 4
    assert sum(back.values()) == pytest.approx(0)


def test_lone_name_and_tree_too_large_to_compare_exclude_no_agent() -> None:
    one: Vector = (1.0, 0.0)

    assert compute_penalties([one], [0]) == {}
    assert compute_penalties([one] * 600, range(600)) == {}


def test_siblings_decide_the_meaning_of_names_but_not_of_examples() -> None:
    middles: list[Vector] = [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)]
    paths = [["head"], ["head", "one"], ["head", "other"]]
    head, one, other = blend_with_team(middles, paths, [0, 1])

    assert head == pytest.approx((1.0, 0.0, 0.0))
    assert one[2] > 0
    assert one[1] > 0.9
    assert other == middles[2]


def near(x: float, y: float, z: float = 0.0) -> Vector:
    return normalize_vector([x, y, z])


ASTRAY = near(0.6, 0.8)
WIDE = [near(1, 0), near(1, 0, 0.3), near(1, 0, -0.3), ASTRAY]
NARROW = [near(0.2, 1), near(0.3, 1), near(0.25, 1)]


def test_an_example_that_would_go_astray_goes_to_its_own_agent_afterwards() -> None:
    middles = {0: compute_centroid(WIDE), 1: compute_centroid(NARROW)}
    moved = CentroidUpdates({0: WIDE, 1: NARROW}, middles).compute_shifts()
    after = {place: add_vectors(middle, moved[place]) for place, middle in middles.items()}

    assert dot(ASTRAY, middles[0]) < dot(ASTRAY, middles[1])
    assert dot(ASTRAY, after[0]) > dot(ASTRAY, after[1])
    assert all(dot(each, after[1]) > dot(each, after[0]) for each in NARROW)


def test_agent_without_rival_stays() -> None:
    assert CentroidUpdates({0: WIDE}, {0: compute_centroid(WIDE)}).compute_shifts() == {}


def test_an_agents_only_example_moves_nothing() -> None:
    vectors = {0: [near(1, 0)], 1: [near(0.9, 0.1)]}
    middles = {place: compute_centroid(each) for place, each in vectors.items()}

    assert CentroidUpdates(vectors, middles).compute_shifts() == {}
