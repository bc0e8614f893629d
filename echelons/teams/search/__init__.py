"""The sample team `search`: providers of hits, asked one after the other, and one agent."""

from echelons.teams.search.hits import QueryKind, SearchHit, SearchInput, classify_query
from echelons.teams.search.providers import (
    ArxivProvider,
    FolderProvider,
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
from echelons.teams.search.team import SearchService, build_search_team, build_search_tool, team

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
