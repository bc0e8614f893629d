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
from tests.properties.switches import ENTRANCE, PAST_TOOL, WAY_OUT

TRIALS = sample(40, 5_000)
"""Synchronously, and as many in an event loop."""

MENDINGS = {**WAY_OUT, **ENTRANCE, **PAST_TOOL}
ELSEWHERE = {
    "person names": "no reply and no result has one",
    "first and last": "agents ask their models after a task or a result",
    "blank texts": "they stand in messages of users",
    "messages of users": "they are none of a reply",
    "objects in texts": "they could stay as they are",
}
"""Mendings that no reply and no result needs; other tests have them."""
FIRST = {
    "refusals in streams": 49,
    "files that a client cannot send": 45,
    "a tool for the history": 30,
    "values that JSON does not have": 40,
    "keys that are no texts": 24,
    "blocks of replies": 16,
    "arguments": 11,
    "values in arguments": 11,
    "results": 6,
}
"""Where the search for a trial that needs a mending begins, to be short; anywhere would do."""
FEW = 300
"""Trials without a mending after which it is not needed."""

# Clients warn about what no server should send, and the savers of graphs about what they store.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def world() -> Iterator[World]:
    with World() as made:
        yield made


def play_alone(seed: int) -> list[str]:
    with World() as world:
        return play(world, Trial.draw(seed))


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


@pytest.mark.parametrize("mending", [each for each in MENDINGS if each not in ELSEWHERE])
def test_each_mending_is_needed(
    mending: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    MENDINGS[mending].switch_off(monkeypatch)
    first = FIRST.get(mending, 0)
    trials = range(first, first + FEW)
    seed = next((seed for seed in trials if play(world, Trial.draw(seed))), None)
    assert seed is not None, f"{FEW} trials pass without it"

    monkeypatch.undo()
    assert play_alone(seed) == []
