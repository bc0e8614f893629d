"""Providers are asked down the list; a failure has a reason, and the next one is asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from echelons.errors import missing_extra
from echelons.guards.circuit_breaker import BreakerPolicy
from echelons.teams.search import (
    ArxivProvider,
    FolderProvider,
    GithubProvider,
    SearchHit,
    SearchProvider,
    SearchService,
    WikipediaProvider,
    build_search_tool,
)
from tests.echelons.teams.search import replies
from tests.error_codes import raises_code
from tests.loopback_server import LoopbackServer, Reply


class Clock:
    """A clock that stands still until it is moved."""

    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class OwnProvider:
    """A provider of a caller, which returns hits or raises."""

    description = "Own."
    address = "here"
    interval = 0.0
    cached = True

    def __init__(self, name: str, answer: Sequence[SearchHit] | BaseException) -> None:
        self.name = name
        self.answer = answer
        self.asked = 0

    def find_hits(self, query: str, now: float) -> Sequence[SearchHit]:
        self.asked += 1
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


HIT = SearchHit("Own", "https://own.example", "", ("own",))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def providers(server: LoopbackServer) -> list[SearchProvider]:
    """Return three providers, each at a path of the server."""
    return [
        WikipediaProvider(f"{server.url}/wikipedia"),
        GithubProvider(f"{server.url}/github"),
        ArxivProvider(f"{server.url}/arxiv"),
    ]


def asked(server: LoopbackServer) -> list[str]:
    return [path.partition("?")[0] for path, _ in server.seen]


def test_code_is_searched_on_github(
    server: LoopbackServer, providers: list[SearchProvider]
) -> None:
    server.replies["/github"] = replies.github("a/retry")

    text, artifact = SearchService(providers).search("python retry library")
    assert text.startswith("1. a/retry\n")
    assert artifact["citations"][0]["source"] == "https://github.com/a/retry"
    assert asked(server) == ["/github"]


def test_knowledge_is_searched_in_wikipedia_and_arxiv(
    server: LoopbackServer, providers: list[SearchProvider]
) -> None:
    server.replies |= {"/wikipedia": replies.wikipedia("Tide"), "/arxiv": replies.arxiv("Tides")}

    text, _ = SearchService(providers).search("papers on tides")
    assert "1. Tide\n" in text
    assert "2. Tides in two lines\n" in text
    assert asked(server) == ["/wikipedia", "/arxiv"]


def test_failure_beside_an_answer_is_reported_with_it(
    server: LoopbackServer, providers: list[SearchProvider]
) -> None:
    server.replies |= {"/wikipedia": replies.wikipedia("Tide"), "/arxiv": Reply(status=500)}

    text, _ = SearchService(providers).search("papers on tides")
    assert text.startswith("1. Tide\n")
    assert "\nWithout arxiv: arxiv cannot be asked: its server does not answer (status 500)" in text


def test_the_next_provider_is_asked_if_the_first_fails(
    server: LoopbackServer, providers: list[SearchProvider]
) -> None:
    server.replies |= {
        "/github": Reply(status=429, headers={"retry-after": "60"}),
        "/wikipedia": replies.wikipedia("Retry"),
    }

    text, _ = SearchService(providers).search("python retry library")
    assert text.startswith("1. Retry\n")
    assert "Without github: github cannot be asked: it limits or refuses requests" in text


def test_the_third_provider_is_asked_if_two_fail(
    server: LoopbackServer, providers: list[SearchProvider]
) -> None:
    server.replies |= {"/github": Reply(b"garbage"), "/wikipedia": replies.wikipedia("Retry")}
    web = OwnProvider("web", OSError("no engine"))

    text, _ = SearchService([*providers, web]).search("python retry library")
    assert text.startswith("1. Retry\n")
    assert "Without github: github cannot be asked: its answer is no JSON" in text
    assert "Without web: web cannot be asked: OSError: no engine" in text
    assert asked(server) == ["/github", "/wikipedia"]


def test_if_all_fail_the_answer_names_each_with_its_reason(
    server: LoopbackServer, providers: list[SearchProvider]
) -> None:
    server.replies |= {
        "/github": Reply(status=403, headers={"retry-after": "60"}),
        "/wikipedia": replies.wikipedia(),
    }
    web = OwnProvider("web", missing_extra("search", "ddgs"))
    tool = build_search_tool(SearchService([*providers, web]))

    answer = tool.invoke({"query": "python retry library"})
    assert answer == (
        "NothingFound: nothing is found for 'python retry library': github: github cannot be "
        "asked: it limits or refuses requests (status 403); ask again in 60 s; web: the package "
        "'ddgs' is not installed; pip install 'echelons[search]'; wikipedia: it finds nothing; "
        "ask in other words, or later"
    )


def test_without_providers_nothing_is_found() -> None:
    with raises_code("nothing_found", match="there is no provider"):
        SearchService([]).search("tides")


def test_a_folder_is_asked_before_the_network(
    server: LoopbackServer, providers: list[SearchProvider], notes: Path
) -> None:
    service = SearchService([*providers, FolderProvider(notes)])
    server.replies["/wikipedia"] = replies.wikipedia("Volcano")

    assert "— sea/tides.md:5 (folder)" in service.search("When do spring tides come?")[0]
    assert asked(server) == []
    assert service.search("Where are volcanoes?")[0].startswith("1. Volcano\n")


def test_a_provider_is_left_alone_as_long_as_it_asks(
    server: LoopbackServer, providers: list[SearchProvider], clock: Clock
) -> None:
    server.replies["/github"] = Reply(status=429, headers={"retry-after": "60"})
    service = SearchService(providers[1:2], clock=clock)

    for seconds, requests in [(0, 1), (59, 1), (61, 2)]:
        clock.now = Clock.now + seconds
        with raises_code("nothing_found"):
            service.search("python retry library")
        assert len(server.seen) == requests


def test_a_provider_that_fails_three_times_is_left_alone_for_a_while(clock: Clock) -> None:
    own = OwnProvider("own", ValueError("broken"))
    service = SearchService([own], clock=clock, breaker=BreakerPolicy(failures=3, seconds=60))

    for _ in range(4):
        with raises_code("nothing_found"):
            service.search("tides")
    with raises_code("nothing_found", match="failed 3 times in a row; ask again in 60 s"):
        service.search("tides")
    assert own.asked == 3

    clock.now += 61
    own.answer = [HIT]
    assert service.search("tides")[0].startswith("1. Own")
    assert service.search("tides")[0].startswith("1. Own")


def test_each_provider_has_a_breaker_of_its_own(clock: Clock) -> None:
    broken, sound = OwnProvider("broken", ValueError()), OwnProvider("sound", [HIT])
    service = SearchService([broken, sound], clock=clock)

    for _ in range(5):
        assert service.search("tides")[0].startswith("1. Own")
    assert (broken.asked, sound.asked) == (3, 5)


def test_arxiv_is_asked_once_in_three_seconds(
    server: LoopbackServer, providers: list[SearchProvider], clock: Clock
) -> None:
    server.replies["/arxiv"] = replies.arxiv("Tides")
    service = SearchService(providers[2:], clock=clock)

    service.search("papers on tides")
    with raises_code("nothing_found", match="left alone for a while; ask again in 3 s"):
        service.search("papers on moons")
    clock.now += 3
    service.search("papers on moons")
    assert len(server.seen) == 2


def test_an_interrupt_is_no_failure_of_the_provider(clock: Clock) -> None:
    own = OwnProvider("own", KeyboardInterrupt())
    service = SearchService([own], clock=clock)

    for _ in range(5):
        with pytest.raises(KeyboardInterrupt):
            service.search("tides")
    assert own.asked == 5


def test_hits_are_cached_for_a_day(tmp_path: Path, clock: Clock) -> None:
    own = OwnProvider("own", [HIT])

    for seconds, requests in [(0, 1), (10, 1), (86_401, 2)]:
        clock.now = Clock.now + seconds
        # Another process has the cache as well.
        service = SearchService([own], cache=tmp_path / "cache", clock=clock)
        assert service.search("The  Tides")[0] == service.search("the tides")[0]
        assert own.asked == requests


def test_a_cached_hit_is_used_while_the_provider_fails(tmp_path: Path, clock: Clock) -> None:
    own = OwnProvider("own", [HIT])
    service = SearchService([own], cache=tmp_path, clock=clock)
    first = service.search("tides")

    own.answer = ValueError("down")
    assert service.search("tides") == first
    with raises_code("nothing_found"):
        service.search("moons")


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'[1, [{"title": 5}]]', b"[" * 99_999])
def test_a_damaged_cache_is_as_good_as_none(tmp_path: Path, clock: Clock, content: bytes) -> None:
    own = OwnProvider("own", [HIT])
    service = SearchService([own], cache=tmp_path, clock=clock)
    service.search("tides")
    for file in tmp_path.iterdir():
        file.write_bytes(content)

    assert service.search("tides")[0].startswith("1. Own")
    assert own.asked == 2


def test_a_cache_that_cannot_be_written_is_left_out(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "file").write_text("no folder")
    service = SearchService([OwnProvider("own", [HIT])], cache=tmp_path / "file", clock=clock)

    assert service.search("tides")[0].startswith("1. Own")


def test_neither_failures_nor_empty_answers_nor_folders_are_cached(
    tmp_path: Path, notes: Path, clock: Clock
) -> None:
    cache = tmp_path / "cache"
    service = SearchService(
        [OwnProvider("own", []), OwnProvider("bad", ValueError()), FolderProvider(notes)],
        cache=cache,
        clock=clock,
    )
    service.search("When do spring tides come?")

    assert not cache.exists()


def test_a_provider_that_sends_fifty_megabytes_is_cut_and_the_next_is_asked(
    server: LoopbackServer, providers: list[SearchProvider]
) -> None:
    def stream() -> Iterator[bytes]:
        yield from (b" " * 1_000_000 for _ in range(50))

    server.replies |= {"/github": Reply(stream), "/wikipedia": replies.wikipedia("Retry")}

    text, _ = SearchService(providers).search("python retry library")
    assert text.startswith("1. Retry\n")
    assert "larger than 5000000 bytes, the limit" in text
