"""The figures: what is above the stored ones, and all of them as a page."""

from __future__ import annotations

import argparse
import math
import os
import platform
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from benchmarks.measure import Scale
from benchmarks.rivals import BUDGETED, FLOOR, KEPT, NEW, OURS, WRAPPED

PACKAGES = (
    "echelons",
    "langgraph",
    "langgraph-checkpoint",
    "langgraph-checkpoint-sqlite",
    "langchain-core",
    "langchain",
    "pydantic",
)
IDEAL = 3 * Scale().latency * 1e3
"""Milliseconds of three model turns: the root's, all subordinates' at once, the root's again."""
ALLOWED: Mapping[str, tuple[float, int]] = {"switches": (2, 25), "polls": (1.03, 10)}
"""By what a count may be multiplied, and what may be added: 1.03 and nothing if it is not here. How
often a thread waits is also the scheduler's doing."""

Figures = dict[str, dict[str, dict[str, float]]]
"""Each figure by its work, its rival and what it is of."""
Record = dict[str, dict[str, Any]]
"""What is stored: ``facts`` and ``figures`` of the ``counts``, of a ``quiet`` and a ``loaded``
machine."""


def list_excesses(stored: Figures, measured: Figures) -> list[str]:
    """Return a line for each count of ours that is more than 3 % above the stored one."""
    lines = []
    for work, rows in measured.items():
        for name in (OURS, NEW, KEPT, WRAPPED, BUDGETED):
            for kind, value in rows.get(name, {}).items():
                before = stored.get(work, {}).get(name, {}).get(kind)
                if before is None:
                    continue
                factor, slack = ALLOWED.get(kind, (1.03, 0))
                limit = before * factor + slack
                if value > limit:
                    lines.append(
                        f"{work}, {name}: {value:,.0f} {kind}; "
                        f"stored are {before:,.0f}, the limit is {limit:,.0f}"
                    )
    return lines


def describe_other_versions(stored: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Return a line for each version that is not the stored counts'."""
    lines = []
    for name in ("python", *PACKAGES):
        then, now = stored.get(name, ""), found[name]
        if name == "python":
            then, now = (each.rpartition(".")[0] for each in (then, now))
        if then != now:
            means = ", so this is no error" if name == "python" else ""
            lines.append(f"{name} is {now}, the counts were stored with {then}{means}")
    return lines


def facts() -> dict[str, str]:
    """Return what the figures depend on; nothing that names the machine.

    Asked before anything is measured: the load is that of other processes.
    """
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "load": f"{os.getloadavg()[0]:.1f}",
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        **{name: _version(name) for name in PACKAGES},
    }


READ_THIS = """\
`make bench`. *Hand-written* is the same tree written with LangGraph alone; *as it comes* means
LangGraph's SQLite saver and durability with their defaults (`synchronous=FULL`,
`durability="async"`). Ours stores every step before the next, with `synchronous=NORMAL`. The floor
is a plain loop over the same LangChain models, with one SQLite transaction a turn. Nobody watches
the runs: a tracer or another callback handler costs both more.

The chain is three levels, two model turns each, and one tool call at the leaf; the resume goes on
after a question of the third level; the fan-out is all its subordinates together; a turn is one
of a thread that grows by 1.2 KB, with a tool call; a continuation is one more call of the same
subordinate, which answers 2 KB; *middleware* is the chain, beside LangChain's `create_agent`, with
three middleware at each level (`ModelCallLimitMiddleware`, `ContextEditingMiddleware`,
`ToolRetryMiddleware`); *budget* is the chain with a budget of tokens and calls. A hand-written
thread's file grows with the square of its turns, so it is
not measured to the end, and neither are sessions. A kept session goes on with its own thread."""

COUNTED = """\
Counts do not depend on the machine or its load, but on the versions below. They are the median
run's, of all threads together: calls of Python and C functions, times that a thread gave up
the processor to wait (*switches*), times that an event loop looked for what is ready (*polls*),
transactions committed; *bytes* are those of the database after that turn. `make bench` and CI fail
if one of ours is more than 3 % above the one stored here; of polls, 10 more are no error, and
switches, partly the scheduler's doing, may be twice as many and 25 more."""

TIMED = """\
Milliseconds of processor time, the median of the rounds or of the last five turns, rivals in turn
in one process. They depend on the machine and its load, and so do their ratios: claim only what
holds in both. *Idle* is with a saver that does nothing: what is left is ours or LangGraph's, and
not SQLite's (a `Session`, a resume and a thread that grows need a database)."""


def as_markdown(record: Record) -> str:
    """Return a page of what was measured, or is stored."""
    lines = ["# Benchmarks", "", READ_THIS, ""]
    if "counts" in record:
        kinds = ("calls", "switches", "polls", "commits", "bytes")
        figures: Figures = record["counts"]["figures"]
        lines += ["## Counts", "", COUNTED, "", *_rule(("work", "who", *kinds))]
        for work, rows in figures.items():
            for name, row in rows.items():
                lines.append(line([work, name, *(number(row.get(kind)) for kind in kinds)]))
        lines.append("")
    times = {part: record[part]["figures"] for part in ("quiet", "loaded") if part in record}
    if times:
        heads = (f"{part}{head}" for part in times for head in ("", ", idle"))
        lines += ["## Processor time", "", TIMED, "", *_rule(("work", "who", *heads))]
        for work, rows in next(iter(times.values())).items():
            for name in rows:
                found = [times[part].get(work, {}).get(name, {}) for part in times]
                cells = (number(each.get(kind)) for each in found for kind in ("cpu", "idle"))
                lines.append(line([work, name, *cells]))
        lines.append("")
    lines += ["## Goals", "", *_rule(("what", "at most", "is", ""))]
    for what, limit, value in list_goals(record):
        met = "met" if value <= limit else "missed"
        lines.append(line([what, number(limit), number(value), met]))
    lines += ["", "## Measured with", "", *_rule(("", *record))]
    for key in facts():
        lines.append(line([key, *(part["facts"].get(key, "") for part in record.values())]))
    return "\n".join([*lines, ""])


def list_goals(record: Record) -> Iterator[tuple[str, float, float]]:
    """Yield what the design asks for, the most that it may be, and what it is, if measured."""

    def find(part: str, work: str, name: str, kind: str) -> float:
        value: float = record.get(part, {}).get("figures", {}).get(work, {}).get(name, {}).get(kind)
        return value or math.nan

    goals: list[tuple[str, float, float]] = []
    for world, calls in (("async", 30_500), ("sync", 25_000)):
        chain, turn, before = (f"{each}, {world}" for each in ("chain", "turn 300", "turn 100"))
        crowd, last = f"fan-out of 50, {world}", f"continuation 200, {world}"
        for work, name, limit in (
            (chain, OURS, calls),
            (chain, NEW, 36_000),
            (f"resume, {world}", OURS, 22_000),
            (turn, OURS, 18_000),
        ):
            goals.append((f"calls: {work}, {name}", limit, find("counts", work, name, "calls")))
        grown = find("counts", turn, OURS, "bytes") - find("counts", before, OURS, "bytes")
        goals += [
            (f"bytes a turn of a thread, {world}", 12_500, grown / 200),
            (f"bytes: {last}", 6_000_000, find("counts", last, OURS, "bytes")),
        ]
        for part in ("quiet", "loaded"):
            by_floor = find(part, turn, OURS, "cpu") / find(part, turn, FLOOR, "cpu")
            by_ideal = find(part, crowd, OURS, "wall") / IDEAL
            goals += [
                (f"processor time ÷ the floor's: {turn}, {part}", 3.5, by_floor),
                (f"time that passes ÷ three model turns: {crowd}, {part}", 2.9, by_ideal),
            ]
    yield from (each for each in goals if not math.isnan(each[2]))


def line(cells: Iterable[str]) -> str:
    """Return a row of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


def number(value: float | None) -> str:
    """Return a figure in three digits, or more where it is bigger."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def count(text: str) -> int:
    """Return an option's number of rounds."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1")
    return int(text)


def _rule(columns: Iterable[str]) -> list[str]:
    heads = list(columns)
    return [line(heads), line("---" for _ in heads)]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
