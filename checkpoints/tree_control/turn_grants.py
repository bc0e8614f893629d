"""`TurnGrants`: what the requests of a turn may spend, read and changed in transactions."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from threading import Lock
from time import monotonic
from typing import Any, Final

from echelons.checkpoints.coordination.control_orders import is_under
from echelons.checkpoints.ledger import Transaction
from echelons.checkpoints.tree_control.budget_records import (
    GRANT,
    Grant,
    GrantRecord,
    build_root_grant,
)
from echelons.errors import LedgerDamaged
from echelons.guards.budget import NO_ALLOWANCE, UNITS, Allowance, Amount, Budget, Unit, add_amount
from echelons.guards.gate import Halt
from echelons.text.error_lines import describe_error


class WorkClock:
    """The seconds of work on each grant that are not stored yet.

    Safe for any number of threads.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._elapsed: dict[str, float] = {}
        self._since: dict[str, float] = {}
        self._workers = Counter[str]()

    @property
    def has_seconds(self) -> bool:
        """Whether any seconds are not stored yet."""
        return bool(self._since or self._elapsed)

    def begin(self, ids: Iterable[str]) -> None:
        """Let the seconds of grants pass, until `end` was called as often."""
        with self._lock:
            for id_ in ids:
                self._workers[id_] += 1
                self._since.setdefault(id_, self._clock())

    def end(self, ids: Iterable[str]) -> None:
        """Stop the seconds of grants."""
        with self._lock:
            for id_ in ids:
                self._workers[id_] -= 1
                if self._workers[id_] == 0 and id_ in self._since:
                    passed = self._clock() - self._since.pop(id_)
                    self._elapsed[id_] = self._elapsed.get(id_, 0.0) + passed

    def read(self, id_: str) -> float:
        """Return the seconds of a grant."""
        now = self._clock()
        with self._lock:
            return self._elapsed.get(id_, 0.0) + now - self._since.get(id_, now)

    def read_all(self) -> tuple[float, dict[str, float]]:
        """Return the time, and the seconds of each grant up to then."""
        now = self._clock()
        with self._lock:
            ids = {*self._elapsed, *self._since}
            passed = (self._elapsed.get(id_, 0.0) + now - self._since.get(id_, now) for id_ in ids)
            return now, dict(zip(ids, passed, strict=True))

    def forget(self, ids: Iterable[str], until: float) -> None:
        """Forget the seconds of grants up to a time, as they are stored."""
        with self._lock:
            for id_ in ids:
                self._elapsed.pop(id_, None)
                if id_ in self._since:
                    self._since[id_] = until

    def stop(self, id_: str) -> None:
        """Forget all seconds of a grant; none pass any more."""
        with self._lock:
            self._elapsed.pop(id_, None)
            self._since.pop(id_, None)


LOG = logging.getLogger(__name__)
ROOT_GRANT: Final = "root"
"""Id of the grant of a turn, which the root and all agents without one of their own spend."""


class TurnGrants:
    """The grants of one turn."""

    def __init__(
        self,
        thread_id: str,
        turn: str,
        clock: WorkClock | None = None,
        find_default: Callable[[str], GrantRecord | None] = lambda _: None,
    ) -> None:
        # Has the seconds that are not stored yet.
        self._clock = WorkClock() if clock is None else clock
        self._prefix = GRANT.key(thread_id, turn, "")
        # Returns the record of a grant that is not stored but at hand.
        self._find_default = find_default

    def find(self, open_: Transaction, id_: str) -> Grant | None:
        """Return a grant, `None` if there is none of the id.

        Raises:
            LedgerDamaged: Its record is.
        """
        key = self._prefix + id_
        record = open_.get_record(GRANT, key)
        if record is None:
            default = self._find_default(id_)
            return Grant(id_, default) if default else None
        try:
            return Grant(id_, record.value, record.version)
        except ValueError as error:
            raise LedgerDamaged(key, str(error), GRANT.name) from error

    def load(self, open_: Transaction, id_: str) -> Grant:
        """Return a grant.

        Raises:
            LedgerDamaged: Its record is, or there is none.
        """
        grant = self.find(open_, id_)
        if grant is None:
            raise LedgerDamaged(self._prefix + id_, "there is no such grant", GRANT.name)
        return grant

    def load_all(self, open_: Transaction, ids: Iterable[str]) -> dict[str, Grant]:
        """Return grants by their ids, each once."""
        return {id_: self.load(open_, id_) for id_ in dict.fromkeys(ids)}

    def save_all(self, open_: Transaction, grants: Mapping[str, Grant]) -> None:
        """Store grants with their present amounts."""
        for id_, grant in grants.items():
            key = self._prefix + id_
            grant.version = open_.set_read(key, grant.version, grant.to_json())

    def add_seconds(self, open_: Transaction, id_: str, seconds: float) -> None:
        """Add seconds to what was spent of a grant, unless it is closed."""
        grant = self.find(open_, id_)
        if grant and not grant.record.closed and seconds:
            add_amount(grant.spent, "seconds", seconds)
            self.save_all(open_, {id_: grant})

    def get_free(self, grant: Grant, unit: Unit) -> Any:
        """Return what is left of a unit, now."""
        free = grant.get_free(unit)
        if unit != "seconds":
            return free
        return max(float(free) - self._clock.read(grant.id), 0.0)

    def find_halt(
        self, grants: Mapping[str, Grant], ids: Mapping[Unit, str], units: Iterable[Unit]
    ) -> Halt | None:
        """Return why nothing more may be spent of some units, `None` if something may."""
        for grant in grants.values():
            if grant.record.halted:
                return Halt("budget", grant.record.halted)
        for unit in units:
            if unit in ids:
                grant = grants[ids[unit]]
                running = self._clock.read(grant.id) if unit == "seconds" else 0.0
                if halt := grant.find_exhausted(unit, running):
                    return halt
        return None

    def take_rest(self, open_: Transaction, id_: str) -> dict[Unit, Amount]:
        """Close a grant whose agent has asked, and return what it has not spent."""
        grant = self.find(open_, id_)
        if grant is None or not grant.record.asks:
            return {}
        self.close(open_, id_)
        grant = self.load(open_, id_)
        rest = dict(grant.granted)
        for unit, amount in grant.spent.items():
            add_amount(rest, unit, -amount)
        return {unit: rest[unit] for unit in grant.granted}

    def close(self, open_: Transaction, id_: str) -> None:
        """Close a grant and those below it, and give back what was not spent, once."""
        if (grant := self.find(open_, id_)) is None or grant.record.closed:
            return
        if grant.reserved:
            for below, record in [*self._iterate_open(open_)]:
                if id_ in record.above.values():
                    self.close(open_, below)
            grant = self.load(open_, id_)
        for unit, amount in grant.reserved.items():
            add_amount(grant.spent, unit, amount)
        grant.reserved = {}
        if seconds := self._clock.read(id_):
            add_amount(grant.spent, "seconds", seconds)
        self._clock.stop(id_)
        superiors = self.load_all(open_, grant.record.above.values())
        for unit, superior_id in grant.record.above.items():
            superior = superiors[superior_id]
            if unit != "seconds" and not superior.record.closed:
                add_amount(superior.reserved, unit, -grant.granted.get(unit, 0))
                add_amount(superior.spent, unit, grant.spent.get(unit, 0))
        grant.record = replace(grant.record, closed=True)
        self.save_all(open_, {**superiors, id_: grant})

    def list_fan_outs(self, open_: Transaction) -> dict[str, set[str]]:
        """Return the open grants that several requests share, by the thread of their superior."""
        fan_outs: dict[str, set[str]] = {}
        for id_, record in self._iterate_open(open_):
            if record.fan_out:
                fan_outs.setdefault(record.fan_out, set()).add(id_)
        return fan_outs

    def _iterate_open(self, open_: Transaction) -> Iterator[tuple[str, GrantRecord]]:
        """Yield the grants of the turn that are not closed, with their ids."""
        prefix = self._prefix
        for key in open_.list_keys(prefix):
            grant = open_.get_record(GRANT, key)
            if grant and not grant.value.closed:
                yield key.removeprefix(prefix), grant.value


def close_grants_below(open_: Transaction, thread_id: str, path: str) -> None:
    """Close the grants of an agent and of all below it, which give back what is not spent.

    Reservations of their calls under way count as spent.
    """
    prefix = GRANT.key(thread_id, "")
    for key in open_.list_keys(prefix):
        turn, id_ = key.removeprefix(prefix).split("/", 1)
        try:
            grant = open_.get_record(GRANT, key)
            if grant and not grant.value.closed and is_under(grant.value.path, path):
                TurnGrants(thread_id, turn).close(open_, id_)
        except LedgerDamaged as error:
            LOG.warning("a grant cannot be closed: %s", describe_error(error))


def grant_turn(
    open_: Transaction,
    thread_id: str,
    turn: str,
    root: str,
    budget: Budget | None,
    currency: str = "",
) -> Allowance | None:
    """Give a turn its budget, unless it has one; return what it may spend, `None` for no budget."""
    key = GRANT.key(thread_id, turn, ROOT_GRANT)
    try:
        stored = open_.get_record(GRANT, key)
    except LedgerDamaged:
        # The agent that is to spend it finds that nothing is free.
        return NO_ALLOWANCE.extend(ROOT_GRANT, UNITS, budget)
    if stored is None and budget is None:
        return None
    record = stored.value if stored else None
    if record is None:
        assert budget is not None  # noqa: S101  else there is a record
        record = build_root_grant(budget, root, thread_id, currency)
        open_.compare_and_set(key, None, Grant(ROOT_GRANT, record).to_json())
    allowance = NO_ALLOWANCE.extend(ROOT_GRANT, record.granted, budget)
    return replace(allowance, warn_at=record.warn_at)
