"""A plan gets the result, or the error, of each of its steps."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from echelons.plans import adrive_plan, drive_plan


def divide(*numbers: int) -> Generator[int, int, list[int]]:
    found: list[int] = []
    for number in numbers:
        try:
            found.append((yield number))
        except ZeroDivisionError:
            found.append(0)
    return found


def divide_ten(number: int) -> int:
    return 10 // number


async def adivide_ten(number: int) -> int:
    return divide_ten(number)


async def test_a_plan_gets_results_and_errors_and_returns_its_own_result() -> None:
    assert drive_plan(divide(5, 0, 2), divide_ten) == [2, 0, 5]
    assert await adrive_plan(divide(5, 0, 2), adivide_ten) == [2, 0, 5]
    assert drive_plan(divide(), divide_ten) == await adrive_plan(divide(), adivide_ten) == []


async def test_an_error_that_a_plan_does_not_expect_is_its_callers() -> None:
    def expect_nothing() -> Generator[int, int, None]:
        yield 0

    with pytest.raises(ZeroDivisionError):
        drive_plan(expect_nothing(), divide_ten)
    with pytest.raises(ZeroDivisionError):
        await adrive_plan(expect_nothing(), adivide_ten)
