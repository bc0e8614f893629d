"""A page is fetched from an allowed host, over checked redirects, within a size and a time."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from threading import Thread
from typing import Any

import httpx
import pytest
from langchain_core.messages import ToolMessage

from echelons import Agent, Permissions, Session
from echelons.delegation.effects import EffectKind, get_effect_kind
from echelons.errors import InvalidSetting
from echelons.testing import Call, ScriptedModel, delegate
from echelons.tools import build_http_get
from echelons.tools.http_get import HostRules, check_redirect
from tests.error_codes import raises_code
from tests.loopback_server import LoopbackServer, Reply


def get(server: LoopbackServer, path: str = "/", **settings: Any) -> str:
    """Return what the tool says of a path of the server."""
    tool = build_http_get(allow_private={server.place}, **settings)
    answer = tool.invoke({"url": f"{server.url}{path}"})
    assert isinstance(answer, str)
    return answer


def redirect(target: str, status: int = 302) -> Reply:
    return Reply(status=status, headers={"location": target})


def test_a_page_is_returned_with_its_address(server: LoopbackServer) -> None:
    server.replies["/page"] = Reply("Grüße".encode())

    assert get(server, "/page?a=1#part") == f"{server.url}/page?a=1\n\nGrüße"
    [(path, headers)] = server.seen
    assert path == "/page?a=1"
    assert headers["host"] == server.place
    assert headers["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        ("text/plain; charset=latin-1", b"Gr\xfc\xdfe", "Grüße"),
        ("text/html", b'<meta charset="windows-1252">\x80', '<meta charset="windows-1252">€'),
        ("text/plain", b"\xef\xbb\xbfbom", "bom"),
        ("text/plain", "wide".encode("utf-16"), "wide"),
        ("application/json", '{"a": "ä"}'.encode(), '{"a": "ä"}'),
        ("application/atom+xml", b"<feed/>", "<feed/>"),
        ("text/plain; charset=rot13", b"plain", "plain"),
        ("text/plain; charset=idna", b"plain", "plain"),
        ("text/plain; charset=unheard-of", b"plain", "plain"),
        ("text/plain; charset=utf-8", b"br\xffken", "br�ken"),
    ],
)
def test_a_text_is_decoded_by_what_it_says_of_itself(
    server: LoopbackServer, kind: str, body: bytes, text: str
) -> None:
    server.replies["/"] = Reply(body, headers={"content-type": kind})

    assert get(server).partition("\n\n")[2] == text


@pytest.mark.parametrize(
    ("kind", "body"),
    [("image/png", b"\x89PNG"), ("application/octet-stream", b"x"), ("text/plain", b"a\0b")],
)
def test_what_is_no_text_is_refused(server: LoopbackServer, kind: str, body: bytes) -> None:
    server.replies["/"] = Reply(body, headers={"content-type": kind})

    assert "FetchFailed" in get(server)
    assert "text" in get(server)


def test_unrequested_compressed_body_is_refused(server: LoopbackServer) -> None:
    server.replies["/"] = Reply(b"\x1f\x8b", headers={"content-encoding": "gzip"})

    assert "its encoding is 'gzip'" in get(server)


@pytest.mark.parametrize("status", [400, 403, 404, 429, 500, 503])
def test_status_of_an_error_is_reported(server: LoopbackServer, status: int) -> None:
    server.replies["/"] = Reply(b"secret page", status)

    assert f"status {status}" in get(server)
    assert "secret" not in get(server)


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "streamed"])
def test_a_body_of_fifty_megabytes_is_cut(server: LoopbackServer, declared: bool) -> None:
    sent = []

    def stream() -> Iterator[bytes]:
        for _ in range(50):
            sent.append(1)
            yield b"x" * 1_000_000

    length = {"content-length": "50000000"} if declared else {}
    server.replies["/"] = Reply(stream, headers={"content-type": "text/plain", **length})

    answer = get(server, max_bytes=100_000)
    assert answer.startswith("ResponseTooLarge: ")
    assert "larger than 100000 bytes, the limit" in answer
    assert len(sent) < 50


def test_a_body_of_exactly_the_limit_is_returned(server: LoopbackServer) -> None:
    server.replies["/"] = Reply(b"x" * 1000)

    assert get(server, max_bytes=1000).endswith("x" * 1000)
    assert "ResponseTooLarge" in get(server, max_bytes=999)


def test_a_server_that_hangs_is_left(server: LoopbackServer) -> None:
    server.replies["/"] = Reply(server.hang, headers={"content-type": "text/plain"})

    assert "no whole response after 0.2 s, the limit" in get(server, timeout=0.2)


def test_a_server_that_sends_a_byte_now_and_then_is_left_as_well(server: LoopbackServer) -> None:
    server.replies["/"] = Reply(server.drip, headers={"content-type": "text/plain"})

    assert "no whole response after 0.3 s, the limit" in get(server, timeout=0.3)


def test_a_resolver_that_hangs_is_left(server: LoopbackServer) -> None:
    def resolve(host: str, port: int) -> Sequence[str]:
        server.released.wait(30)
        return []

    answer = build_http_get(["example.org"], timeout=0.2, resolve=resolve).invoke(
        {"url": "https://example.org"}
    )
    assert "no whole response after 0.2 s" in answer


def test_a_redirect_is_followed(server: LoopbackServer) -> None:
    server.replies |= {"/a": redirect("/b?x=1"), "/b": Reply(b"there")}

    assert get(server, "/a") == f"{server.url}/b?x=1\n\nthere"


@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.1:1/",
        "http://localhost/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://2130706433/",
        "//10.0.0.1/",
        "file:///etc/passwd",
        "gopher://127.0.0.1/",
        "http://user@example.org/",
    ],
)
def test_a_redirect_to_a_private_address_is_refused(server: LoopbackServer, target: str) -> None:
    server.replies["/"] = redirect(target)

    assert get(server, allow=["*"]).startswith("AddressRefused: ")
    assert len(server.seen) == 1


def test_a_redirect_to_a_host_that_is_not_allowed_is_refused(server: LoopbackServer) -> None:
    server.replies["/"] = redirect("https://example.com/")

    assert "'example.com' with port 443 is not allowed" in get(server, allow=["example.org"])


def test_a_redirect_is_checked_at_each_hop(server: LoopbackServer) -> None:
    server.replies |= {"/a": redirect("/b"), "/b": redirect("http://192.168.0.1/")}

    assert get(server, "/a", allow=["*"]).startswith("AddressRefused: 'http://192.168.0.1/'")


@pytest.mark.parametrize("location", ["http://example.org/", "http://[", "https://a b.org/\x00"])
def test_a_redirect_that_leaves_https_or_is_no_url_is_refused(location: str) -> None:
    rules = HostRules(["*"])
    start = httpx.URL("https://example.org/a")

    assert check_redirect(start, "../b", rules) == httpx.URL("https://example.org/b")
    with raises_code("address_refused"):
        check_redirect(start, location, rules)


def test_more_than_five_redirects_are_refused(server: LoopbackServer) -> None:
    for i in range(6):
        server.replies[f"/{i}"] = redirect(f"/{i + 1}")
    server.replies["/6"] = Reply(b"far")

    assert get(server, "/1").endswith("far")
    assert "more than 5 redirects" in get(server, "/0")


def test_a_name_is_resolved_once_and_connected_to_where_it_was_checked(
    server: LoopbackServer,
) -> None:
    resolved: list[str] = []

    def resolve(host: str, port: int) -> Sequence[str]:
        resolved.append(host)
        return ["127.0.0.1"] if len(resolved) == 1 else ["127.0.0.2"]

    server.replies["/"] = Reply(b"pinned")
    place = f"pinned.test:{server.port}"
    tool = build_http_get(allow_private={place}, resolve=resolve)

    assert tool.invoke({"url": f"http://{place}/"}).endswith("pinned")
    assert resolved == ["pinned.test"]
    assert server.seen[0][1]["host"] == place


def test_a_redirect_to_a_name_with_a_private_address_is_refused(server: LoopbackServer) -> None:
    answers = {"rebound.example.org": ["127.0.0.1"], "start.test": ["127.0.0.1"]}
    server.replies["/"] = redirect("http://rebound.example.org/")
    place = f"start.test:{server.port}"
    tool = build_http_get(
        ["*.example.org"], allow_private={place}, resolve=lambda host, port: answers[host]
    )

    answer = tool.invoke({"url": f"http://{place}/"})
    assert "'rebound.example.org' leads to 127.0.0.1, not a public address" in answer


def test_the_next_address_is_tried_if_one_refuses(server: LoopbackServer) -> None:
    server.replies["/"] = Reply(b"second")
    place = f"two.test:{server.port}"
    tool = build_http_get(
        allow_private={place}, resolve=lambda host, port: ["127.0.0.2", "127.0.0.1"]
    )

    assert tool.invoke({"url": f"http://{place}/"}).endswith("second")


def test_the_name_of_the_host_is_asked_for_in_tls(server: LoopbackServer) -> None:
    names: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sni_callback = lambda connection, name, _: names.append(name)
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        connection, _ = listener.accept()
        with closing(connection):
            with suppress(OSError):
                context.wrap_socket(connection, server_side=True)

    thread = Thread(target=accept)
    thread.start()
    place = f"named.test:{listener.getsockname()[1]}"
    tool = build_http_get(allow_private={place}, resolve=lambda host, port: ["127.0.0.1"])
    answer = tool.invoke({"url": f"https://{place}/"})
    thread.join()
    listener.close()

    assert answer.startswith("FetchFailed: ")
    assert names == ["named.test"]


@pytest.mark.parametrize("raised", [OSError("no such host"), KeyError("host"), None])
def test_unresolvable_host_name_is_reported(raised: Exception | None) -> None:
    def resolve(host: str, port: int) -> Sequence[str]:
        if raised:
            raise raised
        return []

    answer = build_http_get(["example.org"], resolve=resolve).invoke({"url": "http://example.org"})
    assert answer.startswith("FetchFailed: ")
    assert "'example.org'" in answer


def test_server_without_http_is_reported() -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        connection, _ = listener.accept()
        with closing(connection):
            connection.recv(1000)
            connection.sendall(b"SSH-2.0-OpenSSH_9\r\n\r\n")

    thread = Thread(target=accept)
    thread.start()
    place = f"127.0.0.1:{listener.getsockname()[1]}"
    answer = build_http_get(allow_private={place}).invoke({"url": f"http://{place}/"})
    thread.join()
    listener.close()

    assert "FetchFailed: " in answer
    assert "RemoteProtocolError" in answer


def test_a_proxy_of_the_environment_is_not_used(
    server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    server.replies["/"] = Reply(b"direct")

    assert get(server).endswith("direct")


def test_by_default_every_url_is_refused() -> None:
    tool = build_http_get()

    assert "no host at all" in tool.description
    assert "allowed are: none" in tool.invoke({"url": "https://example.org/"})


@pytest.mark.parametrize("wrong", [{"max_bytes": 0}, {"timeout": -1.0}])
def test_a_limit_must_be_above_zero(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting, match="pass a number above 0"):
        build_http_get(**wrong)


def test_an_agent_reads_the_refusal_and_goes_on(server: LoopbackServer) -> None:
    server.replies["/"] = Reply(b"the page")
    urls = ["http://169.254.169.254/", f"{server.url}/"]
    calls = [Call("http_get", {"url": url}) for url in urls]
    model = ScriptedModel([*calls, "done"])
    agent = Agent("reader", model=model, tools=[build_http_get(allow_private={server.place})])

    messages = agent.compile().invoke({"messages": [("user", "Read")]})["messages"]
    refused, read = [str(each.content) for each in messages if isinstance(each, ToolMessage)]
    assert refused.startswith("AddressRefused: 'http://169.254.169.254/' is not fetched")
    assert read.endswith("the page")
    assert messages[-1].text == "done"


def test_fetching_is_declared_to_change_nothing() -> None:
    assert get_effect_kind(build_http_get()) is EffectKind.READS_ONLY


@pytest.mark.parametrize(
    ("network", "told"),
    [(("127.0.0.1",), "hello"), (("example.org",), "is not granted"), ((), "is not granted")],
)
def test_an_agent_reaches_only_the_hosts_that_it_is_granted(
    server: LoopbackServer, network: tuple[str, ...], told: str
) -> None:
    server.replies["/"] = Reply(b"hello")
    tool = build_http_get(allow_private={server.place})
    model = ScriptedModel(
        {
            "head": [delegate("reader", "read it"), "done"],
            "reader": [Call("http_get", {"url": f"{server.url}/"}), "read"],
        }
    )
    reader = Agent("reader", tools=[tool])
    rules = Permissions(network=network)
    head = Agent("head", model=model, subordinates=[reader], permissions=rules)
    with Session(head, ":memory:") as session:
        session.send("go").result()
    assert told in str(model.calls[-2].messages[-1].text)
