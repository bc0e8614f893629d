"""Each provider is a tool; whatever its server does becomes hits, none, or a reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from ddgs.engines.mojeek import Mojeek
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool

from echelons.errors import EchelonsError
from echelons.teams.search import (
    ArxivProvider,
    GithubProvider,
    SearchProvider,
    WebProvider,
    WikipediaProvider,
    search_arxiv,
    search_folder,
    search_github,
    search_web,
    search_wikipedia,
)
from echelons.teams.search.providers import LONGEST_WAIT, USER_AGENT, read_wait
from tests.echelons.teams.search import replies
from tests.error_codes import raises_code
from tests.loopback_server import LoopbackServer, Reply

PROVIDERS: list[Callable[..., SearchProvider]] = [WikipediaProvider, GithubProvider, ArxivProvider]
FACTORIES = [search_wikipedia, search_github, search_arxiv]
EMPTY = [replies.wikipedia(), replies.github(), replies.arxiv()]


def find(provider: Callable[..., Any], server: LoopbackServer, **settings: Any) -> list[Any]:
    made = provider(base_url=f"{server.url}/api", **settings)
    return list(made.find_hits("tides", 0.0))


def fail(provider: Callable[..., Any], server: LoopbackServer, **settings: Any) -> EchelonsError:
    with raises_code("search_failed") as raised:
        find(provider, server, **settings)
    return raised.value


def parameters(server: LoopbackServer) -> dict[str, list[str]]:
    return parse_qs(urlsplit(server.seen[-1][0]).query)


def test_wikipedia_is_searched(server: LoopbackServer) -> None:
    server.replies["/api"] = replies.wikipedia("Tide", "C++ (a language)")

    tide, language = find(WikipediaProvider, server)
    assert tide.title == "Tide"
    assert tide.source == f"{server.url}/wiki/Tide"
    assert tide.snippet == "About Tide & more"
    assert language.source == f"{server.url}/wiki/C%2B%2B_(a_language)"
    assert parameters(server)["srsearch"] == ["tides"]
    assert server.seen[0][1]["user-agent"] == USER_AGENT
    find(WikipediaProvider, server, contact="a@b.org")
    assert server.seen[1][1]["user-agent"] == f"{USER_AGENT} (a@b.org)"


def test_github_is_searched(server: LoopbackServer) -> None:
    server.replies["/api"] = replies.github("a/retry")

    [hit] = find(GithubProvider, server, token="secret")
    assert hit.title == "a/retry"
    assert hit.source == "https://github.com/a/retry"
    assert hit.snippet == "A library for retries · Python · 42 stars"
    assert server.seen[0][1]["authorization"] == "Bearer secret"
    assert "secret" not in repr(GithubProvider(token="secret"))


def test_arxiv_is_searched(server: LoopbackServer) -> None:
    server.replies["/api"] = replies.arxiv("Tides")

    [hit] = find(ArxivProvider, server)
    assert hit.title == "Tides in two lines"
    assert hit.source == "http://arxiv.org/abs/2601.00001v1"
    assert hit.snippet == "A. One, B. Two, C. Three et al. 2026 · We study Tides."
    assert parameters(server)["search_query"] == ["all:tides"]


@pytest.mark.parametrize(("factory", "empty"), list(zip(FACTORIES, EMPTY, strict=True)))
def test_a_provider_alone_is_a_tool(
    server: LoopbackServer, factory: Callable[..., BaseTool], empty: Reply
) -> None:
    tool = factory(base_url=f"{server.url}/api")
    server.replies["/api"] = empty
    name = tool.name.removeprefix("search_")

    assert tool.invoke({"query": "tides"}) == f"{name} finds nothing."
    server.replies["/api"] = Reply(status=500)
    failed = tool.invoke(
        {"type": "tool_call", "name": tool.name, "args": {"query": "x"}, "id": "1"}
    )
    assert isinstance(failed, ToolMessage)
    assert failed.status == "error"
    assert failed.text.startswith(f"SearchFailed: {name} cannot be asked")
    assert "query: " in tool.invoke({"query": " "})


def test_an_answer_has_its_sources_as_an_artifact(server: LoopbackServer) -> None:
    server.replies["/api"] = replies.github("a/retry")
    tool = search_github(base_url=f"{server.url}/api")

    message = tool.invoke({"type": "tool_call", "name": "t", "args": {"query": "x"}, "id": "1"})
    assert "1. a/retry\n   A library for retries" in message.text
    assert message.artifact["citations"] == [
        {"title": "a/retry", "source": "https://github.com/a/retry"}
    ]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    ("status", "headers", "wait"),
    [
        (429, {"retry-after": "120"}, 120.0),
        (403, {"retry-after": "Thu, 01 Jan 1970 00:02:00 GMT"}, 120.0),
        (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "60"}, 60.0),
        (503, {"retry-after": "7"}, 7.0),
        (403, {}, 0.0),
        (500, {}, 0.0),
        (204, {}, 0.0),
    ],
)
def test_another_status_is_a_reason_with_the_wait_that_the_server_asks_for(
    server: LoopbackServer,
    provider: Callable[..., SearchProvider],
    status: int,
    headers: dict[str, str],
    wait: float,
) -> None:
    server.replies["/api"] = Reply(b"", status, headers)

    failed = fail(provider, server)
    assert failed.wait == wait
    assert f"status {status}" in str(failed)
    assert (f"ask again in {wait:g} s" in str(failed)) is bool(wait)


@pytest.mark.parametrize("given", ["soon", "-5", "1e9", "٣", "Thu, 99 Foo", "9" * 400, ""])
def test_a_wait_that_makes_no_sense_is_none_and_a_long_one_is_cut(given: str) -> None:
    assert read_wait({"retry-after": given}, 0.0) in (0.0, LONGEST_WAIT)


def stream_fifty_megabytes() -> Iterator[bytes]:
    yield from (b"x" * 1_000_000 for _ in range(50))


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    "reply",
    [
        Reply(b"<html>Sign in</html>"),
        Reply(b""),
        Reply(b"\xff\xfe\x00"),
        Reply(b"[" * 100_000),
        Reply(b"[]"),
        Reply(b'"text"'),
        Reply(b"{}"),
        Reply(b'{"query": [], "items": {}}'),
        Reply(b'{"query": {"search": 5}, "items": null}'),
        Reply(b"<feed/>"),
        Reply(b'<!DOCTYPE a [<!ENTITY b "c">]><feed>&b;</feed>'),
        Reply('<!DOCTYPE a [<!ENTITY b "c">]><feed>&b;</feed>'.encode("utf-16")),
        Reply(stream_fifty_megabytes),
        Reply(status=302, headers={"location": "/api"}),
        Reply(status=302, headers={"location": "http://10.0.0.1/"}),
        Reply(status=302, headers={"location": "file:///etc/passwd"}),
    ],
    ids=lambda reply: ascii(reply.headers.get("location") or str(reply.body)[:20]),
)
def test_garbage_is_a_reason(
    server: LoopbackServer, provider: Callable[..., SearchProvider], reply: Reply
) -> None:
    server.replies["/api"] = reply

    assert str(fail(provider, server)).startswith(f"{provider().name} cannot be asked: ")


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_server_that_hangs_is_a_reason(
    server: LoopbackServer, provider: Callable[..., SearchProvider]
) -> None:
    server.replies["/api"] = Reply(server.hang)

    assert "no whole response after 0.2 s" in str(fail(provider, server, timeout=0.2))


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_server_that_is_not_there_is_a_reason(provider: Callable[..., Any]) -> None:
    with raises_code("search_failed", match="ConnectError"):
        provider(base_url="http://127.0.0.1:1/api").find_hits("tides", 0.0)


def test_a_feed_that_declares_entities_is_a_reason(server: LoopbackServer) -> None:
    feed = replies.arxiv("&tides;").body
    assert isinstance(feed, bytes)
    declared = b'?><!DOCTYPE feed [<!ENTITY tides "T"><!ENTITY file SYSTEM "file:///etc/passwd">]>'
    server.replies["/api"] = Reply(feed.replace(b"?>", declared, 1))

    assert "declares entities" in str(fail(ArxivProvider, server))


def test_rows_that_make_no_sense_are_left_out(server: LoopbackServer) -> None:
    server.replies["/api"] = Reply(
        b'{"items": [5, null, {}, {"full_name": "a", "html_url": "javascript:alert(1)"},'
        b' {"full_name": ["b"], "html_url": "https://github.com/b", "stargazers_count": {}}],'
        b' "query": {"search": [5, {}, {"title": "T", "snippet": 7}]}}'
    )

    assert [each.source for each in find(GithubProvider, server)] == ["https://github.com/b"]
    assert [each.title for each in find(WikipediaProvider, server)] == ["T"]


def test_an_error_in_a_valid_response_is_a_reason(server: LoopbackServer) -> None:
    server.replies["/api"] = Reply(b'{"error": {"code": "badvalue", "info": "No such"}}')
    assert "No such" in str(fail(WikipediaProvider, server))
    server.replies["/api"] = replies.arxiv(error="incorrect id format")
    assert "incorrect id format" in str(fail(ArxivProvider, server))


@pytest.fixture
def engine(server: LoopbackServer, monkeypatch: pytest.MonkeyPatch) -> LoopbackServer:
    """Let an engine of ddgs, the real one, ask the server of the test."""
    monkeypatch.setattr(Mojeek, "search_url", f"{server.url}/search")
    return server


def test_the_web_is_searched(engine: LoopbackServer) -> None:
    engine.replies["/search"] = replies.mojeek("tides", "moon")

    tool = search_web(engines=["mojeek"])
    answer = tool.invoke({"query": "tides of the moon"})
    assert "https://example.org/tides (web)" in answer
    assert "https://example.org/moon (web)" in answer


@pytest.mark.parametrize("reply", [replies.mojeek(), Reply(b"<html>"), Reply(status=500)])
def test_an_engine_without_results_finds_nothing(engine: LoopbackServer, reply: Reply) -> None:
    engine.replies["/search"] = reply

    assert list(WebProvider(["mojeek"]).find_hits("tides", 0.0)) == []


def test_an_engine_that_cannot_be_reached_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mojeek, "search_url", "http://127.0.0.1:1/search")

    with raises_code("search_failed", match="web cannot be asked"):
        WebProvider(["mojeek"]).find_hits("tides", 0.0)


def test_every_engine_is_in_ddgs() -> None:
    from ddgs.engines import ENGINES

    assert set(WebProvider().engines) <= set(ENGINES["text"])
    assert not {"google", "bing", "sogou", "yandex"} & set(ENGINES["text"])


def test_a_folder_is_searched(notes: Any) -> None:
    tool = search_folder(notes)

    answer = tool.invoke({"query": "When do spring tides come?"})
    assert "Spring tides come at new moon and full moon." in answer
    assert "— sea/tides.md:5 (folder)" in answer
    assert tool.invoke({"query": "Who is king?"}) == "folder finds nothing."
    assert tool.invoke({"query": "?"}) == "folder finds nothing."
