"""The two tools of an agent with one document: search it, and quote it by lines."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

from langchain_core.tools import BaseTool, StructuredTool, ToolException
from pydantic import BaseModel, Field

from echelons.teams.research.corpus import Document
from echelons.teams.research.headings import Row
from echelons.teams.research.outline import outline
from echelons.teams.research.passages import Index, index
from echelons.teams.research.question import asked
from echelons.teams.research.search import find
from echelons.teams.research.words import Vocabulary

LONGEST_QUOTE: Final = 80
"""Lines that ``quote`` returns at most."""

Answer = tuple[str, dict[str, Any]]
"""What a model reads, and the artifact: ``confidence`` and ``citations``."""


class Question(BaseModel):
    """What ``search_document`` takes."""

    question: str = Field(description="The whole question, in the words it was asked in")


class Lines(BaseModel):
    """What ``quote`` takes."""

    first_line: int = Field(description="Number of the first line, counted from 1")
    last_line: int = Field(description="Number of the last line")


class Desk:
    """One document, opened when the first question comes.

    Args:
        document: The document.
        known: In how many documents of the folder each word stands.
    """

    def __init__(self, document: Document, known: Vocabulary) -> None:
        self._document = document
        self._known = known

    @cached_property
    def _index(self) -> Index:
        return index(outline(self._document.path, self._document.text))

    def search_document(self, question: str) -> Answer:
        """Return the passages that answer a question, each with its ``file:line``.

        Raises:
            ToolException: The question is empty, or the document says nothing about it.
        """
        wanted = asked(question, self._known)
        if not wanted.shares:
            raise ToolException(f"{question!r} has no word to search for; ask in whole words")
        found = find(self._index, wanted)
        if found is None:
            raise ToolException(f"{self._document.path} says nothing about it")
        return self._answer(found.passages, found.confidence)

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


def tools(document: Document, known: Vocabulary) -> list[BaseTool]:
    """Return the tools of the agent that has ``document``; searching comes first.

    Args:
        document: The only document that they read.
        known: In how many documents of the folder each word stands.
    """
    desk = Desk(document, known)
    # The schemas are shared: to derive them from signatures takes a millisecond a tool.
    return [
        StructuredTool(
            name="search_document",
            description=f"Answer a question with quotations from {document.path}.",
            args_schema=Question,
            func=desk.search_document,
            response_format="content_and_artifact",
        ),
        StructuredTool(
            name="quote",
            description=f"Quote lines of {document.path} by their numbers.",
            args_schema=Lines,
            func=desk.quote,
            response_format="content_and_artifact",
        ),
    ]
