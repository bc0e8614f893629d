"""Measures the registry of agents, and spawning: ``make bench-registry``.

A tree of three levels calls each of its agents; then a new process would read the registry, draw
it, and select the view ``agents``. Another agent makes all of its subordinates at run time, so many
in each message. The times are to grow as the number of agents does.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from langchain_core.messages import BaseMessage

from echelons import (
    Agent,
    Limits,
    Permissions,
    Session,
    Spawn,
    SqliteCheckpointer,
    ThreadStore,
    subordinate,
)
from echelons.checkpoints.coordination.agent_aliases import assign_alias
from echelons.testing import Call, ScriptedModel, delegate
from echelons.tree.name_themes import load_theme

REPORT = Path(__file__).parents[1] / "docs" / "benchmarks" / "registry"
SIZES = (1_000, 10_000)
SPAWNED = (100, 1_000)
"""Numbers of agents that are made at run time."""


def build_wide_tree(agents: int, width: int) -> Agent:
    """Return a head with teams, each with so many hands, all of whom are called once.

    Args:
        agents: Number of hands.
        width: Number of hands of a team.
    """
    scripts: dict[str, Any] = {}
    teams: list[Agent] = []
    for team in range(agents // width):
        names = [f"hand-{team}-{number}" for number in range(width)]
        hands = [subordinate(lambda task: "done", name=name) for name in names]
        teams.append(Agent(f"team-{team}", subordinates=hands))
        scripts[f"team-{team}"] = [[delegate(name, "do") for name in names], "the team is done"]
    scripts["head"] = [[delegate(each.name, "go") for each in teams], "over"]
    limits = Limits(steps=100 * agents)
    return Agent("head", model=ScriptedModel(scripts), subordinates=teams, limits=limits)


def measure_registry(agents: int, width: int, database: Path) -> dict[str, float]:
    """Run a tree of so many agents, and return seconds and bytes by what was measured."""
    found: dict[str, float] = {}

    def time_work(name: str, work: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        result = work()
        found[name] = time.perf_counter() - began
        return result

    with Session(build_wide_tree(agents, width), database) as session:
        time_work("run", lambda: session.send("go").result())
        root = session.thread_id
    found["database bytes"] = database.stat().st_size
    with SqliteCheckpointer(database) as saver:
        store = ThreadStore(saver)
        registry = time_work("registry", lambda: store.registry(root))
        drawn = time_work("tree", registry.draw)
        ids = [each.id for each in registry.agents]
        time_work("aliases", lambda: assign_aliases(saver, root, ids))
        named = time_work("registry with aliases", lambda: store.registry(root))
        found["aliases given"] = len({each.alias for each in named.agents})
        query = "SELECT * FROM agents WHERE thread_id = ?"
        rows = time_work("SQL view", lambda: saver.conn.execute(query, (root,)).fetchall())
    found["agents"] = len(registry.agents)
    found["tree bytes"] = len(drawn.encode())
    found["rows of the view"] = len(rows)
    return found


def build_spawning_tree(agents: int, width: int) -> Agent:
    """Return a head that makes so many agents, `width` in each message, and keeps them."""

    def lead(messages: Sequence[BaseMessage]) -> Any:
        made = sum(each.type == "tool" for each in messages)
        arguments = {"message": "do", "keep": True}
        return [
            Call("spawn_subordinate", {"role": f"hand {made + place}", **arguments})
            for place in range(min(width, agents - made))
        ] or "over"

    rules = Permissions(spawn=Spawn(at_once=agents, total=agents, levels=1))
    model = ScriptedModel({"head": lead, "*": lambda _: "done"})
    limits = Limits(steps=100 * agents)
    return Agent("head", model=model, permissions=rules, limits=limits, theme="birds")


def measure_spawning(agents: int, width: int, database: Path) -> dict[str, float]:
    """Let an agent make so many, and return processor time and bytes by what was measured."""
    # Of the processor, in all threads: it depends less on what else the machine does.
    began = time.process_time()
    with Session(build_spawning_tree(agents, width), database) as session:
        session.send("go").result()
        spent = time.process_time() - began
        began = time.process_time()
        registry = session.registry()
        read = time.process_time() - began
    found = {"agents": len(registry.agents), "run": spent, "registry": read}
    found["names for people"] = len({each.alias for each in registry.agents[1:]})
    return {**found, "database bytes": database.stat().st_size}


def assign_aliases(saver: SqliteCheckpointer, root: str, ids: Sequence[str]) -> None:
    """Give each agent an alias, each in a commit of its own."""
    theme = load_theme("birds")
    for each in ids:
        saver.ledger.commit(
            partial(assign_alias, root_thread=root, agent_id=each, theme=theme, seed=root)
        )


def format_report(figures: Sequence[dict[str, float]], spawned: Sequence[dict[str, float]]) -> str:
    """Return the figures as Markdown."""
    times = ("run", "registry", "tree", "SQL view", "aliases", "registry with aliases")
    sizes = ("database bytes", "tree bytes")
    rows = [
        *((name, [f"{each[name]:.3f} s" for each in figures]) for name in times),
        *((name, [f"{each[name]:,.0f}" for each in figures]) for name in sizes),
    ]
    made = [
        *((name, [f"{each[name]:.3f} s" for each in spawned]) for name in ("run", "registry")),
        ("database bytes", [f"{each['database bytes']:,.0f}" for each in spawned]),
    ]
    return "\n".join(
        [
            "# The registry of agents, measured",
            "",
            "Written by `make bench-registry`; [the living tree](../living_tree.md) says of what.",
            "",
            *_format_table(figures, rows),
            "",
            "## Spawning",
            "",
            "One agent makes the others at run time, 50 in each message; then the registry is",
            "read. The times are those of the processor.",
            "",
            *_format_table(spawned, made),
            "",
        ]
    )


def _format_table(
    figures: Sequence[dict[str, float]], rows: Sequence[tuple[str, list[str]]]
) -> list[str]:
    counts = [f"{each['agents']:,.0f}" for each in figures]
    return [
        f"| agents | {' | '.join(counts)} |",
        f"| --- |{' ---: |' * len(figures)}",
        *(f"| {name} | {' | '.join(cells)} |" for name, cells in rows),
    ]


def main(
    arguments: Sequence[str] | None = None,
    target: Path = REPORT,
    sizes: Sequence[int] = SIZES,
    width: int = 50,
    spawned: Sequence[int] = SPAWNED,
) -> None:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--spawning", action="store_true", help="measure spawning only, and keep what is stored"
    )
    stored = target.with_suffix(".json")
    with TemporaryDirectory() as kept:
        if parser.parse_args(arguments).spawning:
            figures = json.loads(stored.read_text(encoding="utf-8"))["registry"]
        else:
            figures = [
                measure_registry(size, width, Path(kept) / f"{size}.sqlite") for size in sizes
            ]
        made = [measure_spawning(each, width, Path(kept) / f"made-{each}") for each in spawned]
    text = format_report(figures, made)
    target.with_suffix(".md").write_text(text, encoding="utf-8")
    whole = {"registry": figures, "spawning": made}
    stored.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
