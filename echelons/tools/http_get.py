"""The tool `http_get`: the text of a page, from an allowed and checked address."""

from __future__ import annotations

import codecs
import re
import socket
import ssl
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any, Final

import httpcore
import httpx
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel, Field

from echelons.delegation.effects import effect
from echelons.errors import (
    InvalidSetting,
    ToolRefusal,
    address_refused,
    fetch_failed,
    missing_extra,
)
from echelons.guards.permissions import ALL_GRANTED, Grant
from echelons.run_context import get_context
from echelons.tools.text_lines import raise_refusals

MAX_ADDRESSES: Final = 4
"""Addresses of a host that are tried, one after the other."""
MAX_URL_LENGTH: Final = 2048
MAX_REDIRECTS: Final = 5


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


DEFAULT_PORTS: Final = {"http": 80, "https": 443}
"""The only schemes, and the only ports of hosts that are allowed without a port."""

# Of IPv6 only 2000::/3 is routed worldwide; this leaves out ::/96 and ::ffff:0:0/96 (IPv4 in
# IPv6), 64:ff9b::/96 and 64:ff9b:1::/48 (NAT64), fc00::/7, fe80::/10 and ff00::/8 at once.
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
# Within it: Teredo and other protocols, 6to4 (both carry an IPv4 address), and documentation.
# Of IPv4: protocol assignments and the anycast of 6to4 relays, which `is_global` lets pass.
_SPECIAL: Final = tuple(
    ip_network(block)
    for block in (
        "2001::/23", "2002::/16", "2001:db8::/32", "3fff::/20", "192.0.0.0/24", "192.88.99.0/24",
    )
)  # fmt: skip
# What a browser reads as a number is an address: 2130706433, 0177.0.0.1, 0x7f.1, 127.1.
_NUMERIC_LABEL: Final = re.compile(r"\d+|0x[0-9a-f]*", re.IGNORECASE)
_HOST_NAME: Final = re.compile(
    r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*"
)
# A URL has none of these unescaped; parsers disagree about what they mean.
_FORBIDDEN: Final = re.compile(r"[\x00-\x20\x7f-\x9f\\\"<>^`{|}\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class HostRules:
    """The hosts that may be fetched, see `build_http_get`; `grant` must allow them too."""

    allow: Collection[str] = ()
    allow_private: Collection[str] = ()
    grant: Grant = field(default=ALL_GRANTED, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("allow", "allow_private"):
            entries = getattr(self, name)
            if isinstance(entries, str):
                raise InvalidSetting("HostRules", name, entries, "pass a list of hosts, no text")
            object.__setattr__(self, name, frozenset(map(str.lower, entries)))
        for entry in self.allow:
            host = _split_port(entry)[0].removeprefix("*.")
            if host != "*" and not _is_host(host):
                why = "pass hosts such as 'example.org', '*.example.org' or 'example.org:8080'"
                raise InvalidSetting("HostRules", "allow", entry, why)
        for entry in self.allow_private:
            host, port = _split_port(entry)
            if port is None or not _is_host(host):
                why = "pass hosts with their ports, such as '127.0.0.1:8080' or '[::1]:8080'"
                raise InvalidSetting("HostRules", "allow_private", entry, why)

    def check_url(self, url: str) -> httpx.URL:
        """Return a URL without its fragment, if it may be fetched."""
        parsed = _parse_url(url)
        port = parsed.port or DEFAULT_PORTS[parsed.scheme]
        host = read_host(parsed)
        if not self.grant.allows_host(host):
            hosts = ", ".join(self.grant.network or ()) or "none"
            raise address_refused(url, f"host {host!r} is not granted to the agent, but: {hosts}")
        if not self.is_private_allowed(host, port):
            self._check_host(url, host, port, DEFAULT_PORTS[parsed.scheme])
        return parsed.copy_with(fragment=None)

    def _check_host(self, url: str, host: str, port: int, standard: int) -> None:
        if not any(_is_match(entry, host, port, standard) for entry in self.allow):
            hosts = ", ".join(sorted(self.allow)) or "none"
            why = f"host {host!r} with port {port} is not allowed; allowed are: {hosts}"
            raise address_refused(url, why)
        address = _read_address(host)
        if address and not is_public_address(address):
            raise address_refused(url, f"{host} is not a public address; name a public host")

    def check_address(self, url: str, host: str, port: int, address: str) -> None:
        """Refuse a private or special address of a host, unless its name and port allow it."""
        if self.is_private_allowed(host, port):
            return
        parsed = _read_address(address)
        if parsed is None or not is_public_address(parsed):
            why = f"host {host!r} leads to {address}, not a public address; name a public host"
            raise address_refused(url, why)

    def is_private_allowed(self, host: str, port: int) -> bool:
        """Return whether the addresses of a host may be private."""
        shown = f"[{host}]" if ":" in host else host
        return f"{shown}:{port}" in self.allow_private


def is_public_address(address: IPv4Address | IPv6Address) -> bool:
    """Return whether an address is one of a public host.

    >>> is_public_address(ip_address("93.184.215.14")), is_public_address(ip_address("10.0.0.1"))
    (True, False)
    >>> is_public_address(ip_address("::ffff:93.184.215.14"))
    False
    """
    if isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST:
        return False
    if any(address.version == block.version and address in block for block in _SPECIAL):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def read_host(url: httpx.URL) -> str:
    """Return the host of a URL as it is resolved: in ASCII, and without brackets."""
    return url.raw_host.decode("ascii")


def _parse_url(url: str) -> httpx.URL:
    try:
        import httpx
    except ImportError as error:
        raise missing_extra("search", "httpx") from error
    if len(url) > MAX_URL_LENGTH:
        raise address_refused(url, f"it has {len(url)} characters, the limit is {MAX_URL_LENGTH}")
    if not url.isascii() or _FORBIDDEN.search(url):
        why = "it has spaces, control, special or non-ASCII characters; percent-encode them, and"
        raise address_refused(url, f"{why} write the host in ASCII ('xn--…')")
    if not re.match(r"https?://[^/?#]", url, re.IGNORECASE):
        raise address_refused(url, "only http:// and https:// with a host are fetched")
    try:
        parsed = httpx.URL(url)
        host, port = read_host(parsed), parsed.port
    except (httpx.InvalidURL, ValueError) as error:
        raise address_refused(url, f"it is no valid URL ({error})") from error
    if "@" in parsed.netloc.decode("ascii") or "@" in re.split("[/?#]", url, maxsplit=3)[2]:
        raise address_refused(url, "it has a user name or password; leave them out")
    if not _is_host(host) or port == 0:
        why = f"{host!r} is no host name and no address in its usual form, such as 192.0.2.1"
        raise address_refused(url, why)
    return parsed


def _is_host(host: str) -> bool:
    if _read_address(host):
        return "%" not in host
    return bool(_HOST_NAME.fullmatch(host)) and not _NUMERIC_LABEL.fullmatch(
        host.rpartition(".")[2]
    )


def _read_address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text.strip("[]"))
    except ValueError:
        return None


def _split_port(entry: str) -> tuple[str, int | None]:
    """Return the host of an entry, and its port; `None` if it has none."""
    match = re.fullmatch(r"(\[[^\]]*\]|[^:]*)(?::(\d{1,5}))?", entry)
    if not match or (match[2] and not 0 < int(match[2]) < 65536):
        return "", None
    return match[1], int(match[2]) if match[2] else None


def _is_match(entry: str, host: str, port: int, standard: int) -> bool:
    name, entry_port = _split_port(entry)
    if port != (standard if entry_port is None else entry_port):
        return False
    if name.startswith("*."):
        return host.endswith(name[1:])
    return name == "*" or name.strip("[]") == host


_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})

Resolver = Callable[[str, int], Sequence[str]]
"""Returns the addresses of a host, for a port; raises `OSError` if there is none."""


def resolve_host(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a host, as the system resolves it."""
    infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(info[4][0]) for info in infos))


@dataclass(frozen=True, slots=True)
class FetchPolicy:
    """The limits of a fetch."""

    rules: HostRules
    max_bytes: int = 1_000_000
    timeout: float = 20.0  # seconds, for names, connections, redirects and the body together
    headers: Mapping[str, str] = field(default_factory=dict)
    resolve: Resolver = resolve_host

    def __post_init__(self) -> None:
        for name in ("max_bytes", "timeout"):
            if not getattr(self, name) > 0:
                why = "pass a number above 0"
                raise InvalidSetting("FetchPolicy", name, getattr(self, name), why)


@dataclass(frozen=True, slots=True)
class FetchedResponse:
    """The response to a GET request, after all redirects."""

    url: str
    status: int
    headers: Mapping[str, str]  # by names in lower case
    content: bytes


def fetch(url: str, policy: FetchPolicy) -> FetchedResponse:
    """Return the response to a GET request, of whatever status."""
    current = policy.rules.check_url(url)
    deadline = monotonic() + policy.timeout
    for _ in range(MAX_REDIRECTS + 1):
        with _translate_errors(str(current), policy.timeout):
            response = _request(current, policy, deadline)
        if response.status not in _REDIRECTS or "location" not in response.headers:
            return response
        current = check_redirect(current, response.headers["location"], policy.rules)
    raise fetch_failed(url, f"there are more than {MAX_REDIRECTS} redirects; fetch another page")


def check_redirect(current: httpx.URL, location: str, rules: HostRules) -> httpx.URL:
    """Return the URL that a redirect leads to, if it may be fetched."""
    import httpx

    try:
        joined = str(current.join(location))
    except (httpx.InvalidURL, ValueError) as error:
        raise address_refused(location, f"a redirect leads there, no URL ({error})") from error
    following = rules.check_url(joined)
    if current.scheme == "https" and following.scheme == "http":
        raise address_refused(joined, "a redirect leads from https to http; fetch it on its own")
    return following


def _request(url: httpx.URL, policy: FetchPolicy, deadline: float) -> FetchedResponse:
    import httpx

    def check(host: str, port: int, address: str) -> None:
        policy.rules.check_address(str(url), host, port, address)

    # No compression: a small body may grow a thousandfold.
    headers = {**policy.headers, "accept-encoding": "identity"}
    transport = CheckedTransport(CheckedBackend(policy.resolve, check, FetchDeadline(deadline)))
    with (
        # No proxies or credentials of the environment: what a proxy connects to cannot be checked.
        httpx.Client(transport=transport, trust_env=False) as http,
        http.stream("GET", url, headers=headers) as response,
    ):
        received = {name.lower(): value for name, value in response.headers.items()}
        body = b""
        if response.status_code not in _REDIRECTS or "location" not in received:
            body = _read_body(response, policy.max_bytes)
        return FetchedResponse(str(url), response.status_code, received, body)


def _read_body(response: httpx.Response, limit: int) -> bytes:
    url, headers = str(response.url), response.headers
    if headers.get("content-encoding", "identity") != "identity":
        why = f"its encoding is {headers['content-encoding']!r}, and none was asked for"
        raise fetch_failed(url, why)
    body = bytearray()
    for chunk in response.iter_raw():
        body += chunk
        if len(body) > limit:
            raise ToolRefusal(
                "the response of {url:short} is larger than {limit} bytes, the limit; fetch a "
                "smaller page, or a part of this one",
                code="response_too_large",
                url=url,
                limit=limit,
            )
    return bytes(body)


@contextmanager
def _translate_errors(url: str, timeout: float) -> Iterator[None]:
    import httpcore
    import httpx

    try:
        yield
    except (httpx.TimeoutException, httpcore.TimeoutException) as error:
        why = f"there is no whole response after {timeout:g} s, the limit; try later"
        raise fetch_failed(url, why) from error
    except (
        httpx.HTTPError,
        httpx.InvalidURL,
        httpcore.NetworkError,
        httpcore.ProtocolError,
        OSError,
    ) as error:
        why = f"{type(error).__name__}: {error}; check the address, or try later"
        raise fetch_failed(url, why) from error


_TEXT_TYPE: Final = re.compile(
    r"text/.+|application/(.+\+)?(json|xml|yaml|x-yaml|toml|javascript|x-ndjson|ecmascript)"
)
# Python knows encodings that are no character sets, and some that take quadratic time.
_CHARSET: Final = re.compile(
    r"(ascii|utf|iso8859|cp\d|koi8|mac|gb|big5|euc|shift|iso2022|johab|hz|tis|ptcp)[\w-]*"
)
_DECLARED_CHARSET: Final = re.compile(rb"""charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE)
_BYTE_ORDER_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class UrlInput(BaseModel):
    """What `http_get` takes."""

    url: str = Field(description="The whole URL, https://… or http://…")


def build_http_get(
    allow: Collection[str] = (),
    *,
    allow_private: Collection[str] = (),
    max_bytes: int = 1_000_000,
    timeout: float = 20.0,
    resolve: Resolver = resolve_host,
) -> BaseTool:
    """Return a tool that gets the text at a URL, from allowed hosts only.

    Of these, `Permissions(network=…)` grants an agent a part, redirects included.

    Private, loopback, link-local, reserved and multicast addresses are refused, in each notation
    and after each redirect. A page is untrusted text: an agent that reads pages should have only
    tools whose misuse does no harm, or which need an approval.

    Args:
        allow: The hosts: `"example.org"`, `"*.example.org"` for all below it, `"example.org:8080"`,
            or `"*"` for every public host. Without any, every URL is refused.
        allow_private: Hosts with ports that may have private addresses, `"127.0.0.1:8080"`. They
            need not be in `allow`. Set it in code, never from what a model says.
        max_bytes: Most bytes of a body.
        timeout: Seconds for the whole fetch.
        resolve: Returns the addresses of a host; by default the system's.

    Raises:
        InvalidSetting: An entry is no host, or a limit is not above 0.

    >>> get = build_http_get(allow=["example.org"])
    >>> print(get.invoke({"url": "http://169.254.169.254/latest/meta-data/"}))
    AddressRefused: 'http://169.254.169.254/latest/meta-data/' is not fetched: host ...
    """
    rules = HostRules(allow, allow_private)
    headers = {"user-agent": "echelons", "accept": "text/*, application/json, application/xml"}
    policy = FetchPolicy(rules, max_bytes, timeout, headers, resolve)

    @effect(reads_only=True)
    @raise_refusals
    def http_get(url: str, config: RunnableConfig) -> str:
        # The agent's grant holds for redirects too.
        grant = get_context(config).rights or ALL_GRANTED
        response = fetch(url.strip(), replace(policy, rules=replace(rules, grant=grant)))
        if not 200 <= response.status < 300:
            why = f"the server answers with status {response.status}"
            raise fetch_failed(response.url, why)
        return f"{response.url}\n\n{decode_response(response)}"

    hosts = ", ".join(sorted({*rules.allow, *rules.allow_private})) or "no host at all"
    return StructuredTool(
        name="http_get",
        description=f"Get the text of a web page by its URL. Allowed hosts: {hosts}.",
        args_schema=UrlInput,
        func=http_get,
        handle_tool_error=True,
    )


def decode_response(response: FetchedResponse) -> str:
    """Return the text of a response, in the character set that it names, or UTF-8."""
    kind, _, parameters = response.headers.get("content-type", "").partition(";")
    if kind and not _TEXT_TYPE.fullmatch(kind.strip().lower()):
        raise fetch_failed(response.url, f"it is {kind.strip()[:100]!r}; only text is returned")
    charset = _find_charset(parameters, response.content)
    if b"\0" in response.content and not charset.startswith(("utf-16", "utf-32")):
        raise fetch_failed(response.url, "it has zero bytes, so it is no text")
    return response.content.decode(charset, errors="replace")


def _find_charset(parameters: str, content: bytes) -> str:
    for mark, name in _BYTE_ORDER_MARKS:
        if content.startswith(mark):
            return name
    for declared in (parameters.encode("ascii", "replace"), content[:1024]):
        if match := _DECLARED_CHARSET.search(declared):
            try:
                name = codecs.lookup(match[1].decode("ascii")).name
            except (LookupError, ValueError):
                continue
            if _CHARSET.fullmatch(name):
                return name
    return "utf-8"
