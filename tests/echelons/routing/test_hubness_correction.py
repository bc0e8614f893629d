"""What names mean beside the other names of a tree, with hand-made vectors."""

from __future__ import annotations

import pytest
from langchain_core.embeddings import Embeddings

from echelons import Agent
from echelons.capabilities import CapabilityMap
from echelons.routing import EmbeddingMatcher, Router
from echelons.routing import hubness_correction as naming_module
from echelons.routing.hubness_correction import blend_with_team, compute_penalties
from echelons.routing.vectors import Vector, normalize_vector

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

    monkeypatch.setattr(naming_module, "PENALTY_FRACTION", 0.0)
    assert found(moot) == "calendar"


def test_a_name_that_is_like_all_others_is_held_back_and_a_name_apart_is_not() -> None:
    middles = [normalize_vector(vector) for name, vector in PLACES.items() if name != "head"]
    back = compute_penalties(middles, range(len(middles)))

    assert max(back, key=back.__getitem__) == 0
    assert min(back, key=back.__getitem__) == 4
    assert sum(back.values()) == pytest.approx(0)


def test_a_name_alone_and_a_tree_too_large_to_compare_hold_nobody_back() -> None:
    one: Vector = (1.0, 0.0)

    assert compute_penalties([one], [0]) == {}
    assert compute_penalties([one] * 600, range(600)) == {}


def test_who_has_the_same_superior_says_what_a_name_means_but_not_what_examples_mean() -> None:
    middles: list[Vector] = [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)]
    paths = [["head"], ["head", "one"], ["head", "other"]]
    head, one, other = blend_with_team(middles, paths, [0, 1])

    assert head == pytest.approx((1.0, 0.0, 0.0))
    assert one[2] > 0
    assert one[1] > 0.9
    assert other == middles[2]
