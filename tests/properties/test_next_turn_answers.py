"""Whatever a model replies and a tool returns, the next turn of the thread answers.

Real trees with the real clients, against servers that refuse what the providers refuse: at the root
and at level 3, in sessions and compiled graphs, whole and streamed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.proof import sample
from tests.properties.odd_turns import Trial, World, aplay, play

TRIALS = sample(40, 5_000)
"""Synchronously, and as many in an event loop."""

# Clients warn about what no server should send, and the savers of graphs about what they store.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def world() -> Iterator[World]:
    with World() as made:
        yield made


def begin(world: str) -> int:
    first = random.SystemRandom().randrange(10**9)
    print(f"{world}: {TRIALS} threads with odd turns from seed {first}")
    return first


def describe(trial: Trial, faults: list[str]) -> str:
    return f"{trial}: {'; '.join(faults)[:1_000]}"


def test_next_turn_answers(world: World) -> None:
    first = begin("synchronous")
    for seed in range(first, first + TRIALS):
        trial = Trial.draw(seed)
        assert not (faults := play(world, trial)), describe(trial, faults)


async def test_next_turn_answers_in_event_loop(world: World) -> None:
    first = begin("asynchronous")
    for seed in range(first, first + TRIALS):
        trial = Trial.draw(seed)
        assert not (faults := await aplay(world, trial)), describe(trial, faults)
