"""One function runs a subordinate, and decides which errors become an answer."""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import suppress
from typing import Any

import pytest
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langgraph.errors import (
    EmptyChannelError,
    EmptyInputError,
    GraphBubbleUp,
    GraphInterrupt,
    GraphRecursionError,
    InvalidUpdateError,
    ParentCommand,
)
from langgraph.types import Command

from echelons.errors import MissingAgents, StorageError, UnreadableRecord
from echelons.guards.circuit_breaker import AttemptOutcome
from echelons.langgraph_internals import parent_config
from echelons.nodes.attempt import LevelFailure, run_level
from echelons.plans import arun_plan_steps, run_plan_steps
from tests.failure_ids import without_ids


def raising(error: BaseException) -> Runnable[Any, Any]:
    def fail(_: Any) -> Any:
        raise error

    return RunnableLambda(fail)


async def both(error: BaseException) -> list[Any]:
    """Return what comes of an error in either world: an answer or the error itself."""
    outcomes: list[Any] = []
    level = raising(error)
    try:
        outcomes.append(run_plan_steps(run_level(level, {}, {})))
    except BaseException as raised:
        outcomes.append(raised)
    try:
        outcomes.append(await arun_plan_steps(run_level(level, {}, {})))
    except BaseException as raised:
        outcomes.append(raised)
    return outcomes


async def test_a_subordinates_output_is_returned_as_it_is() -> None:
    level: Runnable[Any, Any] = RunnableLambda(lambda given: {**given, "done": True})

    assert run_plan_steps(run_level(level, {"a": 1}, {})) == {"a": 1, "done": True}
    assert await arun_plan_steps(run_level(level, {"a": 1}, {})) == {"a": 1, "done": True}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("no line\nmore"), "ValueError: no line"),
        (ConnectionError(), "ConnectionError"),
        (GraphRecursionError("too many steps"), "GraphRecursionError: too many steps"),
        (TimeoutError("late"), "TimeoutError: late"),
    ],
)
async def test_an_error_of_the_subordinate_is_its_answer(error: Exception, reason: str) -> None:
    for failed in await both(error):
        assert without_ids(failed.reason) == reason
        assert failed.end is AttemptOutcome.FAILED


@pytest.mark.parametrize(
    "error",
    [
        GraphInterrupt(()),
        GraphBubbleUp(),
        StorageError("trip.sqlite", "the disk is full"),
        MissingAgents("it waits in head/eat"),
        UnreadableRecord("DelegationRequest", "damaged"),
        InvalidUpdateError("two values"),
        EmptyChannelError(),
        EmptyInputError(),
    ],
)
async def test_a_pause_or_an_error_of_the_machinery_goes_on_up(error: Exception) -> None:
    outcomes = await both(error)

    assert outcomes[0] is error
    assert outcomes[1] is error


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), SystemExit(1), asyncio.CancelledError(), GeneratorExit()]
)
async def test_what_is_no_exception_is_never_an_answer(error: BaseException) -> None:
    level = raising(error)

    with pytest.raises(type(error)):
        run_plan_steps(run_level(level, {}, {}))


async def test_a_cancelled_subordinate_is_cancelled() -> None:
    started = asyncio.Event()

    async def hang(_: Any) -> Any:
        started.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(arun_plan_steps(run_level(RunnableLambda(hang), {}, {})))
    await started.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_subordinate_cannot_steer_its_superior() -> None:
    error = ParentCommand(Command(graph=Command.PARENT, goto="elsewhere"))

    for outcome in await both(error):
        assert isinstance(outcome, LevelFailure)
        assert "Command(graph=PARENT)" in outcome.reason


async def test_the_whole_of_an_error_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    error = ValueError("first\nsecond")

    with caplog.at_level(logging.WARNING, "echelons.identity.failures"):
        outcomes = await both(error)

    assert len(caplog.records) == 2
    for record, failed in zip(caplog.records, outcomes, strict=True):
        assert "second" in record.getMessage()
        assert record.exc_info is None
        [reference] = re.findall(r"failure [0-9a-f]{12}", failed.reason)
        assert reference in record.getMessage()


class Level(Runnable[Any, Any]):
    """Notes the config around each call of it, and may fail."""

    def __init__(self, error: Exception | None = None) -> None:
        self.around: list[Any] = []
        self._error = error

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        self.around.append(parent_config.get())
        if self._error:
            raise self._error
        return {}


@pytest.mark.parametrize("error", [None, ValueError("broken"), StorageError("t.sqlite", "full")])
async def test_a_level_has_its_own_config_around_it_and_leaves_that_of_its_superior(
    error: Exception | None,
) -> None:
    level, own = Level(error), RunnableConfig(tags=["own"])
    superior = RunnableConfig(tags=["superior"])
    token = parent_config.set(superior)
    try:
        with suppress(StorageError):
            run_plan_steps(run_level(level, {}, own))
        assert parent_config.get() is superior
        with suppress(StorageError):
            await arun_plan_steps(run_level(level, {}, own))
        assert parent_config.get() is superior
    finally:
        parent_config.reset(token)

    assert level.around == [own, own]
