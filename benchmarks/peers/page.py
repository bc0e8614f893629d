"""The comparison as tables for a terminal, a page and JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.peers.compare import Result, Scale
from benchmarks.peers.work import CHAIN, CROWD, THREAD, TYPED
from benchmarks.report import line, number
from benchmarks.rivals import FLOOR, OURS, OURS_FULL

Table = tuple[Sequence[str], Sequence[Sequence[str]]]
"""Columns, and the cells of each row."""
WHO = ("framework", "setting")


def tables(results: Sequence[Result], scale: Scale) -> dict[str, Table]:
    """Return the tables by their titles."""
    last = max(scale.turns)
    return {
        "Three-level chain": _chain(results),
        "Three-level chain, typed": _typed(results),
        f"{scale.size.crowd} subordinates at once": _crowd(results, scale),
        f"One thread of {last} turns": _thread(results, scale),
        "What is stored of the chain": _kept(results),
    }


def _chain(results: Sequence[Result]) -> Table:
    rows = []
    for each in results:
        cells = _missing(each, CHAIN, 2)
        if each.chain:
            cells = [number(each.chain.cpu), number(each.chain.wall)]
        rows.append([*_who(each), *cells])
    return (*WHO, "CPU ms", "wall ms"), rows


def _typed(results: Sequence[Result]) -> Table:
    rows = []
    for each in results:
        cells = _missing(each, TYPED, 2)
        if each.typed:
            cells = [number(each.typed.cpu), number(each.typed.wall)]
        if each.typed or TYPED in each.wrong:
            rows.append([*_who(each), *cells])
    return (*WHO, "CPU ms", "wall ms"), rows


def _crowd(results: Sequence[Result], scale: Scale) -> Table:
    ideal = 3 * scale.size.latency * 1e3
    rows = []
    for each in results:
        cells = _missing(each, CROWD, 3)
        if each.crowd:
            cells = [
                number(each.crowd.wall / ideal),
                number(each.crowd.wall),
                number(each.crowd.cpu),
            ]
        rows.append([*_who(each), *cells])
    return (*WHO, "wall ÷ ideal", "wall ms", "CPU ms"), rows


def _thread(results: Sequence[Result], scale: Scale) -> Table:
    columns = [f"CPU ms, turn {turn}" for turn in scale.turns]
    columns += [f"MB, turn {turn}" for turn in scale.turns]
    rows = []
    for each in results:
        cells = _missing(each, THREAD, len(columns))
        if each.turns:
            cells = [number(each.turns[turn].cpu) for turn in scale.turns]
            cells += [number(each.sizes[turn]) for turn in scale.turns]
        rows.append([*_who(each), *cells])
    return (*WHO, *columns), rows


def _kept(results: Sequence[Result]) -> Table:
    leaf = {True: "yes", False: "no", None: ""}
    rows = [
        [
            *_who(each),
            each.entry.keeps,
            leaf[each.leaf],
            each.entry.synchronous,
            ", ".join(f"{name} {version}" for name, version in each.versions.items()),
        ]
        for each in results
    ]
    return (*WHO, "what, and when", "the leaf's steps", "synchronous", "versions"), rows


def _who(result: Result) -> list[str]:
    setting = result.entry.setting.removeprefix("hand-written, ")
    return [result.entry.name, {OURS: "NORMAL", OURS_FULL: "FULL", FLOOR: ""}.get(setting, setting)]


def _missing(result: Result, work: str, cells: int) -> list[str]:
    return [result.wrong.get(work, ""), *[""] * (cells - 1)]


def _read_this(scale: Scale) -> list[str]:
    latency = scale.size.latency * 1e3
    return [
        f"`make bench-peers`, {scale.rounds} rounds, all in an event loop. Each framework runs in",
        "a process and an environment of its own, with a model of its own kind without latency,",
        "and measures itself; the runner lets them run in turn, one round each. Each figure is the",
        "median over the rounds. Milliseconds depend on the machine and on its load, and so do",
        "their ratios: who is ahead here need not be elsewhere. *As it comes* is a framework with",
        "its defaults, with its state on SQLite; the second setting of each is the most durable",
        "one that we found for it. Ours has `synchronous=NORMAL` by default; nearly all others",
        "use `FULL`. A work counts only if every model turn and tool call that belongs to it was",
        "made.",
        "",
        "The chain: a root, its subordinate and theirs, two model turns each, one tool call at the",
        "leaf. The typed chain: three levels whose arguments and answers are validated pydantic",
        "models, two model turns at the first two, one at the leaf; told of frameworks with typed",
        f"subagents. The crowd: a root that calls {scale.size.crowd} subordinates in one turn,",
        f"with a model of {latency:.0f} ms; ideal are three model turns. The thread: one agent,",
        "1.2 KB a turn. *The leaf's steps* was looked up in the database: whether the result of",
        "the leaf's tool is there. A framework that stores less does less work. *Load* below is",
        "that of the machine before the first round: other processes raise processor time, and",
        "waiting times for the disk even more.",
    ]


def as_markdown(results: Sequence[Result], scale: Scale, facts: Mapping[str, str]) -> str:
    """Return everything as a page."""
    lines = ["# Beside other frameworks", "", *_read_this(scale), ""]
    for title, (columns, rows) in tables(results, scale).items():
        lines += [f"## {title}", "", line(columns), line("---" for _ in columns)]
        lines += [*(line(row) for row in rows), ""]
    lines += ["## Measured with", "", *(f"- {key} {value}" for key, value in facts.items()), ""]
    return "\n".join(lines)


def as_json(results: Sequence[Result], scale: Scale, facts: Mapping[str, str]) -> str:
    """Return everything as JSON."""
    figures: list[dict[str, Any]] = [asdict(each) for each in results]
    given = {"facts": dict(facts), "scale": asdict(scale), "figures": figures}
    return json.dumps(given, indent=2)
