"""`BackgroundLoop`: an event loop in a thread of its own, for work of a synchronous run.

A session has one for its tools and functions that are only async, so that a client which is bound
to its loop, as most are, serves all their calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from threading import Lock, Thread, current_thread
from typing import Any, NamedTuple, TypeVar

from echelons.run_context import get_context

T = TypeVar("T")


class _LoopThread(NamedTuple):
    thread: Thread
    loop: asyncio.AbstractEventLoop
    stop: asyncio.Event

    def end(self) -> None:
        with suppress(RuntimeError):  # it has been closed already
            self.loop.call_soon_threadsafe(self.stop.set)


class BackgroundLoop:
    """An event loop that starts at its first use, and ends with `close` or when it is dropped."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._held: _LoopThread | None = None

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in the loop, and so must not wait for it."""
        return self._held is not None and self._held.thread is current_thread()

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in the loop, with the caller's context variables; return its result.

        If the waiting thread is interrupted, as by Ctrl-C, the coroutine is cancelled.

        Raises:
            asyncio.CancelledError: The loop has been closed meanwhile.
        """
        loop = self._start().loop
        task: asyncio.Task[Any] | None = None
        is_interrupted = False

        async def begin() -> T:
            nonlocal task
            task = asyncio.current_task()
            if is_interrupted:
                raise asyncio.CancelledError
            return await work()

        try:
            return asyncio.run_coroutine_threadsafe(begin(), loop).result()
        except CancelledError as error:
            # That of threads is an ordinary exception, which would pass for a failure of the work.
            raise asyncio.CancelledError from error
        except BaseException as error:
            # An interrupt comes at any moment, also before there is a future to be cancelled.
            is_interrupted = True
            if not isinstance(error, Exception):
                with suppress(RuntimeError):  # the loop has ended, and so has the work
                    loop.call_soon_threadsafe(lambda: task and task.cancel())
            raise

    def close(self) -> None:
        """Cancel what is still running, wait for its end, and end the loop and its thread."""
        with self._lock:
            held, self._held = self._held, None
        if held:
            held.end()
            if held.thread is not current_thread():
                held.thread.join()

    async def aclose(self) -> None:
        """Async version of `close`."""
        if self._held is None or self.is_current:
            self.close()
        else:
            await asyncio.to_thread(self.close)

    def __del__(self) -> None:
        if self._held:
            self._held.end()

    def _start(self) -> _LoopThread:
        with self._lock:
            # Like any loop, it ends when work in it raises `SystemExit`.
            if self._held is None or not self._held.thread.is_alive():
                ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
                # A daemon: a session that is never closed must not keep the interpreter alive.
                thread = Thread(
                    target=asyncio.run, args=(_serve(ready),), name="echelons-loop", daemon=True
                )
                thread.start()
                self._held = _LoopThread(thread, *ready.result())
            return self._held


async def _serve(ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
    stop = asyncio.Event()
    ready.set_result((asyncio.get_running_loop(), stop))
    await stop.wait()


def get_background_loop(config: Mapping[str, Any]) -> BackgroundLoop | None:
    """Return the loop of a synchronous run, or `None` if it has none that its thread can wait for.

    Code in the loop itself that runs a tree synchronously would wait for its own end.
    """
    loop = get_context(config).loop
    return None if loop is None or loop.is_current else loop
