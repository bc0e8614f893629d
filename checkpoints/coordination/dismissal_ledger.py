"""The dismissals of the agents of a thread, kept in the ledger.

An agent has one record under its root's thread, and all below it are found by their paths: one
commit dismisses a whole subtree, also what is made in it at that moment. A branch of the thread
that began before does not see it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from echelons.checkpoints.coordination.grants import close_grants
from echelons.checkpoints.coordination.journal import EFFECT
from echelons.checkpoints.coordination.orders import get_signals, is_under
from echelons.checkpoints.coordination.records import (
    Branch,
    Records,
    get_checkpoint,
    read_branch,
    read_latest_branch,
)
from echelons.checkpoints.ledger import Fence, Ledger, Transaction, build_key
from echelons.checkpoints.queries import LedgerQuery, ReadPlan
from echelons.checkpoints.thread_events import EventKind, ThreadEvent, WriteLocation
from echelons.delegation.effects import CallState
from echelons.errors import LedgerDamaged
from echelons.guards.dismissals import NO_DISMISSALS, Dismissal, Dismissals
from echelons.tree.names import PATH_SEPARATOR


@dataclass(frozen=True, slots=True)
class StoredDismissal:
    """A dismissal as it is stored, see `Dismissal`."""

    by: str
    at: str
    graceful: bool = False


DISMISSAL: Final = Records[StoredDismissal]("dismissal", StoredDismissal, "key")
"""The dismissal of an agent and of all below it, by its path."""


@dataclass(frozen=True, slots=True)
class CutCall:
    """A tool call that was under way when its agent was dismissed: its outcome is not known."""

    path: str  # path of the agent
    tool: str  # name of the tool
    call_id: str  # id of the call

    def __str__(self) -> str:
        return f"{self.tool} of {self.path}"


@dataclass(frozen=True, slots=True)
class CommittedDismissal:
    """The records that one commit has read and changed."""

    dismissal: Dismissal  # the dismissal that holds now
    is_new: bool  # whether it did not hold before
    cut_calls: tuple[CutCall, ...] = ()  # the tool calls of the subtree that were under way


def commit_dismissal(
    ledger: Ledger,
    where: WriteLocation,
    new: Dismissal,
    hidden: Collection[str],
    fence: Fence | None = None,
) -> CommittedDismissal:
    """Dismiss an agent and all below it: the only place where this is done.

    Raises:
        LeaseLost: Another run holds the thread now.
    """
    signals = get_signals(ledger)

    def work(open_: Transaction) -> CommittedDismissal:
        if fence:
            open_.require_lease(fence)
        keys = open_.list_keys(DISMISSAL.key(where.thread_id, new.path, ""))
        held = load_dismissals(open_, keys, hidden).get(new.path)
        if held and (new.graceful or not held.graceful):
            return CommittedDismissal(held, is_new=False)
        after = where.checkpoint_id
        key = DISMISSAL.key(where.thread_id, new.path, after, after)
        dismissal = Dismissal(new.path, new.by, open_.now, new.graceful)
        open_.discard(key)
        stored = StoredDismissal(new.by, open_.now, new.graceful)
        version = open_.compare_and_set(key, None, DISMISSAL.encode(stored))
        with suppress(LedgerDamaged):  # who reads it then looks at all keys
            open_.append(_build_log_name(where.thread_id), key)
        data = {"order": "dismiss", "path": new.path, "by": new.by, "graceful": new.graceful}
        open_.add_event(where, ThreadEvent(EventKind.ORDER, f"{key}/{version}", data))
        # Within the transaction: who begins a step after its commit looks at it.
        signals.count_write()
        if new.graceful:
            return CommittedDismissal(dismissal, is_new=True)
        close_grants(open_, where.thread_id, path=new.path)
        cut = _find_cut_calls(open_, where.thread_id, new.path)
        return CommittedDismissal(dismissal, is_new=True, cut_calls=tuple(cut))

    done = ledger.commit(work)
    if done.is_new:
        signals.notify()
    return done


class DismissalLog:
    """The dismissals that a run sees. Only what is new since the last look is read."""

    def __init__(self, thread_id: str) -> None:
        self._thread_id = thread_id
        self._log = _build_log_name(thread_id)
        self._found = Dismissals()
        self._last: int | None = None

    def refresh(
        self, open_: Transaction, hidden: Collection[str]
    ) -> tuple[Dismissals, Sequence[Dismissal]]:
        """Return the dismissals that hold, and those of them that are new.

        The transaction may be rolled back afterwards.
        """
        keys = self._list_new_keys(open_)
        new = [
            dismissal
            for dismissal in load_dismissals(open_, keys, hidden)
            if self._found.add(dismissal)
        ]
        return self._found if self._found else NO_DISMISSALS, new

    def _list_new_keys(self, open_: Transaction) -> Sequence[str]:
        if self._last is not None:
            with suppress(LedgerDamaged):
                added = open_.read(self._log, self._last)
                keys = [entry.record for entry in added]
                # Those of pruned checkpoints were moved meanwhile.
                if all(isinstance(key, str) and not open_.has_version(key, None) for key in keys):
                    self._last = added[-1].sequence if added else self._last
                    return keys
        keys = list_dismissal_keys(open_, self._thread_id)
        with suppress(LedgerDamaged):
            self._last = open_.get_last_sequence(self._log) if keys else 0
        return keys


def read_dismissals(thread_id: str, checkpoint_id: str | None = None) -> ReadPlan[Dismissals]:
    """Return the dismissals that hold on a branch of a thread: by default that of its latest."""
    keys = yield from _read_keys(thread_id)
    if not keys:
        return NO_DISMISSALS
    hidden = yield from find_hidden_dismissals(thread_id, keys, checkpoint_id)
    dismissals: Dismissals = yield LedgerQuery(
        lambda ledger: ledger.query(lambda open_: load_dismissals(open_, keys, hidden))
    )
    return dismissals


def read_hidden_dismissals(
    thread_id: str, checkpoint_id: str | None = None
) -> ReadPlan[frozenset[str]]:
    """Return the keys of the dismissals of a thread that a branch of it does not see."""
    keys = yield from _read_keys(thread_id)
    return (yield from find_hidden_dismissals(thread_id, keys, checkpoint_id))


def find_hidden_dismissals(
    thread_id: str, keys: Collection[str], checkpoint_id: str | None = None
) -> ReadPlan[frozenset[str]]:
    """Return which of the keys of a thread's dismissals a branch of it does not see."""
    if not keys:
        return frozenset()
    branch = yield from (
        read_branch(thread_id, checkpoint_id) if checkpoint_id else read_latest_branch(thread_id)
    )
    unseen = [key for key in keys if not _is_seen(branch, get_checkpoint(key))]
    damaged: frozenset[str] = yield LedgerQuery(
        lambda ledger: ledger.query(lambda open_: _find_lost(open_, unseen, branch))
    )
    return frozenset(unseen) - damaged


def _read_keys(thread_id: str) -> ReadPlan[list[str]]:
    keys: list[str] = yield LedgerQuery(
        lambda ledger: ledger.query(lambda open_: list_dismissal_keys(open_, thread_id))
    )
    return keys


def refuse_dismissed(thread_id: str, path: str) -> ReadPlan[None]:
    """Refuse what is meant for an agent that was dismissed, and does not finish its request.

    Raises:
        ControlError: It was, or an agent above it.
    """
    dismissal = (yield from read_dismissals(thread_id)).find(path)
    if dismissal and not dismissal.graceful:
        raise dismissal.build_error(path)


def list_dismissal_keys(open_: Transaction, thread_id: str) -> list[str]:
    """Return the keys of all dismissals of a thread, those of other branches included."""
    return open_.list_keys(DISMISSAL.key(thread_id, ""))


def load_dismissals(
    open_: Transaction, keys: Iterable[str], hidden: Collection[str] = ()
) -> Dismissals:
    """Return the dismissals under some keys, but for those that are hidden.

    One that is damaged is in effect, at once.
    """
    dismissals = Dismissals()
    for key in keys:
        if key not in hidden:
            path, stored = DISMISSAL.split(key)[1], _load(open_, key)
            dismissals.add(
                Dismissal(path, stored.by, stored.at, stored.graceful)
                if stored
                else Dismissal(path)
            )
    return dismissals


def find_dismissal(
    open_: Transaction, thread_id: str, path: str, hidden: Collection[str] = ()
) -> Dismissal | None:
    """Return the dismissal that an agent is under, but for those that are hidden.

    It looks at this agent and those above it alone.
    """
    names = path.split(PATH_SEPARATOR)
    ways = (PATH_SEPARATOR.join(names[: end + 1]) for end in range(len(names)))
    keys = [key for way in ways for key in open_.list_keys(DISMISSAL.key(thread_id, way, ""))]
    return load_dismissals(open_, keys, hidden).find(path) if keys else None


def _find_cut_calls(open_: Transaction, thread_id: str, path: str) -> Iterable[CutCall]:
    """Yield the tool calls at and below a path that have begun, and not ended."""
    for key in open_.list_keys(EFFECT.key(thread_id, "")):
        try:
            entry = open_.get_record(EFFECT, key)
        except LedgerDamaged:
            continue
        if entry and entry.value.state is CallState.STARTED:
            call = entry.value
            if is_under(call.agent_path, path):
                yield CutCall(call.agent_path, call.tool, call.call_id)


def _is_seen(branch: Branch, after: str) -> bool:
    """Return whether a branch sees what was dismissed after a checkpoint.

    A run that goes on from an earlier checkpoint than the latest begins another branch.
    """
    return branch.sees(after) and not (after == branch.current and after in branch.first_children)


def _find_lost(open_: Transaction, keys: Iterable[str], branch: Branch) -> frozenset[str]:
    """Return the keys of damaged dismissals whose checkpoint was pruned: they are in effect."""
    lost = (key for key in keys if get_checkpoint(key) not in branch.stored)
    return frozenset(key for key in lost if _load(open_, key) is None)


def _load(open_: Transaction, key: str) -> StoredDismissal | None:
    """Return what is stored under a key, `None` if it is damaged."""
    try:
        record = open_.get_record(DISMISSAL, key)
    except LedgerDamaged:
        return None
    return record.value if record else None


def _build_log_name(thread_id: str) -> str:
    """Return the name of the stream that has the keys of a thread's dismissals as they are made."""
    return build_key(thread_id, "dismissals")
