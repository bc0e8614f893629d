"""A plan gets the result, or the error, of each of its steps."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from functools import partial

import pytest

from echelons.plans import (
    PlanStep,
    PlanStream,
    StreamPlan,
    adrive_plan,
    astream_plan,
    drive_plan,
    stream_plan,
)


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


def count_parts() -> Iterator[int]:
    yield from (1, 2)


async def acount_parts() -> AsyncIterator[int]:
    for part in count_parts():
        yield part


def follow(log: list[str]) -> StreamPlan[None]:
    async def anote(text: str) -> str:
        return note(text)

    def note(text: str) -> str:
        log.append(text)
        return text

    def build(text: str) -> PlanStep:
        return PlanStep(partial(note, text), partial(anote, text))

    try:
        yield (yield build("begin"))
        yield PlanStream(count_parts, acount_parts, lambda part: [part] * part)
        yield "end"
    finally:
        yield build("released")


async def test_plan_yields_its_items_and_those_of_its_streams() -> None:
    logs: list[list[str]] = [[], []]

    sync = [*stream_plan(follow(logs[0]))]
    async_ = [item async for item in astream_plan(follow(logs[1]))]

    assert sync == async_ == ["begin", 1, 2, 2, "end"]
    assert logs == [["begin", "released"]] * 2


@pytest.mark.parametrize("taken", [1, 2, 3, 5])
async def test_plan_runs_its_last_steps_when_its_items_are_left(taken: int) -> None:
    logs: list[list[str]] = [[], []]
    items, aitems = stream_plan(follow(logs[0])), astream_plan(follow(logs[1]))

    for _ in range(taken):
        next(items)
        await anext(aitems)
    items.close()
    await aitems.aclose()

    assert logs == [["begin", "released"]] * 2


async def test_error_of_a_stream_is_its_plans() -> None:
    def fail() -> Iterator[int]:
        yield 1
        raise ZeroDivisionError

    async def afail() -> AsyncIterator[int]:
        for part in fail():
            yield part

    def expect() -> StreamPlan[None]:
        try:
            yield PlanStream(fail, afail, lambda part: [part])
        except ZeroDivisionError:
            yield "expected"

    assert [*stream_plan(expect())] == [1, "expected"]
    assert [item async for item in astream_plan(expect())] == [1, "expected"]
