"""Wikipedia, GitHub and arXiv, over their public interfaces, none of which needs a key.

The shapes of their responses are those of the public documentation as of November 2026. All that
comes from them is checked as the untrusted text that it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import time
from typing import Any, Final
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree as ET

from langchain_core.tools import BaseTool

from echelons.errors import search_failed
from echelons.teams.search.hits import LONGEST_SNIPPET, LONGEST_TITLE, SearchHit, clean_text
from echelons.teams.search.provider import USER_AGENT, ApiEndpoint, build_provider_tool
from echelons.teams.search.search_input import extract_keywords

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
        found = body.get("query")
        rows = found.get("search") if isinstance(found, Mapping) else None
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
        for entry in _parse_atom(self.name, self._request(parameters, now, {})):
            title = clean_text(entry.findtext(f"{_ATOM}title"), LONGEST_TITLE)
            summary = clean_text(entry.findtext(f"{_ATOM}summary"), LONGEST_SNIPPET)
            url = clean_text(entry.findtext(f"{_ATOM}id"), 500)
            if "/api/errors" in url:
                raise search_failed(self.name, summary or title)
            authors = [each.text or "" for each in entry.iterfind(f"{_ATOM}author/{_ATOM}name")]
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
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise search_failed(provider, "its answer is no JSON") from error
    if not isinstance(found, Mapping):
        raise search_failed(provider, "its answer is no JSON object")
    return found


def _check_rows(provider: str, rows: object) -> list[Mapping[str, Any]]:
    if not isinstance(rows, list):
        raise search_failed(provider, "its answer has no list of results")
    return [row for row in rows if isinstance(row, Mapping)]


def _parse_atom(provider: str, content: bytes) -> list[ET.Element]:
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
    return root.findall(f"{_ATOM}entry")
