"""The web, through `ddgs`: a metasearch library that reads the pages of several search engines."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import time
from typing import Any, Final

from langchain_core.tools import BaseTool

from echelons.errors import missing_extra, search_failed
from echelons.teams.search.hits import LONGEST_SNIPPET, LONGEST_TITLE, SearchHit, clean_text
from echelons.teams.search.provider import build_provider_tool

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
            found = DDGS(proxy=self.proxy, timeout=math.ceil(self.timeout)).text(
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
            for row in found
        ]
        return [hit for hit in hits if hit.source.startswith(("https://", "http://"))]


def search_web(clock: Callable[[], float] = time, **settings: Any) -> BaseTool:
    """Return the tool `search_web`; the settings are those of `WebProvider`."""
    return build_provider_tool(WebProvider(**settings), clock)
