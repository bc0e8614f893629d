"""The HTTP clients under a provider's model: they leave no socket behind, in any loop.

`openai_chat` gives one of each to a model. With the SDK's own async client a model serves
one event loop only: its pool keeps connections that belong to the loop that opened them, so
a second `asyncio.run` sends its request over one of them and then dies of
`RuntimeError: Event loop is closed`. Tried with openai 3.54.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from openai import DefaultAsyncHttpxClient, DefaultHttpxClient

if TYPE_CHECKING:
    from httpx2 import Request, Response


class SyncClient(DefaultHttpxClient):
    """The SDK's client, closed when its model is dropped."""

    def __del__(self) -> None:
        with suppress(Exception):  # the interpreter may be ending, and nobody can catch it
            self.close()


class AsyncClient(DefaultAsyncHttpxClient):
    """The SDK's client, with a pool of connections for each event loop.

    The pool of a loop closes with `loop.shutdown_asyncgens()`, which `asyncio.run` and
    `asyncio.Runner` call at their end.

    Args:
        **options: Those of the SDK's client.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._options = options
        self._lock = threading.Lock()
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, _Pool] = WeakKeyDictionary()

    async def send(self, request: Request, **options: Any) -> Response:
        """Send a request over a connection of the running loop.

        Raises:
            RuntimeError: The client has been closed.
        """
        if self.is_closed:
            raise RuntimeError("a request cannot be sent: the client has been closed")
        client = await self._client_here()
        return await client.send(request, **options)

    async def aclose(self) -> None:
        """Close the client, and the connections of the running loop."""
        with self._lock:
            pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.generator.aclose()
        await super().aclose()

    async def _client_here(self) -> DefaultAsyncHttpxClient:
        loop = asyncio.get_running_loop()
        with self._lock:
            pool = self._pools.get(loop)
            if pool is None:
                for other in list(self._pools):
                    if other.is_closed():
                        del self._pools[other]
                pool = self._pools[loop] = _Pool(DefaultAsyncHttpxClient(**self._options))
        await pool.open()
        return pool.client


class _Pool:
    """The client of one loop, and the generator by which the loop closes it."""

    def __init__(self, client: DefaultAsyncHttpxClient) -> None:
        self.client = client
        self.generator = _until_shutdown(client)
        self._open = False

    async def open(self) -> None:
        """Make the loop know the generator: it does as soon as the generator has started."""
        if not self._open:
            self._open = True
            await anext(self.generator)


async def _until_shutdown(client: DefaultAsyncHttpxClient) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        await client.aclose()
