"""The command behind ``make bench``: counts, times, compares with what is stored, and stores."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import get_args

from benchmarks.counting import Counter, Counts
from benchmarks.measure import Cost, Say, Scale, median, timed
from benchmarks.report import (
    Figures,
    Record,
    as_markdown,
    count,
    describe_other_versions,
    facts,
    list_excesses,
)
from benchmarks.rivals import NOTHING
from benchmarks.works import World, list_works, measure

KEPT = Path(__file__).parents[1] / "docs" / "benchmarks"


def main(given: Sequence[str] | None = None, scale: Scale | None = None, kept: Path = KEPT) -> None:
    """Measure, and print the figures as a page.

    Args:
        given: Arguments of the command; those of this process if left out.
        scale: How much work is done.
        kept: Folder of the stored figures.

    Raises:
        SystemExit: With 1, if a count is more than 3 % above the stored one.
    """
    options = _parser().parse_args(given)
    scale = scale or Scale()
    if options.rounds is not None:
        scale = replace(scale, rounds=options.rounds, counted=options.rounds)
    path = kept / "latest.json"
    stored: Record = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    measured: Record = {}
    found = facts()
    if options.only != "times":
        measured["counts"] = {"facts": found, "figures": count_works(scale, _say)}
    if options.only != "counts":
        part = "loaded" if float(found["load"]) > (os.cpu_count() or 1) else "quiet"
        _say(f"the load is {found['load']}: these are the times of a {part} machine")
        measured[part] = {"facts": found, "figures": time_works(scale, _say)}
    print(json.dumps(measured, indent=1) if options.json else as_markdown(measured))
    if options.save:
        record = {**stored, **measured}
        kept.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{json.dumps(record, indent=1)}\n", encoding="utf-8")
        (kept / "latest.md").write_text(as_markdown(record), encoding="utf-8")
    elif "counts" in stored and "counts" in measured:
        _compare(stored, measured)


def _compare(stored: Record, measured: Record) -> None:
    """Say which counts are above the stored ones, and end with an error if there are any."""
    excesses = list_excesses(stored["counts"]["figures"], measured["counts"]["figures"])
    other = describe_other_versions(stored["counts"]["facts"], measured["counts"]["facts"])
    for line in (*excesses, *other):
        _say(line)
    if excesses and not any(line.startswith("python") for line in other):
        _say("If it is meant, or only other versions: make bench-counts ARGS=--save")
        sys.exit(1)


def count_works(scale: Scale, say: Say) -> Figures:
    """Count what each work does; figures by the work and the rival."""
    counter = Counter()
    figures: Figures = {}
    for work in list_works(scale, timed=False):
        for world in get_args(World):
            started = time.perf_counter()
            with counter.watching():
                samples, sizes = measure(work, world, counter.count)
            for (label, name), taken in samples.items():
                figure = {
                    field: statistics.median_low(getattr(each, field) for each in taken)
                    for field in Counts.__dataclass_fields__
                }
                if (label, name) in sizes:
                    figure["bytes"] = round(sizes[label, name] * 1e6)
                figures.setdefault(f"{label}, {world}", {})[name] = figure
            say(f"counted: {work.name}, {world} ({time.perf_counter() - started:.0f} s)")
    return figures


def time_works(scale: Scale, say: Say) -> Figures:
    """Time each work; the time without storing is beside that with it, as ``idle``."""
    figures: Figures = {}
    for work in list_works(scale, timed=True):
        for world in get_args(World):
            started = time.perf_counter()
            samples, _ = measure(work, world, timed)
            costs: dict[tuple[str, str], Cost] = {at: median(each) for at, each in samples.items()}
            for (label, name), cost in costs.items():
                row = figures.setdefault(f"{label}, {world}", {})
                if name.endswith(NOTHING):
                    row[name.removesuffix(NOTHING)]["idle"] = cost.cpu
                else:
                    row[name] = asdict(cost)
            say(f"timed: {work.name}, {world} ({time.perf_counter() - started:.0f} s)")
    return figures


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make bench",
        description="Count and time the works, ours beside hand-written LangGraph. Ends with 1 if "
        'a count is more than 3 %% above the stored one. From make, pass options as ARGS="--save".',
    )
    parser.add_argument("--only", choices=("counts", "times"), help="leave out the others")
    parser.add_argument("--rounds", type=count, help="rounds of a quick work (30; 3 counted)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a page")
    parser.add_argument(
        "--save",
        action="store_true",
        help="write docs/benchmarks/latest.*: what was measured, the times as those of a loaded "
        "machine if its load was above the number of its cores, else of a quiet one",
    )
    return parser
