# ruff: noqa: E501, RUF001  the look-alikes are what is tested
"""No hostile URL leads to a connection: each is refused by its text, or by its addresses."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address

import pytest

from echelons.errors import InvalidSetting
from echelons.tools.http_get import FetchPolicy, HostRules, fetch, is_public_address
from tests.error_codes import raises_code

PRIVATE = [
    "127.0.0.1", "127.0.0.53", "127.255.255.254", "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.0.1",
    "100.64.0.1", "100.127.255.254", "169.254.169.254", "169.254.0.1", "172.16.0.1",
    "172.31.255.1", "192.168.0.1", "192.168.255.255", "192.0.0.1", "192.0.0.9", "192.0.2.1",
    "192.88.99.1", "198.18.0.1", "198.19.255.1", "198.51.100.1", "203.0.113.1", "224.0.0.1",
    "239.255.255.250", "240.0.0.1", "255.255.255.255", "::1", "::", "::ffff:127.0.0.1",
    "::ffff:7f00:1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:8.8.8.8",
    "::127.0.0.1", "::7f00:1", "::ffff:0:127.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b::7f00:1",
    "64:ff9b::a00:1", "64:ff9b::808:808", "64:ff9b:1::7f00:1", "100::1", "2001::1",
    "2001:0:53aa:64c:0:fbff:80ff:fffe", "2001:10::1", "2001:20::1", "2001:db8::1",
    "2002:7f00:1::", "2002:a00:1::1", "3fff::1", "fc00::1", "fd00::1", "fd12:3456:789a::1",
    "fe80::1", "febf::1", "fec0::1", "ff02::1", "ff0e::1", "5f00::1", "4000::1",
]  # fmt: skip

PLACES = [f"[{each}]" if ":" in each else each for each in PRIVATE]

# Hosts that a browser, or a lenient resolver, reads as 127.0.0.1, 169.254.169.254 or 10.0.0.1.
DISGUISED = [
    "2130706433", "017700000001", "0x7f000001", "0x7F000001", "0x7f.0.0.1", "0177.0.0.1",
    "0177.0.0.01", "127.1", "127.0.1", "0", "0x0", "00", "0.0", "127.0.0.1.", "127.0.0.01",
    "127.000.000.001", "0x7f.1", "0177.1", "1.0x7f", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376",
    "169.254.43518", "0x0a000001", "167772161", "10.1", "012.0.0.1", "127.0.0.0x1", "0x7f.0x0.0x0.0x1",
    "4294967295", "4294967296", "18446744073709551617", "256.256.256.256", "127.0.0.1.1",
    "１２７.0.0.1", "127。0。0。1", "127．0．0．1", "①②⑦.0.0.1", "٠.0.0.1", "0x7f.0.0.",
    "[::1%25eth0]", "[fe80::1%25lo]", "[::1%lo]", "[::1]]", "[[::1]]", "[::1", "::1", "[0:0:0:0:0:0:0:1]",
    "[::ffff:0x7f.0.0.1]", "[::ffff:127.1]", "[v1.fe80::a]", "[]", "[127.0.0.1]", "[::ffff:0:0]",
    "localhost", "LOCALHOST", "LocalHost", "localhost.", "localhost..", "foo.localhost",
    "localhost.localdomain", "ip6-localhost", "metadata.google.internal", "metadata", "intranet",
    "router.local", "printer.lan", "ⓛocalhost", "ｌｏｃａｌｈｏｓｔ", "loca\u200blhost", "local\u00adhost",
    "%6c%6f%63%61%6c%68%6f%73%74", "127%2e0%2e0%2e1", "%31%32%37.0.0.1", "127.0.0.1%00.example.org",
    "127.0.0.1%2f.example.org", "localtest.me", "127.0.0.1.nip.io", "spoofed.invalid",
]  # fmt: skip

TRICKS = [
    # user names and passwords
    "http://example.org@127.0.0.1/", "http://example.org:80@127.0.0.1/", "http://@127.0.0.1/",
    "http://user:pass@example.org/", "http://user@example.org/", "http://:@example.org/",
    "http://@example.org/", "http://example.org%40127.0.0.1/", "http://a@b@example.org/",
    "http://example.org&@127.0.0.1/", "http://example.org;@127.0.0.1/",
    "http://127.0.0.1:80\\@example.org/", "http://example.org\\@127.0.0.1/",
    "http://example.org\\.127.0.0.1/", "http:\\\\127.0.0.1\\", "http:/\\127.0.0.1/",
    # fragments and queries in the place of a host
    "http://127.0.0.1#@example.org/", "http://127.0.0.1?@example.org/", "http://#example.org/",
    "http://?example.org/", "http://127.0.0.1#.example.org", "http://127.0.0.1/.example.org",
    "http://127.0.0.1;example.org/", "http:///127.0.0.1/", "http:////127.0.0.1/", "http:127.0.0.1",
    "http:/127.0.0.1", "http://", "http:", "//127.0.0.1/", "127.0.0.1", "/etc/passwd", "",
    # control characters, spaces, and lines of another request
    "http://example.org/\r\nHost: 127.0.0.1", "http://example.org/a b", "http://example.org\r\n.x/",
    "http://127.0.0.1\t/", "http://exa\tmple.org/", "http://exa\nmple.org/", "\x00http://127.0.0.1/",
    "http://example.org/\x00", "http://example.org/\x7f", "http://example.org/\u2028",
    "http://[::1]\r\n/", "http://127.0.0.1:80 80/", " http://127.0.0.1", "http ://127.0.0.1/",
    # other schemes
    "file:///etc/passwd", "FILE:///etc/passwd", "file://127.0.0.1/etc/passwd", "gopher://127.0.0.1/",
    "gopher://127.0.0.1:6379/_FLUSHALL", "dict://127.0.0.1:11211/stat", "ftp://example.org/",
    "ldap://127.0.0.1/", "tftp://127.0.0.1/", "sftp://127.0.0.1/", "data:text/plain,hello",
    "javascript:alert(1)", "jar:http://127.0.0.1!/", "netdoc:///etc/passwd", "ws://127.0.0.1/",
    "wss://example.org/", "unix:///var/run/docker.sock", "http+unix://%2Fvar%2Frun%2Fdocker.sock/",
    "php://filter/resource=x", "view-source:http://127.0.0.1/", "url:http://127.0.0.1/",
    "blob:http://127.0.0.1/", "about:blank", "mailto:a@example.org", "https+http://127.0.0.1/",
    # ports
    "http://example.org:22/", "http://example.org:25/", "http://example.org:6379/",
    "http://example.org:0/", "http://example.org:99999/", "http://example.org:-1/",
    "http://example.org:8080/", "https://example.org:80/", "http://example.org:443/",
    "http://example.org:80:80/", "http://example.org:0x50/", "http://example.org:８０/",
    # look-alikes of an allowed host
    "http://еxample.org/", "http://exаmple.org/", "http://example.оrg/", "http://ехаmple.org/",
    "http://exam\u200dple.org/", "http://example。org/", "http://example．org/", "http://eⅹample.org/",
    "http://example.org.evil.invalid/", "http://evil-example.org/", "http://evilexample.org/",
    "http://example.orgevil.invalid/", "http://xn--xample-2of.org/", "http://example.org./",
    "http://example..org/", "http://.example.org/", "http://-example.org/", "http://example.org-/",
    "http://sub.example.org/", "http://" + "a" * 64 + ".org/", "http://" + "a." * 200 + "org/",
    "http://example.org/" + "a" * 3000, "http://*.example.org/", "http://*/", "http://{127.0.0.1}/",
]  # fmt: skip

HOSTILE = [
    *(f"http://{each}/" for each in PLACES),
    *(f"https://{each}/latest/meta-data/" for each in DISGUISED),
    *TRICKS,
]


def resolve_leniently(host: str, port: int) -> Sequence[str]:
    """Return a private address for every host but one, as a hostile or a lenient resolver does."""
    return ["127.0.0.1"]


def test_there_are_two_hundred_hostile_urls() -> None:
    assert len(set(HOSTILE)) == len(HOSTILE) >= 200


@pytest.mark.parametrize("url", HOSTILE, ids=ascii)
@pytest.mark.parametrize("allow", [["example.org"], ["*"]], ids=["one", "every"])
def test_a_hostile_url_is_refused(url: str, allow: list[str]) -> None:
    with raises_code("address_refused"):
        fetch(url, FetchPolicy(HostRules(allow), resolve=resolve_leniently))


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_that_is_no_public_hosts_is_not_public(address: str) -> None:
    assert not is_public_address(ip_address(address))


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "93.184.215.14", "1.1.1.1", "2606:4700::1111", "2a00:1450:4001::200e"]
)
def test_a_public_address_is_public(address: str) -> None:
    assert is_public_address(ip_address(address))


@pytest.mark.parametrize("address", [*PRIVATE, "no address", "", "fe80::1%eth0", "127.1"])
def test_a_name_that_resolves_to_such_an_address_is_refused(address: str) -> None:
    policy = FetchPolicy(HostRules(["example.org"]), resolve=lambda host, port: [address])

    with raises_code("address_refused", match="leads to"):
        fetch("https://example.org/", policy)


def test_one_private_address_among_public_ones_is_enough() -> None:
    policy = FetchPolicy(
        HostRules(["example.org"]), resolve=lambda host, port: ["93.184.215.14", "10.0.0.1"]
    )

    with raises_code("address_refused", match=r"10\.0\.0\.1"):
        fetch("https://example.org/", policy)


@pytest.mark.parametrize(
    ("allow", "url"),
    [
        ("example.org", "http://example.org/"),
        ("example.org", "HTTPS://EXAMPLE.ORG:443/a?b=c#d"),
        ("*.example.org", "https://a.b.example.org/"),
        ("example.org:8080", "http://example.org:8080/"),
        ("*", "https://xn--bcher-kva.example/%C3%BC"),
        ("93.184.215.14", "http://93.184.215.14/"),
        ("[2606:4700::1111]", "http://[2606:4700::1111]/"),
        ("Example.ORG", "http://example.org/@a"),
    ],
)
def test_a_url_of_an_allowed_host_is_let_through_without_its_fragment(allow: str, url: str) -> None:
    assert not HostRules([allow]).check_url(url).fragment


@pytest.mark.parametrize(
    ("allow", "url"),
    [
        ("*.example.org", "http://example.org/"),
        ("example.org:8080", "http://example.org/"),
        ("*:8080", "http://example.org/"),
        ("", "http://example.org/"),
    ],
)
def test_a_url_of_another_host_is_refused_with_the_allowed_ones(allow: str, url: str) -> None:
    with raises_code("address_refused", match=f"allowed are: {'none' if not allow else ''}"):
        HostRules([allow] if allow else []).check_url(url)


@pytest.mark.parametrize("entry", ["", "http://example.org", "a b", "example.org:0", "127.1", "*x"])
def test_an_entry_that_is_no_host_is_refused(entry: str) -> None:
    with pytest.raises(InvalidSetting, match="pass hosts"):
        HostRules([entry])


@pytest.mark.parametrize("entry", ["127.0.0.1", "*", "*:80", "*.local:80", "http://127.0.0.1:80"])
def test_a_private_host_is_named_with_its_port_and_without_a_wildcard(entry: str) -> None:
    with pytest.raises(InvalidSetting, match="with their ports"):
        HostRules(allow_private=[entry])


def test_a_text_is_no_list_of_hosts() -> None:
    with pytest.raises(InvalidSetting, match="pass a list"):
        HostRules("example.org")
