"""The two tools of an agent with one document: search it, and quote it by lines."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from textwrap import shorten
from typing import Any, Final

from langchain_core.tools import BaseTool, StructuredTool, ToolException
from pydantic import BaseModel, Field

from echelons.teams.research.corpus import Document
from echelons.teams.research.outline import TextRow, parse_outline
from echelons.teams.research.search import (
    PassageIndex,
    SearchResult,
    build_index,
    find_nearest,
    find_passages,
    parse_question,
)
from echelons.teams.research.search import SearchQuestion as Asked
from echelons.teams.research.survey import Vocabulary

LONGEST_QUOTE: Final = 80
"""Most lines that `quote` returns."""

MOST_SHOWN: Final = 200
"""Most characters shown of a passage that does not answer the question."""

MOST_CACHED: Final = 64
"""Most document indexes in the cache, for all teams of the process together."""

ToolAnswer = tuple[str, dict[str, Any]]
"""The text for the model, and the artifact with `confidence` and `citations`."""


class QuestionInput(BaseModel):
    """What `search_document` takes."""

    question: str = Field(description="The whole question, in the words it was asked in")


class LinesInput(BaseModel):
    """What `quote` takes."""

    first_line: int = Field(description="Number of the first line, counted from 1")
    last_line: int = Field(description="Number of the last line")


@lru_cache(maxsize=MOST_CACHED)
def open_index(document: Document) -> PassageIndex:
    """Return the index of a document; the most recently used ones are cached."""
    return build_index(parse_outline(document.path, document.text))


class DocumentSearch:
    """Search and quotation of one document, in the vocabulary of its folder."""

    def __init__(self, document: Document, vocabulary: Vocabulary) -> None:
        self.path = document.path
        self._document = document
        self._vocabulary = vocabulary

    def search_document(self, question: str) -> ToolAnswer:
        """Return the passages that answer a question, each with its `file:line`.

        Raises:
            ToolException: The question is empty, or the document says nothing about it.
        """
        wanted = parse_question(question, self._vocabulary)
        if not wanted.shares:
            raise ToolException(f"{question!r} has no word to search for; ask in whole words")
        result = self.find_passages(wanted)
        if result is None:
            nearest = self.quote_nearest(wanted)
            note = f"; the nearest passage is {nearest}" if nearest else ""
            raise ToolException(f"{self.path} says nothing about it{note}")
        return self._answer(result.passages, result.confidence)

    def find_passages(self, question: Asked) -> SearchResult | None:
        """Return the passages that answer a question; `None` if there are none."""
        return find_passages(open_index(self._document), question)

    def quote_nearest(self, question: Asked) -> str:
        """Return the passage nearest to a question, with its place; empty if no word is found."""
        row = find_nearest(open_index(self._document), question)
        if row is None:
            return ""
        return f'{self.path}:{row.line}, "{shorten(row.text, MOST_SHOWN, placeholder="…")}"'

    def quote(self, first_line: int, last_line: int) -> ToolAnswer:
        """Return lines of the document by their numbers.

        Raises:
            ToolException: The numbers are out of range, or too far apart.
        """
        rows = open_index(self._document).rows
        end = rows[-1].line
        if not 1 <= first_line <= last_line <= end:
            raise ToolException(
                f"lines {first_line} to {last_line} are not in {self.path}; it has lines 1 to {end}"
            )
        if last_line - first_line >= LONGEST_QUOTE:
            raise ToolException(
                f"lines {first_line} to {last_line} are {last_line - first_line + 1} lines, "
                f"the limit is {LONGEST_QUOTE}; quote fewer at a time"
            )
        quoted = tuple(row for row in rows if first_line <= row.line <= last_line)
        return self._answer([quoted], 1.0)

    def _answer(self, passages: Sequence[Sequence[TextRow]], confidence: float) -> ToolAnswer:
        quotes = [
            "\n".join(
                [*(f"> {row.text}".rstrip() for row in rows), f"— {self.path}:{rows[0].line}"]
            )
            for rows in passages
        ]
        citations = [{"file": self.path, "line": rows[0].line} for rows in passages]
        return "\n\n".join(quotes), {"confidence": confidence, "citations": citations}


def build_tools(search: DocumentSearch) -> list[BaseTool]:
    """Return the tools of a document's agent, the search first."""
    path = search.path
    # The first description has all words of the second, so that no word of a question, such
    # as "line", matches the second alone, which the offline planner cannot use.
    # The schemas are shared, because deriving one from a signature takes long.
    return [
        StructuredTool(
            name="search_document",
            description=f"Answer a question about {path}: quote its lines, with their numbers.",
            args_schema=QuestionInput,
            func=search.search_document,
            response_format="content_and_artifact",
        ),
        StructuredTool(
            name="quote",
            description=f"Quote lines of {path} by their numbers.",
            args_schema=LinesInput,
            func=search.quote,
            response_format="content_and_artifact",
        ),
    ]
