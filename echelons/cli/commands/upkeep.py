"""`echelons prune`, `delete`, `doctor` and `backup`: upkeep of a database, even while in use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from echelons.checkpoints.default_path import expand_home
from echelons.cli import database, output
from echelons.cli.command import command
from echelons.cli.exit_codes import ExitCode
from echelons.cli.options import DatabaseOptions, OutputOptions, ThreadArgument, ThreadOptions
from echelons.errors import LedgerDamaged, StorageError, ThreadBusy

if TYPE_CHECKING:
    from echelons.checkpoints.ledger import Lease, Ledger
    from echelons.checkpoints.maintenance.retention_policies import Strategy

AGE_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_age(text: str) -> timedelta:
    """Return the duration that a number with a unit denotes.

    >>> parse_age("36h"), parse_age("2w")
    (datetime.timedelta(days=1, seconds=43200), datetime.timedelta(days=14))
    """
    found = re.fullmatch(r"(\d{1,6})([smhdw])", text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is no age; give one such as 90m, 36h, 30d or 2w")
    return timedelta(**{AGE_UNITS[found[2]]: int(found[1])})


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


@command
def prune(  # noqa: PLR0913  each is an option of its own
    latest: LatestOption = None,
    turns: TurnsOption = None,
    younger: YoungerOption = None,
    every: EveryOption = False,
    events: EventsOption = False,
    dry: DryOption = False,
    *,
    place: ThreadOptions,
    how: OutputOptions,
) -> ExitCode:
    """Delete old checkpoints of a thread. Its conversation stays whole and can be continued.

    You can no longer go back to a deleted checkpoint. Without --latest, --turns or --younger,
    the latest checkpoint of every agent is kept.
    """
    keep = _choose_strategy(latest, turns, younger)
    if every and place.thread is not None:
        raise typer.BadParameter("give --thread or --all, not both")
    with database.open_database(place.db) as saver:
        meant = database.list_roots(saver) if every else [database.choose_root(saver, place.thread)]
        for root in meant:
            removed = saver.retain([root.id], keep, events=not events, dry_run=dry)._asdict()
            name = database.root_label(root)
            if how.json:
                output.print_json({"thread": name, "thread_id": root.id, **removed, "dry_run": dry})
            else:
                what = ", ".join(f"{count} {table}" for table, count in removed.items())
                done = "would be taken out" if dry else "taken out"
                output.print_result(f"{name}: {what} {done}")
    return ExitCode.FINISHED


def _choose_strategy(latest: int | None, turns: int | None, younger: timedelta | None) -> Strategy:
    from echelons.checkpoints.maintenance.retention_policies import (
        KeepLatest,
        KeepTurns,
        KeepYounger,
    )

    given = [each for each in (latest, turns, younger) if each is not None]
    if len(given) > 1:
        raise typer.BadParameter("give one of --latest, --turns and --younger")
    if turns is not None:
        return KeepTurns(turns)
    return KeepYounger(younger) if younger is not None else KeepLatest(latest or 1)


@command
def delete(
    thread: ThreadArgument, yes: YesOption = False, *, place: DatabaseOptions, how: OutputOptions
) -> ExitCode:
    """Delete a thread with those of all its agents: conversations, checkpoints and events.

    A thread that a process is running is refused. What is deleted cannot be restored.
    """
    from echelons.checkpoints.ledger import build_key

    with database.open_database(place.db) as saver:
        root = database.find_root(saver, thread)
        label = database.root_label(root)
        if not yes:
            output.confirm(f"Delete thread {label}?")
        with _name_thread_if_busy(label), _take_lease(saver.ledger, build_key(root.id)):
            saver.delete_thread(root.id)
    if how.json:
        output.print_json({"deleted": label, "thread_id": root.id})
    else:
        output.print_result(f"deleted thread {label}")
    return ExitCode.FINISHED


def _take_lease(ledger: Ledger, name: str) -> Lease:
    try:
        return ledger.lease(name)
    except LedgerDamaged:
        # A thread whose lease is damaged can only be deleted.
        return ledger.take_over(name)


@contextmanager
def _name_thread_if_busy(label: str) -> Iterator[None]:
    try:
        yield
    except ThreadBusy as error:
        raise ThreadBusy(label, error.pid, error.since) from error


@command
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
    if how.json:
        faults = [{"where": each.where, "why": each.why} for each in report.faults]
        counts = {"rows": report.rows, "threads": report.threads}
        output.print_json({"sound": report.is_sound, **counts, "faults": faults})
    else:
        for fault in report.faults:
            output.print_result(str(fault))
        found = "sound" if report.is_sound else f"{len(report.faults)} faults"
        output.print_result(f"{found}: {report.rows} rows of {report.threads} threads")
    return ExitCode.FINISHED if report.is_sound else ExitCode.BROKEN


@command
def backup(file: FileArgument, *, place: DatabaseOptions, how: OutputOptions) -> ExitCode:
    """Copy the database, also while it is in use, into a new file that only you can read."""
    target = expand_home(file)
    with database.open_database(place.db) as saver:
        saver.backup(target)
        source = saver.path
    size = target.stat().st_size
    if how.json:
        output.print_json({"database": source, "backup": str(target), "bytes": size})
    else:
        output.print_result(f"{source} is backed up in {target}, {size / 1e6:.1f} MB")
    return ExitCode.FINISHED
