"""The two tools of an agent with one document: search it, and quote it by lines."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from langchain_core.tools import BaseTool, StructuredTool, ToolException
from pydantic import BaseModel, Field

from echelons.teams.research.corpus import Document
from echelons.teams.research.headings import Row
from echelons.teams.research.outline import outline
from echelons.teams.research.passages import Index, index
from echelons.teams.research.question import Question as Asked
from echelons.teams.research.question import asked
from echelons.teams.research.search import Found, find
from echelons.teams.research.word_weights import Vocabulary

LONGEST_QUOTE: Final = 80
"""Lines that ``quote`` returns at most."""

OPEN: Final = 64
"""Documents that are kept cut into passages, all teams of the process together."""

Answer = tuple[str, dict[str, Any]]
"""What a model reads, and the artifact: ``confidence`` and ``citations``."""


class Question(BaseModel):
    """What ``search_document`` takes."""

    question: str = Field(description="The whole question, in the words it was asked in")


class Lines(BaseModel):
    """What ``quote`` takes."""

    first_line: int = Field(description="Number of the first line, counted from 1")
    last_line: int = Field(description="Number of the last line")


@lru_cache(maxsize=OPEN)
def opened(document: Document) -> Index:
    """Return a document cut into passages; those that were used last are kept."""
    return index(outline(document.path, document.text))


class Desk:
    """One document, and what is asked of it.

    Args:
        document: The document.
        known: In how many documents of the folder each word stands.
    """

    def __init__(self, document: Document, known: Vocabulary) -> None:
        self._document = document
        self._known = known

    @property
    def path(self) -> str:
        """Where the document lies under the folder."""
        return self._document.path

    @property
    def _index(self) -> Index:
        return opened(self._document)

    def search_document(self, question: str) -> Answer:
        """Return the passages that answer a question, each with its ``file:line``.

        Raises:
            ToolException: The question is empty, or the document says nothing about it.
        """
        wanted = asked(question, self._known)
        if not wanted.shares:
            raise ToolException(f"{question!r} has no word to search for; ask in whole words")
        found = self.find(wanted)
        if found is None:
            raise ToolException(f"{self._document.path} says nothing about it")
        return self._answer(found.passages, found.confidence)

    def find(self, question: Asked) -> Found | None:
        """Return what the document says about a question; ``None`` if that is nothing."""
        return find(self._index, question)

    def quote(self, first_line: int, last_line: int) -> Answer:
        """Return lines of the document by their numbers.

        Raises:
            ToolException: The numbers are out of range, or too far apart.
        """
        rows = self._index.rows
        end = rows[-1].line
        if not 1 <= first_line <= last_line <= end:
            raise ToolException(
                f"lines {first_line} to {last_line} are not in {self._document.path}; "
                f"it has lines 1 to {end}"
            )
        if last_line - first_line >= LONGEST_QUOTE:
            raise ToolException(
                f"lines {first_line} to {last_line} are {last_line - first_line + 1} lines, "
                f"the limit is {LONGEST_QUOTE}; quote fewer at a time"
            )
        quoted = tuple(row for row in rows if first_line <= row.line <= last_line)
        return self._answer([quoted], 1.0)

    def _answer(self, passages: Sequence[Sequence[Row]], confidence: float) -> Answer:
        path = self._document.path
        quotes = [
            "\n".join([*(f"> {row.text}".rstrip() for row in rows), f"— {path}:{rows[0].line}"])
            for rows in passages
        ]
        citations = [{"file": path, "line": rows[0].line} for rows in passages]
        return "\n\n".join(quotes), {"confidence": confidence, "citations": citations}


def tools(desk: Desk) -> list[BaseTool]:
    """Return the tools of the agent that has the document of a desk; searching comes first."""
    path = desk.path
    # The first says all that the second does: no word of a question, such as "line", speaks for
    # the second alone, which an offline planner cannot use.
    # The schemas are shared: to derive them from signatures takes a millisecond a tool.
    return [
        StructuredTool(
            name="search_document",
            description=f"Answer a question about {path}: quote its lines, with their numbers.",
            args_schema=Question,
            func=desk.search_document,
            response_format="content_and_artifact",
        ),
        StructuredTool(
            name="quote",
            description=f"Quote lines of {path} by their numbers.",
            args_schema=Lines,
            func=desk.quote,
            response_format="content_and_artifact",
        ),
    ]
