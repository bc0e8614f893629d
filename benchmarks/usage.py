"""Measures the sums of what agents have used: ``make bench-usage``.

A database as the agents of a tree leave it, each with a grant and ten calls that were charged; then
another process would sum them, group the sums, and select the views. The times are to grow as the
number of calls does.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from echelons import SqliteCheckpointer, ThreadStore
from echelons.checkpoints.ledger import Transaction, build_key
from echelons.guards.prices import Price, Prices

REPORT = Path(__file__).parents[1] / "docs" / "benchmarks" / "usage"
SIZES = (1_000, 10_000)
CALLS = 10
"""Model calls of each agent."""
TEAM = 100
"""Agents of each team."""
ROOT = "root"
PRICES = Prices("EUR", {"gpt-5-mini": Price("0.25", "2.00")})
INSERT_EVENT = (
    "INSERT INTO events (thread_id, agent_thread_id, agent_path, checkpoint_ns, checkpoint_id,"
    " at, kind, key, data) VALUES (?, ?, ?, ?, ?, ?, 'message', ?, ?)"
)


def fill_database(saver: SqliteCheckpointer, agents: int) -> None:
    """Store a grant for each of so many agents, and its calls, each with its reply and charge."""
    at = "2026-11-25T12:00:00.000000+00:00"
    events: list[tuple[str, ...]] = []

    def store(open_: Transaction) -> None:
        for number in range(agents):
            path, thread = f"head/team-{number // TEAM}/hand-{number}", f"thread-{number}"
            grant: dict[str, Any] = {
                "path": path,
                "granted": {"tokens": 9000},
                "spent": {"tokens": 5100},
            }
            grant |= {"thread_id": ROOT, "above": {"tokens": "root"}, "closed": True}
            open_.compare_and_set(
                build_key(ROOT, "grant", "turn", f"task-{number}/0/1"), None, grant
            )
            for call in range(CALLS):
                step = f"{call:032}"
                usage = {"input_tokens": 500, "output_tokens": call + 5, "total_tokens": call + 505}
                reply = {"role": "ai", "content": "Seen.", "usage": usage, "model": "gpt-5-mini"}
                events.append(
                    (ROOT, thread, path, path, step, at, f"message-{call}", json.dumps(reply))
                )
                charge = {
                    "kind": "model",
                    "path": path,
                    "agent_thread_id": thread,
                    "state": "charged",
                    "grants": {"tokens": f"task-{number}/0/1"},
                    "model": "gpt-5-mini",
                    "input_tokens": 500,
                    "output_tokens": call + 5,
                    "tokens": call + 505,
                    "checkpoint_ns": path,
                    "checkpoint_id": step,
                    "thread_id": ROOT,
                }
                key = build_key(ROOT, "charge", "turn", f"task-{number}-{call}", "model.1.0")
                open_.compare_and_set(key, None, charge)

    saver.ledger.commit(store)
    with saver.cursor() as cursor:
        cursor.executemany(INSERT_EVENT, events)


def measure_usage(agents: int, database: Path) -> dict[str, float]:
    """Return seconds and bytes by what was measured, over so many agents."""
    found: dict[str, float] = {}

    def time_work(name: str, work: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        result = work()
        found[name] = time.perf_counter() - began
        return result

    with SqliteCheckpointer(database) as saver:
        fill_database(saver, agents)
        saver.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    found["database bytes"] = database.stat().st_size
    with SqliteCheckpointer(database) as saver:
        report = time_work("usage", lambda: ThreadStore(saver).usage(ROOT, prices=PRICES))
        total = time_work("total", lambda: report.total)
        trees = time_work("by subtree", lambda: report.group("subtree"))
        query = "SELECT agent_path, sum(input_tokens) FROM usage WHERE thread_id = ? GROUP BY 1"
        rows = time_work("SQL view of usage", lambda: saver.conn.execute(query, (ROOT,)).fetchall())
        select = "SELECT * FROM grants WHERE thread_id = ?"
        grants = time_work(
            "SQL view of grants", lambda: saver.conn.execute(select, (ROOT,)).fetchall()
        )
    assert sum(read for _, read in rows) == total.input_tokens == agents * CALLS * 500
    assert len(rows) == len(grants) == len(report.grants) == agents
    assert trees["head"] == total
    found["agents"], found["charges"] = agents, total.model_calls
    return found


def format_report(figures: Sequence[dict[str, float]]) -> str:
    """Return the figures as Markdown."""
    times = ("usage", "total", "by subtree", "SQL view of usage", "SQL view of grants")
    rows = [
        ("charges", [f"{each['charges']:,.0f}" for each in figures]),
        *((name, [f"{each[name]:.3f} s" for each in figures]) for name in times),
        ("database bytes", [f"{each['database bytes']:,.0f}" for each in figures]),
    ]
    counts = [f"{each['agents']:,.0f}" for each in figures]
    return "\n".join(
        [
            "# Usage, measured",
            "",
            "Written by `make bench-usage`; [budgets and usage](../budgets.md) says of what. Each",
            "agent has a grant and ten model calls, each with its reply and its charge.",
            "",
            f"| agents | {' | '.join(counts)} |",
            f"| --- |{' ---: |' * len(figures)}",
            *(f"| {name} | {' | '.join(cells)} |" for name, cells in rows),
            "",
        ]
    )


def main(
    arguments: Sequence[str] | None = None,
    target: Path = REPORT,
    sizes: Sequence[int] = SIZES,
) -> None:
    """Measure, print and store."""
    argparse.ArgumentParser(description=__doc__).parse_args(arguments)
    with TemporaryDirectory() as kept:
        figures = [measure_usage(size, Path(kept) / f"{size}.sqlite") for size in sizes]
    text = format_report(figures)
    target.with_suffix(".md").write_text(text, encoding="utf-8")
    target.with_suffix(".json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
