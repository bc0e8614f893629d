"""One GET request: each hop is checked, and connects to the very address that was checked.

A name may resolve to a public address when it is checked, and to a private one when it is used
("DNS rebinding"). So a name is resolved once for each connection, below the HTTP client: all its
addresses are checked, and one of these is connected to. The URL keeps the name, so that the Host
header, SNI and the certificate are those of the name.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from echelons.errors import (
    AddressRefused,
    FetchFailed,
    InvalidSetting,
    MissingExtra,
    ResponseTooLarge,
)
from echelons.tools.url_rules import HostRules

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

MOST_REDIRECTS: Final = 5
"""Most redirects that a fetch follows."""
_MOST_ADDRESSES: Final = 4
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})

Resolver = Callable[[str, int], Sequence[str]]
"""Returns the addresses of a host, for a port; raises `OSError` if there is none."""


def resolve_host(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a host, as the system resolves it."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


@dataclass(frozen=True, slots=True)
class FetchPolicy:
    """What a fetch may do.

    Attributes:
        rules: The hosts that may be fetched.
        max_bytes: Most bytes of a body.
        timeout: Seconds for all of it: names, connections, redirects, and the body.
        headers: Headers of the request, such as `User-Agent`.
        resolve: Resolves a host.

    Raises:
        InvalidSetting: `max_bytes` or `timeout` is not above 0.
    """

    rules: HostRules
    max_bytes: int = 1_000_000
    timeout: float = 20.0
    headers: Mapping[str, str] = field(default_factory=dict)
    resolve: Resolver = resolve_host

    def __post_init__(self) -> None:
        for name in ("max_bytes", "timeout"):
            if not getattr(self, name) > 0:
                why = "pass a number above 0"
                raise InvalidSetting("FetchPolicy", name, getattr(self, name), why)


@dataclass(frozen=True, slots=True)
class FetchedResponse:
    """The response to a GET request.

    Attributes:
        url: The URL after all redirects.
        status: The status code; any but a redirect's.
        headers: The headers, with names in lower case.
        content: The body.
    """

    url: str
    status: int
    headers: Mapping[str, str]
    content: bytes


def fetch(url: str, policy: FetchPolicy) -> FetchedResponse:
    """Return the response to a GET request, of whatever status.

    Proxies and credentials of the environment are not used: what a proxy resolves and connects to
    cannot be checked.

    Raises:
        AddressRefused: The URL, or that of a redirect, is invalid or not allowed.
        ResponseTooLarge: The body has more than `policy.max_bytes`.
        FetchFailed: There is no response in time, or none that is valid.
        MissingExtra: `httpx` is not installed.
    """
    current = policy.rules.check_url(url)
    deadline = _Deadline(monotonic() + policy.timeout, policy.timeout)
    for _ in range(MOST_REDIRECTS + 1):
        with _translate_errors(str(current), deadline):
            found = _request(current, policy, deadline)
        if found.status not in _REDIRECTS or "location" not in found.headers:
            return found
        following = policy.rules.check_url(_join_location(current, found.headers["location"]))
        if current.scheme == "https" and following.scheme == "http":
            raise AddressRefused(str(following), "a redirect leads from https to http")
        current = following
    raise FetchFailed(url, f"there are more than {MOST_REDIRECTS} redirects; fetch another page")


def _join_location(current: httpx.URL, location: str) -> str:
    import httpx

    try:
        return str(current.join(location))
    except (httpx.InvalidURL, ValueError) as error:
        raise AddressRefused(location, f"a redirect leads there, no URL ({error})") from error


def _request(url: httpx.URL, policy: FetchPolicy, deadline: _Deadline) -> FetchedResponse:
    import httpx

    # Compressed bodies are not asked for: a small one may grow a thousandfold.
    headers = {**policy.headers, "accept-encoding": "identity"}
    with (
        httpx.Client(
            transport=_build_transport(str(url), policy, deadline), trust_env=False
        ) as http,
        http.stream("GET", url, headers=headers, timeout=policy.timeout) as response,
    ):
        found = {name.lower(): value for name, value in response.headers.items()}
        if response.status_code in _REDIRECTS and "location" in found:
            return FetchedResponse(str(url), response.status_code, found, b"")
        if found.get("content-encoding", "identity") != "identity":
            why = f"its encoding is {found['content-encoding']!r}, and none was asked for"
            raise FetchFailed(str(url), why)
        length = found.get("content-length", "")
        if length.isascii() and length.isdigit() and int(length[:20]) > policy.max_bytes:
            raise ResponseTooLarge(str(url), policy.max_bytes)
        body = bytearray()
        for chunk in response.iter_raw():
            body += chunk
            if len(body) > policy.max_bytes:
                raise ResponseTooLarge(str(url), policy.max_bytes)
        return FetchedResponse(str(url), response.status_code, found, bytes(body))


@contextmanager
def _translate_errors(url: str, deadline: _Deadline) -> Iterator[None]:
    import httpcore
    import httpx

    try:
        yield
    except (httpx.TimeoutException, httpcore.TimeoutException) as error:
        why = f"there is no whole response after {deadline.timeout:g} s, the limit; try later"
        raise FetchFailed(url, why) from error
    except (
        httpx.HTTPError,
        httpx.InvalidURL,
        httpcore.NetworkError,
        httpcore.ProtocolError,
        OSError,
    ) as error:
        why = f"{type(error).__name__}: {error}; check the address, or try later"
        raise FetchFailed(url, why) from error


@dataclass(frozen=True, slots=True)
class _Deadline:
    """When a fetch must have ended, on the clock of `monotonic`."""

    at: float
    timeout: float

    def measure_rest(self) -> float:
        """Return the seconds left."""
        import httpcore

        rest = self.at - monotonic()
        if rest <= 0:
            raise httpcore.ReadTimeout("the time of the whole fetch is over")
        return rest


@lru_cache(maxsize=1)
def _load_certificates() -> ssl.SSLContext:
    import httpx

    return httpx.create_ssl_context(trust_env=False)


def _resolve_in_time(host: str, port: int, resolve: Resolver, deadline: _Deadline) -> Sequence[str]:
    """Return the addresses of a host; a system's resolver knows no timeout of its own."""
    import httpcore

    found: SimpleQueue[Sequence[str] | Exception] = SimpleQueue()

    def run() -> None:
        try:
            found.put(list(resolve(host, port)))
        except Exception as error:  # noqa: BLE001  it is raised where it is waited for
            found.put(error)

    Thread(target=run, daemon=True, name="resolve-host").start()
    try:
        result = found.get(timeout=deadline.measure_rest())
    except Empty:
        raise httpcore.ConnectTimeout(f"{host!r} was not resolved in time") from None
    if isinstance(result, Exception):
        raise httpcore.ConnectError(f"{host!r} cannot be resolved ({result})") from result
    if not result:
        raise httpcore.ConnectError(f"{host!r} has no address")
    return result


def _build_transport(url: str, policy: FetchPolicy, deadline: _Deadline) -> httpx.BaseTransport:
    """Return a transport of httpx that resolves, checks and connects as this module says.

    Its classes are made here, because httpx is an optional package.
    """
    import httpcore
    import httpx

    class TimedStream(httpcore.NetworkStream):
        """A connection on which no read or write goes on past the deadline.

        A timeout of httpx is one of a single read: a server that sends a byte now and then would
        never meet it.
        """

        def __init__(self, stream: httpcore.NetworkStream) -> None:
            self._stream = stream

        def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
            return self._stream.read(max_bytes, deadline.measure_rest())

        def write(self, buffer: bytes, timeout: float | None = None) -> None:
            self._stream.write(buffer, deadline.measure_rest())

        def close(self) -> None:
            self._stream.close()

        def start_tls(
            self,
            ssl_context: ssl.SSLContext,
            server_hostname: str | None = None,
            timeout: float | None = None,
        ) -> httpcore.NetworkStream:
            rest = deadline.measure_rest()
            return TimedStream(self._stream.start_tls(ssl_context, server_hostname, rest))

        def get_extra_info(self, info: str) -> Any:
            return self._stream.get_extra_info(info)

    class CheckedBackend(httpcore.NetworkBackend):
        """Connects to an address of a host only after all its addresses have been checked."""

        def connect_tcp(
            self,
            host: str,
            port: int,
            timeout: float | None = None,
            local_address: str | None = None,
            socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
        ) -> httpcore.NetworkStream:
            addresses = _resolve_in_time(host, port, policy.resolve, deadline)
            for address in addresses:
                policy.rules.check_address(url, host, port, address)
            failure: Exception = httpcore.ConnectError("it has no address")
            for address in addresses[:_MOST_ADDRESSES]:
                try:
                    stream = httpcore.SyncBackend().connect_tcp(
                        address, port, deadline.measure_rest(), local_address, socket_options
                    )
                except httpcore.ConnectError as error:
                    failure = error
                else:
                    return TimedStream(stream)
            raise failure

    class Body(httpx.SyncByteStream):
        def __init__(self, response: httpcore.Response) -> None:
            self._response = response

        def __iter__(self) -> Iterator[bytes]:
            yield from self._response.iter_stream()

        def close(self) -> None:
            self._response.close()

    class CheckedTransport(httpx.BaseTransport):
        def __init__(self) -> None:
            self._pool = httpcore.ConnectionPool(
                ssl_context=_load_certificates(), network_backend=CheckedBackend()
            )

        def handle_request(self, request: httpx.Request) -> httpx.Response:
            target = httpcore.URL(
                scheme=request.url.raw_scheme,
                host=request.url.raw_host,
                port=request.url.port,
                target=request.url.raw_path,
            )
            found = self._pool.handle_request(
                httpcore.Request(request.method, target, headers=request.headers.raw)
            )
            return httpx.Response(found.status, headers=found.headers, stream=Body(found))

        def close(self) -> None:
            self._pool.close()

    return CheckedTransport()
