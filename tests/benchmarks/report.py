"""The figures: one row each, beside its rival and its target, as a table, Markdown and JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

from rich import box
from rich.table import Table

from tests.benchmarks.measure import Cost

PACKAGES = (
    "echelons",
    "langgraph",
    "langgraph-checkpoint",
    "langgraph-checkpoint-sqlite",
    "langchain-core",
    "pydantic",
)
COLUMNS = ("work", "unit", "ours", "theirs", "ratio", "compared with", "target", "")


@dataclass(frozen=True, slots=True)
class Target:
    """What the design asks for.

    Attributes:
        limit: The most that it may be.
        of: Whether the ratio to the rival or our own value is meant.
        then: The limit to be reached later, if there is one.
    """

    limit: float
    of: Literal["ratio", "value"] = "ratio"
    then: float | None = None

    def __str__(self) -> str:
        later = "" if self.then is None else f", then {self.then:g}"
        return f"{'ratio ' if self.of == 'ratio' else ''}≤ {self.limit:g}{later}"


@dataclass(frozen=True, slots=True)
class Row:
    """One figure.

    Attributes:
        work: What was done.
        unit: What is counted.
        ours: Our figure; ``None`` where there is nothing yet to be measured.
        than: The rival; empty for none.
        theirs: The rival's figure.
        target: What the design asks for, if it does.
    """

    work: str
    unit: str
    ours: float | None
    than: str = ""
    theirs: float | None = None
    target: Target | None = None

    @property
    def ratio(self) -> float | None:
        """Ours by theirs."""
        return None if self.ours is None or not self.theirs else self.ours / self.theirs

    @property
    def verdict(self) -> str:
        """Whether the target is met; empty without a target."""
        if self.target is None:
            return ""
        reached = self.ratio if self.target.of == "ratio" else self.ours
        if reached is None:
            return "not measured"
        if reached > self.target.limit:
            return "missed"
        return "met" if self.target.then is None or reached <= self.target.then else "met so far"

    def cells(self) -> list[str]:
        """The row as texts, in the order of ``COLUMNS``."""
        numbers = [number(each) for each in (self.ours, self.theirs, self.ratio)]
        return [self.work, self.unit, *numbers, self.than, str(self.target or ""), self.verdict]

    def as_dict(self) -> dict[str, Any]:
        """The row as JSON."""
        target = asdict(self.target) if self.target else None
        return {**asdict(self), "target": target, "ratio": self.ratio, "verdict": self.verdict}


Figures = Mapping[str, Sequence[Row]]
"""The rows of each benchmark, by its name."""


def versus(
    work: str, ours: Cost, than: str, theirs: Cost, target: Target | None = None
) -> list[Row]:
    """Return the rows of a comparison; the target is one of processor time."""
    return [
        Row(work, "CPU ms", ours.cpu, than, theirs.cpu, target),
        Row(work, "wall ms", ours.wall, than, theirs.wall),
    ]


def table(name: str, rows: Sequence[Row]) -> Table:
    """Return a benchmark's rows for a terminal."""
    colours = {"missed": "red", "met": "green", "met so far": "green"}
    drawn = Table(title=name, title_justify="left", box=box.SIMPLE_HEAD)
    for column in COLUMNS:
        drawn.add_column(column, no_wrap=column not in ("work", "compared with"))
    for row in rows:
        drawn.add_row(*row.cells(), style=colours.get(row.verdict))
    return drawn


def facts() -> dict[str, str]:
    """Return what the figures depend on; nothing that names the machine.

    Asked before anything is measured: the load is that of other processes.
    """
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": str(os.cpu_count()),
        "load": f"{os.getloadavg()[0]:.1f}",
        "sqlite": sqlite3.sqlite_version,
        **{name: _version(name) for name in PACKAGES},
    }


def as_json(figures: Figures, rounds: int, found: Mapping[str, str]) -> str:
    """Return everything as JSON, ``found`` being the facts."""
    rows = {name: [row.as_dict() for row in each] for name, each in figures.items()}
    return json.dumps({"facts": dict(found), "rounds": rounds, "figures": rows}, indent=2)


def as_markdown(figures: Figures, rounds: int, found: Mapping[str, str]) -> str:
    """Return everything as a page, ``found`` being the facts."""
    lines = ["# Benchmarks", ""]
    lines += [
        f"`make bench`, {rounds} rounds. Rivals run in turn in one process; each figure is the",
        "median over the rounds. Ratios compare, milliseconds depend on the machine.",
        "*Hand-written* is the same tree written with LangGraph alone; *as it comes* means",
        "LangGraph's SQLite saver and durability with their defaults (`synchronous=FULL`,",
        '`durability="async"`). Ours stores every step before the next, with',
        "`synchronous=NORMAL` unless it says FULL. The floor is a plain loop over the same",
        "LangChain models, with one SQLite transaction a turn. A hand-written thread's file grows",
        "with the square of its turns, to more than a gigabyte at turn 500: it is measured to",
        "turn 200. *Load* below is that of the machine before the first round: other processes",
        "raise processor time, and waiting times for the disk even more.",
        "",
    ]
    for name, rows in figures.items():
        lines += [f"## {name}", "", line(COLUMNS), line("---" for _ in COLUMNS)]
        lines += [*(line(row.cells()) for row in rows), ""]
    lines += ["## Measured with", "", *(f"- {key} {value}" for key, value in found.items()), ""]
    return "\n".join(lines)


def line(cells: Iterable[str]) -> str:
    """Return a row of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


def number(value: float | None) -> str:
    """Return a figure in three digits, or more where it is bigger."""
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def count(text: str) -> int:
    """Return an option's number of rounds."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1")
    return int(text)
