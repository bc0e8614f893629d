"""A transport of httpx that connects only to addresses that were checked, and keeps a deadline.

A name may resolve to a public address when it is checked, and to a private one when it is used
("DNS rebinding"). So a name is resolved once for each connection, below the HTTP client: all its
addresses are checked, and one of these is connected to. The URL keeps the name, so that the Host
header, SNI and the certificate are those of the name.

This module is imported when a page is fetched: httpx is an optional package.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any, Final

import httpcore
import httpx

MAX_ADDRESSES: Final = 4
"""Addresses of a host that are tried, one after the other."""


@dataclass(frozen=True, slots=True)
class FetchDeadline:
    """When a fetch must have ended, on the clock of `monotonic`."""

    at: float

    def measure_rest(self) -> float:
        """Return the seconds left; raise `ReadTimeout` if there are none."""
        seconds = self.at - monotonic()
        if seconds <= 0:
            raise httpcore.ReadTimeout("the time of the whole fetch is over")
        return seconds


class TimedStream(httpcore.NetworkStream):
    """A connection on which no read or write goes on past the deadline.

    The timeouts of httpx are those of a single read, which a server that sends a byte now and then
    never meets.
    """

    def __init__(self, stream: httpcore.NetworkStream, deadline: FetchDeadline) -> None:
        self._stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return the next bytes; the deadline takes the place of the timeout, here and below."""
        return self._stream.read(max_bytes, self._deadline.measure_rest())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send bytes."""
        self._stream.write(buffer, self._deadline.measure_rest())

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        """Return the connection with TLS."""
        seconds = self._deadline.measure_rest()
        stream = self._stream.start_tls(ssl_context, server_hostname, seconds)
        return TimedStream(stream, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        """Return metadata of the connection, such as its socket."""
        return self._stream.get_extra_info(info)


class CheckedBackend(httpcore.NetworkBackend):
    """Connects to an address of a host after `check` has passed all its addresses."""

    def __init__(
        self,
        resolve: Callable[[str, int], Sequence[str]],
        check: Callable[[str, int, str], None],
        deadline: FetchDeadline,
    ) -> None:
        self._resolve = resolve
        self._check = check
        self._deadline = deadline

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """Return a connection to the first address that can be reached."""
        addresses = self._resolve_in_time(host, port)
        for address in addresses:
            self._check(host, port, address)
        failure: Exception = httpcore.ConnectError(f"{host!r} has no address")
        tried = addresses[:MAX_ADDRESSES]
        for number, address in enumerate(tried):
            # An address that swallows packets leaves the next ones their share of the time.
            share = self._deadline.measure_rest() / (len(tried) - number)
            try:
                stream = httpcore.SyncBackend().connect_tcp(
                    address, port, share, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
            else:
                return TimedStream(stream, self._deadline)
        raise failure

    def _resolve_in_time(self, host: str, port: int) -> Sequence[str]:
        """Return the addresses of a host; in a thread, as the system's resolver has no timeout."""
        results: SimpleQueue[Sequence[str] | Exception] = SimpleQueue()

        def run() -> None:
            try:
                results.put(list(self._resolve(host, port)))
            except Exception as error:  # noqa: BLE001  it is raised where it is waited for
                results.put(error)

        Thread(target=run, daemon=True, name="resolve-host").start()
        try:
            result = results.get(timeout=self._deadline.measure_rest())
        except Empty:
            raise httpcore.ConnectTimeout(f"{host!r} was not resolved in time") from None
        if isinstance(result, Exception):
            raise httpcore.ConnectError(f"{host!r} cannot be resolved ({result})") from result
        return result


class CheckedTransport(httpx.BaseTransport):
    """A transport that connects through a backend; it knows no proxy."""

    def __init__(self, backend: CheckedBackend) -> None:
        self._pool = httpcore.ConnectionPool(
            ssl_context=_load_certificates(), network_backend=backend
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Return the response to a request without a body."""
        target = httpcore.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        )
        sent = httpcore.Request(request.method, target, headers=request.headers.raw)
        response = self._pool.handle_request(sent)
        return httpx.Response(response.status, headers=response.headers, stream=_Body(response))

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()


class _Body(httpx.SyncByteStream):
    def __init__(self, response: httpcore.Response) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        yield from self._response.iter_stream()

    def close(self) -> None:
        self._response.close()


@lru_cache(maxsize=1)
def _load_certificates() -> ssl.SSLContext:
    """Return the usual context, once: to read the certificates takes longer than a request."""
    return httpx.create_ssl_context(trust_env=False)
