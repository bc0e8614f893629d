"""Upkeep of a database, even while in use: `repair`, `breakers`, `prune`, `delete` and others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from echelons.checkpoints.default_path import expand_home
from echelons.cli import database, output
from echelons.cli.command import (
    ByOption,
    DatabaseOptions,
    ExitCode,
    OutputOptions,
    ThreadArgument,
    ThreadOptions,
    check_text,
    command,
    text_option,
)
from echelons.cli.output import build_command_line, format_count, format_duration
from echelons.errors import LedgerDamaged, StorageError, ThreadBusy
from echelons.identity.lineage import choose_user_name

if TYPE_CHECKING:
    from echelons.checkpoints.checkpointer import SqliteCheckpointer
    from echelons.checkpoints.ledger import Lease
    from echelons.checkpoints.maintenance.retention_policies import Strategy
    from echelons.checkpoints.threads.repair import HideableMessage

AGE_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_age(text: str) -> timedelta:
    """Return the duration that a number with a unit denotes.

    >>> parse_age("36h"), parse_age("2w")
    (datetime.timedelta(days=1, seconds=43200), datetime.timedelta(days=14))
    """
    match = re.fullmatch(r"(\d{1,6})([smhdw])", text)
    if match is None:
        raise typer.BadParameter(f"{text!r} is no age; give one such as 90m, 36h, 30d or 2w")
    return timedelta(**{AGE_UNITS[match[2]]: int(match[1])})


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
CloseOption = Annotated[
    str | None,
    text_option(
        "--close",
        "PATH",
        "Close the circuit of the agent at this path, or of all with this name, so that it "
        "gets requests again.",
        check=check_text,
    ),
]
LatestOption = Annotated[
    int | None,
    typer.Option(
        "--latest", metavar="N", min=1, help="Keep the latest N checkpoints of every agent."
    ),
]
TurnsOption = Annotated[
    int | None, typer.Option("--turns", metavar="N", min=0, help="Keep the last N finished turns.")
]
YoungerOption = Annotated[
    timedelta | None,
    typer.Option(
        "--younger",
        metavar="AGE",
        parser=parse_age,
        help="Keep checkpoints younger than this, such as [b]36h[/b], [b]30d[/b] or [b]2w[/b].",
    ),
]
EveryOption = Annotated[bool, typer.Option("--all", "-a", help="Prune every thread.")]
EventsOption = Annotated[bool, typer.Option("--events", help="Delete the events, too.")]
DryOption = Annotated[bool, typer.Option("--dry-run", help="Only count what would be deleted.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Delete without asking first.")]
FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The new file.")]


@command(
    "repair", "repair 3f1c2b1e-0d5a-4c3e-9a57-2f6d8e1b7c40 --thread trip", "repair --undo --json"
)
def repair(
    ids: IdsArgument = None,
    undo: UndoOption = False,
    by: ByOption = None,
    *,
    place: ThreadOptions,
    how: OutputOptions,
) -> None:
    """Hide messages of a thread from its models, or list which could be hidden, and why.

    For a thread that does not go on, as a provider refuses what is in it.
    The messages stay in the thread. No model is called, and no team is
    loaded. Without [b]--thread[/b], it is the latest thread.
    """
    from echelons.checkpoints.threads.repair import list_hideable, repair_thread

    is_change = bool(ids) or undo
    with database.open_thread(place, quietly=how.json) as thread:
        label = thread.label
        if is_change:
            name = choose_user_name(by)
            with _take_lease(thread.saver, thread.id, label) as lease:
                plan = repair_thread(thread.id, label, ids or [], name, lease.fence, undo=undo)
                messages = thread.run(plan)
        else:
            messages = thread.run(list_hideable(thread.id))
    if not messages:
        text = "nothing is hidden" if is_change else "nothing that a provider may refuse"
        remark = f"{text} in thread {label}"
    elif is_change:
        again = build_command_line("resume", "--thread", label, db=place.db)
        remark = f"go on with: {again}, or with a new task"
    else:
        again = build_command_line("repair", "MESSAGE_ID", "--thread", label, db=place.db)
        remark = f"hide some with: {again}"
    output.print_outcome(
        {"thread": label, "messages": [asdict(message) for message in messages]},
        _format_messages(messages),
        remark,
        as_json=how.json,
    )


def _format_messages(messages: list[HideableMessage]) -> Iterator[str]:
    for message in messages:
        mark = "hidden  " if message.hidden else ""
        size = f"{message.size:,} characters"
        yield f"{message.id}  {mark}{message.path}  {message.kind}  {size}"
        if message.preview:
            yield f"    {message.preview}"
        for why in message.why:
            yield f"    it {why}" if why.startswith(("has", "is", "calls")) else f"    {why}"


@contextmanager
def _take_lease(
    saver: SqliteCheckpointer, thread_id: str, label: str, *, damaged: bool = False
) -> Iterator[Lease]:
    """Hold the lease of a thread, also a `damaged` one.

    Raises:
        ThreadBusy: A process is running the thread.
    """
    from echelons.checkpoints.ledger import build_key

    key = build_key(thread_id)
    try:
        try:
            lease = saver.ledger.lease(key)
        except LedgerDamaged:
            if not damaged:
                raise
            lease = saver.ledger.take_over(key)
        with lease:
            yield lease
    except ThreadBusy as busy:
        raise ThreadBusy(label, busy.pid, busy.since) from busy


@command("breakers", "breakers --close flights")
def breakers(close: CloseOption = None, *, place: DatabaseOptions, how: OutputOptions) -> None:
    """List the circuit breakers of agents that have failed."""
    from echelons.checkpoints.coordination.candidates import close_circuits, list_circuits

    with database.open_database(place.db) as saver:
        if close is not None:
            close_circuits(saver.ledger, close)
        circuits = list_circuits(saver.ledger)
    for circuit in circuits:
        wait = f", tried again in {format_duration(circuit.wait)}" if circuit.wait else ""
        scope = f" (scope {circuit.scope})" if circuit.scope else ""
        times = f"{format_count(circuit.failures, 'failure')} in a row"
        output.print_outcome(
            {**circuit._asdict(), "state": str(circuit.state)},
            [f"{circuit.path}{scope}: {circuit.state}, {times}{wait}"],
            as_json=how.json,
        )
    if not circuits and not how.json:
        output.print_remark("every circuit is closed")


@command(
    "prune --thread trip",
    "prune --thread trip --turns 3 --dry-run",
    "prune --all --younger 30d --json",
)
def prune(  # noqa: PLR0913  its options
    latest: LatestOption = None,
    turns: TurnsOption = None,
    younger: YoungerOption = None,
    every: EveryOption = False,
    events: EventsOption = False,
    dry: DryOption = False,
    *,
    place: ThreadOptions,
    how: OutputOptions,
) -> None:
    """Delete old checkpoints of a thread. Its conversation stays whole and can be continued.

    You can no longer go back to a deleted checkpoint. Without --latest, --turns or --younger,
    the latest checkpoint of every agent is kept.
    """
    keep = _choose_strategy(latest, turns, younger)
    if every and place.thread is not None:
        raise typer.BadParameter("give --thread or --all, not both")
    with database.open_database(place.db) as saver:
        roots = database.list_roots(saver) if every else [database.choose_root(saver, place.thread)]
        for root in roots:
            removed = saver.retain([root.id], keep, events=not events, dry_run=dry)._asdict()
            name = database.root_label(root)
            counts = ", ".join(f"{count} {table}" for table, count in removed.items())
            done = "would be taken out" if dry else "taken out"
            output.print_outcome(
                {"thread": name, "thread_id": root.id, **removed, "dry_run": dry},
                [f"{name}: {counts} {done}"],
                as_json=how.json,
            )


def _choose_strategy(latest: int | None, turns: int | None, younger: timedelta | None) -> Strategy:
    from echelons.checkpoints.maintenance.retention_policies import (
        KeepLatest,
        KeepTurns,
        KeepYounger,
    )

    if (latest, turns, younger).count(None) < 2:
        raise typer.BadParameter("give one of --latest, --turns and --younger")
    if turns is not None:
        return KeepTurns(turns)
    return KeepYounger(younger) if younger is not None else KeepLatest(latest or 1)


@command("delete trip", "delete trip --yes")
def delete(
    thread: ThreadArgument, yes: YesOption = False, *, place: DatabaseOptions, how: OutputOptions
) -> None:
    """Delete a thread with those of all its agents: conversations, checkpoints and events.

    A thread that a process is running is refused. What is deleted cannot be restored.
    """
    with database.open_database(place.db) as saver:
        root = database.find_root(saver, thread)
        label = database.root_label(root)
        if not yes:
            output.confirm(f"Delete thread {label}?")
        # A thread whose lease is damaged can only be deleted.
        with _take_lease(saver, root.id, label, damaged=True):
            saver.delete_thread(root.id)
    output.print_outcome(
        {"deleted": label, "thread_id": root.id}, [f"deleted thread {label}"], as_json=how.json
    )


@command("doctor", "doctor --db trips.sqlite --json")
def doctor(*, place: DatabaseOptions, how: OutputOptions) -> ExitCode:
    """Check the database: the file, every row, and every link between threads."""
    from echelons.checkpoints.maintenance.integrity_check import IntegrityFault, IntegrityReport
    from echelons.checkpoints.storage.connection import is_damage

    try:
        with database.open_database(place.db) as saver:
            report = saver.check()
    except StorageError as error:
        # So damaged that it cannot be opened.
        if not is_damage(error):
            raise
        report = IntegrityReport(0, 0, (IntegrityFault("the file", error.why),))
    faults = [{"where": fault.where, "why": fault.why} for fault in report.faults]
    outcome = "sound" if report.is_sound else f"{len(faults)} faults"
    summary = f"{outcome}: {report.rows} rows of {report.threads} threads"
    counts = {"rows": report.rows, "threads": report.threads}
    output.print_outcome(
        {"sound": report.is_sound, **counts, "faults": faults},
        [*map(str, report.faults), summary],
        as_json=how.json,
    )
    return ExitCode.FINISHED if report.is_sound else ExitCode.BROKEN


@command("backup trips-monday.sqlite")
def backup(file: FileArgument, *, place: DatabaseOptions, how: OutputOptions) -> None:
    """Copy the database, also while it is in use, into a new file that only you can read."""
    target = expand_home(file)
    with database.open_database(place.db) as saver:
        saver.backup(target)
        source = saver.path
    size = target.stat().st_size
    output.print_outcome(
        {"database": source, "backup": str(target), "bytes": size},
        [f"{source} is backed up in {target}, {size / 1e6:.1f} MB"],
        as_json=how.json,
    )
