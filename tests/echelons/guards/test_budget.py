"""`Budget` is checked when it is made, and amounts are exact."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelons import Agent, Permissions, Session
from echelons.errors import InvalidSetting
from echelons.guards.budget import (
    Amount,
    Budget,
    Unit,
    add_amount,
    load_amounts,
    store_amounts,
)

AMOUNTS = st.fixed_dictionaries(
    {},
    optional={
        "tokens": st.integers(0, 10**15),
        "money": st.decimals(0, 10**6, places=15),
        "calls": st.integers(0, 10**15),
        "tool_calls": st.integers(0, 10**15),
    },
)


@pytest.mark.parametrize(
    ("setting", "wrong"),
    [
        *(
            (unit, wrong)
            for unit in ("tokens", "calls", "tool_calls")
            for wrong in (0, -1, 10**15 + 1, 1.5, float("nan"), float("inf"), True)
        ),
        *(
            ("money", wrong)
            for wrong in (0, "-0.01", "NaN", "Infinity", "1e-20", "1E+14", 0.5, "five", True, "1 €")
        ),
        *(("seconds", wrong) for wrong in (0, -1, float("nan"), float("inf"), 1e16, True)),
        *(("warn_at", wrong) for wrong in (0, 1.1, -1, float("nan"))),
        ("estimator", "count"),
        ("dollars", 1),
    ],
)
def test_a_wrong_amount_is_refused_with_its_unit(setting: str, wrong: Any) -> None:
    with pytest.raises(InvalidSetting) as refused:
        Budget(**{"tokens": 1, setting: wrong})

    assert refused.value.setting == setting


def test_a_budget_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="a budget limits one of tokens, money"):
        Permissions(budget=Budget(warn_at=0.5))
    with (
        Session(Agent("head"), ":memory:") as session,
        pytest.raises(InvalidSetting, match="a budget limits one of tokens, money"),
    ):
        session.send("Go", budget=Budget(warn_at=0.5))


def test_money_is_kept_exactly_as_it_was_given() -> None:
    budgets = [Budget(money=given) for given in ("0.10", Decimal("0.10"), 3)]

    assert [str(each.money) for each in budgets] == ["0.10", "0.10", "3"]


@given(AMOUNTS, AMOUNTS)
def test_amounts_are_stored_and_added_without_loss(
    one: dict[Unit, Amount], other: dict[Unit, Amount]
) -> None:
    total = dict(one)
    for unit, amount in other.items():
        add_amount(total, unit, amount)
    assert load_amounts(store_amounts(total)) == {
        unit: each for unit, each in total.items() if each
    }

    for unit, amount in other.items():
        add_amount(total, unit, -amount)
    assert total == {**dict.fromkeys(other, 0), **one}


@pytest.mark.parametrize(
    "stored",
    [
        {"tokens": -1},
        {"tokens": 1.5},
        {"tokens": "5"},
        {"tokens": True},
        {"money": 5.0},
        {"money": "NaN"},
        {"money": "-1"},
        {"seconds": float("nan")},
        {"seconds": "1"},
        {"calls": None},
    ],
)
def test_a_damaged_amount_is_refused(stored: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="is no amount"):
        load_amounts(stored)
