"""The repairs of a thread: which messages its models are not shown, kept in the ledger.

The messages stay in the thread. Each repair is stored for the root's checkpoint after which it was
made, so that a branch of the thread that began before does not see it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from echelons.checkpoints.coordination.records import (
    Record,
    Records,
    Versions,
    read_branch,
    read_latest_branch,
)
from echelons.checkpoints.ledger import Fence, Transaction
from echelons.checkpoints.queries import LedgerQuery, ReadPlan

_NAME: Final = "hidden"
"""A thread has one record, of all messages that are hidden in it."""


@dataclass(frozen=True, slots=True)
class StoredRepair:
    """The checkpoints that are hidden since a repair."""

    messages: list[str]  # the ids of all messages that are hidden, at any depth
    by: str  # who has made the repair
    at: str  # when, ISO 8601, UTC


REPAIR: Final = Records[StoredRepair]("repair", StoredRepair, "key")
"""The messages of a thread that no model is shown."""


def list_repair_keys(open_: Transaction, thread_id: str) -> list[str]:
    """Return the keys of all repairs of a thread, those of other branches included."""
    return open_.list_keys(REPAIR.key(thread_id, ""))


def read_hidden_messages(
    thread_id: str, checkpoint_id: str | None = None
) -> ReadPlan[frozenset[str]]:
    """Return the ids of the messages that are hidden on a branch of a thread."""
    keys: list[str] = yield LedgerQuery(
        lambda ledger: ledger.query(lambda open_: list_repair_keys(open_, thread_id))
    )
    if not keys:
        return frozenset()
    branch = yield from (
        read_branch(thread_id, checkpoint_id) if checkpoint_id else read_latest_branch(thread_id)
    )
    records = Versions(REPAIR, branch, thread_id)
    repair: Record[StoredRepair] | None = yield LedgerQuery(
        lambda ledger: ledger.query(lambda open_: records.find(open_, _NAME))
    )
    return frozenset(repair.value.messages) if repair else frozenset()


def store_hidden_messages(
    thread_id: str, hide: Collection[str], show: Collection[str] | None, by: str, fence: Fence
) -> ReadPlan[None]:
    """Hide messages on the latest branch of a thread, and show others again: by default all.

    Raises:
        LeaseLost: Another run holds the thread now.
    """
    branch = yield from read_latest_branch(thread_id)
    records = Versions(REPAIR, branch, thread_id)

    def work(open_: Transaction) -> None:
        open_.require_lease(fence)
        before = records.find(open_, _NAME)
        held = set(before.value.messages) if before else set[str]()
        kept = held - set(show) if show is not None else set[str]()
        repair = StoredRepair(sorted(kept | {*hide}), by, open_.now)
        records.replace(open_, before, repair, _NAME)

    yield LedgerQuery(lambda ledger: ledger.commit(work))
