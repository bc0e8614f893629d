"""The command behind ``make bench-peers``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich import box
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.measure import Say
from benchmarks.peers.compare import Result, Scale, compare
from benchmarks.peers.entries import ENTRIES, Entry
from benchmarks.peers.page import as_json, as_markdown, tables
from benchmarks.report import count, facts

KEPT = Path(__file__).parents[2] / "docs" / "benchmarks"
OWN = {"echelons"}


def main(given: Sequence[str] | None = None, scale: Scale | None = None, kept: Path = KEPT) -> None:
    """Compare frameworks and print the tables.

    Args:
        given: Arguments of the command; those of this process if left out.
        scale: How much work they do.
        kept: Folder that the figures are written to, unless only some take part.
    """
    options = _parser().parse_args(given)
    scale = scale or Scale()
    if options.rounds is not None:
        scale = replace(scale, rounds=options.rounds)
    out = Console(width=None if sys.stdout.isatty() else 150)
    found = facts()
    results = _compared(_chosen(options.only), scale)
    data = as_json(results, scale, found)
    if options.json:
        print(data)
    else:
        for title, (columns, rows) in tables(results, scale).items():
            out.print(_table(title, columns, rows))
    if options.save:
        kept.mkdir(parents=True, exist_ok=True)
        (kept / "peers.md").write_text(as_markdown(results, scale, found), encoding="utf-8")
        (kept / "peers.json").write_text(f"{data}\n", encoding="utf-8")


def _chosen(only: Sequence[str] | None) -> list[Entry]:
    """Return the entries of some frameworks, with ours to compare them with."""
    return [each for each in ENTRIES if not only or each.name in OWN.union(only)]


def _compared(entries: Sequence[Entry], scale: Scale) -> list[Result]:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, auto_refresh=False, transient=True) as progress:
        shown = progress.add_task("", total=None)
        say: Say = lambda what: progress.update(shown, description=what, refresh=True)  # noqa: E731
        return compare(entries, scale, say)


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    drawn = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for column in columns:
        drawn.add_column(column)
    for row in rows:
        drawn.add_row(*row)
    return drawn


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make bench-peers",
        description="Measure beside other frameworks, each in an environment of its own, made "
        'when it is first needed. From make, pass options as ARGS="--only agno".',
    )
    names = sorted({each.name for each in ENTRIES})
    parser.add_argument(
        "--only", action="append", choices=names, help="this framework and ours (repeatable)"
    )
    parser.add_argument("--rounds", type=count, help="rounds of the chain (30)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--save", action="store_true", help="write docs/benchmarks/peers.*")
    return parser
