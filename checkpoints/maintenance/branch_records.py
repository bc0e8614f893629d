"""Moves the ledger records of a thread's branches when their checkpoints are pruned.

Mail, later questions, standing decisions, changes, notes, dismissals and repairs belong to a
checkpoint of the root. Without it, one of an abandoned branch could not be told from one of the
past of those that are kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import TypeVar
from urllib.parse import quote

from echelons.checkpoints.coordination.approval_ledger import APPROVAL, StandingDecision
from echelons.checkpoints.coordination.branches import Branch, get_checkpoint, plan_moves
from echelons.checkpoints.coordination.mailbox import (
    LATER,
    MAIL,
    MAIL_READ,
    LaterQuestion,
    Ranges,
    StoredMail,
    add_numbers,
    drop_mail,
    iterate_numbers,
)
from echelons.checkpoints.coordination.shared_notes import NOTE, StoredNote
from echelons.checkpoints.ledger import RecordKind, Transaction, VersionedValue, build_key
from echelons.checkpoints.tree_control.dismissal_ledger import DISMISSAL, StoredDismissal
from echelons.checkpoints.tree_control.repairs import REPAIR, StoredRepair
from echelons.checkpoints.tree_control.workspace_changes import CHANGE, StoredChange
from echelons.errors import LedgerDamaged

T = TypeVar("T")


def move_records(
    open_: Transaction, thread_id: str, parents: Mapping[str, str | None], kept: Collection[str]
) -> None:
    """Let the records of a thread belong to checkpoints that are kept; drop those of no branch.

    Args:
        open_: The transaction in which the checkpoints are deleted.
        thread_id: The root's thread.
        parents: The root's checkpoints before, with their parents.
        kept: Those that are kept.
    """
    mail = dict(_list_records(open_, MAIL, thread_id))
    later = dict(_list_records(open_, LATER, thread_id))
    marks = dict(_list_records(open_, MAIL_READ, thread_id))
    decisions = dict(_list_records(open_, APPROVAL, thread_id))
    changes = dict(_list_records(open_, CHANGE, thread_id))
    notes = dict(_list_records(open_, NOTE, thread_id))
    dismissals = dict(_list_records(open_, DISMISSAL, thread_id))
    repairs = dict(_list_records(open_, REPAIR, thread_id))
    dated: dict[str, VersionedValue[StoredMail] | VersionedValue[LaterQuestion]]
    dated = {**mail, **later}
    places = [each.value.after for each in dated.values()]
    places += [get_checkpoint(key) for key in (*marks, *changes, *notes, *dismissals, *repairs)]
    moves = plan_moves(parents, kept, places) if places else {}
    for key, each in dated.items():
        if (after := each.value.after) not in moves:
            continue
        if (to := moves[after]) is not None:
            open_.compare_and_set(key, each.version, asdict(each.value) | {"after": to})
        elif key in mail:
            drop_mail(open_, key)
        else:
            open_.discard(key)
    for key, mark in marks.items():
        if (after := get_checkpoint(key)) in moves:
            open_.discard(key)
            if (to := moves[after]) is not None:
                _add_mark(open_, _move_key(key, to), mark.value)
    _move_versions(open_, changes, moves)
    _move_versions(open_, notes, moves)
    _move_versions(open_, dismissals, moves)
    _move_versions(open_, repairs, moves)
    if decisions:
        given = [each.after for found in decisions.values() for each in found.value]
        # A fork takes over none of them, wherever it begins.
        moves = plan_moves(parents, kept, given, Branch.goes_on_from)
        _move_decisions(open_, decisions, moves)


def _move_versions(
    open_: Transaction,
    versions: Mapping[str, VersionedValue[StoredChange]]
    | Mapping[str, VersionedValue[StoredNote]]
    | Mapping[str, VersionedValue[StoredDismissal]]
    | Mapping[str, VersionedValue[StoredRepair]],
    moves: Mapping[str, str | None],
) -> None:
    """Move the versions of records; of those that the same branches see, keep the last."""
    kept: dict[tuple[str, str], str] = {}
    for key in sorted(versions):  # of each in the order in which they were written
        name, after = key.rsplit("/", 2)[0], get_checkpoint(key)
        if (to := moves.get(after, after)) is not None:
            kept[name, to] = key
    places = {key: _move_key(key, to) for (_, to), key in kept.items()}
    for key, version in versions.items():
        if places.get(key) != key:
            open_.discard(key)
        if places.get(key, key) != key:
            open_.compare_and_set(places[key], None, asdict(version.value))


def _move_decisions(
    open_: Transaction,
    decisions: Mapping[str, VersionedValue[list[StandingDecision]]],
    moves: Mapping[str, str | None],
) -> None:
    for key, given in decisions.items():
        if any(each.after in moves for each in given.value):
            new = [
                {**asdict(each), "after": to}
                for each in given.value
                if (to := moves.get(each.after, each.after)) is not None
            ]
            open_.compare_and_set(key, given.version, new)


def _add_mark(open_: Transaction, key: str, ranges: Ranges) -> None:
    found = open_.get_record(MAIL_READ, key)
    added = add_numbers(found.value if found else [], iterate_numbers(ranges))
    open_.compare_and_set(key, found.version if found else None, added)


def _list_records(
    open_: Transaction, kind: RecordKind[T], thread_id: str
) -> Iterator[tuple[str, VersionedValue[T]]]:
    for key in open_.list_keys(build_key(thread_id, kind.name, "")):
        # A damaged one is reported where it is read.
        with suppress(LedgerDamaged):
            if found := open_.get_record(kind, key):
                yield key, found


def _move_key(key: str, to: str) -> str:
    """Return a key with another checkpoint of the root at its end."""
    return f"{key.rpartition('/')[0]}/{quote(to, safe='')}"
