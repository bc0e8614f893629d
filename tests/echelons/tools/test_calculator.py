"""Arithmetic is calculated; everything else, and what would grow too large, is refused."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelons.errors import ToolRefusal
from echelons.tools import build_calculate
from echelons.tools.calculator import MAX_BITS, evaluate_expression
from tests.error_codes import raises_code


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 + 2 * 3", "7"),
        ("(1 + 2) * 3", "9"),
        ("-2 ** 2", "-4"),
        ("7 / 2", "3.5"),
        ("7 // 2 + 7 % 2", "4"),
        ("0.1 + 0.2", "0.3"),
        ("2 ** 0.5", "1.4142135623731"),
        ("sqrt(2) ** 2", "2"),
        ("round(pi, 2)", "3.14"),
        ("round(2.5)", "2"),
        ("max(1, 2, 3) - min(4, 5)", "-1"),
        ("10 ** 400 // 10 ** 399", "10"),
        ("1e300 * 1e5", "1e+305"),
        (" 1 +\t1 ", "2"),
    ],
)
def test_arithmetic_is_calculated(expression: str, value: str) -> None:
    assert build_calculate().invoke({"expression": expression}).startswith(value)


@pytest.mark.parametrize(
    "expression",
    [
        "", "1 +", "one", "__import__('os').system('true')", "(1).__class__", "[1][0]", "'a' * 9",
        "lambda: 1", "print(1)", "open('/etc/passwd')", "x := 1", "1 if 1 else 2", "True + 1",
        "1j", "1 < 2", "1 and 2", "not 1", "~1", "1 << 9", "1 ^ 2", "sqrt", "abs(x=1)",
        "max(*[1, 2])", "pi.real", "f'{1}'", "...", "None", "1, 2", "{1}", "(-8) ** 0.5",
        "1; 2", "1\n2", "\x00", "exec('1')", "sqrt('a')", "max(1)",
    ],
)  # fmt: skip
def test_what_is_no_arithmetic_is_refused(expression: str) -> None:
    with raises_code("invalid_expression"):
        evaluate_expression(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "9 ** 9 ** 9", "9 ** 9 ** 9 ** 9", "2 ** 99999", "(2 ** 4000) * (2 ** 4000)", "1e308 * 10",
        "10 ** (10 ** 3) ** 2", "1 ** 0 + 2 ** 10 ** 10", "exp(1000)", "round(5, -10 ** 9)",
        "round(5.5, 10 ** 9)", "1 / 0", "1 % 0", "sqrt(-1)", "log(0)", "0 ** -1", "2.0 ** 99999",
        "1" * 501, "1+" * 200 + "1", "(" * 250 + "1" + ")" * 250, "-" * 499 + "1",
        "9" * 496 + "**9",
        "floor(1e308) * floor(1e308) * floor(1e308) * floor(1e308) * floor(1e308)",
    ],
)  # fmt: skip
def test_what_is_too_large_or_undefined_is_refused(expression: str) -> None:
    with raises_code("invalid_expression"):
        evaluate_expression(expression)


@given(st.text(alphabet="0123456789.+-*/%()e ,sqrtpilogmaxround", max_size=60))
def test_no_expression_ends_otherwise_than_with_a_small_number_or_a_refusal(text: str) -> None:
    try:
        value = evaluate_expression(text)
    except ToolRefusal:
        return
    assert math.isfinite(value) if isinstance(value, float) else value.bit_length() <= MAX_BITS


def test_model_reads_what_is_possible() -> None:
    answer = build_calculate().invoke({"expression": "import os"})

    assert answer.startswith("InvalidExpression: 'import os' is not calculated: ")
    assert "possible are numbers, + - * / // % **" in answer
