"""The tool `http_get`: the text of a page on an allowed host."""

from __future__ import annotations

import codecs
import re
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel, Field

from echelons.effects.journal import effect
from echelons.errors import FetchFailed
from echelons.guards.permissions import ALL_GRANTED, GRANT_KEY
from echelons.tools.answers import raise_refusals
from echelons.tools.guarded_fetch import (
    FetchedResponse,
    FetchPolicy,
    Resolver,
    fetch,
    resolve_host,
)
from echelons.tools.url_rules import HostRules

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
    and after each redirect. What a page says is the text of a stranger: an agent that reads pages
    should have no tool whose misuse would matter, or one that needs an approval.

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
        # What its agent is granted, each redirect included.
        grant = (config.get("configurable") or {}).get(GRANT_KEY, ALL_GRANTED)
        own = replace(policy, rules=replace(rules, grant=grant))
        found = fetch(url.strip(), own)
        if not 200 <= found.status < 300:
            raise FetchFailed(found.url, f"the server answers with status {found.status}")
        return f"{found.url}\n\n{decode_response(found)}"

    hosts = ", ".join(sorted({*rules.allow, *rules.allow_private})) or "no host at all"
    return StructuredTool(
        name="http_get",
        description=f"Get the text of a web page by its URL. Allowed hosts: {hosts}.",
        args_schema=UrlInput,
        func=http_get,
        handle_tool_error=True,
    )


def decode_response(response: FetchedResponse) -> str:
    """Return the text of a response, in the character set that it names, or UTF-8.

    Raises:
        FetchFailed: It is no text.
    """
    kind, _, parameters = response.headers.get("content-type", "").partition(";")
    if kind and not _TEXT_TYPE.fullmatch(kind.strip().lower()):
        raise FetchFailed(response.url, f"it is {kind.strip()[:100]!r}; only text is returned")
    charset = _find_charset(parameters, response.content)
    if b"\0" in response.content and not charset.startswith(("utf-16", "utf-32")):
        raise FetchFailed(response.url, "it has zero bytes, so it is no text")
    return response.content.decode(charset, errors="replace")


def _find_charset(parameters: str, content: bytes) -> str:
    for mark, name in _BYTE_ORDER_MARKS:
        if content.startswith(mark):
            return name
    for declared in (parameters.encode("ascii", "replace"), content[:1024]):
        if found := _DECLARED_CHARSET.search(declared):
            try:
                name = codecs.lookup(found[1].decode("ascii")).name
            except (LookupError, ValueError):
                continue
            if _CHARSET.fullmatch(name):
                return name
    return "utf-8"
