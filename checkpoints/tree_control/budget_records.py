"""Grants and charges as the ledger stores them, and a grant while a transaction changes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, Literal, TypeAlias

from echelons.checkpoints.coordination.records import Records
from echelons.guards.budget import (
    Amount,
    Budget,
    Unit,
    format_amount,
    format_number,
    load_amounts,
    store_amounts,
)
from echelons.guards.gate import Halt
from echelons.guards.prices import add_money

Stored: TypeAlias = dict[str, int | float | str]
ChargeState: TypeAlias = Literal["reserved", "charged", "estimated", "unknown", "lost"]


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
        return kept


GRANT: Final = Records[GrantRecord]("grant", GrantRecord, raw=2, names_thread=True)
"""What a request may spend, by the turn and the id of the grant."""
CHARGE: Final = Records[ChargeRecord]("charge", ChargeRecord, raw=2, names_thread=True)
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
