"""`echelons tree`: the agents of a thread, and what each of them is doing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from echelons.cli import database, output
from echelons.cli.command import command
from echelons.cli.display.text_format import check_value_argument, escape_controls, format_duration
from echelons.cli.exit_codes import ExitCode
from echelons.cli.options import OutputOptions, ThreadOptions

if TYPE_CHECKING:
    from rich.text import Text

    from echelons.checkpoints.checkpointer import SqliteCheckpointer
    from echelons.checkpoints.threads.store import ThreadStore
    from echelons.tree.agent_registry import AgentRecord
    from echelons.tree.usage_report import GrantedAmount

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
STATE_STYLES = {
    "dismissed": "dim",
    "paused": "magenta",
    "waiting": "yellow",
    "working": "cyan",
    "failed": "bold red",
    "done": "green",
    "idle": "dim",
}
"""The style of each state on a terminal, as far as that has colours and `NO_COLOR` is not set."""
ENDED_STATES = ("done", "failed", "dismissed")
"""The states of agents that have nothing left to spend."""
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
    from rich.text import Text

    from echelons.checkpoints.threads.store import ThreadStore

    if watch and how.json:
        raise typer.BadParameter("--watch is for people, --json for programs")
    with database.open_database(place.db) as saver:
        root = database.choose_shown_root(saver, place.thread, quietly=how.json)
        store = ThreadStore(saver)

        def draw() -> Text:
            found, left = store.registry(root.id), _read_left(store, root.id)
            lines = found.list_lines(agent, depth)
            if flat:
                drawn = [
                    _format_line("", _format_path(each.agent), each.agent, left=left)
                    for each in lines
                ]
            else:
                drawn = [
                    _format_line(one.guide, one.name, one.agent, one.rest, left) for one in lines
                ]
                if agent and found.ancestors(agent):
                    drawn.insert(0, Text(escape_controls(found.format_breadcrumbs(agent))))
            return Text("\n").join(drawn)

        if how.json:
            lines = store.registry(root.id).list_lines(agent, depth)
            granted = store.grants(root.id)
            listed = [_to_json(each.agent, granted) for each in lines]
            output.print_json({"thread": database.root_label(root), "agents": listed})
        elif watch:
            return _watch(saver, draw)
        else:
            output.print_drawing(draw(), soft_wrap=True)
    return ExitCode.FINISHED


def _watch(saver: SqliteCheckpointer, draw: Callable[[], Text]) -> ExitCode:
    """Show the agents, and show them anew whenever something is stored, until Ctrl-C."""
    from rich.live import Live

    written = None
    with Live(console=output.make_console(sys.stdout), auto_refresh=False) as live:
        try:
            while True:
                if (now := saver.foreign_writes()) != written:
                    live.update(draw(), refresh=True)
                    written = now
                time.sleep(POLL_INTERVAL)
        except KeyboardInterrupt:
            return ExitCode.INTERRUPTED


def _read_left(store: ThreadStore, root: str) -> dict[str, list[str]]:
    """Return what is left of the budgets of the agents at work, by path."""
    from echelons.errors import LedgerDamaged

    left: dict[str, list[str]] = {}
    try:
        for each in store.grants(root):
            left.setdefault(each.path, []).append(each.describe_left())
    except LedgerDamaged as error:
        # Nothing is free then; the agents are shown nevertheless.
        output.print_remark(f"budgets are not shown: {error}")
    return left


def _format_path(agent: AgentRecord) -> str:
    return f"{agent.path} ({agent.alias})" if agent.alias else agent.path


def _format_line(
    guide: str,
    name: str,
    agent: AgentRecord,
    rest: str = "",
    left: Mapping[str, Sequence[str]] | None = None,
) -> Text:
    """Return the line of an agent: what it is doing, in the colour of its state, and its age.

    After it comes what is left of its budgets.
    """
    from rich.text import Text

    from echelons.checkpoints.clock import utc_now
    from echelons.tree.agent_registry import describe_state

    doing = describe_state(agent).removeprefix(agent.state)
    # The grant of a root is there until its next turn.
    own = () if agent.state in ENDED_STATES or left is None else left.get(agent.path, ())
    budget = ", ".join(own)
    age = ""
    if agent.since:
        seconds = (utc_now() - datetime.fromisoformat(agent.since)).total_seconds()
        age = f" [{format_duration(max(seconds, 0))}]"
    return Text.assemble(
        (guide, "dim"),
        f"{escape_controls(name)}: ",
        (str(agent.state), STATE_STYLES[agent.state]),
        escape_controls(doing),
        (f"{age}{f' ({escape_controls(budget)})' if budget else ''}{rest}", "dim"),
    )


def _to_json(agent: AgentRecord, granted: Sequence[GrantedAmount]) -> dict[str, Any]:
    own = [each.to_json() for each in granted if each.path == agent.path]
    shown = {"name": agent.name, "level": agent.level, **asdict(agent), "state": str(agent.state)}
    return {**shown, "grants": own} if own else shown
