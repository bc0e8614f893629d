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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from threading import Lock
from time import monotonic
from typing import Any, ClassVar, Final, Literal, TypeVar
from uuid import uuid4

from echelons.checkpoints.coordination.grants import (
    CHARGE,
    ROOT_GRANT,
    ChargeRecord,
    ChargeState,
    Grant,
    GrantRecord,
    TurnGrants,
    WorkClock,
    build_root_grant,
)
from echelons.checkpoints.coordination.records import get_root_checkpoint
from echelons.checkpoints.coordination.task_changes import (
    TaskChange,
    TaskChanges,
    commit_with_task,
)
from echelons.checkpoints.ledger import Fence, Ledger, Transaction
from echelons.errors import LeaseLost, LedgerDamaged, StorageError
from echelons.guards.budget import (
    NO_ALLOWANCE,
    Allowance,
    Budget,
    CallEstimate,
    GrantRequest,
    Unit,
    add_amount,
    format_amount,
    format_number,
    store_amounts,
)
from echelons.guards.gate import CallUsage, Halt, InnerRow, NotedCall, Step, StepGuard
from echelons.guards.prices import Prices, format_money
from echelons.langgraph_internals import CHECKPOINT_MAP_KEY, NS_SEP, TASK_ID_KEY
from echelons.run_context import get_context
from echelons.text.error_lines import describe_error
from echelons.tree.names import PATH_SEPARATOR

LOG = logging.getLogger(__name__)
T = TypeVar("T")
_MODEL_UNITS: Final[Sequence[Unit]] = ("tokens", "money", "calls", "seconds")
_NOTHING_LEFT: Final = Halt("budget", "nothing is left")
_OWNER: Final = "budget"
_TOOL_UNITS: Final[Sequence[Unit]] = ("tool_calls", "seconds")


def _build_change(
    change: Callable[[Transaction], None], *, survives_failure: bool = False
) -> TaskChange:
    """Return a change of grants; of a damaged grant nothing is free anyway, so it stays."""

    def make(open_: Transaction) -> None:
        try:
            change(open_)
        except LedgerDamaged as error:
            LOG.warning("a budget is not kept any more: %s", describe_error(error))

    return TaskChange(_OWNER, make, survives_failure=survives_failure)


class TreeBudgets(StepGuard):
    """The budgets of one run. Safe for any number of threads."""

    name: ClassVar[str] = "budget"

    def __init__(
        self,
        ledger: Ledger,
        thread_id: str,
        turn: str,
        root: str,
        fence: Fence | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        # `None` if nothing limits the root.
        self.allowance: Allowance | None = None
        self.prices: Prices | None = None
        # What the root's own permissions let it spend in a turn.
        self.root_budget: Budget | None = None
        # A tree in a tree has one of its own.
        self.root_grant = "/".join((ROOT_GRANT, *root.split(PATH_SEPARATOR)[1:]))
        # `None` if the saver does not collect the changes of tasks.
        self.task_changes: TaskChanges | None = None
        self.root = root
        self._ledger = ledger
        self._thread_id = thread_id
        self._work = WorkClock(clock)
        self._grants = TurnGrants(thread_id, turn, self._work, self._build_own_root)
        self._charge_prefix = CHARGE.key(thread_id, turn, "")
        # Once the lease is lost, nothing can be reserved.
        self._fence = fence
        self._is_timed = False
        self._lock = Lock()
        self._calls = Counter[str]()
        # The calls of this run that are under way, with the versions of their records.
        self._reserved: dict[str, tuple[ChargeRecord, int | None]] = {}
        # Grants and their units of which little is left, as far as this run knows.
        self._low: set[tuple[str, Unit]] = set()
        # The grants that several requests share, by the thread of their superior.
        self._fan_outs: dict[str, set[str]] | None = None

    # Within the gate's own transactions.

    def concerns(
        self, step: Step, config: Mapping[str, Any], claims: Sequence[GrantRequest]
    ) -> bool:
        """Return whether anything is counted at a step of an agent with a budget.

        A call of a model is checked when it is reserved.
        """
        allowance = get_context(config).allowance or self.allowance
        if allowance is None:
            return False
        if not self._is_timed and "seconds" in allowance.grants:
            root = self.allowance
            if root and "seconds" in root.grants:
                # The seconds of the turn's budget pass from its first step in this run on.
                self._is_timed = True
                self.begin_work((self.root_grant,))
        return bool(claims) or (
            self._work.has_seconds
            or (
                step is Step.TOOL
                and ("tool_calls" in allowance.grants or "seconds" in allowance.grants)
            )
        )

    def admit(
        self,
        open_: Transaction,
        step: Step,
        config: Mapping[str, Any],
        claims: Sequence[GrantRequest],
    ) -> Halt | None:
        """Return why an agent must not call a tool, or a request cannot have its grants."""
        allowance = get_context(config).allowance or self.allowance
        try:
            if step is Step.TOOL and allowance:
                return self._admit_tool(open_, allowance, config)
            halts = (self._open_grant(open_, claim, config) for claim in claims)
            return next(filter(None, halts), None)
        except LedgerDamaged as error:
            return _halt_damaged(error)

    def admit_inner(
        self, open_: Transaction, step: Step, config: Mapping[str, Any], rows: InnerRow
    ) -> Halt | None:
        """Return why a tree within must not call a model or a tool; record the call of a tool."""
        allowance = get_context(config).allowance or self.allowance or NO_ALLOWANCE
        try:
            if step is Step.TOOL:
                return self._admit_tool(open_, allowance, config, rows)
            if step is Step.MODEL:
                grants = self._grants.load_all(open_, allowance.grants.values())
                return self._grants.find_halt(grants, allowance.grants, _MODEL_UNITS)
        except LedgerDamaged as error:
            return _halt_damaged(error)
        return None

    def _admit_tool(
        self,
        open_: Transaction,
        allowance: Allowance,
        config: Mapping[str, Any],
        rows: InnerRow = "",
    ) -> Halt | None:
        """Return why an agent must not call a tool, or charge the call."""
        grants = self._grants.load_all(
            open_,
            [allowance.grants[unit] for unit in _TOOL_UNITS if unit in allowance.grants],
        )
        id_ = allowance.grants.get("tool_calls", "")
        key = f"{self._build_charge_stem('tool', config)}.1" if id_ or rows else ""
        if key and open_.get_record(CHARGE, key):
            return None  # it is made again, or its result is read again
        if halt := self._grants.find_halt(grants, allowance.grants, _TOOL_UNITS):
            if id_ and not grants[id_].record.halted and grants[id_].find_exhausted("tool_calls"):
                # Its agents end: else a model would call tools again and again.
                grants[id_].record = replace(grants[id_].record, halted=halt.why)
                self._grants.save_all(open_, {id_: grants[id_]})
            return halt
        if id_:
            add_amount(grants[id_].spent, "tool_calls", 1)
            self._grants.save_all(open_, {id_: grants[id_]})
            self._note_low(grants, {"tool_calls": id_})
        if key:
            units = {"tool_calls": id_} if id_ else {}
            charge = self._describe_call("tool", units, config)
            charge = replace(charge, state="charged", inner=rows)
            open_.set_read(key, None, charge.to_json())
        return None

    def note_call(
        self, call: NotedCall, config: Mapping[str, Any], *, limits_tokens: bool
    ) -> tuple[NotedCall, Callable[[Transaction], None] | None]:
        """Return a call without an estimate that nothing counts, and what records it."""
        allowance = get_context(config).allowance or self.allowance
        if not (limits_tokens or allowance):
            call = call._replace(estimated_tokens=0)
        if call.has_record or (call.has_failed and allowance is None):
            return call, None
        return call, self.plan_charge(call, config)

    def close(self) -> Callable[[Transaction], Callable[[], None]] | None:
        """Return what stores the seconds since the last step."""
        if not self._is_timed:
            return None
        self._is_timed = False
        self.end_work((self.root_grant,))
        return self.finish

    def finish(self, open_: Transaction) -> Callable[[], None]:
        """Add the seconds since the last commit to the grants at work; call the result after it."""
        now, passed = self._work.read_all()
        for id_, seconds in passed.items():
            self._grants.add_seconds(open_, id_, seconds)
        return partial(self._work.forget, passed, now)

    # What nodes call.

    def reserve(
        self, estimate: CallEstimate, allowance: Allowance, config: Mapping[str, Any]
    ) -> str | Halt:
        """Reserve what a model call may use; return the key of its charge, if any, or a `Halt`."""
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
        self._commit_with_task(_build_change(change, survives_failure=True), config)

    def plan_charge(
        self, call: NotedCall, config: Mapping[str, Any]
    ) -> Callable[[Transaction], None]:
        """Return what records a call that was not reserved, and charges the agent's grants."""
        allowance, used = get_context(config).allowance or self.allowance, call.used
        grants = allowance.grants if allowance else {}
        stem = self._build_charge_stem("noted", config)
        usage: Mapping[str, Any] = used.usage or {}
        money, fault = "", used.fault
        if self.prices and usage and self.prices.covers(used.model):
            money = format_money(self.prices.compute_cost(used.model, usage))
        elif "money" in grants and not fault:
            fault = f"no price is known of the model {used.model!r}"
        currency = self.prices.currency if self.prices and money else ""
        units = {unit: id_ for unit, id_ in grants.items() if unit in _MODEL_UNITS}
        expected = (used.model, 0, 0, call.tokens, money, currency)
        state: ChargeState = "charged"
        if used.is_estimated or not usage:
            state = "estimated" if call.tokens else "unknown"
        charge = replace(
            self._describe_call("model", units, config, expected),
            state=state,
            input_tokens=usage.get("input_tokens", 0),
            output_tokens=usage.get("output_tokens", 0),
            cached_tokens=(usage.get("input_token_details") or {}).get("cache_read") or 0,
            reply_id=call.reply_id,
            inner=call.inner,
        )
        if not call.is_reply:
            # What else was made at this step counts beside it.
            charge = replace(charge, checkpoint_ns="", checkpoint_id="")
        return partial(self._add_charge, stem=stem, charge=charge, fault=fault)

    def charge_cancelled(self, reserved: str) -> None:
        """Charge what was reserved for a call at once, as its task stores nothing any more."""
        if reserved:
            change = _build_change(partial(self._settle, key=reserved, used=None))
            try:
                self._commit(change.make)
            except (LeaseLost, StorageError) as error:
                # The run that goes on finds the call lost.
                LOG.warning("a cancelled call is not charged yet: %s", describe_error(error))

    def end(self, ended: Sequence[str], asking: Sequence[str], config: Mapping[str, Any]) -> None:
        """Close grants, and mark those whose agents have asked, with the writes of the task."""
        change = partial(self._end, ended=ended, asking=asking)
        self._commit_with_task(_build_change(change), config)

    def has_warnings(self, allowance: Allowance) -> bool:
        """Return whether an agent may need a warning of its budget."""
        if not self._low:
            return False
        return any((id_, unit) in self._low for unit, id_ in allowance.grants.items())

    def take_warnings(
        self, allowance: Allowance, config: Mapping[str, Any]
    ) -> list[tuple[str, str]]:
        """Return the warnings of the agent's budget, each with an id, and note them."""

        def describe(open_: Transaction) -> list[tuple[str, Unit, str]]:
            grants = self._grants.load_all(open_, allowance.grants.values())
            return [
                (id_, unit, self._describe_left(grants[id_], unit))
                for unit, id_ in allowance.grants.items()
                if (id_, unit) in self._low and unit not in grants[id_].record.warned
            ]

        try:
            due = self._ledger.query(describe)
        except LedgerDamaged:
            return []  # it reads so when it is to spend something
        self._low.difference_update((id_, unit) for unit, id_ in allowance.grants.items())
        for id_, unit, _ in due:
            change = partial(self._note_warned, id_=id_, unit=unit)
            self._commit_with_task(_build_change(change), config)
        return [(f"{id_}/{unit}", text) for id_, unit, text in due]

    def get_seconds_left(self, allowance: Allowance) -> float | None:
        """Return the seconds of work that an agent has left, `None` for no limit."""
        if "seconds" not in allowance.grants:
            return None
        id_ = allowance.grants["seconds"]
        try:
            grant = self._ledger.query(lambda open_: self._grants.load(open_, id_))
        except LedgerDamaged:
            return 0.0
        return float(self._grants.get_free(grant, "seconds"))

    def begin_work(self, grants: Iterable[str]) -> None:
        """Let the seconds of grants pass, until `end_work` was called as often."""
        self._work.begin(grants)

    def end_work(self, grants: Iterable[str]) -> None:
        """Stop the seconds of grants."""
        self._work.end(grants)

    # Within the transactions that store the writes of a task.

    def _settle(self, open_: Transaction, key: str, used: CallUsage | None) -> None:
        """Charge a call that was reserved; once, and as reserved if nothing is known of it."""
        before, version = self._reserved.pop(key, (None, None))
        if before is None and (record := open_.get_record(CHARGE, key)):
            before, version = record.value, record.version
        if before is None or before.state != "reserved":
            return
        changed = self._build_charge(before, used)
        grants = self._grants.load_all(open_, before.grants.values())
        if True in [grant.record.closed for grant in grants.values()]:
            # Its request has ended meanwhile, and what was reserved counts as spent.
            changed = replace(before, state="unknown")
            grants = {}
        if not open_.has_version(key, version):
            return
        open_.set_read(key, version, changed.to_json())
        if grants:
            self._move_charge(grants, before, changed, used.fault if used else "")
            self._grants.save_all(open_, grants)
            self._note_low(grants, before.grants)

    def _add_charge(self, open_: Transaction, stem: str, charge: ChargeRecord, fault: str) -> None:
        """Record a call that was not reserved."""
        try:
            grants = self._grants.load_all(open_, charge.grants.values())
        except LedgerDamaged as error:
            # Of a damaged grant nothing is free anyway.
            LOG.warning("a call is not charged: %s", describe_error(error))
            grants = {}
        if any(grant.record.closed for grant in grants.values()):
            grants = {}
        if grants:
            unreserved = replace(charge, tokens=0, money="")
            for unit, id_ in charge.grants.items():
                if unit == "calls":
                    add_amount(grants[id_].reserved, unit, 1)
            self._move_charge(grants, unreserved, charge, fault)
            self._grants.save_all(open_, grants)
            self._note_low(grants, charge.grants)
        else:
            charge = replace(charge, grants={})
        entry = 1
        while not open_.has_version(f"{stem}.{entry}", None):
            entry += 1
        open_.set_read(f"{stem}.{entry}", None, charge.to_json())

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
            self._grants.close(open_, id_)
        for id_ in asking:
            grant = self._grants.find(open_, id_)
            if grant and not grant.record.closed:
                grant.record = replace(grant.record, asks=True)
                self._grants.save_all(open_, {id_: grant})

    def _note_warned(self, open_: Transaction, id_: str, unit: Unit) -> None:
        """Note that the agents of a grant were warned about a unit."""
        grant = self._grants.load(open_, id_)
        if unit not in grant.record.warned:
            grant.record = replace(grant.record, warned=[*grant.record.warned, unit])
            self._grants.save_all(open_, {id_: grant})

    # The rules.

    def _note_low(self, grants: Mapping[str, Grant], ids: Mapping[Unit, str]) -> None:
        """Note of which units of grants little is left, for warnings to their agents."""
        for unit, id_ in ids.items():
            if (grant := grants.get(id_)) and unit not in grant.record.warned:
                used = float(grant.get_used(unit))
                if unit == "seconds":
                    used += self._work.read(id_)
                if used >= grant.record.warn_at * float(grant.granted.get(unit, 0)):
                    self._low.add((id_, unit))

    def _describe_left(self, grant: Grant, unit: Unit) -> str:
        free = self._grants.get_free(grant, unit)
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
            self._fan_outs = self._grants.list_fan_outs(open_)
        if self._fan_outs:
            thread_id = str(config["metadata"].get("agent_thread_id", ""))
            for id_ in sorted(self._fan_outs.get(thread_id, ())):
                # The requests that share it have all ended: their superior goes on.
                self._grants.close(open_, id_)
        entry, key = 1, f"{stem}.1"
        # A task that is run again, after a crash or a question, has called it before.
        while not open_.has_version(key, None):
            record = open_.get_record(CHARGE, key)
            if record and record.value.state == "reserved":
                self._lose(open_, key, record.value, record.version)
            entry += 1
            key = f"{stem}.{entry}"
        grants = self._grants.load_all(open_, allowance.grants.values())
        units = {unit: id_ for unit, id_ in allowance.grants.items() if unit != "tool_calls"}
        free = {unit: grants[id_].get_free(unit) for unit, id_ in units.items()}
        if "seconds" in units:
            free["seconds"] = self._grants.get_free(grants[units["seconds"]], "seconds")
        halted = [grant.id for grant in grants.values() if grant.record.halted]
        if halted or [unit for unit in units if free[unit] <= 0]:
            return self._grants.find_halt(grants, units, _MODEL_UNITS) or _NOTHING_LEFT
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
        self._grants.save_all(open_, grants)
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
        currency, other = grant.record.currency, self.prices.currency
        if currency and currency != other:
            return Halt("budget", f"it was granted in {currency}, and the prices are in {other}")
        return None

    def _lose(self, open_: Transaction, key: str, lost: ChargeRecord, version: int) -> None:
        """Charge a call that a process has not come back from as it was reserved."""
        grants = self._grants.load_all(open_, lost.grants.values())
        if not any(grant.record.closed for grant in grants.values()):
            self._move_charge(grants, lost, lost)
            self._grants.save_all(open_, grants)
        open_.set_read(key, version, replace(lost, state="lost").to_json())

    def _open_grant(
        self, open_: Transaction, request: GrantRequest, config: Mapping[str, Any]
    ) -> Halt | None:
        """Give a request a grant, unless it has it already; return why it cannot be had."""
        if request.fan_out and self._fan_outs is not None:
            self._fan_outs.setdefault(request.fan_out, set()).add(request.id)
        if self._grants.find(open_, request.id):
            return None
        cap = dict(request.cap)
        if request.continues and (rest := self._grants.take_rest(open_, request.continues)):
            cap |= rest
        superiors = self._grants.load_all(open_, request.above.values())
        granted = dict(request.asked)
        for unit, amount in {**cap, **request.asked}.items():
            if unit not in request.above:
                granted[unit] = amount
                continue
            grant = superiors[request.above[unit]]
            free = self._grants.get_free(grant, unit)
            if unit in request.asked and amount > free:
                left = format_amount(unit, free, grant.record.currency)
                return Halt("over_grant", f"asked {format_number(amount)}, free {left}")
            if halt := self._grants.find_halt(superiors, {unit: grant.id}, [unit]):
                return halt
            granted[unit] = min(amount, free)
            if unit != "seconds":
                # Time passes for both at once.
                add_amount(grant.reserved, unit, granted[unit])
        self._grants.save_all(open_, superiors)
        self._note_low(superiors, request.above)
        record = GrantRecord(
            path=str(config["metadata"].get("agent_path", "")),
            granted=store_amounts(granted),
            above={unit: id_ for unit, id_ in request.above.items() if unit in granted},
            warn_at=request.warn_at,
            after=get_root_checkpoint(config["configurable"]),
            currency=self.prices.currency if self.prices and "money" in granted else "",
            fan_out=request.fan_out,
            thread_id=self._thread_id,
        )
        self._grants.save_all(open_, {request.id: Grant(request.id, record)})
        return None

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
        configurable, metadata = config["configurable"], config["metadata"]
        level = str(configurable.get("checkpoint_ns", "")).rpartition(NS_SEP)[0]
        checkpoints = configurable.get(CHECKPOINT_MAP_KEY) or {}
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

    def _build_own_root(self, id_: str) -> GrantRecord | None:
        """Return what the root may spend by its own permissions, if the id is that of its grant."""
        if id_ != self.root_grant or self.root_budget is None:
            return None
        currency = self.prices.currency if self.prices else ""
        return build_root_grant(self.root_budget, self.root, self._thread_id, currency)

    def _build_charge_stem(self, kind: str, config: Mapping[str, Any]) -> str:
        """Return the key of the next call of a task, without the number of its entry."""
        task = str(config["configurable"].get(TASK_ID_KEY) or uuid4().hex)
        with self._lock:
            self._calls[f"{kind}/{task}"] += 1
            number = self._calls[f"{kind}/{task}"]
        return f"{self._charge_prefix}{task}/{kind}.{number}"

    def _commit(self, work: Callable[[Transaction], T]) -> T:
        def fenced(open_: Transaction) -> T:
            if self._fence:
                open_.require_lease(self._fence)
            return work(open_)

        return self._ledger.commit(fenced)

    def _commit_with_task(self, change: TaskChange, config: Mapping[str, Any]) -> None:
        commit_with_task(self._ledger, self.task_changes, [change], config)


def _halt_damaged(error: LedgerDamaged) -> Halt:
    # Nothing can be said to be free.
    LOG.warning("nothing is free of a budget: %s", describe_error(error))
    return Halt("budget", f"its record is damaged, so nothing is free: {error}")
