"""Chat models of OpenAI by name, and the HTTP clients that they share."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from langchain_core.runnables import ensure_config
from openai import APITimeoutError, DefaultAsyncHttpxClient, DefaultHttpxClient

from echelons.errors import ModelError
from echelons.guards.limits import time_left
from echelons.text.error_lines import note_server

if TYPE_CHECKING:
    from httpx2 import Request, Response
    from langchain_openai import ChatOpenAI


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
            timeouts = request.extensions.get("timeout") or self.timeout.as_dict()
            parts = {
                key: left if item is None else min(left, item) for key, item in timeouts.items()
            }
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


KEY_VARIABLE = "OPENAI_API_KEY"
ADDRESS_VARIABLES = ("OPENAI_BASE_URL", "OPENAI_API_BASE")
"""The first one that is set is used: the SDK's name, then LangChain's older one."""

PROXY_VARIABLE = "OPENAI_PROXY"
"""LangChain's name for a proxy to OpenAI alone; the usual variables count as well."""

OPENAI_ADDRESS = "https://api.openai.com/v1"
NO_KEY = "no-key-needed"
"""Sent to a server on loopback if no key is set, as the SDK requires one."""

MAX_RETRIES = 2
"""Retries after the first attempt, on 408, 409, 429, 5xx, timeouts and broken connections."""

TIMEOUT_SECONDS = 60.0
"""Longest silence of the server in seconds, before the answer and between its parts."""


def create_openai_chat(name: str) -> ChatOpenAI:
    """Return the named model, with the key and the address from the environment.

    A server on loopback needs no key and is reached without a proxy, whatever the proxy
    variables say.

    Errors of the provider are raised unchanged once all attempts are used:
    `openai.RateLimitError` (429), `openai.InternalServerError` (5xx),
    `openai.APITimeoutError` (silence before the answer), `openai.APIConnectionError`.
    A stream that has begun is not retried.

    Raises:
        ModelError: There is no key, and the server is not on loopback; the address is not an http
            or https URL with a host.
    """
    address, loopback = _get_address()
    key = os.environ.get(KEY_VARIABLE, "").strip()
    if not key and not loopback:
        raise ModelError(
            "model {model!r} needs a key, and {variable} is not set; set {variable}, or leave the "
            "model out to use the offline planner",
            code="model_key_missing",
            model=f"openai:{name}",
            variable=KEY_VARIABLE,
        )
    from langchain_openai import ChatOpenAI
    from pydantic import SecretStr

    from echelons.models.openai_chat import AsyncHttpClient, SyncHttpClient

    # On loopback the proxy variables are ignored.
    proxy = None if loopback else os.environ.get(PROXY_VARIABLE, "").strip() or None
    return ChatOpenAI(
        model=name,
        api_key=SecretStr(key or NO_KEY),
        base_url=address,
        max_retries=MAX_RETRIES,
        timeout=TIMEOUT_SECONDS,
        stream_usage=True,
        http_client=SyncHttpClient(trust_env=not loopback, proxy=proxy),
        http_async_client=AsyncHttpClient(trust_env=not loopback, proxy=proxy),
        # LangChain must neither add a proxy of its own nor warn about options it would set.
        openai_proxy=None,
        http_socket_options=(),
    )


def _get_address() -> tuple[str, bool]:
    """Return the address of the server, and whether it is on loopback."""
    for variable in ADDRESS_VARIABLES:
        if value := os.environ.get(variable, "").strip():
            try:
                parts = urlsplit(value)
                host, _ = parts.hostname, parts.port  # reading the port validates it
            except ValueError as error:
                raise _invalid_address(variable, value) from error
            if parts.scheme not in ("http", "https") or not host:
                raise _invalid_address(variable, value)
            return value, _is_loopback(host)
    return OPENAI_ADDRESS, False


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _invalid_address(variable: str, value: str) -> ModelError:
    return ModelError(
        "{variable} is {value!r}, which is no address of a model server; give it as "
        "http://HOST:PORT/v1 or https://…, or unset it to use OpenAI's own",
        code="invalid_model_address",
        variable=variable,
        value=value,
    )
