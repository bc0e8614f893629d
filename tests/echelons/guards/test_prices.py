"""Prices are exact, are what the user gave, and bad ones are named with their place."""

from __future__ import annotations

import math
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelons import Agent, Session
from echelons.guards.prices import Price, Prices, add_money, check_prices, format_money
from tests.error_codes import raises_code

MINI = Price(input="0.25", output="2.00", cached_input="0.025")
PRICES = Prices("EUR", {"gpt-5-mini": MINI, "gpt-5": Price(input="1.25", output=10)})


def test_a_cost_is_the_exact_sum_of_what_was_read_and_written() -> None:
    usage = {"input_tokens": 1_234_567, "output_tokens": 89}

    assert PRICES.compute_cost("gpt-5-mini", usage) == Decimal("0.30881975")
    assert PRICES.estimate_cost("gpt-5-mini", 1_234_567, 89) == Decimal("0.30881975")


def test_what_was_read_from_the_cache_has_its_own_price() -> None:
    usage = {
        "input_tokens": 1000,
        "output_tokens": 0,
        "input_token_details": {"cache_read": 400},
    }

    assert PRICES.compute_cost("gpt-5-mini", usage) == Decimal("0.00016")
    # A model without a price of its own for it pays for all that it read.
    assert PRICES.compute_cost("gpt-5", usage) == Decimal("0.00125")
    assert Prices("EUR", {"m": Price("1", "1", "0")}).compute_cost("m", usage) == Decimal("0.0006")


@pytest.mark.parametrize(
    "usage",
    [
        {},
        {"input_tokens": -5, "output_tokens": None},
        {"input_tokens": "12", "output_tokens": math.nan, "input_token_details": 7},
        {"input_tokens": True, "input_token_details": {"cache_read": -3}},
    ],
)
def test_what_no_model_should_report_costs_nothing(usage: dict[str, Any]) -> None:
    assert PRICES.compute_cost("gpt-5-mini", usage) == 0


def test_more_from_the_cache_than_was_read_is_no_discount() -> None:
    usage = {"input_tokens": 10, "output_tokens": 0, "input_token_details": {"cache_read": 99}}

    assert PRICES.compute_cost("gpt-5-mini", usage) == Decimal("0.00000025")


@pytest.mark.parametrize(
    "name",
    [
        "gpt-5-mini",
        "gpt-5-mini-2025-08-07",
        "gpt-5-mini-20250807",
        "gpt-5-mini@20250807",
        "gpt-5-mini-0613",
        "gpt-5-mini-001",
        "gpt-5-mini-latest",
    ],
)
def test_a_name_is_found_without_the_date_at_its_end(name: str) -> None:
    assert PRICES.covers(name)
    assert PRICES.estimate_cost(name, 4, 0) == Decimal("0.000001")


@pytest.mark.parametrize(
    "name", ["gpt-5-nano", "gpt-5-mini-high", "gpt-5-mini-5", "gpt-5-mini2", "GPT-5", "gpt", ""]
)
def test_no_model_has_the_price_of_one_with_a_shorter_name(name: str) -> None:
    assert not PRICES.covers(name)
    with raises_code("price_missing", match="there is no price for the model") as caught:
        PRICES.estimate_cost(name, 1, 1)
    assert caught.value.model == name
    assert caught.value.nearest in PRICES.models


def test_the_name_with_its_date_comes_before_the_one_without() -> None:
    prices = Prices("EUR", {"m": Price(1, 1), "m-2025-08-07": Price(2, 2)}, per=1)

    assert prices.estimate_cost("m-2025-08-07", 1, 0) == 2
    assert prices.estimate_cost("m-2025-09-01", 1, 0) == 1


amounts = st.decimals(0, 1_000_000_000, places=9, allow_nan=False, allow_infinity=False)


@given(amounts, amounts, st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 10**12))))
def test_costs_add_up_to_the_last_digit(read: Decimal, written: Decimal, calls: list[Any]) -> None:
    prices = Prices("EUR", {"m": Price(read, written)})

    total = add_money(*(prices.estimate_cost("m", *each) for each in calls))

    whole = prices.estimate_cost("m", sum(a for a, _ in calls), sum(b for _, b in calls))
    assert total == whole
    assert Decimal(format_money(total)) == total
    assert "E" not in format_money(total)


@pytest.mark.parametrize(
    ("amount", "why"),
    [
        ("-1", "negative"),
        (-1, "negative"),
        (Decimal("-0.5"), "negative"),
        ("nan", "no amount"),
        (math.nan, "no amount"),
        (math.inf, "no amount"),
        ("Infinity", "no amount"),
        ("sNaN", "no amount"),
        ("", "no amount"),
        ("1,5", "no amount"),
        ("1" * 500, "no amount"),
        pytest.param(10**4500, "no amount", id="huge"),
        (True, "no amount"),
        ([1], "no amount"),
        (None, "no amount"),
        (0.25, "a float is not exact; pass the text '0.25'"),
        ("1E+10", "more than 1,000,000,000"),
        ("1000000000.1", "more than 1,000,000,000"),
        ("1E-10", "more than 9 decimals"),
        ("1E-99999", "more than 9 decimals"),
    ],
)
def test_an_amount_that_is_none_is_refused(amount: Any, why: str) -> None:
    with raises_code("invalid_prices", match=f"^Price: input: .*{why}") as caught:
        Price(input=amount, output="1")
    assert caught.value.keys == ("input",)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize(
    ("given", "key", "why"),
    [
        ({"currency": "eur"}, "currency", "three capital letters"),
        ({"currency": "€"}, "currency", "three capital letters"),
        ({"currency": 978}, "currency", "three capital letters"),
        ({"models": {}}, "models", "has no prices"),
        ({"models": [MINI]}, "models", "has no prices"),
        ({"models": {"": MINI}}, "models", "is no name"),
        ({"models": {7: MINI}}, "models", "is no name"),
        ({"models": {"m": "0.25"}}, "models.m", "is no Price"),
        ({"per": 0}, "per", "is none of 1, 1,000, 1,000,000"),
        ({"per": 1024}, "per", "is none of"),
        ({"per": "1000"}, "per", "is none of"),
        ({"per": True}, "per", "is none of"),
    ],
)
def test_a_table_that_is_none_is_refused(given: dict[str, Any], key: str, why: str) -> None:
    whole: dict[str, Any] = {"currency": "EUR", "models": {"m": MINI}}

    with raises_code("invalid_prices", match=why) as caught:
        Prices(**(whole | given))
    assert caught.value.keys == tuple(key.split("."))


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "prices.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


FILE = """\
currency = "EUR"
per = 1_000

[models."gpt-5.1-mini"]
input = 0.1
output = "2.00"

[models.local]
input = 0
output = 0
cached_input = 0.3
"""


def test_a_file_is_read_exactly(tmp_path: Path) -> None:
    for bom in (b"", b"\xef\xbb\xbf"):
        prices = Prices.from_file(write(tmp_path, bom + FILE.encode()))
        assert prices.currency == "EUR"
        assert prices.estimate_cost("gpt-5.1-mini", 1, 0) == Decimal("0.0001")
        assert prices.models["local"] == Price("0", "0", "0.3")
    assert check_prices(tmp_path / "prices.toml") == prices == check_prices(prices)
    assert check_prices(None) is None


@pytest.mark.parametrize(
    ("old", "new", "line", "key"),
    [
        ('"EUR"', '"Euro"', 1, "currency"),
        ('currency = "EUR"', "", 0, "currency"),
        ("per = 1_000", "per = 7", 2, "per"),
        ("per = 1_000", "pro = 7", 2, "pro"),
        ("per = 1_000", "per = 1.0", 2, "per"),
        ("input = 0.1", "input = -0.1", 5, "models.gpt-5.1-mini.input"),
        ("input = 0.1", "input = nan", 5, "models.gpt-5.1-mini.input"),
        ("input = 0.1", "input = inf", 5, "models.gpt-5.1-mini.input"),
        ("input = 0.1", "input = true", 5, "models.gpt-5.1-mini.input"),
        ("input = 0.1", "input = 2e9", 5, "models.gpt-5.1-mini.input"),
        ("input = 0.1", "", 4, "models.gpt-5.1-mini.input"),
        ('"2.00"', '"two"', 6, "models.gpt-5.1-mini.output"),
        ("output =", "outptu =", 6, "models.gpt-5.1-mini.outptu"),
        ('[models."gpt-5.1-mini"]', "[models]", 5, "models.input"),
        ('[models."gpt-5.1-mini"]', "[model.x]", 4, "model"),
        ("input = 0.1", "input = = 1", 5, ""),
        ("input = 0.1", "input = 1e9999999999", 5, "models.gpt-5.1-mini.input"),
    ],
)
def test_a_fault_of_a_file_has_its_line(
    tmp_path: Path, old: str, new: str, line: int, key: str
) -> None:
    path = write(tmp_path, FILE.partition("\n[models.local]")[0].replace(old, new, 1))

    with raises_code("invalid_prices") as caught:
        check_prices(str(path))
    assert (caught.value.line, ".".join(caught.value.keys)) == (line, key)
    assert str(caught.value).startswith(f"{path}, line {line}: " if line else f"{path}: ")


def test_what_is_no_file_of_prices_is_refused_by_name(tmp_path: Path) -> None:
    for table, why in [
        (tmp_path / "missing.toml", "No such file"),
        (tmp_path, "Is a directory"),
        ("a\0b", "null byte"),
        (write(tmp_path, b'currency = "\xff"'), "line 1: it is no UTF-8"),
        (17, "pass Prices, or the path"),
    ]:
        with raises_code("invalid_prices", match=why):
            check_prices(table)
    with raises_code("invalid_prices", match="larger than"):
        check_prices(write(tmp_path, "#" * (1 << 20) + "\n"))


def test_a_session_takes_prices_and_refuses_bad_ones(tmp_path: Path) -> None:
    with Session(Agent("head"), ":memory:", prices=PRICES) as session:
        assert session.prices is PRICES
        assert session.send("Hello").result().finished
    with raises_code("invalid_prices"):
        Session(Agent("head"), tmp_path / "never.sqlite", prices=tmp_path / "none.toml")
    assert not (tmp_path / "never.sqlite").exists()
