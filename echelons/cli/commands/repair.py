"""`echelons repair`: hides messages of a thread from its models, or lists which could be hidden."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from echelons.cli import database, output
from echelons.cli.command import command
from echelons.cli.display.text_format import build_command_line
from echelons.cli.exit_codes import ExitCode
from echelons.cli.options import ByOption, OutputOptions, ThreadOptions
from echelons.errors import ThreadBusy
from echelons.identity.lineage import choose_user_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from echelons.checkpoints.checkpointer import SqliteCheckpointer
    from echelons.checkpoints.threads.repair import HideableMessage
    from echelons.checkpoints.threads.store import RootThread

IdsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[MESSAGE_ID]...",
        help="The messages to hide, with the results of their calls; without any, they are listed.",
        show_default=False,
    ),
]
UndoOption = Annotated[
    bool, typer.Option("--undo", help="Show them again: those named, or all that are hidden.")
]


@command
def repair(
    ids: IdsArgument = None,
    undo: UndoOption = False,
    by: ByOption = None,
    *,
    place: ThreadOptions,
    how: OutputOptions,
) -> ExitCode:
    """Hide messages of a thread from its models, or list which could be hidden, and why.

    For a thread that does not go on, as a provider refuses what is in it.
    The messages stay in the thread. No model is called, and no team is
    loaded. Without [b]--thread[/b], it is the latest thread.
    """
    from echelons.checkpoints.queries import run_plan
    from echelons.checkpoints.threads.repair import list_hideable

    with database.open_database(place.db) as saver:
        root = database.choose_shown_root(saver, place.thread, quietly=how.json)
        is_change = bool(ids) or undo
        if is_change:
            found = _change(saver, root, ids or [], choose_user_name(by), undo=undo)
        else:
            found = run_plan(saver, list_hideable(root.id))
    thread = database.root_label(root)
    if how.json:
        output.print_json({"thread": thread, "messages": [asdict(each) for each in found]})
        return ExitCode.FINISHED
    for line in _format_messages(found):
        output.print_result(line)
    if not found:
        text = "nothing is hidden" if is_change else "nothing that a provider may refuse"
        output.print_remark(f"{text} in thread {thread}")
    elif is_change:
        again = build_command_line("resume", "--thread", thread, db=place.db)
        output.print_remark(f"go on with: {again}, or with a new task")
    else:
        again = build_command_line("repair", "MESSAGE_ID", "--thread", thread, db=place.db)
        output.print_remark(f"hide some with: {again}")
    return ExitCode.FINISHED


def _change(
    saver: SqliteCheckpointer, root: RootThread, ids: list[str], by: str, *, undo: bool
) -> list[HideableMessage]:
    """Hide messages, or show them again, under the lease of the thread."""
    from echelons.checkpoints.ledger import build_key
    from echelons.checkpoints.queries import run_plan
    from echelons.checkpoints.threads.repair import repair_thread

    thread = database.root_label(root)
    try:
        with saver.ledger.lease(build_key(root.id)) as lease:
            return run_plan(saver, repair_thread(root.id, thread, ids, by, lease.fence, undo=undo))
    except ThreadBusy as busy:
        raise ThreadBusy(thread, busy.pid, busy.since) from busy


def _format_messages(messages: list[HideableMessage]) -> Iterator[str]:
    for each in messages:
        mark = "hidden  " if each.hidden else ""
        yield f"{each.id}  {mark}{each.path}  {each.kind}  {each.size:,} characters"
        if each.preview:
            yield f"    {each.preview}"
        for why in each.why:
            yield f"    it {why}" if why.startswith(("has", "is", "calls")) else f"    {why}"
