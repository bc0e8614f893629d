"""The sample team `search`: providers of hits, asked one after the other, and one agent."""

from echelons.teams.search.folder import FolderProvider, search_folder
from echelons.teams.search.hits import SearchHit
from echelons.teams.search.provider import SearchProvider
from echelons.teams.search.public_apis import (
    ArxivProvider,
    GithubProvider,
    WikipediaProvider,
    search_arxiv,
    search_github,
    search_wikipedia,
)
from echelons.teams.search.search_input import QueryKind, SearchInput, classify_query
from echelons.teams.search.search_service import SearchService, build_search_tool
from echelons.teams.search.team import build_search_team, team
from echelons.teams.search.web import WebProvider, search_web

__all__ = [
    "ArxivProvider",
    "FolderProvider",
    "GithubProvider",
    "QueryKind",
    "SearchHit",
    "SearchInput",
    "SearchProvider",
    "SearchService",
    "WebProvider",
    "WikipediaProvider",
    "build_search_team",
    "build_search_tool",
    "classify_query",
    "search_arxiv",
    "search_folder",
    "search_github",
    "search_web",
    "search_wikipedia",
    "team",
]
