"""The command behind ``make bench``: chooses benchmarks, shows them at work, keeps figures."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from tests.benchmarks import (
    building,
    chain,
    continuations,
    crowd,
    long_thread,
    resuming,
    starting,
)
from tests.benchmarks.measure import Say, Scale
from tests.benchmarks.report import Figures, Row, as_json, as_markdown, count, facts, table

BENCHMARKS: Mapping[str, Callable[[Scale, Say], list[Row]]] = {
    "chain": chain.run,
    "resuming": resuming.run,
    "crowd": crowd.run,
    "long-thread": long_thread.run,
    "continuations": continuations.run,
    "building": building.run,
    "starting": starting.run,
}
KEPT = Path(__file__).parents[2] / "docs" / "benchmarks"


def main(given: Sequence[str] | None = None, scale: Scale | None = None, kept: Path = KEPT) -> None:
    """Run benchmarks and print their figures beside the targets.

    Args:
        given: Arguments of the command; those of this process if left out.
        scale: How much work they do; the design's if left out.
        kept: Folder that ``--save`` writes to.
    """
    options = _parser().parse_args(given)
    scale = scale or Scale()
    if options.rounds is not None:
        scale = replace(scale, rounds=options.rounds)
    # A pipe has no width of its own; tables need more than the 80 that Rich assumes.
    out = Console(width=None if sys.stdout.isatty() else 130)
    found = facts()
    figures = measure(options.only or list(BENCHMARKS), scale)
    data = as_json(figures, scale.rounds, found)
    if options.json:
        print(data)
    else:
        for name, rows in figures.items():
            out.print(table(name, rows))
    if options.save:
        page = as_markdown(figures, scale.rounds, found)
        kept.mkdir(parents=True, exist_ok=True)
        (kept / "latest.md").write_text(page, encoding="utf-8")
        (kept / "latest.json").write_text(f"{data}\n", encoding="utf-8")


def measure(names: Sequence[str], scale: Scale) -> Figures:
    """Run some benchmarks, saying on the error output what is being done."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    figures: dict[str, list[Row]] = {}
    # Drawn only when told, between two measurements: a drawing thread would be counted in.
    with Progress(*columns, console=console, auto_refresh=False, transient=True) as progress:
        for name in names:
            line = progress.add_task(name, total=None)
            started = time.perf_counter()

            def say(what: str, name: str = name, line: TaskID = line) -> None:
                progress.update(line, description=f"{name}: {what}", refresh=True)

            figures[name] = BENCHMARKS[name](scale, say)
            progress.remove_task(line)
            console.print(f"{name} took {time.perf_counter() - started:.0f} s")
    return figures


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make bench",
        description="Measure against the design's targets, rivals in turn in one process. "
        'From make, pass options as ARGS="--only chain".',
    )
    parser.add_argument(
        "--only", action="append", choices=BENCHMARKS, help="run this benchmark (repeatable)"
    )
    parser.add_argument("--rounds", type=count, help="rounds of the quick benchmarks (30)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--save", action="store_true", help="write docs/benchmarks/latest.*")
    return parser
