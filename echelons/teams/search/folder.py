"""A folder of documents, through the index of the team `research`: offline, with file and line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import time
from typing import Final

from langchain_core.tools import BaseTool

from echelons.teams.research.library import DocumentLibrary, map_agent_paths
from echelons.teams.research.question import parse_question
from echelons.teams.research.survey import Survey, survey
from echelons.teams.research.tools import DocumentSearch
from echelons.teams.search.hits import SearchHit
from echelons.teams.search.provider import build_provider_tool

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
            path: DocumentSearch(each.document, self._survey.vocabulary)
            for path, each in self._survey.surveyed.items()
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
            found = self._searches[path].find_passages(question)
            title = self._survey.surveyed[path].title
            for rows in found.passages if found else ():
                text = "\n".join(row.text for row in rows).strip("\n")
                source = f"{path}:{rows[0].line}"
                hits.append(SearchHit(title, source, text[:LONGEST_PASSAGE], (self.name,)))
        return hits


def search_folder(docs: Path | str | Survey) -> BaseTool:
    """Return the tool `search_folder`, which needs no network.

    Raises:
        DocumentsError: There is no such folder, or nothing to read in it.
    """
    return build_provider_tool(FolderProvider(docs), time)
