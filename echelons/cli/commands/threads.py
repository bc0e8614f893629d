"""`echelons threads` and `echelons show`: the threads, and the conversation of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from echelons.cli import database, output, unfinished_threads
from echelons.cli.command import command
from echelons.cli.completion import complete_thread
from echelons.cli.display.conversation import conversation
from echelons.cli.display.text_format import clean, named
from echelons.cli.exit_codes import ExitCode
from echelons.cli.options import Output, Place
from echelons.errors import ThreadNotFound
from echelons.identity.lineage import root_thread_id
from echelons.tree.names import PATH_SEPARATOR

if TYPE_CHECKING:
    from rich.table import Table

    from echelons.checkpoints.threads.store import ThreadStore
    from echelons.checkpoints.threads.trace import Trace

ShownArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="THREAD",
        help="A thread by name or id, the id of any agent's thread too.",
        autocompletion=complete_thread,
        callback=named,
        show_default=False,
    ),
]
AllOption = Annotated[bool, typer.Option("--all", "-a", help="Every agent's thread, too.")]


@command
def threads(every: AllOption = False, *, place: Place, how: Output) -> ExitCode:
    """List the threads of the database, latest first."""
    from echelons.checkpoints.threads.store import ThreadStore

    with database.reading(place.db) as saver:
        found = unfinished_threads.standings(saver, place.thread)
        rows = list(_rows(ThreadStore(saver), found, every))
    if how.json:
        for row in rows:
            output.tell_json(row)
    elif rows:
        output.tell_drawn(_table(rows))
    else:
        output.remark("no thread yet; `echelons run` begins one")
    return ExitCode.FINISHED


def _rows(
    store: ThreadStore, found: Sequence[unfinished_threads.Standing], every: bool
) -> Iterator[dict[str, Any]]:
    for each in found:
        root = each.root
        yield {
            "thread": database.label(root),
            "agent": root.agent,
            "state": str(each.state),
            "turns": root.turns,
            "updated_at": root.updated_at,
            "thread_id": root.id,
        }
        if every:
            yield from _below(store.trace(root.id), root.agent)


def _below(trace: Trace, path: str) -> Iterator[dict[str, Any]]:
    for each in trace.subordinates:
        place = f"{path}{PATH_SEPARATOR}{each.agent}"
        yield {
            "thread": "",
            "agent": place,
            "state": each.status,
            "turns": len(each.requests),
            "updated_at": "",
            "thread_id": each.thread_id,
        }
        yield from _below(each, place)


def _table(rows: Sequence[dict[str, Any]]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("THREAD", "AGENT", "STATE", "TURNS", "UPDATED", "ID"):
        table.add_column(column, justify="right" if column == "TURNS" else "left")
    for row in rows:
        table.add_row(
            clean(row["thread"]),
            clean(row["agent"]),
            row["state"],
            str(row["turns"]),
            _local(row["updated_at"]),
            row["thread_id"],
        )
    return table


def _local(moment: str) -> str:
    return f"{datetime.fromisoformat(moment).astimezone():%Y-%m-%d %H:%M}" if moment else ""


@command
def show(shown: ShownArgument = None, *, place: Place, how: Output) -> ExitCode:
    """Print the conversation of a thread: who said what, and which thread each call began.

    Without [b]THREAD[/b] it is the latest.
    """
    from echelons.checkpoints.threads.store import ThreadStore

    if shown is not None and place.thread is not None:
        raise typer.BadParameter("give THREAD or --thread, not both")
    with database.reading(place.db) as saver:
        wanted = shown or database.root_shown(saver, place.thread, quietly=how.json).id
        store = ThreadStore(saver)
        try:
            found = store.get(wanted)
        except ThreadNotFound:
            try:
                found = store.get(root_thread_id(wanted))
            except ThreadNotFound:
                raise ThreadNotFound(wanted) from None
    if how.json:
        for event in found.events:
            output.tell_json({"kind": str(event.kind), "key": event.key, "data": event.data})
    else:
        path = PATH_SEPARATOR.join(found.path)
        output.tell(f"{path}  thread {found.id}\n")
        output.tell(conversation(found.agent, found.events))
    return ExitCode.FINISHED
