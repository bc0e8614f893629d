"""A block is cancelled when its agent is stopped, and not by other cancellations of the agent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from echelons.guards.gate import Halt, OpenGate
from echelons.nodes.base_node import CancelOnStop
from echelons.run_context import CONTEXT_KEY, RunContext

HALT = Halt("stopped", "head was told to stop")


class Told(OpenGate):
    """A gate that tells its listeners when the test says so."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[Halt], None]] = []

    def listen(
        self, config: Mapping[str, Any], callback: Callable[[Halt], None]
    ) -> Callable[[], None]:
        self.listeners.append(callback)
        return lambda: self.listeners.remove(callback)

    def stop(self) -> None:
        for listener in list(self.listeners):
            listener(HALT)


async def hang(gate: Told, inside: asyncio.Event) -> str:
    config: Any = {"configurable": {CONTEXT_KEY: RunContext(gate=gate)}}
    with CancelOnStop(config) as cutting:
        inside.set()
        await asyncio.Event().wait()
    return cutting.halt.reason if cutting.halt else ""


async def begun(gate: Told) -> asyncio.Task[str]:
    inside = asyncio.Event()
    task = asyncio.create_task(hang(gate, inside))
    await inside.wait()
    return task


async def test_what_hangs_is_cut_and_its_task_goes_on() -> None:
    gate = Told()
    task = await begun(gate)

    await asyncio.to_thread(gate.stop)

    assert await task == HALT.reason
    assert task.cancelling() == 0
    assert gate.listeners == []


async def test_cancellation_from_outside_is_passed_on() -> None:
    gate = Told()
    task = await begun(gate)

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert gate.listeners == []


async def test_of_a_stop_and_a_cancellation_at_once_the_cancellation_goes_on() -> None:
    gate = Told()
    task = await begun(gate)

    gate.stop()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_stop_that_comes_after_the_end_cuts_nothing() -> None:
    gate = Told()
    config: Any = {"configurable": {CONTEXT_KEY: RunContext(gate=gate)}}
    with CancelOnStop(config) as cutting:
        # Told in another thread, and not here yet when the block ends.
        await asyncio.to_thread(lambda: None)
        gate.stop()
    await asyncio.sleep(0)

    assert cutting.halt is None
