"""`Budget`: what a request may spend, and amounts of its units.

A budget that is given becomes a grant in the ledger, see `echelons.checkpoints.coordination`. It
travels as an `Allowance` in the config of the agents that may spend it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal, DecimalException
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self, TypeAlias

from pydantic import Field, field_validator

from echelons.errors import InvalidSetting
from echelons.guards.gate import CallUsage
from echelons.guards.prices import MONEY, add_money, format_money, read_amount
from echelons.run_context import get_context
from echelons.settings import Settings
from echelons.text.input_limits import shorten_repr

if TYPE_CHECKING:
    from echelons.guards.gate import Gate

Unit: TypeAlias = str
"""The name of a unit, one of `UNITS`."""
Amount: TypeAlias = int | float | Decimal
"""An amount of a unit: `Decimal` for money, `float` for seconds, `int` for all others."""
Amounts: TypeAlias = Mapping[Unit, Amount]
"""Amounts by unit; a unit that is left out is not limited, or nothing was spent of it."""
StoredAmounts: TypeAlias = Mapping[str, int | float | str]
"""Amounts as JSON, money as a text."""

UNITS: Final = ("tokens", "money", "calls", "tool_calls", "seconds")
UNIT_LIST: Final = ", ".join(UNITS)
DEFAULT_REPLY_TOKENS: Final = 1_024
"""Tokens that are reserved for a reply whose model declares no `max_tokens`."""
MAX_AMOUNT: Final = 10**15
"""Highest amount of a unit: sums of a tree stay exact."""
MAX_STORED_DIGITS: Final = 60  # characters of an amount of money
_WHOLE_UNITS: Final = frozenset({"tokens", "calls", "tool_calls"})
_NAMES: Final[Mapping[Unit, str]] = {
    "tokens": "tokens",
    "calls": "model calls",
    "tool_calls": "tool calls",
    "seconds": "seconds",
}


class Budget(Settings):
    """The amount that an agent and all agents below it may spend on one request.

    A unit that is left out is limited by the budgets above, if those have it. A grant to a
    subordinate is taken from the rest of its superior's, and its own rest is given back.
    When nothing is left, no other call begins: the agent ends with what it has, `partial`.

    Attributes:
        tokens: Tokens that models read and write.
        money: The cost of model calls, in the currency of `Session(prices=)`: a text such as
            `"0.50"`, an `int` or a `Decimal`.
        calls: Model calls.
        tool_calls: Calls of tools.
        seconds: Time at work. It does not pass while the agent waits for a human, or no process
            runs. The calls of models in an event loop are cut off at its end.
        warn_at: The share of each unit at which an agent gets a warning, between 0 and 1.
        estimator: Counts the tokens of a reply that reports none: a function of the messages that
            the model has read and its reply, that returns the input and the output tokens.

    Raises:
        InvalidSetting: An amount is negative, not finite, above 10^15, or not exact, or `estimator`
            is no function.

    Examples:
        >>> Budget(tokens=50_000, money="0.25").amounts
        {'tokens': 50000, 'money': Decimal('0.25')}
    """

    tokens: int | None = Field(default=None, ge=1, le=MAX_AMOUNT)
    money: Decimal | str | int | None = None
    calls: int | None = Field(default=None, ge=1, le=MAX_AMOUNT)
    tool_calls: int | None = Field(default=None, ge=1, le=MAX_AMOUNT)
    seconds: float | None = Field(default=None, gt=0, le=MAX_AMOUNT, allow_inf_nan=False)
    warn_at: float = Field(default=0.8, gt=0, le=1, allow_inf_nan=False)
    estimator: Any = None

    @field_validator("money", mode="plain")
    @classmethod
    def _read_money(cls, value: Any) -> Decimal | None:
        amount = None if value is None else read_amount(value)
        if amount == 0:
            raise ValueError("0 is no budget; give an amount above it")
        return amount

    @field_validator("estimator")
    @classmethod
    def _check_estimator(cls, value: Any) -> Any:
        if value is not None and not callable(value):
            raise ValueError("give a function of the messages and the reply, or leave it out")
        return value

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the budget in a text of units and amounts.

        Raises:
            InvalidSetting: It is none.

        Examples:
            >>> Budget.parse("tokens=50000, money=0.25").amounts
            {'tokens': 50000, 'money': Decimal('0.25')}
        """
        amounts: dict[str, Any] = {}
        for part in text.split(","):
            unit, sign, amount = map(str.strip, part.partition("="))
            if unit not in UNITS or not sign or unit in amounts:
                why = f"give units with their amounts, as in 'tokens=50000,money=0.25': {UNIT_LIST}"
                raise InvalidSetting(cls.__name__, "budget", text, why)
            # A text that is no number is refused as a value of its unit.
            whole = amount.replace("_", "")
            amounts[unit] = int(whole) if whole.isdecimal() and unit != "money" else amount
            if unit == "seconds":
                with suppress(ValueError):
                    amounts[unit] = float(amount)
        return cls(**amounts)

    @property
    def fault(self) -> str:
        """Why it can limit nothing; empty if it can."""
        return "" if self.amounts else f"a budget limits one of {UNIT_LIST}; give one"

    @property
    def amounts(self) -> dict[Unit, Amount]:
        """The amounts that are given, by unit."""
        return {unit: amount for unit in UNITS if (amount := getattr(self, unit)) is not None}


@dataclass(frozen=True, slots=True)
class Allowance:
    """The grants that the agent at work may spend."""

    grants: Mapping[Unit, str] = field(default_factory=dict)  # the nearest with the unit
    warn_at: float = 0.8  # share of each unit
    estimator: Callable[..., Any] | None = None  # of the tokens of replies that report none

    def extend(self, grant: str, units: Iterable[Unit], budget: Budget | None = None) -> Allowance:
        """Return it below another grant, which has some units."""
        estimator = budget.estimator if budget else None
        return Allowance(
            {**self.grants, **dict.fromkeys(units, grant)},
            budget.warn_at if budget else self.warn_at,
            estimator or self.estimator,
        )


NO_ALLOWANCE: Final = Allowance()
"""The allowance of an agent without any budget above it."""


@dataclass(frozen=True, slots=True)
class GrantRequest:
    """A grant that a request needs before its agent begins."""

    id: str  # an existing grant goes on
    above: Mapping[Unit, str]  # the grants that it is taken from
    asked: Amounts = field(default_factory=dict)  # if not available, the request is refused
    cap: Amounts = field(default_factory=dict)  # of further units: as much as there is, up to it
    continues: str = ""  # id of a grant whose rest it is, since its agent has asked a question
    # Thread of the superior whose call makes several requests: they share the grant until it goes
    # on.
    fan_out: str = ""
    warn_at: float = 0.8


class CallEstimate(NamedTuple):
    """The expected usage of a model call."""

    model: str
    input_tokens: int = 0
    output_tokens: int = 0


class Budgets(Protocol):
    """The budgets of the agents of one run; a method that returns a `Halt` has changed nothing."""

    def reserve(
        self, estimate: CallEstimate, allowance: Allowance, config: Mapping[str, Any]
    ) -> Any:
        """Reserve what a call is expected to use, for `charge`; a `Halt` if nothing is left."""
        ...

    def charge(self, reserved: Any, used: CallUsage | None, config: Mapping[str, Any]) -> None:
        """Charge what a call has used with the writes of its task; without usage, the reserve."""
        ...

    def charge_cancelled(self, reserved: Any) -> None:
        """Charge what was reserved for a call at once, as its task was cancelled."""
        ...

    def end(self, ended: Sequence[str], asking: Sequence[str], config: Mapping[str, Any]) -> None:
        """Close grants, and mark those whose agents have asked, with the writes of the task."""
        ...

    def has_warnings(self, allowance: Allowance) -> bool:
        """Return whether an agent may be due a warning, without reading anything."""
        ...

    def take_warnings(
        self, allowance: Allowance, config: Mapping[str, Any]
    ) -> Sequence[tuple[str, str]]:
        """Return the warnings that an agent is due, each with an id, and note them."""
        ...

    def get_seconds_left(self, allowance: Allowance) -> float | None:
        """Return the seconds of work that an agent has left, `None` for no limit."""
        ...

    def begin_work(self, grants: Iterable[str]) -> None:
        """Let the seconds of grants pass, until `end_work` was called as often."""
        ...

    def end_work(self, grants: Iterable[str]) -> None:
        """Stop the seconds of grants."""
        ...


def _read_stored_money(stored: Any) -> Decimal:
    amount = Decimal(-1)
    if isinstance(stored, str) and len(stored) <= MAX_STORED_DIGITS:
        with suppress(DecimalException):
            amount = MONEY.create_decimal(stored)
    if not (amount.is_finite() and amount >= 0):
        raise ValueError(f"money: {shorten_repr(stored)} is no amount")
    return amount


def store_amounts(amounts: Amounts) -> dict[str, int | float | str]:
    """Return amounts as JSON; what is nothing is left out.

    Examples:
        >>> store_amounts({"tokens": 5, "money": Decimal("0.10"), "calls": 0})
        {'tokens': 5, 'money': '0.1'}
    """
    return {
        unit: format_money(amount) if type(amount) is Decimal else amount  # type: ignore[misc]
        for unit, amount in amounts.items()
        if amount
    }


def load_amounts(stored: Mapping[str, Any]) -> dict[Unit, Amount]:
    """Return amounts from JSON, without units of a newer version."""
    amounts: dict[Unit, Amount] = {}
    for unit, amount in stored.items():
        if type(amount) is int and unit in _WHOLE_UNITS and amount >= 0:
            if amount:
                amounts[unit] = amount
        elif unit == "money":
            amounts[unit] = _read_stored_money(amount)
        elif unit == "seconds" and type(amount) in (int, float) and 0 <= amount < math.inf:
            amounts[unit] = amount
        elif unit in UNITS:
            raise ValueError(f"{unit}: {shorten_repr(amount)} is no amount")
    return amounts


def add_amount(amounts: dict[Unit, Amount], unit: Unit, more: Amount) -> None:
    """Add an amount of a unit to others; the sum with a negative one is at least 0."""
    before = amounts.get(unit, 0)
    if unit == "money":
        total: Any = add_money(Decimal(before), Decimal(more))
    else:
        total = before + more  # type: ignore[operator]  # both are of the type of the unit
    amounts[unit] = total if total > 0 else type(total)(0)


def format_amount(unit: Unit, amount: Amount, currency: str = "") -> str:
    """Return an amount with its unit for people and models.

    Examples:
        >>> format_amount("tokens", 5000), format_amount("money", Decimal("0.50"), "EUR")
        ('5,000 tokens', '0.50 EUR')
    """
    return f"{format_number(amount)} {_NAMES.get(unit) or currency or 'of money'}"


def format_number(amount: Amount) -> str:
    """Return an amount without its unit."""
    if isinstance(amount, Decimal):
        return f"{amount:,f}"
    return f"{amount:,}" if isinstance(amount, int) else f"{amount:,.10g}"


def get_budgets(gate: Gate) -> Budgets:
    """Return the budgets of a run; only an agent in a tree may have an allowance."""
    budgets: Budgets = gate.guards["budget"]
    return budgets


def get_allowance(config: Mapping[str, Any], gate: Gate | None = None) -> Allowance | None:
    """Return what the agent of a node's config may spend, `None` if nothing limits it."""
    context = get_context(config)
    if context.allowance or (gate := gate or context.gate) is None:
        return context.allowance
    guard = gate.guards.get("budget")
    return guard.allowance if guard else None
