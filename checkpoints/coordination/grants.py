"""`TurnGrants`: what the requests of a turn may spend, and its records of grants and charges."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from threading import Lock
from time import monotonic
from typing import Any, Final, Literal, TypeAlias

from echelons.checkpoints.coordination.orders import is_under
from echelons.checkpoints.coordination.records import Records
from echelons.checkpoints.ledger import Transaction
from echelons.errors import LedgerDamaged
from echelons.guards.budget import (
    NO_ALLOWANCE,
    UNITS,
    Allowance,
    Amount,
    Budget,
    Unit,
    add_amount,
    format_amount,
    format_number,
    load_amounts,
    store_amounts,
)
from echelons.guards.gate import Halt, InnerRow
from echelons.guards.prices import add_money
from echelons.text.error_lines import describe_error

Stored: TypeAlias = dict[str, int | float | str]
ChargeState: TypeAlias = Literal["reserved", "charged", "estimated", "unknown", "lost"]
LOG = logging.getLogger(__name__)
ROOT_GRANT: Final = "root"
"""Id of the grant of a turn, which the root and all agents without one of their own spend."""


@dataclass(frozen=True, slots=True)
class GrantRecord:
    """A grant as it is stored; amounts are those of `store_amounts`."""

    path: str  # path of the agent that it is for, with all below it
    granted: Stored  # what it may spend
    # Ids of the grants that it was taken from, by unit.
    above: dict[str, str] = field(default_factory=dict)
    # What was spent, by those below it that have ended, too.
    spent: Stored = field(default_factory=dict)
    # What is reserved, for calls under way and for grants below it.
    reserved: Stored = field(default_factory=dict)
    closed: bool = False  # whether its request has been answered; what was not spent is back
    # Whether its agent has asked a question, so that another request may go on with it.
    asks: bool = False
    halted: str = ""  # why no other call may be made, though something is free; empty if one may
    # The units about which its agents were warned.
    warned: list[str] = field(default_factory=list)
    warn_at: float = 0.8  # the share at which they are
    after: str = ""  # the root's checkpoint after which it was given
    currency: str = ""  # that of the money
    # Thread of the superior whose call makes several requests that share it; else empty.
    fan_out: str = ""
    thread_id: str = ""  # LangGraph's id of the thread, for SQL


@dataclass(frozen=True, slots=True)
class ChargeRecord:
    """The charge of one call of a model or a tool, as it is stored."""

    kind: Literal["model", "tool"]
    path: str  # path of the agent that made the call
    agent_thread_id: str
    # `"reserved"` while it is under way; `"estimated"` and `"unknown"` if what it is charged was
    # not reported; `"lost"` if its process has died, and it was made again.
    state: ChargeState
    grants: dict[str, str]  # ids of the grants that it is taken from, by unit
    model: str = ""  # name of the model
    input_tokens: int = 0  # tokens that the model has read
    output_tokens: int = 0  # tokens that it has written
    tokens: int = 0  # tokens that are charged, or reserved
    money: str = ""  # the same of money, as a text; empty without prices
    currency: str = ""  # that of the money
    checkpoint_ns: str = ""  # namespace of the agent's level
    checkpoint_id: str = ""  # the checkpoint of that level at which the call was made
    after: str = ""  # the root's checkpoint at which it was made
    cached_tokens: int = 0  # tokens of those read that its provider had in its cache
    thread_id: str = ""  # LangGraph's id of the thread, for SQL
    reply_id: str = ""  # id of the reply, if that may stand in a thread and is not to count again
    inherited: bool = False  # whether it was copied with the thread, in which it was made first
    inner: InnerRow = ""  # of a call of a tree that a step has run, where its own row stands

    @property
    def amounts(self) -> dict[Unit, Amount]:
        """The amount charged, or reserved, of each unit that a grant of it has."""
        amounts: dict[Unit, Amount] = {"tokens": self.tokens, "calls": 1, "tool_calls": 1}
        if self.money:
            amounts["money"] = Decimal(self.money)
        return {unit: amounts.get(unit, 0) for unit in self.grants if unit != "seconds"}

    def to_json(self) -> dict[str, Any]:
        """Return the record without empty fields."""
        # Written out, as `Grant.to_json`: both are stored twice for each call of a model.
        kept: dict[str, Any] = {
            "kind": self.kind,
            "path": self.path,
            "agent_thread_id": self.agent_thread_id,
            "state": self.state,
            "grants": self.grants,
            "model": self.model,
            "tokens": self.tokens,
            "checkpoint_ns": self.checkpoint_ns,
            "checkpoint_id": self.checkpoint_id,
            "after": self.after,
            "thread_id": self.thread_id,
        }
        if self.input_tokens or self.output_tokens:
            kept["input_tokens"] = self.input_tokens
            kept["output_tokens"] = self.output_tokens
        if self.cached_tokens:
            kept["cached_tokens"] = self.cached_tokens
        if self.money:
            kept["money"] = self.money
            kept["currency"] = self.currency
        if self.reply_id:
            kept["reply_id"] = self.reply_id
        if self.inner:
            kept["inner"] = self.inner
        # SQL leaves out what stands in another thread, too.
        if self.inherited or self.inner == "here":
            kept["inherited"] = True
        return kept


GRANT: Final = Records[GrantRecord]("grant", GrantRecord, raw=2, names_thread=True)
"""What a request may spend, by the turn and the id of the grant."""
CHARGE: Final = Records[ChargeRecord](
    "charge", ChargeRecord, raw=2, names_thread=True, marks_copies=True
)
"""What a call of a model or a tool is charged, by the turn and the call."""


class Grant:
    """A grant while a transaction reads and changes it.

    Raises:
        ValueError: An amount in the record is damaged.
    """

    __slots__ = ("granted", "id", "record", "reserved", "spent", "version")

    def __init__(self, id: str, record: GrantRecord, version: int | None = None) -> None:
        self.id = id
        self.record = record
        # `None` for a new record.
        self.version = version
        self.granted = load_amounts(record.granted)
        self.spent = load_amounts(record.spent) if record.spent else {}
        self.reserved = load_amounts(record.reserved) if record.reserved else {}

    def get_used(self, unit: Unit) -> Any:
        """Return what is spent and reserved of a unit."""
        spent, reserved = self.spent.get(unit, 0), self.reserved.get(unit, 0)
        if unit == "money":
            return add_money(Decimal(spent), Decimal(reserved))
        return spent + reserved  # type: ignore[operator]  # both are of the type of the unit

    def get_free(self, unit: Unit) -> Any:
        """Return what is left of a unit; nothing once it is closed."""
        granted, used = self.granted.get(unit, 0), self.get_used(unit)
        return 0 if self.record.closed or used >= granted else granted - used

    def get_overdraft(self, unit: Unit) -> Any:
        """Return what was spent of a unit beyond what was granted."""
        granted, used = self.granted.get(unit, 0), self.get_used(unit)
        return used - granted if used > granted else 0

    def to_json(self) -> dict[str, Any]:
        """Return the record with its present amounts, without empty fields."""
        record = self.record
        kept: dict[str, Any] = {
            "path": record.path,
            "granted": record.granted,
            # Without money they are JSON already.
            "spent": self.spent if "money" not in self.spent else store_amounts(self.spent),
            "reserved": self.reserved
            if "money" not in self.reserved
            else store_amounts(self.reserved),
            "warn_at": record.warn_at,
            "thread_id": record.thread_id,
        }
        # Not `asdict`, which copies each value.
        if record.above:
            kept["above"] = record.above
        if record.closed:
            kept["closed"] = True
        if record.asks:
            kept["asks"] = True
        if record.halted:
            kept["halted"] = record.halted
        if record.warned:
            kept["warned"] = record.warned
        if record.after:
            kept["after"] = record.after
        if record.currency:
            kept["currency"] = record.currency
        if record.fan_out:
            kept["fan_out"] = record.fan_out
        return kept

    def find_exhausted(self, unit: Unit, running: float = 0.0) -> Halt | None:
        """Return why nothing can be spent of a unit, `None` if something can.

        `running` are seconds that are not in the record yet.
        """
        used = self.get_used(unit)
        if unit == "seconds":
            used = float(used) + running
        granted = self.granted.get(unit, 0)
        if self.get_free(unit) > 0 and used < granted:
            return None
        whole = format_amount(unit, granted, self.record.currency)
        return Halt("budget", f"{format_number(used)} of {whole}")


def build_root_grant(budget: Budget, path: str, thread_id: str, currency: str = "") -> GrantRecord:
    """Return the record of the grant of a turn, which the root at a path may spend."""
    return GrantRecord(
        path,
        store_amounts(budget.amounts),
        warn_at=budget.warn_at,
        currency=currency if budget.money else "",
        thread_id=thread_id,
    )


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


def close_grants(open_: Transaction, thread_id: str, *, turn_id: str = "", path: str = "") -> None:
    """Close the grants of a turn, or of an agent and all below it, which give back what is left.

    Reservations of their calls under way count as spent.
    """
    within = GRANT.key(thread_id, *([turn_id] if turn_id else ()), "")
    for key in open_.list_keys(within):
        turn, id_ = key.removeprefix(GRANT.key(thread_id, "")).split("/", 1)
        try:
            grant = open_.get_record(GRANT, key)
            if grant and not grant.value.closed and (not path or is_under(grant.value.path, path)):
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
    elif stored and record.closed:
        # The turn goes on from a checkpoint of its past.
        reopened = Grant(ROOT_GRANT, replace(record, closed=False))
        open_.compare_and_set(key, stored.version, reopened.to_json())
    allowance = NO_ALLOWANCE.extend(ROOT_GRANT, record.granted, budget)
    return replace(allowance, warn_at=record.warn_at)
