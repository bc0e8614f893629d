"""The tool `http_get`: the text of a page on an allowed host.

A fetch is one GET request over at most five redirects, each checked, within a size and a time.
"""

from __future__ import annotations

import codecs
import re
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import TYPE_CHECKING, Final

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel, Field

from echelons.effects.journal import effect
from echelons.errors import InvalidSetting, ToolRefusal, address_refused, fetch_failed
from echelons.guards.permissions import ALL_GRANTED
from echelons.run_context import get_context
from echelons.tools.answers import raise_refusals
from echelons.tools.url_rules import HostRules

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

MAX_REDIRECTS: Final = 5
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

    from echelons.tools.checked_transport import CheckedBackend, CheckedTransport, FetchDeadline

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
        grant = get_context(config).grant or ALL_GRANTED
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
