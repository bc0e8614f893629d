"""Runs the peers in turn, and keeps what each has cost.

Rounds are interleaved over the processes: each does one piece of work, then the next one does.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from benchmarks.measure import Cost, Say, in_turn, median
from benchmarks.peers.entries import Entry
from benchmarks.peers.environments import NotInstallable
from benchmarks.peers.process import Done, PeerFailed, PeerProcess, started
from benchmarks.peers.work import ANSWER, CHAIN, CROWD, SAID, THREAD, TYPED, Size

WARM_UP = 3
NEAR = 5
"""Turns up to the last of which the median is taken."""
DESIGN = Size(crowd=50, latency=0.05)


@dataclass(frozen=True, slots=True)
class Scale:
    """How much work is done.

    Attributes:
        rounds: Rounds of the chain.
        crowded: Rounds of the crowd.
        turns: Turns of the thread whose cost and size are reported, rising.
        size: How big the crowd is.
    """

    rounds: int = 30
    crowded: int = 5
    turns: tuple[int, ...] = (10, 100)
    size: Size = DESIGN


@dataclass(slots=True)
class Result:
    """What one entry has cost.

    Attributes:
        entry: Who.
        versions: Of its packages.
        leaf: Whether the steps of the chain's leaf are stored; ``None`` if it never ran.
        chain: The median round.
        crowd: The median round.
        typed: The median round of the typed chain.
        turns: The median of some turns up to that one.
        sizes: Megabytes after that turn.
        wrong: Why a work has no figures, by the name of the work.
    """

    entry: Entry
    versions: dict[str, str] = field(default_factory=dict)
    leaf: bool | None = None
    chain: Cost | None = None
    crowd: Cost | None = None
    typed: Cost | None = None
    turns: dict[int, Cost] = field(default_factory=dict)
    sizes: dict[int, float] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)


Running = dict[str, PeerProcess]
Results = dict[str, Result]


def compare(entries: Sequence[Entry], scale: Scale, say: Say) -> list[Result]:
    """Start all entries, have them work side by side, and return what they cost."""
    results = {entry.key: Result(entry) for entry in entries}
    with ExitStack() as stack:
        running: Running = {}
        for entry in entries:
            say(f"starting {entry.key}")
            result = results[entry.key]
            try:
                peer = stack.enter_context(started(entry, scale.size))
            except (NotInstallable, PeerFailed) as failed:
                kind = "not installed" if isinstance(failed, NotInstallable) else "cannot start"
                result.wrong = dict.fromkeys((CHAIN, CROWD, THREAD, TYPED), f"{kind}: {failed}")
                continue
            running[entry.key] = peer
            result.versions = peer.versions
        _chain(running, results, scale, say)
        _typed(running, results, scale, say)
        _crowd(running, results, scale, say)
        _thread(running, results, scale, say)
        for key, peer in running.items():
            results[key].leaf = peer.keeps_the_leaf()
    return list(results.values())


def _chain(running: Running, results: Results, scale: Scale, say: Say) -> None:
    done = _rounds(CHAIN, running, results, WARM_UP + scale.rounds, say)
    for key, each in done.items():
        if _whole(results[key], CHAIN, each, 6, 1):
            results[key].chain = median([every.cost for every in each[WARM_UP:]])


def _typed(running: Running, results: Results, scale: Scale, say: Say) -> None:
    done = _rounds(TYPED, running, results, WARM_UP + scale.rounds, say)
    for key, each in done.items():
        if _whole(results[key], TYPED, each, 5, 0):
            results[key].typed = median([every.cost for every in each[WARM_UP:]])


def _crowd(running: Running, results: Results, scale: Scale, say: Say) -> None:
    done = _rounds(CROWD, running, results, 1 + scale.crowded, say)
    for key, each in done.items():
        if _whole(results[key], CROWD, each, 2 + scale.size.crowd, 0):
            results[key].crowd = median([every.cost for every in each[1:]])


def _thread(running: Running, results: Results, scale: Scale, say: Say) -> None:
    before = 0
    costs: dict[str, list[Cost]] = {}
    for turn in scale.turns:
        done = _rounds(THREAD, running, results, turn - before, say, before)
        before = turn
        for key, each in done.items():
            if not _whole(results[key], THREAD, each, 1, 0, SAID):
                continue
            costs.setdefault(key, []).extend(every.cost for every in each)
            results[key].turns[turn] = median(costs[key][-NEAR:])
            results[key].sizes[turn] = running[key].megabytes(THREAD)


def _rounds(
    work: str, running: Running, results: Results, rounds: int, say: Say, first: int = 0
) -> dict[str, list[Done]]:
    """Have a work done by all that can, in turn; who fails is left out, and it is said why."""
    able = [key for key, peer in running.items() if work in peer.works]
    for key in set(running) - set(able):
        # Most have no typed subagents, or are not asked for them.
        if work != TYPED:
            results[key].wrong[work] = "keeps no conversation"
    done: dict[str, list[Done]] = {key: [] for key in able}
    for number in range(first, first + rounds):
        say(f"{work}, round {number + 1}")
        for key in in_turn(able, number):
            if work in results[key].wrong:
                continue
            try:
                done[key].append(running[key].do(work, number))
            except PeerFailed as failed:
                results[key].wrong[work] = str(failed)
    return {key: each for key, each in done.items() if work not in results[key].wrong}


def _whole(
    result: Result, work: str, done: Sequence[Done], turns: int, tools: int, said: str = ANSWER
) -> bool:
    """Return whether all was done that belongs to a work; what is missing is noted."""
    for each in done:
        if (each.turns, each.tools, each.said) != (turns, tools, said):
            result.wrong[work] = f"incomplete: {each.turns} of {turns} model turns were made"
            return False
    return True
