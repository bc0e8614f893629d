"""`TreeBudgets`: grants and charges of one run, kept in the ledger of the run's saver.

A grant is what a request may spend. What is granted to a subordinate is reserved in the grant that
it is taken from, so no call ever looks further up than to its nearest grant of each unit. A charge
is one call of a model or a tool: it is reserved before the call begins, and settled in the
transaction that stores the reply. One that was reserved by a process that has died stays spent.

Of each unit, spent + reserved + free = granted + overdraft.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from threading import Lock
from time import monotonic
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

from echelons.checkpoints.coordination.branches import get_root_checkpoint
from echelons.checkpoints.coordination.control_orders import is_under
from echelons.checkpoints.coordination.task_records import TaskRecords
from echelons.checkpoints.coordination.turns import get_turn
from echelons.checkpoints.inherited_config import stores_each_step
from echelons.checkpoints.ledger import Fence, Ledger, RecordKind, Transaction, build_key
from echelons.errors import LedgerDamaged
from echelons.guards.budget import (
    NO_ALLOWANCE,
    UNITS,
    Allowance,
    Amount,
    Budget,
    CallEstimate,
    CallUsage,
    GrantRequest,
    Unit,
    add_amount,
    format_amount,
    format_number,
    load_amounts,
    store_amounts,
)
from echelons.guards.gate import Halt, Step
from echelons.guards.prices import Prices, add_money, format_money
from echelons.langgraph_internals import CHECKPOINT_MAP_KEY, NS_SEP, TASK_ID_KEY
from echelons.text.error_lines import describe_error
from echelons.tree.names import PATH_SEPARATOR

LOG = logging.getLogger(__name__)
T = TypeVar("T")
ROOT_GRANT: Final = "root"
"""Id of the grant of a turn, which the root and all agents without one of their own spend."""
Stored: TypeAlias = dict[str, int | float | str]
ChargeState: TypeAlias = Literal["reserved", "charged", "estimated", "unknown", "lost"]
_MODEL_UNITS: Final[Sequence[Unit]] = ("tokens", "money", "calls", "seconds")
_NOTHING_LEFT: Final = Halt("budget", "nothing is left")
_TOOL_UNITS: Final[Sequence[Unit]] = ("tool_calls", "seconds")


@dataclass(frozen=True, slots=True)
class GrantRecord:
    """A grant as it is stored; amounts are those of `store_amounts`.

    Attributes:
        path: Path of the agent that it is for, with all below it.
        granted: What it may spend.
        above: Ids of the grants that it was taken from, by unit.
        spent: What was spent, by those below it that have ended, too.
        reserved: What is reserved, for calls under way and for grants below it.
        closed: Whether its request has been answered; what was not spent is back.
        asks: Whether its agent has asked a question, so that another request may go on with it.
        halted: Why no other call may be made, though something is free; empty if one may.
        warned: The units of which its agents were told what is left.
        warn_at: The share at which they are.
        after: The root's checkpoint after which it was given.
        currency: That of the money.
        fan_out: Thread of the superior whose call makes several requests that share it; else empty.
        thread_id: LangGraph's id of the thread, for SQL.
    """

    path: str
    granted: Stored
    above: dict[str, str] = field(default_factory=dict)
    spent: Stored = field(default_factory=dict)
    reserved: Stored = field(default_factory=dict)
    closed: bool = False
    asks: bool = False
    halted: str = ""
    warned: list[str] = field(default_factory=list)
    warn_at: float = 0.8
    after: str = ""
    currency: str = ""
    fan_out: str = ""
    thread_id: str = ""


@dataclass(frozen=True, slots=True)
class ChargeRecord:
    """What one call of a model or a tool is charged, as it is stored.

    Attributes:
        kind: What was called.
        path: Path of the agent that made the call.
        agent_thread_id: Its thread.
        state: `"reserved"` while it is under way; `"estimated"` and `"unknown"` if what it is
            charged was not reported; `"lost"` if its process has died, and it was made again.
        grants: Ids of the grants that it is taken from, by unit.
        model: Name of the model.
        input_tokens: Tokens that the model has read.
        output_tokens: Tokens that it has written.
        tokens: Tokens that are charged, or reserved.
        money: The same of money, as a text; empty without prices.
        currency: That of the money.
        checkpoint_ns: Namespace of the agent's level.
        checkpoint_id: The checkpoint of that level at which the call was made.
        after: The root's checkpoint at which it was made.
        cached_tokens: Tokens of those read that its provider had in its cache.
        thread_id: LangGraph's id of the thread, for SQL.
    """

    kind: Literal["model", "tool"]
    path: str
    agent_thread_id: str
    state: ChargeState
    grants: dict[str, str]
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    tokens: int = 0
    money: str = ""
    currency: str = ""
    checkpoint_ns: str = ""
    checkpoint_id: str = ""
    after: str = ""
    cached_tokens: int = 0
    thread_id: str = ""

    @property
    def amounts(self) -> dict[Unit, Amount]:
        """What it is charged, or has reserved, of each unit that a grant of it has."""
        own: dict[Unit, Amount] = {"tokens": self.tokens, "calls": 1, "tool_calls": 1}
        if self.money:
            own["money"] = Decimal(self.money)
        return {unit: own.get(unit, 0) for unit in self.grants if unit != "seconds"}

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
        return kept


GRANT: Final[RecordKind[GrantRecord]] = RecordKind("grant", GrantRecord)
"""What a request may spend."""
CHARGE: Final[RecordKind[ChargeRecord]] = RecordKind("charge", ChargeRecord)
"""What a call of a model or a tool is charged."""


class Grant:
    """A grant while a transaction reads and changes it.

    Args:
        id: Its id.
        record: Its record.
        version: The version of its record; `None` for a new one.

    Raises:
        ValueError: An amount in the record is damaged.
    """

    __slots__ = ("granted", "id", "record", "reserved", "spent", "version")

    def __init__(self, id: str, record: GrantRecord, version: int | None = None) -> None:
        self.id = id
        self.record = record
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


class BudgetRecord(NamedTuple):
    """A change of grants that is stored with the writes of a task.

    Attributes:
        change: Makes it.
        survives_failure: Whether it is stored if the task has failed, too.
    """

    change: Callable[[Transaction], None]
    survives_failure: bool = False

    def store(self, open_: Transaction) -> None:
        """Make the change; of a damaged grant nothing is free anyway, so it is left as it is."""
        try:
            self.change(open_)
        except LedgerDamaged as error:
            LOG.warning("a budget is not kept any more: %s", describe_error(error))


class TreeBudgets:
    """The budgets of one run. Safe for any number of threads.

    Args:
        ledger: The ledger of the run's saver.
        thread_id: LangGraph's id of the thread.
        turn: The root's turn.
        root: Path of the root.
        fence: The run's lease; once it is lost, nothing can be reserved.
        clock: Tells the time, in seconds from any moment.

    Attributes:
        prices: What the tokens of models cost; `None` if no table was given.
        root_budget: What the root may spend in a turn, if its own permissions say so.
        root_grant: Id of the grant for that.
        task_records: Stores records with the writes of a task; `None` if the saver does not.
    """

    def __init__(
        self,
        ledger: Ledger,
        thread_id: str,
        turn: str,
        root: str,
        fence: Fence | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.prices: Prices | None = None
        self.root_budget: Budget | None = None
        # A tree in a tree has one of its own.
        self.root_grant = "/".join((ROOT_GRANT, *root.split(PATH_SEPARATOR)[1:]))
        self.task_records: TaskRecords | None = None
        self.root = root
        self._ledger = ledger
        self._thread_id = thread_id
        self._grant_prefix = build_key(thread_id, GRANT.name, turn, "")
        self._charge_prefix = build_key(thread_id, CHARGE.name, turn, "")
        self._fence = fence
        self._clock = clock
        self._lock = Lock()
        self._calls = Counter[str]()
        # The calls of this run that are under way, with the versions of their records.
        self._reserved: dict[str, tuple[ChargeRecord, int | None]] = {}
        # Grants and their units of which little is left, as far as this run knows.
        self._low: set[tuple[str, Unit]] = set()
        # The grants that several requests share, by the thread of their superior.
        self._fan_outs: dict[str, set[str]] | None = None
        # Seconds since the last commit, and since when they pass, by the grants at work.
        self._elapsed: dict[str, float] = {}
        self._since: dict[str, float] = {}
        self._workers = Counter[str]()

    # Within the gate's own transactions.

    def concerns(self, step: Step, allowance: Allowance) -> bool:
        """Return whether anything is counted at a step beside what the request is granted.

        A call of a model is checked when it is reserved.
        """
        return bool(self._since or self._elapsed) or (
            step is Step.TOOL
            and ("tool_calls" in allowance.grants or "seconds" in allowance.grants)
        )

    def check(
        self, open_: Transaction, step: Step, allowance: Allowance, config: Mapping[str, Any]
    ) -> Halt | None:
        """Return why an agent must not call a tool; count the call."""
        if step is not Step.TOOL:
            return None
        try:
            return self._check_tool(open_, allowance, config)
        except LedgerDamaged as error:
            return _halt_damaged(error)

    def open_grants(
        self, open_: Transaction, requests: Sequence[GrantRequest], config: Mapping[str, Any]
    ) -> Halt | None:
        """Give a request its grants, or return why one of them cannot be had."""
        try:
            return next(
                (halt for each in requests if (halt := self._open_grant(open_, each, config))), None
            )
        except LedgerDamaged as error:
            return _halt_damaged(error)

    def note_time(self, open_: Transaction) -> Callable[[], None]:
        """Add the seconds since the last commit to the grants at work; call the result after it."""
        now, passed = self._clock(), dict[str, float]()
        for grant in {*self._elapsed, *self._since}:
            passed[grant] = self._get_running(grant, now)
            self._add_seconds(open_, grant, passed[grant])

        def note_commit() -> None:
            with self._lock:
                for grant in passed:
                    self._elapsed.pop(grant, None)
                    if grant in self._since:
                        self._since[grant] = now

        return note_commit

    # What nodes call.

    def reserve(
        self, estimate: CallEstimate, allowance: Allowance, config: Mapping[str, Any]
    ) -> str | Halt:
        """Reserve what a model call is expected to use.

        Returns:
            The key of its charge, empty if nothing of it is counted; or a `Halt`.
        """
        stem = self._build_charge_stem("model", config)
        try:
            return self._commit(
                lambda open_: self._reserve(open_, stem, estimate, allowance, config)
            )
        except LedgerDamaged as error:
            return _halt_damaged(error)

    def charge(self, reserved: str, used: CallUsage | None, config: Mapping[str, Any]) -> None:
        """Charge what a call has used, once the writes of the node's task are stored."""
        if not reserved:
            return
        change = partial(self._settle, key=reserved, used=used)
        self._store_with_task([BudgetRecord(change, survives_failure=True)], config)

    def end(self, ended: Sequence[str], asking: Sequence[str], config: Mapping[str, Any]) -> None:
        """Close grants, and mark those whose agents have asked, with the writes of the task."""
        self._store_with_task(
            [BudgetRecord(partial(self._end, ended=ended, asking=asking))], config
        )

    def has_warnings(self, allowance: Allowance) -> bool:
        """Return whether an agent may have to be told what is left."""
        if not self._low:
            return False
        return any((id_, unit) in self._low for unit, id_ in allowance.grants.items())

    def take_warnings(
        self, allowance: Allowance, config: Mapping[str, Any]
    ) -> list[tuple[str, str]]:
        """Return what the agent has to be told of its budget, each with an id, and note it."""

        def describe(open_: Transaction) -> list[tuple[str, Unit, str]]:
            grants = self._load_all(open_, allowance.grants.values())
            return [
                (id_, unit, self._describe_left(grants[id_], unit))
                for unit, id_ in allowance.grants.items()
                if (id_, unit) in self._low and unit not in grants[id_].record.warned
            ]

        try:
            due = self._ledger.query(describe)
        except LedgerDamaged:
            return []  # it is told when it is to spend something
        self._low.difference_update((id_, unit) for unit, id_ in allowance.grants.items())
        for id_, unit, _ in due:
            change = partial(self._note_warned, id_=id_, unit=unit)
            self._store_with_task([BudgetRecord(change)], config)
        return [(f"{id_}/{unit}", text) for id_, unit, text in due]

    def get_seconds_left(self, allowance: Allowance) -> float | None:
        """Return the seconds of work that an agent has left, `None` for no limit."""
        if "seconds" not in allowance.grants:
            return None
        id_ = allowance.grants["seconds"]
        try:
            grant = self._ledger.query(lambda open_: self._load(open_, id_))
        except LedgerDamaged:
            return 0.0
        return float(self._get_free(grant, "seconds"))

    def begin_work(self, grants: Iterable[str]) -> None:
        """Let the seconds of grants pass, until `end_work` was called as often."""
        with self._lock:
            for grant in grants:
                self._workers[grant] += 1
                self._since.setdefault(grant, self._clock())

    def end_work(self, grants: Iterable[str]) -> None:
        """Stop the seconds of grants."""
        with self._lock:
            for grant in grants:
                self._workers[grant] -= 1
                if self._workers[grant] == 0 and grant in self._since:
                    passed = self._clock() - self._since.pop(grant)
                    self._elapsed[grant] = self._elapsed.get(grant, 0.0) + passed

    # Within the transactions that store the writes of a task.

    def _settle(self, open_: Transaction, key: str, used: CallUsage | None) -> None:
        """Charge a call that was reserved; once, and as reserved if nothing is known of it."""
        before, version = self._reserved.pop(key, (None, None))
        if before is None and (found := open_.get_record(CHARGE, key)):
            before, version = found.value, found.version
        if before is None or before.state != "reserved":
            return
        changed = self._build_charge(before, used)
        grants = self._load_all(open_, before.grants.values())
        if True in [each.record.closed for each in grants.values()]:
            # Its request has ended meanwhile, and what was reserved counts as spent.
            changed = replace(before, state="unknown")
            grants = {}
        if not open_.has_version(key, version):
            return
        open_.set_read(key, version, changed.to_json())
        if grants:
            self._move_charge(grants, before, changed, used.fault if used else "")
            self._save_all(open_, grants)
            self._note_low(grants, before.grants)

    def _move_charge(
        self,
        grants: Mapping[str, Grant],
        before: ChargeRecord,
        changed: ChargeRecord,
        fault: str = "",
    ) -> None:
        """Count what a call had reserved as spent, as far as it was."""
        for unit, id_ in before.grants.items():
            if unit == "seconds":
                continue
            grant, held, spent = grants[id_], 1, 1
            if unit == "tokens":
                held, spent = before.tokens, changed.tokens
            elif unit == "money":
                add_amount(grant.reserved, unit, -Decimal(before.money or 0))
                add_amount(grant.spent, unit, Decimal(changed.money or 0))
                held = spent = 0
            if held or spent:
                add_amount(grant.reserved, unit, -held)
                add_amount(grant.spent, unit, spent)
            if fault and unit in ("tokens", "money"):
                grant.record = replace(grant.record, halted=fault)

    def _end(self, open_: Transaction, ended: Iterable[str], asking: Iterable[str]) -> None:
        """Close grants, and mark those whose agents have asked."""
        for id_ in ended:
            self._close(open_, id_)
        for id_ in asking:
            grant = self._find(open_, id_)
            if grant and not grant.record.closed:
                grant.record = replace(grant.record, asks=True)
                self._save_all(open_, {id_: grant})

    def _note_warned(self, open_: Transaction, id_: str, unit: Unit) -> None:
        """Note that the agents of a grant were told what is left of a unit."""
        grant = self._load(open_, id_)
        if unit not in grant.record.warned:
            grant.record = replace(grant.record, warned=[*grant.record.warned, unit])
            self._save_all(open_, {id_: grant})

    # The rules.

    def _check_tool(
        self, open_: Transaction, allowance: Allowance, config: Mapping[str, Any]
    ) -> Halt | None:
        grants = self._load_all(
            open_, [allowance.grants[unit] for unit in _TOOL_UNITS if unit in allowance.grants]
        )
        id_ = allowance.grants.get("tool_calls", "")
        key = f"{self._build_charge_stem('tool', config)}.1" if id_ else ""
        if key and open_.get_record(CHARGE, key):
            return None  # it is made again, or its result is read again
        if halt := self._find_halt(grants, allowance.grants, _TOOL_UNITS):
            if key and not grants[id_].record.halted and grants[id_].find_exhausted("tool_calls"):
                # Its agents end: else a model would call tools again and again.
                grants[id_].record = replace(grants[id_].record, halted=halt.why)
                self._save_all(open_, {id_: grants[id_]})
            return halt
        if key:
            add_amount(grants[id_].spent, "tool_calls", 1)
            self._save_all(open_, {id_: grants[id_]})
            self._note_low(grants, {"tool_calls": id_})
            charge = self._describe_call("tool", {"tool_calls": id_}, config)
            open_.set_read(key, None, replace(charge, state="charged").to_json())
        return None

    def _find_halt(
        self, grants: Mapping[str, Grant], ids: Mapping[Unit, str], units: Iterable[Unit]
    ) -> Halt | None:
        """Return why nothing more may be spent of some units, `None` if something may."""
        for grant in grants.values():
            if grant.record.halted:
                return Halt("budget", grant.record.halted)
        for unit in units:
            if unit in ids:
                grant = grants[ids[unit]]
                running = self._get_running(grant.id, self._clock()) if unit == "seconds" else 0.0
                if halt := grant.find_exhausted(unit, running):
                    return halt
        return None

    def _get_free(self, grant: Grant, unit: Unit) -> Any:
        free = grant.get_free(unit)
        if unit != "seconds":
            return free
        return max(float(free) - self._get_running(grant.id, self._clock()), 0.0)

    def _note_low(self, grants: Mapping[str, Grant], ids: Mapping[Unit, str]) -> None:
        """Note of which units of grants little is left, so that their agents are told."""
        for unit, id_ in ids.items():
            if (grant := grants.get(id_)) and unit not in grant.record.warned:
                used = float(grant.get_used(unit))
                if unit == "seconds":
                    used += self._get_running(id_, self._clock())
                if used >= grant.record.warn_at * float(grant.granted.get(unit, 0)):
                    self._low.add((id_, unit))

    def _describe_left(self, grant: Grant, unit: Unit) -> str:
        free = self._get_free(grant, unit)
        if unit == "seconds":
            free = round(float(free), 1)
        whole = format_amount(unit, grant.granted[unit], grant.record.currency)
        return f"{format_number(free)} of {whole} are left"

    def _reserve(  # noqa: C901  all of it in one transaction, in order
        self,
        open_: Transaction,
        stem: str,
        estimate: CallEstimate,
        allowance: Allowance,
        config: Mapping[str, Any],
    ) -> str | Halt:
        if self._fan_outs is None:
            self._fan_outs = self._list_fan_outs(open_)
        if self._fan_outs:
            for id_ in sorted(self._fan_outs.get(_get_thread(config), ())):
                # The requests that share it have all ended: their superior goes on.
                self._close(open_, id_)
        entry, key = 1, f"{stem}.1"
        # A task that is run again, after a crash or a question, has called it before.
        while not open_.has_version(key, None):
            found = open_.get_record(CHARGE, key)
            if found and found.value.state == "reserved":
                self._lose(open_, key, found.value, found.version)
            entry += 1
            key = f"{stem}.{entry}"
        grants = self._load_all(open_, allowance.grants.values())
        units = {unit: id_ for unit, id_ in allowance.grants.items() if unit != "tool_calls"}
        free = {unit: grants[id_].get_free(unit) for unit, id_ in units.items()}
        if "seconds" in units:
            free["seconds"] = self._get_free(grants[units["seconds"]], "seconds")
        halted = [each.id for each in grants.values() if each.record.halted]
        if halted or [unit for unit in units if free[unit] <= 0]:
            return self._find_halt(grants, units, _MODEL_UNITS) or _NOTHING_LEFT
        if not units.keys() - {"seconds"}:
            return ""
        wanted: dict[Unit, Any] = {
            "tokens": estimate.input_tokens + estimate.output_tokens,
            "calls": 1,
        }
        currency = ""
        if self.prices and self.prices.covers(estimate.model):
            wanted["money"] = self.prices.estimate_cost(*estimate)
            currency = self.prices.currency
        if "money" in units and (halt := self._check_prices(grants[units["money"]], estimate)):
            return halt
        for unit, id_ in units.items():
            if unit in wanted:
                wanted[unit] = min(free[unit], wanted[unit])
                add_amount(grants[id_].reserved, unit, wanted[unit])
        self._save_all(open_, grants)
        money = format_money(wanted["money"]) if "money" in wanted else ""
        charge = self._describe_call(
            "model", units, config, (estimate.model, 0, 0, wanted["tokens"], money, currency)
        )
        version = open_.set_read(key, None, charge.to_json())
        # If the transaction is made again, so is this.
        self._reserved[key] = charge, version
        return key

    def _check_prices(self, grant: Grant, estimate: CallEstimate) -> Halt | None:
        if self.prices is None:
            return Halt("budget", "no prices are given in this process: Session(prices=...)")
        if not self.prices.covers(estimate.model):
            return Halt("budget", f"the table of prices has none of the model {estimate.model!r}")
        own, other = grant.record.currency, self.prices.currency
        if own and own != other:
            return Halt("budget", f"it was granted in {own}, and the prices are in {other}")
        return None

    def _lose(self, open_: Transaction, key: str, lost: ChargeRecord, version: int) -> None:
        """Charge a call that a process has not come back from as it was reserved."""
        grants = self._load_all(open_, lost.grants.values())
        if not any(each.record.closed for each in grants.values()):
            self._move_charge(grants, lost, lost)
            self._save_all(open_, grants)
        open_.set_read(key, version, replace(lost, state="lost").to_json())

    def _open_grant(
        self, open_: Transaction, asked: GrantRequest, config: Mapping[str, Any]
    ) -> Halt | None:
        """Give a request a grant, unless it has it already; return why it cannot be had."""
        if asked.fan_out and self._fan_outs is not None:
            self._fan_outs.setdefault(asked.fan_out, set()).add(asked.id)
        if open_.get_record(GRANT, self._grant_prefix + asked.id):
            return None
        cap = dict(asked.cap)
        if asked.continues and (rest := self._take_rest(open_, asked.continues)):
            cap |= rest
        above = self._load_all(open_, asked.above.values())
        granted = dict(asked.asked)
        for unit, amount in {**cap, **asked.asked}.items():
            if unit not in asked.above:
                granted[unit] = amount
                continue
            grant = above[asked.above[unit]]
            free = self._get_free(grant, unit)
            if unit in asked.asked and amount > free:
                left = format_amount(unit, free, grant.record.currency)
                return Halt("over_grant", f"asked {format_number(amount)}, free {left}")
            if halt := self._find_halt(above, {unit: grant.id}, [unit]):
                return halt
            granted[unit] = min(amount, free)
            if unit != "seconds":
                # Time passes for both at once.
                add_amount(grant.reserved, unit, granted[unit])
        self._save_all(open_, above)
        self._note_low(above, asked.above)
        record = GrantRecord(
            path=_get_path(config),
            granted=store_amounts(granted),
            above={unit: id_ for unit, id_ in asked.above.items() if unit in granted},
            warn_at=asked.warn_at,
            after=get_root_checkpoint(config["configurable"]),
            currency=self.prices.currency if self.prices and "money" in granted else "",
            fan_out=asked.fan_out,
            thread_id=self._thread_id,
        )
        self._save_all(open_, {asked.id: Grant(asked.id, record)})
        return None

    def _take_rest(self, open_: Transaction, id_: str) -> dict[Unit, Amount]:
        """Close a grant whose agent has asked, and return what it has not spent."""
        grant = self._find(open_, id_)
        if grant is None or not grant.record.asks:
            return {}
        self._close(open_, id_)
        grant = self._load(open_, id_)
        rest = dict(grant.granted)
        for unit, amount in grant.spent.items():
            add_amount(rest, unit, -amount)
        return {unit: rest[unit] for unit in grant.granted}

    def _close(self, open_: Transaction, id_: str) -> None:
        """Close a grant and those below it, and give back what was not spent, once."""
        if (grant := self._find(open_, id_)) is None or grant.record.closed:
            return
        if grant.reserved:
            for below in [*self._list_below(open_, id_)]:
                self._close(open_, below)
            grant = self._load(open_, id_)
        for unit, amount in grant.reserved.items():
            add_amount(grant.spent, unit, amount)
        grant.reserved = {}
        if seconds := self._get_running(id_, self._clock()):
            add_amount(grant.spent, "seconds", seconds)
        with self._lock:
            self._elapsed.pop(id_, None)
            self._since.pop(id_, None)
        above = self._load_all(open_, grant.record.above.values())
        for unit, above_id in grant.record.above.items():
            superior = above[above_id]
            if unit != "seconds" and not superior.record.closed:
                add_amount(superior.reserved, unit, -grant.granted.get(unit, 0))
                add_amount(superior.spent, unit, grant.spent.get(unit, 0))
        grant.record = replace(grant.record, closed=True)
        self._save_all(open_, {**above, id_: grant})

    def _list_below(self, open_: Transaction, id_: str) -> Iterator[str]:
        """Yield the ids of the open grants that were taken from one."""
        for own, record in self._iterate_open(open_):
            if id_ in record.above.values():
                yield own

    def _list_fan_outs(self, open_: Transaction) -> dict[str, set[str]]:
        """Return the open grants that several requests share, by the thread of their superior."""
        found: dict[str, set[str]] = {}
        for id_, record in self._iterate_open(open_):
            if record.fan_out:
                found.setdefault(record.fan_out, set()).add(id_)
        return found

    def _iterate_open(self, open_: Transaction) -> Iterator[tuple[str, GrantRecord]]:
        """Yield the grants of the turn that are not closed, with their ids."""
        prefix = self._grant_prefix
        for key in open_.list_keys(prefix):
            found = open_.get_record(GRANT, key)
            if found and not found.value.closed:
                yield key.removeprefix(prefix), found.value

    def _build_charge(self, before: ChargeRecord, used: CallUsage | None) -> ChargeRecord:
        """Return the record of a call that has ended."""
        if used is None:
            return replace(before, state="unknown")
        if used.usage is None:
            # Where only calls are counted, nothing was estimated.
            state: ChargeState = "estimated" if before.tokens else "unknown"
            return replace(before, state=state, model=used.model or before.model)
        read, written = used.usage.get("input_tokens", 0), used.usage.get("output_tokens", 0)
        money = before.money
        if self.prices and before.money:
            model = used.model if self.prices.covers(used.model) else before.model
            money = format_money(self.prices.compute_cost(model, used.usage))
        # Not `replace`, which reads each field by its name.
        return ChargeRecord(
            before.kind,
            before.path,
            before.agent_thread_id,
            "estimated" if used.is_estimated else "charged",
            before.grants,
            used.model or before.model,
            read,
            written,
            read + written,
            money,
            before.currency,
            before.checkpoint_ns,
            before.checkpoint_id,
            before.after,
            (used.usage.get("input_token_details") or {}).get("cache_read") or 0,
            before.thread_id,
        )

    def _describe_call(
        self,
        kind: Literal["model", "tool"],
        grants: Mapping[Unit, str],
        config: Mapping[str, Any],
        used: tuple[str, int, int, int, str, str] = ("", 0, 0, 0, "", ""),
    ) -> ChargeRecord:
        """Return the record of a call that begins now; `used` are its model up to its currency."""
        given, metadata = config["configurable"], config["metadata"]
        level = str(given.get("checkpoint_ns", "")).rpartition(NS_SEP)[0]
        checkpoints = given.get(CHECKPOINT_MAP_KEY) or {}
        return ChargeRecord(
            kind,
            metadata.get("agent_path", ""),
            metadata.get("agent_thread_id", ""),
            "reserved",
            dict(grants),
            *used,
            level,
            checkpoints.get(level, ""),
            checkpoints.get("", ""),
            0,
            self._thread_id,
        )

    # The ledger.

    def _build_charge_stem(self, kind: str, config: Mapping[str, Any]) -> str:
        """Return the key of the next call of a task, without the number of its entry."""
        task = str(config["configurable"][TASK_ID_KEY])
        with self._lock:
            self._calls[f"{kind}/{task}"] += 1
            number = self._calls[f"{kind}/{task}"]
        return f"{self._charge_prefix}{task}/{kind}.{number}"

    def _find(self, open_: Transaction, id_: str) -> Grant | None:
        key = self._grant_prefix + id_
        found = open_.get_record(GRANT, key)
        if found is None and id_ == self.root_grant and self.root_budget:
            currency = self.prices.currency if self.prices else ""
            record = build_root_grant(self.root_budget, self.root, self._thread_id, currency)
            return Grant(id_, record)
        if found is None:
            return None
        try:
            return Grant(id_, found.value, found.version)
        except ValueError as error:
            raise LedgerDamaged(key, str(error), GRANT.name) from error

    def _load(self, open_: Transaction, id_: str) -> Grant:
        grant = self._find(open_, id_)
        if grant is None:
            raise LedgerDamaged(self._grant_prefix + id_, "there is no such grant", GRANT.name)
        return grant

    def _load_all(self, open_: Transaction, ids: Iterable[str]) -> dict[str, Grant]:
        return {id_: self._load(open_, id_) for id_ in dict.fromkeys(ids)}

    def _save_all(self, open_: Transaction, grants: Mapping[str, Grant]) -> None:
        for id_, grant in grants.items():
            key = self._grant_prefix + id_
            grant.version = open_.set_read(key, grant.version, grant.to_json())

    def _add_seconds(self, open_: Transaction, id_: str, seconds: float) -> None:
        grant = self._find(open_, id_)
        if grant and not grant.record.closed and seconds:
            add_amount(grant.spent, "seconds", seconds)
            self._save_all(open_, {id_: grant})

    def _get_running(self, id_: str, now: float) -> float:
        """Return the seconds of a grant that are not stored yet."""
        with self._lock:
            return self._elapsed.get(id_, 0.0) + now - self._since.get(id_, now)

    def _commit(self, work: Callable[[Transaction], T]) -> T:
        def fenced(open_: Transaction) -> T:
            if self._fence:
                open_.require_lease(self._fence)
            return work(open_)

        return self._ledger.commit(fenced)

    def _store_with_task(self, records: Sequence[BudgetRecord], config: Mapping[str, Any]) -> None:
        """Store records with the writes of the node's task, or at once where these are not."""
        given = config["configurable"]
        if self.task_records and stores_each_step(given):
            self.task_records.add(given[TASK_ID_KEY], records)
            return
        turn = get_turn(given)

        def store(open_: Transaction) -> None:
            if turn:
                turn.check_in(open_)
            for each in records:
                each.store(open_)

        self._ledger.commit(store)


def close_grants_below(open_: Transaction, ledger: Ledger, thread_id: str, path: str) -> None:
    """Close the grants of an agent and of all below it, which give back what is not spent.

    What their calls under way have reserved counts as spent.
    """
    prefix = build_key(thread_id, GRANT.name, "")
    for key in open_.list_keys(prefix):
        turn, id_ = key.removeprefix(prefix).split("/", 1)
        try:
            found = open_.get_record(GRANT, key)
            if found and not found.value.closed and is_under(found.value.path, path):
                TreeBudgets(ledger, thread_id, turn, "")._close(open_, id_)
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
    """Give a turn its budget, if it has none yet; return what it may spend, `None` for no budget.

    Args:
        open_: The transaction.
        thread_id: LangGraph's id of the thread.
        turn: The turn.
        root: Name of the root.
        budget: What it may spend, if this is said now.
        currency: That of its money.
    """
    key = build_key(thread_id, GRANT.name, turn, ROOT_GRANT)
    try:
        found = open_.get_record(GRANT, key)
    except LedgerDamaged:
        # Whoever is to spend it finds that nothing is free.
        return NO_ALLOWANCE.extend(ROOT_GRANT, UNITS, budget)
    if found is None and budget is None:
        return None
    record = found.value if found else None
    if record is None:
        assert budget is not None  # noqa: S101  else there is a record
        record = build_root_grant(budget, root, thread_id, currency)
        open_.compare_and_set(key, None, Grant(ROOT_GRANT, record).to_json())
    allowance = NO_ALLOWANCE.extend(ROOT_GRANT, record.granted, budget)
    return replace(allowance, warn_at=record.warn_at)


def build_root_grant(budget: Budget, path: str, thread_id: str, currency: str = "") -> GrantRecord:
    """Return the record of the grant of a turn, which the root at a path may spend."""
    own = currency if budget.money else ""
    return GrantRecord(
        path,
        store_amounts(budget.amounts),
        warn_at=budget.warn_at,
        currency=own,
        thread_id=thread_id,
    )


def _halt_damaged(error: LedgerDamaged) -> Halt:
    # Nothing can be said to be free.
    LOG.warning("nothing is free of a budget: %s", describe_error(error))
    return Halt("budget", f"its record is damaged, so nothing is free: {error}")


def _get_path(config: Mapping[str, Any]) -> str:
    return str(config["metadata"].get("agent_path", ""))


def _get_thread(config: Mapping[str, Any]) -> str:
    return str(config["metadata"].get("agent_thread_id", ""))
