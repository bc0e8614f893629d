"""`echelons tree`: the agents of a thread, and what each of them is doing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from echelons.cli import database, output
from echelons.cli.command import command
from echelons.cli.display.text_format import check_value_argument, format_duration
from echelons.cli.exit_codes import ExitCode
from echelons.cli.options import OutputOptions, ThreadOptions

if TYPE_CHECKING:
    from echelons.checkpoints.checkpointer import SqliteCheckpointer
    from echelons.tree.agent_registry import AgentRecord, AgentRegistry

AgentArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="AGENT",
        help="The agent at the top, by its path, id or alias; by default the root.",
        callback=check_value_argument,
    ),
]
DepthOption = Annotated[
    int | None,
    typer.Option("--depth", metavar="LEVELS", min=0, help="Show so many levels below the top."),
]
FlatOption = Annotated[
    bool, typer.Option("--flat", help="Show a line for each agent, with its path.")
]
WatchOption = Annotated[
    bool, typer.Option("--watch", help="Show each change as it is stored, until Ctrl-C.")
]
POLL_INTERVAL = 0.2
"""Seconds between two looks at the database of `tree --watch`."""


@command
def tree(
    agent: AgentArgument = None,
    depth: DepthOption = None,
    flat: FlatOption = False,
    watch: WatchOption = False,
    *,
    place: ThreadOptions,
    how: OutputOptions,
) -> ExitCode:
    """Show the agents that were called on a thread, and what each of them is doing.

    Without [b]--thread[/b], the latest thread is shown.
    """
    from echelons.checkpoints.threads.store import ThreadStore

    if watch and how.json:
        raise typer.BadParameter("--watch is for people, --json for programs")
    with database.open_database(place.db) as saver:
        root = database.choose_shown_root(saver, place.thread, quietly=how.json)
        store = ThreadStore(saver)

        def draw() -> str:
            found = store.registry(root.id)
            if flat:
                return "\n".join(map(_format_line, _select(found, agent, depth)))
            way = found.format_breadcrumbs(agent) if agent else ""
            above = [way] if way and found.ancestors(agent or "") else []
            return "\n".join([*above, found.draw(agent, depth, _describe)])

        if how.json:
            shown = _select(store.registry(root.id), agent, depth)
            listed = [_to_json(each) for each in shown]
            output.print_json({"thread": database.root_label(root), "agents": listed})
        elif watch:
            return _watch(saver, draw)
        else:
            output.print_result(draw())
    return ExitCode.FINISHED


def _watch(saver: SqliteCheckpointer, draw: Callable[[], str]) -> ExitCode:
    """Show the agents, and show them anew whenever something is stored, until Ctrl-C."""
    from rich.live import Live
    from rich.text import Text

    written = None
    with Live(console=output.make_console(sys.stdout), auto_refresh=False) as live:
        try:
            while True:
                if (now := saver.foreign_writes()) != written:
                    live.update(Text(draw()), refresh=True)
                    written = now
                time.sleep(POLL_INTERVAL)
        except KeyboardInterrupt:
            return ExitCode.INTERRUPTED


def _select(found: AgentRegistry, agent: str | None, depth: int | None) -> list[AgentRecord]:
    """Return an agent and those below it, as many levels as are wanted."""
    top, *below = found.subtree(agent or found.agents[0].path)
    return [top, *(each for each in below if depth is None or each.level <= top.level + depth)]


def _format_line(agent: AgentRecord) -> str:
    alias = f" ({agent.alias})" if agent.alias else ""
    return f"{agent.path}{alias}: {_describe(agent)}"


def _describe(agent: AgentRecord) -> str:
    """Return what an agent is doing, with its age."""
    from echelons.checkpoints.clock import utc_now
    from echelons.tree.agent_registry import describe_state

    said = describe_state(agent)
    if not agent.since:
        return said
    age = (utc_now() - datetime.fromisoformat(agent.since)).total_seconds()
    return f"{said} [{format_duration(max(age, 0))}]"


def _to_json(agent: AgentRecord) -> dict[str, Any]:
    return {"name": agent.name, "level": agent.level, **asdict(agent), "state": str(agent.state)}
