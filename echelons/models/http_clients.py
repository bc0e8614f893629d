"""HTTP clients for a provider's model that leave no socket open, in any event loop.

`openai_chat` gives one of each to a model. With the SDK's own async client a model serves one
event loop only: its pool keeps connections of the loop that opened them, so a second
`asyncio.run` sends its request over one of them and fails with
`RuntimeError: Event loop is closed`. Observed with openai 3.54.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from langchain_core.runnables import ensure_config
from openai import APITimeoutError, DefaultAsyncHttpxClient, DefaultHttpxClient

from echelons.guards.deadlines import time_left
from echelons.text.error_lines import note_server

if TYPE_CHECKING:
    from httpx2 import Request, Response


@contextmanager
def _naming_address(request: Request) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        url = request.url
        note_server(error, f"{url.scheme}://{url.netloc.decode('ascii')}")
        raise


class SyncHttpClient(DefaultHttpxClient):
    """The SDK's client, closed when its model is garbage-collected.

    The request of an agent takes no longer than the agent has left, all attempts together; an event
    loop cancels late requests itself.
    """

    def send(self, request: Request, **options: Any) -> Response:
        """Send a request and return the response.

        Raises:
            openai.APITimeoutError: The agent's time is over. The SDK does not retry its own errors.
        """
        config = ensure_config()
        left = time_left(config)
        with _naming_address(request):
            if left is None:
                return super().send(request, **options)
            if left == 0:
                raise APITimeoutError(request)
            given = request.extensions.get("timeout") or self.timeout.as_dict()
            parts = {key: left if each is None else min(left, each) for key, each in given.items()}
            request.extensions = {**request.extensions, "timeout": parts}
            try:
                return super().send(request, **options)
            except Exception as error:
                if time_left(config):
                    raise
                raise APITimeoutError(request) from error

    def __del__(self) -> None:
        with suppress(Exception):  # the interpreter may be shutting down, where none could catch it
            self.close()


class AsyncHttpClient(DefaultAsyncHttpxClient):
    """The SDK's client, with a connection pool for each event loop.

    The pool of a loop closes with `loop.shutdown_asyncgens()`, which `asyncio.run` and
    `asyncio.Runner` call at their end. The options are those of the SDK's client.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._options = options
        self._lock = threading.Lock()
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopClient] = WeakKeyDictionary()

    async def send(self, request: Request, **options: Any) -> Response:
        """Send a request over a connection of the running loop and return the response.

        Raises:
            RuntimeError: The client has been closed.
        """
        if self.is_closed:
            raise RuntimeError("a request cannot be sent: the client has been closed")
        client = await self._get_loop_client()
        with _naming_address(request):
            return await client.send(request, **options)

    async def aclose(self) -> None:
        """Close the client, and the connections of the running loop."""
        with self._lock:
            pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.generator.aclose()
        await super().aclose()

    async def _get_loop_client(self) -> DefaultAsyncHttpxClient:
        loop = asyncio.get_running_loop()
        with self._lock:
            pool = self._pools.get(loop)
            if pool is None:
                for other in list(self._pools):
                    if other.is_closed():
                        del self._pools[other]
                pool = self._pools[loop] = _LoopClient(DefaultAsyncHttpxClient(**self._options))
        await pool.start()
        return pool.client


class _LoopClient:
    """The client of one event loop, with the async generator through which the loop closes it."""

    def __init__(self, client: DefaultAsyncHttpxClient) -> None:
        self.client = client
        self.generator = _close_at_shutdown(client)
        self._open = False

    async def start(self) -> None:
        """Start the generator, which registers it with the running loop."""
        if not self._open:
            self._open = True
            await anext(self.generator)


async def _close_at_shutdown(client: DefaultAsyncHttpxClient) -> AsyncGenerator[None]:
    # A loop finalises its open async generators at shutdown; it has no other hook for cleanup.
    try:
        yield
    finally:
        await client.aclose()
