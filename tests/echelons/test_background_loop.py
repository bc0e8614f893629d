"""A loop in a thread: started when it is needed, ended in good order."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar

import pytest

from echelons.background_loop import BackgroundLoop, get_background_loop
from echelons.run_context import CONTEXT_KEY, RunContext

NAME: ContextVar[str] = ContextVar("NAME", default="")


@pytest.fixture
def loop() -> Iterator[BackgroundLoop]:
    loop = BackgroundLoop()
    yield loop
    loop.close()


async def get_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_all_calls_run_in_one_loop_and_close_ends_it(loop: BackgroundLoop) -> None:
    first, second = loop.run(get_loop), loop.run(get_loop)

    loop.close()

    assert first is second
    assert first.is_closed()
    loop.close()


async def test_an_event_loop_goes_on_while_the_end_of_what_runs_is_awaited(
    loop: BackgroundLoop,
) -> None:
    ours, begun, met = asyncio.get_running_loop(), threading.Event(), threading.Event()

    async def work() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            ours.call_soon_threadsafe(met.set)
            assert met.wait(120), "the other loop stands still"

    with ThreadPoolExecutor() as threads:
        running = threads.submit(loop.run, work)
        await asyncio.to_thread(begun.wait)
        await loop.aclose()
        with pytest.raises(asyncio.CancelledError):
            running.result()

    assert met.is_set()
    await loop.aclose()


def test_after_close_it_starts_again(loop: BackgroundLoop) -> None:
    first = loop.run(get_loop)
    loop.close()

    assert loop.run(get_loop) is not first


def test_a_coroutine_has_the_context_of_its_caller_and_its_error_is_raised(
    loop: BackgroundLoop,
) -> None:
    async def read() -> str:
        await asyncio.sleep(0)
        return NAME.get()

    async def fail() -> str:
        raise ConnectionError(await read())

    token = NAME.set("Ann")
    try:
        assert loop.run(read) == "Ann"
        with pytest.raises(ConnectionError, match="Ann"):
            loop.run(fail)
    finally:
        NAME.reset(token)


def test_an_interrupt_from_the_keyboard_cancels_the_coroutine(
    loop: BackgroundLoop, request: pytest.FixtureRequest
) -> None:
    # Tests that a script runs in the background would ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    ended, main = threading.Event(), threading.get_ident()

    async def hang() -> None:
        signal.pthread_kill(main, signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(KeyboardInterrupt):
        loop.run(hang)

    assert ended.wait(120)


def test_close_cancels_what_still_runs(loop: BackgroundLoop) -> None:
    begun, ended = threading.Event(), threading.Event()
    raised: list[BaseException] = []

    async def hang() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    def wait() -> None:
        try:
            loop.run(hang)
        except BaseException as error:
            raised.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert begun.wait(120)
    loop.close()
    waiting.join(120)

    assert ended.is_set()
    assert [type(each) for each in raised] == [asyncio.CancelledError]


def test_in_its_own_thread_it_cannot_be_waited_for(loop: BackgroundLoop) -> None:
    config = {"configurable": {CONTEXT_KEY: RunContext(loop=loop)}}

    async def find() -> BackgroundLoop | None:
        return get_background_loop(config)

    assert get_background_loop(config) is loop
    assert loop.run(find) is None
    assert get_background_loop({}) is None


def test_it_can_be_closed_from_within(loop: BackgroundLoop) -> None:
    async def close() -> asyncio.AbstractEventLoop:
        loop.close()
        return asyncio.get_running_loop()

    [own] = {loop.run(close)}
    assert own is not None
