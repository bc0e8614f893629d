"""`Prices`: what the tokens of models cost, as the user says; Echelons knows no prices itself."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Context, Decimal, DecimalException, FloatOperation, Inexact, InvalidOperation
from difflib import get_close_matches
from functools import reduce
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from echelons.errors import ConfigurationError
from echelons.text.input_limits import is_label, shorten_repr
from echelons.text.toml_lines import describe_toml_fault, find_key_line

if TYPE_CHECKING:
    from langchain_core.messages.ai import UsageMetadata

MAX_PRICE = 1_000_000_000
"""The highest price, which leaves room for any currency."""
MAX_DECIMALS = 9
PRICED_TOKENS = (1, 1_000, 1_000_000)
"""For how many tokens prices may be: only powers of ten divide every price exactly."""
MAX_FILE_SIZE = 1 << 20  # bytes
MONEY: Final = Context(prec=100, traps=[InvalidOperation, Inexact, FloatOperation])
"""How money is computed: exactly, or not at all."""
_CURRENCY = re.compile(r"[A-Z]{3}")
_DATED = re.compile(r"(.+)[-@](?:\d{3,8}(?:-\d\d){0,2}|latest)")


def read_amount(value: object) -> Decimal:
    """Return an amount of money from a text, an `int` or a `Decimal`; `ValueError` if it is none.

    Examples:
        >>> read_amount("0.25")
        Decimal('0.25')
        >>> read_amount(0.25)
        Traceback (most recent call last):
        ...
        ValueError: a float is not exact; pass the text '0.25', an int or a Decimal
    """
    if type(value) is float and isfinite(value):
        raise ValueError(f"a float is not exact; pass the text '{value}', an int or a Decimal")
    if type(value) not in (str, int, float, Decimal):
        raise ValueError(f"{shorten_repr(value)} is no amount; pass a text, an int or a Decimal")
    try:
        amount = MONEY.create_decimal(str(value))
    except (DecimalException, ValueError):
        amount = Decimal("NaN")
    if not amount.is_finite():
        raise ValueError(f"{shorten_repr(value)} is no amount; pass a number such as '0.25'")
    if amount.is_signed() and amount:
        raise ValueError(f"{shorten_repr(value)} is negative")
    if amount > MAX_PRICE:
        raise ValueError(f"{shorten_repr(value)} is more than {MAX_PRICE:,}")
    plain = amount.copy_abs().normalize(MONEY)
    if -int(plain.as_tuple().exponent) > MAX_DECIMALS:
        raise ValueError(f"{shorten_repr(value)} has more than {MAX_DECIMALS} decimals")
    return amount.copy_abs()


def format_money(amount: Decimal) -> str:
    """Return an amount as text, as it is stored and shown: all of its digits, and no more.

    Examples:
        >>> format_money(Decimal("0.002500")), format_money(Decimal("1E+2"))
        ('0.0025', '100')
    """
    return f"{amount.normalize(MONEY):f}"


def add_money(*amounts: Decimal) -> Decimal:
    """Return the sum of amounts, exactly."""
    return reduce(MONEY.add, amounts, Decimal(0))


@dataclass(frozen=True, slots=True)
class Price:
    """The costs of the tokens of a model.

    Each amount is a text, an `int` or a `Decimal`. A `float` is refused, as `0.1` is not a tenth.

    Args:
        input: The price of what it reads.
        output: The price of what it writes.
        cached_input: The price of what it reads out of its provider's cache; `input` if left out.

    Raises:
        ConfigurationError: An amount is none, negative or absurd.
    """

    input: Decimal
    output: Decimal
    cached_input: Decimal | None = None

    if TYPE_CHECKING:
        # The arguments accepted are wider than the types of the fields.
        def __init__(
            self,
            input: Decimal | str | int,
            output: Decimal | str | int,
            cached_input: Decimal | str | int | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        for name in PRICE_NAMES:
            amount: object = getattr(self, name)
            if amount is None and name == "cached_input":
                continue
            try:
                object.__setattr__(self, name, read_amount(amount))
            except ValueError as error:
                raise _invalid_prices("Price", (name,), str(error)) from error


PRICE_NAMES: Final = tuple(field.name for field in fields(Price))


@dataclass(frozen=True, slots=True)
class Prices:
    """The costs of models, by the names that they report.

    A name is looked up as it is reported, such as `gpt-5-mini-2025-08-07`. If the table does not
    have it, a date or version at its end is left out: `-2025-08-07`, `-20250929`, `@20250929`,
    `-0613`, `-001` or `-latest`. Nothing else is: `gpt-5` is no price of `gpt-5-mini`.

    Args:
        currency: The three capital letters of the currency.
        models: The price of each model, by name.
        per: For how many tokens the prices are: 1, 1,000 or 1,000,000.

    Raises:
        ConfigurationError: The table is empty, or something of it is wrong.

    Examples:
        >>> prices = Prices("EUR", {"gpt-5-mini": Price(input="0.25", output="2.00")})
        >>> usage = {"input_tokens": 1000, "output_tokens": 20}
        >>> prices.compute_cost("gpt-5-mini-2025-08-07", usage)
        Decimal('0.00029')
        >>> prices.covers("gpt-5")
        False
    """

    currency: str
    models: Mapping[str, Price]
    per: int = 1_000_000

    def __post_init__(self) -> None:
        if not isinstance(self.currency, str) or not _CURRENCY.fullmatch(self.currency):
            why = f"{shorten_repr(self.currency)} is none; pass three capital letters, as in 'EUR'"
            raise _invalid_prices("Prices", ("currency",), why)
        if type(self.per) is not int or self.per not in PRICED_TOKENS:
            why = (
                f"{shorten_repr(self.per)} is none of {', '.join(f'{n:,}' for n in PRICED_TOKENS)}"
            )
            raise _invalid_prices("Prices", ("per",), why)
        if not isinstance(self.models, Mapping) or not self.models:
            why = f"{shorten_repr(self.models)} has no prices; pass a Price by the name of a model"
            raise _invalid_prices("Prices", ("models",), why)
        models: Mapping[Any, Any] = self.models
        for name, price in models.items():
            if not is_label(name):
                raise _invalid_prices("Prices", ("models",), f"{shorten_repr(name)} is no name")
            if not isinstance(price, Price):
                why = f"{shorten_repr(price)} is no Price"
                raise _invalid_prices("Prices", ("models", str(name)), why)
        object.__setattr__(self, "models", dict(self.models))

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> Prices:
        """Return the prices of a TOML file, whose numbers are read exactly.

        It has `currency`, `per` if it is not 1,000,000, and a table for each model:

            currency = "EUR"

            [models."gpt-5-mini"]
            input = 0.25
            output = 2.00
            cached_input = 0.025

        Raises:
            ConfigurationError: There is no such file, or something of it is wrong; with its line.
        """
        try:
            source = str(Path(path))
            with Path(path).open("rb") as file:
                stored = file.read(MAX_FILE_SIZE + 1)
        except (OSError, TypeError, ValueError) as error:
            raise _invalid_prices(shorten_repr(path), (), str(error)) from error
        if len(stored) > MAX_FILE_SIZE:
            raise _invalid_prices(source, (), f"it is larger than {MAX_FILE_SIZE} bytes")
        try:
            # Windows and editors write a mark at the beginning that TOML does not know.
            text = stored.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = stored[: error.start].count(b"\n") + 1
            raise _invalid_prices(source, (), f"it is no UTF-8 ({error.reason})", line) from error
        try:
            table = tomllib.loads(text, parse_float=Decimal)
        except (ValueError, RecursionError, DecimalException) as error:
            line, why = describe_toml_fault(error, text)
            raise _invalid_prices(source, (), why, line) from error
        try:
            return cls(**_read_table(table))
        except ConfigurationError as error:
            line = find_key_line(text, *error.keys)
            raise _invalid_prices(source, error.keys, error.why, line) from error

    def covers(self, model: str) -> bool:
        """Return whether it has the price of a model."""
        return self._find_price(model) is not None

    def compute_cost(self, model: str, usage: UsageMetadata | Mapping[str, Any]) -> Decimal:
        """Return what a reply cost.

        Args:
            model: The name of the model that the reply has.
            usage: The tokens that it reports, as LangChain's `usage_metadata`. Those of
                `input_token_details.cache_read` have the price of cached input.

        Raises:
            ConfigurationError: The model has no price.
        """
        details = usage.get("input_token_details")
        cached = details.get("cache_read") if isinstance(details, Mapping) else 0
        return self._compute(model, usage.get("input_tokens"), usage.get("output_tokens"), cached)

    def estimate_cost(self, model: str, input_tokens: int, output_tokens: int) -> Decimal:
        """Return what a call costs that reads and writes so many tokens, none out of a cache.

        Raises:
            ConfigurationError: The model has no price.
        """
        return self._compute(model, input_tokens, output_tokens, 0)

    def _compute(self, model: str, read: object, written: object, cached: object) -> Decimal:
        price = self._find_price(model)
        if price is None:
            nearest = get_close_matches(str(model), self.models, n=1, cutoff=0.0)
            raise ConfigurationError(
                "there is no price for the model {model!r} (the nearest name that has one is "
                "{nearest!r}); add one under the name that it reports",
                code="price_missing",
                model=str(model),
                nearest=nearest[0],
            )
        input_tokens, output_tokens = _count(read), _count(written)
        from_cache = min(_count(cached), input_tokens) if price.cached_input is not None else 0
        cost = add_money(
            MONEY.multiply(price.input, input_tokens - from_cache),
            MONEY.multiply(price.cached_input or Decimal(0), from_cache),
            MONEY.multiply(price.output, output_tokens),
        )
        return MONEY.divide(cost, self.per).normalize(MONEY)

    def _find_price(self, model: object) -> Price | None:
        if not isinstance(model, str):  # a reply's metadata may hold anything
            return None
        if price := self.models.get(model):
            return price
        dated = _DATED.fullmatch(model)
        return self.models.get(dated[1]) if dated else None


_TABLE_NAMES = tuple(field.name for field in fields(Prices))


def _count(tokens: object) -> int:
    """Return a number of tokens that a model reports, which may be anything."""
    return tokens if type(tokens) is int and tokens > 0 else 0


def _read_table(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `Prices` out of a TOML document."""
    _check_keys((), table, _TABLE_NAMES, ("currency", "models"))
    if not isinstance(table["models"], Mapping):
        return {**table}
    prices: dict[str, Price] = {}
    for name, price in table["models"].items():
        place = ("models", name)
        if not isinstance(price, Mapping):
            raise _invalid_prices("", place, f"it is no table with {', '.join(PRICE_NAMES)}")
        _check_keys(place, price, PRICE_NAMES, ("input", "output"))
        try:
            prices[name] = Price(**price)
        except ConfigurationError as error:
            raise _invalid_prices("", (*place, *error.keys), error.why) from error
    return {**table, "models": prices}


def _check_keys(
    place: tuple[str, ...],
    table: Mapping[str, Any],
    keys: tuple[str, ...],
    required: tuple[str, ...],
) -> None:
    """Refuse a table of a file that has unknown keys, or lacks one."""
    for key in table:
        if key not in keys:
            raise _invalid_prices("", (*place, key), f"there is no such key, but {', '.join(keys)}")
    for key in required:
        if key not in table:
            raise _invalid_prices("", (*place, key), "it is missing")


def check_prices(prices: object) -> Prices | None:
    """Return prices, or the path of a file with them, as a table; `None` for nothing."""
    if prices is None or isinstance(prices, Prices):
        return prices
    if isinstance(prices, str | PathLike):
        return Prices.from_file(prices)
    raise _invalid_prices(shorten_repr(prices), (), "pass Prices, or the path of a file with them")


def _invalid_prices(
    source: str, keys: Sequence[str], why: str, line: int = 0
) -> ConfigurationError:
    place = "{source}, line {line}" if line else "{source}"
    return ConfigurationError(
        f"{place}: {'{keys:.}: ' if keys else ''}{{why}}",
        code="invalid_prices",
        source=source,
        keys=tuple(keys),
        why=why,
        line=line,
    )
