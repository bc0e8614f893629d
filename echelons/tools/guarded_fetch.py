"""One GET request over at most five redirects, each checked, within a size and a time."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Final

from echelons.errors import (
    AddressRefused,
    FetchFailed,
    InvalidSetting,
    ResponseTooLarge,
)
from echelons.tools.url_rules import HostRules

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

MOST_REDIRECTS: Final = 5
"""Most redirects that a fetch follows."""
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
    deadline = monotonic() + policy.timeout
    for _ in range(MOST_REDIRECTS + 1):
        with _translate_errors(str(current), policy.timeout):
            found = _request(current, policy, deadline)
        if found.status not in _REDIRECTS or "location" not in found.headers:
            return found
        current = check_redirect(current, found.headers["location"], policy.rules)
    raise FetchFailed(url, f"there are more than {MOST_REDIRECTS} redirects; fetch another page")


def check_redirect(current: httpx.URL, location: str, rules: HostRules) -> httpx.URL:
    """Return the URL that a redirect leads to, if it may be fetched.

    Raises:
        AddressRefused: It is invalid or not allowed, or leads from https to http.
    """
    import httpx

    try:
        joined = str(current.join(location))
    except (httpx.InvalidURL, ValueError) as error:
        raise AddressRefused(location, f"a redirect leads there, no URL ({error})") from error
    following = rules.check_url(joined)
    if current.scheme == "https" and following.scheme == "http":
        raise AddressRefused(joined, "a redirect leads from https to http; fetch it on its own")
    return following


def _request(url: httpx.URL, policy: FetchPolicy, deadline: float) -> FetchedResponse:
    import httpx

    from echelons.tools.checked_transport import CheckedBackend, CheckedTransport, FetchDeadline

    def check(host: str, port: int, address: str) -> None:
        policy.rules.check_address(str(url), host, port, address)

    # Compressed bodies are not asked for: a small one may grow a thousandfold.
    headers = {**policy.headers, "accept-encoding": "identity"}
    transport = CheckedTransport(CheckedBackend(policy.resolve, check, FetchDeadline(deadline)))
    with (
        httpx.Client(transport=transport, trust_env=False) as http,
        http.stream("GET", url, headers=headers) as response,
    ):
        found = {name.lower(): value for name, value in response.headers.items()}
        body = b""
        if response.status_code not in _REDIRECTS or "location" not in found:
            body = _read_body(response, policy.max_bytes)
        return FetchedResponse(str(url), response.status_code, found, body)


def _read_body(response: httpx.Response, limit: int) -> bytes:
    url, headers = str(response.url), response.headers
    if headers.get("content-encoding", "identity") != "identity":
        why = f"its encoding is {headers['content-encoding']!r}, and none was asked for"
        raise FetchFailed(url, why)
    body = bytearray()
    for chunk in response.iter_raw():
        body += chunk
        if len(body) > limit:
            raise ResponseTooLarge(url, limit)
    return bytes(body)


@contextmanager
def _translate_errors(url: str, timeout: float) -> Iterator[None]:
    import httpcore
    import httpx

    try:
        yield
    except (httpx.TimeoutException, httpcore.TimeoutException) as error:
        why = f"there is no whole response after {timeout:g} s, the limit; try later"
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
