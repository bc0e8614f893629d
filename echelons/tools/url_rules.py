"""Which URLs and addresses may be fetched. Pure: nothing here resolves a name or connects.

There are two gates. `HostRules.check_url` looks at the text of a URL, before its host is resolved;
`HostRules.check_address` looks at each address that the host resolves to, before a connection.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Final

from echelons.errors import InvalidSetting, address_refused, missing_extra
from echelons.guards.permissions import ALL_GRANTED, Grant

if TYPE_CHECKING:
    import httpx

MAX_URL_LENGTH: Final = 2048
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
