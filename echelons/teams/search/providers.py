"""The providers of hits: public APIs, the web and a folder, and how one becomes a tool."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from pathlib import Path
from time import time
from typing import Any, Final, Protocol
from urllib.parse import quote, urlencode, urlsplit
from xml.etree import ElementTree as ET

from langchain_core.tools import BaseTool, StructuredTool
from pydantic import ValidationError

from echelons.delegation.effects import effect
from echelons.errors import ToolRefusal, missing_extra, search_failed
from echelons.teams.research.search import parse_question
from echelons.teams.research.survey import Survey, survey
from echelons.teams.research.team import DocumentLibrary, DocumentSearch, map_agent_paths
from echelons.teams.search.hits import (
    LONGEST_SNIPPET,
    LONGEST_TITLE,
    SearchHit,
    SearchInput,
    clean_text,
    extract_keywords,
    format_hits,
    merge_hits,
)
from echelons.tools.http_get import FetchPolicy, HostRules, fetch
from echelons.tools.text_lines import raise_refusals

USER_AGENT: Final = "echelons-search/0.1"
MOST_BYTES: Final = 5_000_000
"""Most bytes of a provider's response."""
LONGEST_WAIT: Final = 3600.0
"""Most seconds that a provider is left alone because it asks for it."""


class SearchProvider(Protocol):
    """Someone to ask for hits.

    Attributes:
        name: A short name, `"wikipedia"`.
        description: What it knows, for a model.
        address: Where it is asked; two of one name with other addresses share no cache.
        interval: Least seconds between two requests.
        cached: Whether its hits may be cached.
    """

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def description(self) -> str: ...  # noqa: D102
    @property
    def address(self) -> str: ...  # noqa: D102
    @property
    def interval(self) -> float: ...  # noqa: D102
    @property
    def cached(self) -> bool: ...  # noqa: D102

    def find_hits(self, query: str, now: float) -> Sequence[SearchHit]:
        """Return the hits for a query, best first; none if it knows nothing.

        Args:
            query: What to search for.
            now: Seconds since 1970, for waits that a provider states as a time.

        Raises:
            ToolRefusal: It cannot be asked, or its answer makes no sense.
        """
        ...


@dataclass(frozen=True, slots=True)
class ApiEndpoint:
    """A public address that is asked with a GET request."""

    provider: str
    base_url: str
    timeout: float
    headers: Mapping[str, str]

    def request(self, parameters: Mapping[str, str], now: float) -> bytes:
        """Return the body of a response with status 200.

        Raises:
            ToolRefusal: There is none; `wait` is what the server asks for.
        """
        parts = urlsplit(self.base_url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        # Whoever wrote the address means it, on a private network as well.
        rules = HostRules(allow_private=[f"{host}:{port}"])
        policy = FetchPolicy(
            rules, MOST_BYTES, self.timeout, {"user-agent": USER_AGENT, **self.headers}
        )
        try:
            response = fetch(f"{self.base_url}?{urlencode(parameters)}", policy)
        except ToolRefusal as error:
            raise search_failed(self.provider, str(error)) from error
        if response.status != 200:
            limited = response.status in (403, 429)
            why = "it limits or refuses requests" if limited else "its server does not answer"
            wait = read_wait(response.headers, now)
            raise search_failed(self.provider, f"{why} (status {response.status})", wait)
        return response.content


def read_wait(headers: Mapping[str, str], now: float) -> float:
    """Return the seconds that a server asks to wait, at most `LONGEST_WAIT`; 0 if it does not.

    >>> read_wait({"retry-after": "120"}, now=0)
    120.0
    """
    wait = 0.0
    header = headers.get("retry-after", "").strip()
    try:
        if header.isascii() and header.isdigit():
            wait = float(header[:9])
        elif header:
            wait = parsedate_to_datetime(header).replace(tzinfo=UTC).timestamp() - now
        elif headers.get("x-ratelimit-remaining") == "0":  # GitHub's own headers
            wait = float(headers.get("x-ratelimit-reset", "0")[:15]) - now
    except (ValueError, OverflowError):
        return 0.0
    return min(max(wait, 0.0), LONGEST_WAIT)


def build_provider_tool(provider: SearchProvider, clock: Callable[[], float]) -> BaseTool:
    """Return the tool `search_…` that asks one provider alone."""

    @effect(reads_only=True)
    @raise_refusals
    def search(query: str) -> tuple[str, dict[str, Any]]:
        results = provider.find_hits(query, clock())
        hits = merge_hits([results])
        return format_hits(hits) or f"{provider.name} finds nothing.", build_artifact(hits)

    return build_query_tool(f"search_{provider.name}", provider.description, search)


def build_query_tool(
    name: str, description: str, search: Callable[[str], tuple[str, dict[str, Any]]]
) -> BaseTool:
    """Return a tool that takes a `SearchInput`."""
    return StructuredTool(
        name=name,
        description=description,
        args_schema=SearchInput,
        func=search,
        response_format="content_and_artifact",
        handle_tool_error=True,
        handle_validation_error=_describe_faults,
    )


def build_artifact(hits: Sequence[SearchHit]) -> dict[str, Any]:
    """Return the artifact of an answer: its sources, best first."""
    return {"citations": [{"title": hit.title, "source": hit.source} for hit in hits]}


def _describe_faults(error: Any) -> str:
    faults = error.errors() if isinstance(error, ValidationError) else [{"msg": str(error)}]
    return "; ".join(
        f"{'.'.join(map(str, fault.get('loc', ())))}: {fault['msg']}" for fault in faults
    )


TIMEOUT: Final = 10.0
"""Seconds for one request."""
_ATOM: Final = "{http://www.w3.org/2005/Atom}"
_SAFE_QUERY: Final = re.compile(r'[()"\\]')


@dataclass(frozen=True, slots=True)
class _PublicApi:
    """A provider that is asked at one address, from which its hits may be cached."""

    base_url: str
    timeout: float = field(default=TIMEOUT, kw_only=True)
    name: str = field(init=False, repr=False)
    description: str = field(init=False, repr=False)
    interval: float = field(default=0.0, init=False, repr=False)
    cached: bool = field(default=True, init=False, repr=False)

    @property
    def address(self) -> str:
        """The address of the search."""
        return self.base_url

    def _request(self, query: Mapping[str, str], now: float, headers: Mapping[str, str]) -> bytes:
        return ApiEndpoint(self.name, self.base_url, self.timeout, headers).request(query, now)


@dataclass(frozen=True, slots=True)
class WikipediaProvider(_PublicApi):
    """Articles of Wikipedia, or of another wiki that runs on MediaWiki.

    https://www.mediawiki.org/wiki/API:Search

    Attributes:
        base_url: Its `api.php`; another language has another host.
        contact: An address of who runs the program, which Wikimedia asks for: a page or a mailbox.
        timeout: Seconds for one request.
    """

    base_url: str = "https://en.wikipedia.org/w/api.php"
    contact: str = ""
    name: str = field(default="wikipedia", init=False, repr=False)
    description: str = field(default="Search the articles of Wikipedia.", init=False, repr=False)

    def find_hits(self, query: str, now: float) -> Sequence[SearchHit]:
        """Return the articles that match a query."""
        parameters = {
            "action": "query",
            "list": "search",
            "srsearch": query[:300],  # the longest that the search takes
            "srlimit": "10",
            "format": "json",
            "formatversion": "2",
        }
        headers = {"user-agent": f"{USER_AGENT} ({self.contact})"} if self.contact else {}
        body = _parse_json(self.name, self._request(parameters, now, headers))
        if "error" in body:
            raise search_failed(self.name, clean_text(body["error"], LONGEST_SNIPPET))
        parts = urlsplit(self.base_url)
        results = body.get("query")
        rows = results.get("search") if isinstance(results, Mapping) else None
        hits = []
        for row in _check_rows(self.name, rows):
            title = clean_text(row.get("title"), LONGEST_TITLE)
            page = quote(title.replace(" ", "_"), safe="/:(),'!*~")
            url = f"{parts.scheme}://{parts.netloc}/wiki/{page}"
            snippet = clean_text(row.get("snippet"), LONGEST_SNIPPET)
            hits.append(SearchHit(title, url, snippet, (self.name,)))
        return [hit for hit in hits if hit.title]


@dataclass(frozen=True, slots=True)
class GithubProvider(_PublicApi):
    """Repositories of GitHub.

    https://docs.github.com/en/rest/search/search#search-repositories

    Attributes:
        base_url: The search; that of an own GitHub has another host.
        token: Raises the limit from 10 to 30 searches a minute.
        timeout: Seconds for one request.
    """

    base_url: str = "https://api.github.com/search/repositories"
    token: str | None = field(default=None, repr=False)
    name: str = field(default="github", init=False, repr=False)
    description: str = field(
        default="Search the repositories of GitHub for code and libraries.", init=False, repr=False
    )

    def find_hits(self, query: str, now: float) -> Sequence[SearchHit]:
        """Return the repositories that match all telling words of a query."""
        headers = {
            "accept": "application/vnd.github+json",
            "x-github-api-version": "2022-11-28",
            **({"authorization": f"Bearer {self.token}"} if self.token else {}),
        }
        # A query of more than 256 characters is refused.
        words = " ".join(extract_keywords(query))[:256]
        body = _parse_json(self.name, self._request({"q": words, "per_page": "10"}, now, headers))
        hits = []
        for row in _check_rows(self.name, body.get("items")):
            about = clean_text(row.get("description"), LONGEST_SNIPPET)
            facts = [clean_text(row.get("language"), 40), f"{row.get('stargazers_count', 0)} stars"]
            snippet = " · ".join(filter(None, [about, *facts]))
            title = clean_text(row.get("full_name"), LONGEST_TITLE)
            url = clean_text(row.get("html_url"), 500)
            hits.append(SearchHit(title, url, snippet, (self.name,)))
        return [hit for hit in hits if hit.source.startswith(("https://", "http://"))]


@dataclass(frozen=True, slots=True)
class ArxivProvider(_PublicApi):
    """Papers of arXiv.

    https://info.arxiv.org/help/api/user-manual.html

    Attributes:
        base_url: The search.
        timeout: Seconds for one request.
    """

    base_url: str = "https://export.arxiv.org/api/query"
    name: str = field(default="arxiv", init=False, repr=False)
    description: str = field(default="Search the papers of arXiv.", init=False, repr=False)
    # Its terms of use: one request every three seconds.
    interval: float = field(default=3.0, init=False, repr=False)

    def find_hits(self, query: str, now: float) -> Sequence[SearchHit]:
        """Return the papers that have all telling words of a query."""
        words = [_SAFE_QUERY.sub("", word) for word in extract_keywords(query)]
        parameters = {
            "search_query": " AND ".join(f"all:{word}" for word in words if word),
            "start": "0",
            "max_results": "10",
        }
        hits = []
        provider = self.name
        content = self._request(parameters, now, {})
        try:
            # Decoded first, so that another encoding cannot hide what is looked for.
            text = content.decode("utf-8")
            # No feed declares a document type; without one, no entity can expand or lead to a file.
            if "<!DOCTYPE" in text or "<!ENTITY" in text:
                raise search_failed(provider, "its answer declares entities, which no feed does")
            root = ET.fromstring(text)  # noqa: S314
        except (ET.ParseError, ValueError) as error:
            raise search_failed(provider, "its answer is no XML") from error
        if root.tag != f"{_ATOM}feed":
            raise search_failed(provider, "its answer is no Atom feed")
        for entry in root.findall(f"{_ATOM}entry"):
            title = clean_text(entry.findtext(f"{_ATOM}title"), LONGEST_TITLE)
            summary = clean_text(entry.findtext(f"{_ATOM}summary"), LONGEST_SNIPPET)
            url = clean_text(entry.findtext(f"{_ATOM}id"), 500)
            if "/api/errors" in url:
                raise search_failed(self.name, summary or title)
            authors = [item.text or "" for item in entry.iterfind(f"{_ATOM}author/{_ATOM}name")]
            more = " et al." if len(authors) > 3 else ""
            year = (entry.findtext(f"{_ATOM}published") or "")[:4]
            facts = clean_text(f"{', '.join(authors[:3])}{more} {year}", LONGEST_TITLE)
            snippet = " · ".join(filter(None, [facts, summary]))
            hits.append(SearchHit(title, url, snippet, (self.name,)))
        return [hit for hit in hits if hit.source.startswith(("https://", "http://"))]


def search_wikipedia(clock: Callable[[], float] = time, **settings: Any) -> BaseTool:
    """Return the tool `search_wikipedia`; the settings are those of `WikipediaProvider`."""
    return build_provider_tool(WikipediaProvider(**settings), clock)


def search_github(clock: Callable[[], float] = time, **settings: Any) -> BaseTool:
    """Return the tool `search_github`; the settings are those of `GithubProvider`."""
    return build_provider_tool(GithubProvider(**settings), clock)


def search_arxiv(clock: Callable[[], float] = time, **settings: Any) -> BaseTool:
    """Return the tool `search_arxiv`; the settings are those of `ArxivProvider`."""
    return build_provider_tool(ArxivProvider(**settings), clock)


def _parse_json(provider: str, content: bytes) -> Mapping[str, Any]:
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise search_failed(provider, "its answer is no JSON") from error
    if not isinstance(parsed, Mapping):
        raise search_failed(provider, "its answer is no JSON object")
    return parsed


def _check_rows(provider: str, rows: object) -> list[Mapping[str, Any]]:
    if not isinstance(rows, list):
        raise search_failed(provider, "its answer has no list of results")
    return [row for row in rows if isinstance(row, Mapping)]


ENGINES: Final = ("duckduckgo", "brave", "startpage", "mojeek", "yahoo")
"""Those of ddgs 9.16 that search the whole web.

DuckDuckGo and Yahoo have Bing's results, Startpage has Google's. Google, Bing and Yandex themselves
are switched off in ddgs, and Sogou is not in it.
"""


@dataclass(frozen=True, slots=True)
class WebProvider:
    """The search engines of ddgs.

    Attributes:
        engines: Their names in ddgs.
        timeout: Seconds for the request to one engine; ddgs takes whole ones.
        proxy: The address of a proxy for all requests.
        region: Country and language, `"de-de"`.
    """

    engines: Sequence[str] = ENGINES
    timeout: float = 10.0
    proxy: str | None = None
    region: str = "us-en"
    name: str = field(default="web", init=False, repr=False)
    description: str = field(
        default="Search the web with several search engines.", init=False, repr=False
    )
    interval: float = field(default=0.0, init=False, repr=False)
    cached: bool = field(default=True, init=False, repr=False)

    @property
    def address(self) -> str:
        """The engines and the region."""
        return f"{','.join(self.engines)} {self.region}"

    def find_hits(self, query: str, now: float) -> Sequence[SearchHit]:
        """Return the pages that the engines find; what they have in common comes first."""
        try:
            from ddgs import DDGS
            from ddgs.exceptions import DDGSException, RatelimitException, TimeoutException
        except ImportError as error:
            raise missing_extra("search", "ddgs") from error
        try:
            results = DDGS(proxy=self.proxy, timeout=math.ceil(self.timeout)).text(
                query, backend=",".join(self.engines), region=self.region, max_results=10
            )
        except TimeoutException as error:
            raise search_failed(self.name, f"no engine answers in {self.timeout:g} s") from error
        except RatelimitException as error:
            raise search_failed(self.name, "the engines limit requests", wait=60) from error
        except DDGSException as error:
            if "No results found" in str(error):
                return []
            raise search_failed(self.name, clean_text(error, LONGEST_SNIPPET)) from error
        except Exception as error:  # it parses pages, which may be anything
            why = f"ddgs fails with {type(error).__name__}: {clean_text(error, LONGEST_SNIPPET)}"
            raise search_failed(self.name, why) from error
        hits = [
            SearchHit(
                clean_text(row.get("title"), LONGEST_TITLE),
                str(row.get("href") or ""),
                clean_text(row.get("body"), LONGEST_SNIPPET),
                (self.name,),
            )
            for row in results
        ]
        return [hit for hit in hits if hit.source.startswith(("https://", "http://"))]


def search_web(clock: Callable[[], float] = time, **settings: Any) -> BaseTool:
    """Return the tool `search_web`; the settings are those of `WebProvider`."""
    return build_provider_tool(WebProvider(**settings), clock)


LONGEST_PASSAGE: Final = 2000
"""Most characters shown of one passage."""


class FolderProvider:
    """The documents in a folder, and below it.

    Args:
        docs: The folder, or the result of `survey`.

    Raises:
        TeamError: There is nothing at `docs`; `docs` is a file; there is no readable document in
            it.
    """

    name = "folder"
    interval = 0.0
    cached = False  # files change, and reading them is fast

    def __init__(self, docs: Path | str | Survey) -> None:
        self._survey = docs if isinstance(docs, Survey) else survey(docs)
        self._searches = {
            path: DocumentSearch(item.document, self._survey.vocabulary)
            for path, item in self._survey.surveyed.items()
        }
        paths = map_agent_paths(self._survey.tree)
        self._library = DocumentLibrary(self._survey, self._searches, paths)
        self.address = str(self._survey.root)
        self.description = f"Search {len(self._searches)} documents in a local folder."

    def find_hits(self, query: str, now: float) -> Sequence[SearchHit]:
        """Return the passages that answer a query, each with file and line."""
        question = parse_question(query, self._survey.vocabulary)
        if not question.shares:
            return []
        hits: list[SearchHit] = []
        for path in self._library.find_documents(query):
            results = self._searches[path].find_passages(question)
            title = self._survey.surveyed[path].title
            for rows in results.passages if results else ():
                text = "\n".join(row.text for row in rows).strip("\n")
                source = f"{path}:{rows[0].line}"
                hits.append(SearchHit(title, source, text[:LONGEST_PASSAGE], (self.name,)))
        return hits


def search_folder(docs: Path | str | Survey) -> BaseTool:
    """Return the tool `search_folder`, which needs no network.

    Raises:
        TeamError: There is no such folder, or nothing to read in it.
    """
    return build_provider_tool(FolderProvider(docs), time)
