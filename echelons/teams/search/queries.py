"""Queries: what a search takes, which kind of answer it wants, and its telling words."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, field_validator

from echelons.text.stemming import STOPWORDS, extract_stems, extract_words, stem

LONGEST_QUERY: Final = 500
"""Most characters of a query, its context included."""
MOST_KEYWORDS: Final = 6
"""Most words that a query is cut down to for an index that must match every one."""


class SearchInput(BaseModel):
    r"""A search: `query` and nothing else.

    Attributes:
        query: What to search for; runs of spaces and line ends become one space.

    >>> SearchInput(query="  circuit \n breaker ").query
    'circuit breaker'
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    query: str = Field(
        min_length=1, max_length=LONGEST_QUERY, description="What to search for, in whole words"
    )

    @field_validator("query", mode="before")
    @classmethod
    def _normalise_spaces(cls, value: object) -> object:
        return " ".join(value.split()) if isinstance(value, str) else value

    @classmethod
    def from_context(cls, query: str, context: str) -> SearchInput:
        """Return the search for a query in a context: both, one after the other.

        A context that is too long is cut at a word; a query is not.

        Raises:
            ValidationError: The query is empty or too long.

        >>> SearchInput.from_context("its tides", "The North Sea").query
        'its tides The North Sea'
        """
        whole = cls(query=query).query
        for word in context.split():
            if len(whole) + 1 + len(word) > LONGEST_QUERY:
                break
            whole = f"{whole} {word}"
        return cls(query=whole)


class QueryKind(StrEnum):
    """What kind of answer a query wants, which decides who is asked."""

    CODE = "code"
    ACADEMIC = "academic"
    WEB = "web"


_TELLING_STEMS: Final = {
    kind: frozenset(map(stem, words.split()))
    for kind, words in {
        QueryKind.CODE: "github gitlab repository repositories repo repos code codebase sdk api "
        "library libraries framework package module compiler middleware plugin cli regex "
        "implementation programming algorithm dockerfile kubernetes function python javascript "
        "typescript rust golang java kotlin swift ruby php bash sql django flask fastapi react "
        "numpy pandas pytorch langchain langgraph open-source snippet boilerplate",
        QueryKind.ACADEMIC: "paper papers preprint arxiv doi journal thesis study studies "
        "research researchers theorem lemma proof theory hypothesis experiment experiments "
        "encyclopedia wikipedia article definition history biography physics chemistry biology "
        "mathematics quantum astronomy medicine philosophy literature citation abstract survey",
    }.items()
}


def classify_query(query: str) -> QueryKind:
    """Return the kind of a query: the one with more telling words, code before knowledge.

    >>> [str(classify_query(each)) for each in (
    ...     "python retry library", "papers on tides", "cheap flights to Rome")]
    ['code', 'academic', 'web']
    """
    # In lower case, because "GitHub" would be two words.
    stems = extract_stems(query.lower())
    counts = {
        kind: sum(item in telling for item in stems) for kind, telling in _TELLING_STEMS.items()
    }
    best = max(counts, key=lambda kind: counts[kind])
    return best if counts[best] else QueryKind.WEB


def extract_keywords(query: str) -> list[str]:
    """Return the telling words of a query, for an index that must match every one.

    >>> extract_keywords("What are the best Python libraries for circuit breakers on GitHub?")
    ['python', 'libraries', 'circuit', 'breakers']
    """
    dropped = {*STOPWORDS, "best", "good", "find", "search", "show", "tell", "list", "github"}
    dropped |= {"arxiv", "paper", "papers", "repository", "repositories", "repo", "repos"}
    words = list(dict.fromkeys(extract_words(query.lower())))
    return [word for word in words if word not in dropped][:MOST_KEYWORDS] or words[:MOST_KEYWORDS]
