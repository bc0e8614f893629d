"""Moves the ledger records of a thread's branches when their checkpoints are pruned.

Mail, later questions and standing decisions belong to a checkpoint of the root. Without it, one of
an abandoned branch could not be told from one of the past of those that are kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import TypeVar
from urllib.parse import quote, unquote

from echelons.checkpoints.coordination.approval_ledger import APPROVAL, StandingDecision
from echelons.checkpoints.coordination.branches import Branch, plan_moves
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
from echelons.checkpoints.ledger import RecordKind, Transaction, VersionedValue, build_key
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
    dated: dict[str, VersionedValue[StoredMail] | VersionedValue[LaterQuestion]]
    dated = {**mail, **later}
    places = [each.value.after for each in dated.values()]
    places += [_split_mark(key)[1] for key in marks]
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
        prefix, after = _split_mark(key)
        if after in moves:
            open_.discard(key)
            if (to := moves[after]) is not None:
                _add_mark(open_, prefix + quote(to, safe=""), mark.value)
    if decisions:
        given = [each.after for found in decisions.values() for each in found.value]
        # A fork takes over none of them, wherever it begins.
        moves = plan_moves(parents, kept, given, Branch.goes_on_from)
        _move_decisions(open_, decisions, moves)


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


def _split_mark(key: str) -> tuple[str, str]:
    """Return the prefix of a read mark's key, and the checkpoint at its end."""
    prefix, slash, after = key.rpartition("/")
    return prefix + slash, unquote(after)
