"""Measures routing: how often the right agent is found, how often nobody, and how fast.

Two figures of accuracy are over all requests, whoever is ranked first being taken: *top 1*, and
*AUROC*, how surely the best match tells requests that somebody can serve from those that nobody
can (0.5 is chance). Then a threshold is chosen on texts of the training split that no agent has as
an example, so that as many of both kinds as possible are told apart, and what it refuses of the
validation split is counted.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import fmean

from benchmarks.requests import Examples, Requests, Texts
from echelons import Agent
from echelons.capabilities import CapabilityMap
from echelons.routing import EmbeddingMatcher, LexicalMatcher, Matcher, Router

REPORT = Path(__file__).parents[1] / "docs" / "benchmarks" / "routing"
SEEDS = (0, 1, 2)
SIZES = (125, 250, 500, 1000, 2000)


@dataclass(frozen=True)
class Accuracy:
    """What one matcher reaches with so many examples of each agent, means over the draws.

    Attributes:
        matcher: Which one.
        examples: Example tasks of each agent.
        top1: Part of the possible requests whose agent is ranked first in the whole tree.
        auroc: Area under the curve of the best match, possible against impossible requests.
        threshold: The match below which nobody is able, as chosen on held-out training texts.
        refused: Part of the impossible requests that are refused at it.
        lost: Part of the possible requests that are refused at it.
        prepare_ms: Milliseconds to read the tree.
        route_ms: Milliseconds a request.
    """

    matcher: str
    examples: int
    top1: float
    auroc: float
    threshold: float
    refused: float
    lost: float
    prepare_ms: float
    route_ms: float


def auroc(able: Sequence[float], unable: Sequence[float]) -> float:
    """Return how often a value of ``able`` is above one of ``unable``; ties count half.

    >>> auroc([0.9, 0.5], [0.5, 0.1])
    0.875
    """
    wins = sum((one > other) + 0.5 * (one == other) for one in able for other in unable)
    return wins / (len(able) * len(unable))


def chosen(able: Sequence[float], unable: Sequence[float]) -> float:
    """Return the threshold with the best mean of both parts that are told apart."""

    def told_apart(limit: float) -> float:
        return fmean(value >= limit for value in able) + fmean(value < limit for value in unable)

    return max(sorted({*able, *unable}), key=told_apart)


def measured(name: str, make: Callable[[], Matcher], requests: Requests, number: int) -> Accuracy:
    """Measure one matcher with ``number`` examples of each agent."""
    rows = [
        _row(name, make, requests, number, seed) for seed in (SEEDS if 0 < number < 100 else [0])
    ]
    figures = {
        field.name: fmean(getattr(row, field.name) for row in rows)
        for field in fields(Accuracy)
        if field.type == "float"
    }
    return Accuracy(name, number, **figures)


def _row(
    name: str, make: Callable[[], Matcher], requests: Requests, number: int, seed: int
) -> Accuracy:
    threshold = _threshold(make, requests, number, seed)
    examples, _ = requests.draw(number, seed)
    started = time.process_time()
    router = _router(make, requests, examples)
    router.route("a first task, for which a matcher may prepare")
    ready = time.process_time()
    right, able = _routed(router, requests.val)
    unable = [router.route(text).match for text in requests.nobody_val]
    ended = time.process_time()
    return Accuracy(
        name,
        number,
        fmean(right),
        auroc(able, unable),
        threshold,
        fmean(value < threshold for value in unable),
        fmean(value < threshold for value in able),
        (ready - started) * 1000,
        (ended - ready) * 1000 / (len(able) + len(unable)),
    )


def _threshold(make: Callable[[], Matcher], requests: Requests, number: int, seed: int) -> float:
    """Choose on held-out training texts; with all as examples, by fitting on four fifths."""
    fitted = min(number, 80)
    examples, others = requests.draw(fitted, seed)
    router = _router(make, requests, examples)
    _, able = _routed(router, others)
    return chosen(able, [router.route(text).match for text in requests.nobody_train])


def _router(make: Callable[[], Matcher], requests: Requests, examples: Examples) -> Router:
    return Router(CapabilityMap.discover(requests.tree(examples)), make(), threshold=0)


def _routed(router: Router, texts: Texts) -> tuple[list[bool], list[float]]:
    right, matches = [], []
    for text, agent in texts:
        route = router.route(text)
        right.append(route.best is not None and route.best.agent == agent)
        matches.append(route.match)
    return right, matches


def scaled(size: int) -> dict[str, float]:
    """Measure trees of ``size`` agents, ten subordinates each and at most six levels."""
    words = [f"{one}{other}" for one in "bcdfghklmnprst" for other in ("ane", "elo", "ibu", "oru")]
    names = [f"{words[n % 56]} {words[(n // 56) % 56]} {n}" for n in range(size)]

    def made(number: int, width: int) -> Agent:
        below = range(number * width + 1, min(number * width + width + 1, size))
        return Agent(
            f"agent{number}",
            capabilities={names[number]: 0.9},
            subordinates=[made(each, width) for each in below],
        )

    known = CapabilityMap.discover(made(0, max(3, round(size ** (1 / 5)) + 1)))
    prepared = min(_timed(lambda: Router(known)) for _ in range(3))
    router = Router(known)
    tasks = [f"please do {names[n * 37 % size]}" for n in range(100)]
    took = min(_timed(lambda: [router.route(task) for task in tasks]) for _ in range(5))
    deepest = max((path for path, _ in known.walk()), key=len)
    added = _timed(lambda: [known.add(deepest, Agent("new")) for _ in range(200)]) / 200
    return {
        "agents": size,
        "levels": known.total_depth + 1,
        "prepare_ms": prepared * 1000,
        "route_ms": took * 10,
        "add_ms": added * 1000,
    }


def _timed(work: Callable[[], object]) -> float:
    # Of this process alone: other work on the machine must not look like growth.
    started = time.process_time()
    work()
    return time.process_time() - started


def report(rows: Sequence[Accuracy], sizes: Sequence[dict[str, float]]) -> str:
    """Write the figures as Markdown."""
    lines = [
        "# Routing, measured",
        "",
        "Written by `make bench-routing DATA=folder`; [routing](../routing.md) says what each",
        "figure is. Ten examples: the mean of three draws. Times are processor times. MiniLM",
        "caches vectors, so only its first row has the time of computing those of the requests.",
        "",
        "| matcher | examples | top 1 | AUROC | threshold | impossible refused | possible refused "
        "| prepare | a request |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {row.matcher} | {row.examples or 'names only'} | {row.top1:.1%} | {row.auroc:.3f} "
        f"| {row.threshold:.2f} | {row.refused:.0%} | {row.lost:.1%} | {row.prepare_ms:.0f} ms "
        f"| {row.route_ms:.2f} ms |"
        for row in rows
    ]
    lines += [
        "",
        "| agents | levels | prepare | a request | adding an agent to the map |",
        "| ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {row['agents']:.0f} | {row['levels']:.0f} | {row['prepare_ms']:.1f} ms "
        f"| {row['route_ms']:.3f} ms | {row['add_ms']:.3f} ms |"
        for row in sizes
    ]
    return "\n".join([*lines, ""])


def matchers(embeddings: bool) -> dict[str, Callable[[], Matcher]]:
    """Return what is measured, by name."""
    found: dict[str, Callable[[], Matcher]] = {"words": LexicalMatcher}
    if embeddings:
        from benchmarks.minilm import MiniLM

        model = MiniLM()
        found["words and MiniLM"] = lambda: EmbeddingMatcher(model)
        found["MiniLM alone"] = lambda: EmbeddingMatcher(model, words=None)
    return found


def main(arguments: Sequence[str] | None = None, target: Path = REPORT) -> None:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="the folder with the requests")
    parser.add_argument("--embeddings", action="store_true", help="measure MiniLM, too")
    given = parser.parse_args(arguments)
    requests = Requests.read(given.data)
    rows = [
        measured(name, make, requests, number)
        for name, make in matchers(given.embeddings).items()
        for number in (0, 10, 100)
    ]
    sizes = [scaled(size) for size in SIZES]
    text = report(rows, sizes)
    target.with_suffix(".md").write_text(text, encoding="utf-8")
    data = {"accuracy": [asdict(row) for row in rows], "sizes": sizes}
    target.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    print(text)
