"""What examples correct: the words that others' tasks have in common with them tell less."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from echelons import Agent
from echelons.capabilities import Capability, CapabilityMap
from echelons.routing import Router
from echelons.routing.matcher import (
    FEATURE_KINDS,
    FeatureStatistics,
    WeightExample,
    compute_learning_rates,
    correct_weights,
    limit_examples,
    read_words,
)


def lesson(place: int, *told: dict[int, float], others: float = 0.0) -> WeightExample:
    return WeightExample(place, {0: 0.0, 1: 0.0}, others, told, [0.5] * len(told))


def test_example_that_others_would_get_counts_more_for_its_agent() -> None:
    own, shared = {0: 0.1}, {0: 0.1, 1: 2.0}
    before = lesson(0, own, shared).compute_errors()[0]
    correct_weights([lesson(0, own, shared)])

    assert own[0] > 0.1
    assert shared[0] > 0.1
    assert shared[1] < 2.0
    assert 0 < lesson(0, own, shared).compute_errors()[0] < before / 2


def test_feature_says_nothing_about_agents_without_it() -> None:
    own, theirs = {0: 0.1}, {1: 2.0}
    correct_weights([lesson(0, own, theirs)])

    assert own.keys() == {0}
    assert theirs.keys() == {1}


def test_an_example_that_is_sure_of_its_agent_changes_nothing() -> None:
    own, shared = {0: 9.0}, {0: 1.0, 1: 0.5}
    correct_weights([lesson(0, own, shared)])

    assert (own, shared) == ({0: 9.0}, {0: 1.0, 1: 0.5})


def test_evidence_without_end_is_no_overflow() -> None:
    correct_weights([lesson(1, {0: 1e6, 1: 0.1})])


def test_the_order_of_the_examples_makes_no_difference() -> None:
    def corrected(backwards: bool) -> list[float]:
        words = [{0: 0.5, 1: 0.4}, {0: 0.2, 1: 0.9}, {1: 0.3}]
        lessons = [lesson(0, words[0], words[1]), lesson(1, words[0], words[2])]
        correct_weights(lessons[::-1] if backwards else lessons)
        return [each for word in words for each in word.values()]

    assert corrected(False) == pytest.approx(corrected(True))


def test_a_long_example_changes_each_of_its_words_less() -> None:
    short, long = compute_learning_rates(
        [["rare", "one"], ["other", "two", "three", "four", "five", "six"]]
    )

    assert max(long) < min(short)


def test_a_tree_is_read_as_fast_however_large_it_is() -> None:
    assert all(limit_examples(size) * size * size <= 300_000 for size in range(1, 2000, 7))
    assert limit_examples(10) == 10


def test_what_a_text_adds_is_lost_without_it() -> None:
    kind = FEATURE_KINDS[0]
    texts = [
        kind.extract(read_words(text))
        for text in ("pay my invoice", "pay the bill", "book a flight")
    ]
    model = FeatureStatistics(kind, {0: texts[:2], 1: texts[2:]})
    with_it, without = [0.0, 0.0], [0.0, 0.0]
    model.add_scores(texts[0], with_it)
    model.add_scores(kind.extract(read_words("pay")), without)

    assert model.compute_loss(texts[0], 0) > 0
    # Of its three words one is left, said once instead of twice, for the others are its own.
    assert with_it[0] - model.compute_loss(texts[0], 0) < without[0]


MIXED = """
from echelons import Agent
from echelons.capabilities import Capability, CapabilityMap
from echelons.routing import Router
def agent(name, *examples): return Agent(name, capabilities={name: Capability(1.0, examples)})
tree = Agent("head", subordinates=[
    agent("limit", "what is my credit limit", "how much credit do i have", "tell me the limit"),
    agent("raise", "can my credit limit be higher", "get me a higher limit", "raise the limit"),
    agent("score", "what is my credit score", "how is my credit", "tell me my score"),
])
"""


def test_every_process_learns_the_same() -> None:
    code = (
        f"{MIXED}router = Router(CapabilityMap.discover(tree), threshold=0)\n"
        "learnt = router.route('my limit').json()"
    )
    elsewhere = subprocess.run(
        [sys.executable, "-c", f"{code}\nprint(learnt)"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "1"},  # ours is random
    ).stdout

    here: dict[str, Any] = {}
    exec(code, here)
    assert elsewhere == f"{here['learnt']}\n"


def test_an_agent_with_one_example_is_found_beside_others() -> None:
    one = Agent("one", capabilities={"opera": Capability(1.0, ["who sings tonight"])})
    two = Agent("two", capabilities={"food": Capability(1.0, ["where to eat", "a table please"])})
    found = Router(CapabilityMap.discover(Agent("head", subordinates=[one, two])))

    best = found.route("who sings").best
    assert best is not None
    assert best.agent == "one"
