"""Queries, and what providers find for them: hits in one order and one format, and their cache."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from html import unescape
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator

from echelons.text.stemming import STOPWORDS, extract_stems, extract_words, stem

LONGEST_SNIPPET: Final = 400
"""Most characters of a hit's text."""
LONGEST_TITLE: Final = 150
MOST_HITS: Final = 10
"""Most hits of an answer."""
FUSION_CONSTANT: Final = 60
"""The k of reciprocal rank fusion, with its usual value.

G. Cormack, C. Clarke and S. Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and individual
Rank Learning Methods", SIGIR 2009.
"""

_TAG: Final = re.compile(r"<[^<>]{0,500}>")
_TRACKING: Final = re.compile(r"utm_\w+|fbclid|gclid|ref_src|mc_[ce]id", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One place that a provider has found.

    Attributes:
        title: Its title.
        source: Its URL, or the file and line.
        snippet: Some of its text.
        providers: Who has found it.
    """

    title: str
    source: str
    snippet: str = ""
    providers: tuple[str, ...] = field(default=())


def clean_text(text: object, limit: int) -> str:
    """Return a provider's text without tags, entities and line ends, cut at `limit` characters."""
    shown = " ".join(unescape(_TAG.sub("", str(text or ""))).split())
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def normalise_url(url: str) -> str:
    """Return what two addresses of one page have in common.

    Scheme, `www.`, letters' case in the host, standard ports, fragments, a last slash and tracking
    parameters make no other page.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return url
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return url
    host = parts.hostname.removeprefix("www.")
    place = host if port in (None, 80, 443) else f"{host}:{port}"
    pairs = [pair for pair in parse_qsl(parts.query) if not _TRACKING.fullmatch(pair[0])]
    query = urlencode(sorted(pairs))
    path = unquote(parts.path).rstrip("/")
    return f"{place}{path}{f'?{query}' if query else ''}"


def merge_hits(rankings: Sequence[Sequence[SearchHit]]) -> list[SearchHit]:
    """Return the hits of several providers, best first, each page once.

    A page counts for each provider by its rank there, so one that several have found comes first.
    """
    scores: dict[str, float] = {}
    merged: dict[str, SearchHit] = {}
    for hits in rankings:
        by_url = {normalise_url(hit.source): hit for hit in reversed(hits)}
        for rank, (key, hit) in enumerate(reversed(by_url.items()), start=1):
            scores[key] = scores.get(key, 0.0) + 1 / (FUSION_CONSTANT + rank)
            earlier = merged.get(key, hit)
            providers = tuple(dict.fromkeys((*earlier.providers, *hit.providers)))
            longer = max(earlier.snippet, hit.snippet, key=len)
            merged[key] = SearchHit(earlier.title, earlier.source, longer, providers)
    ranked = sorted(merged, key=lambda key: -scores[key])
    return [merged[key] for key in ranked[:MOST_HITS]]


def format_hits(hits: Sequence[SearchHit]) -> str:
    """Return hits as numbered entries: title, text, and source with the providers."""
    entries = []
    for number, hit in enumerate(hits, start=1):
        lines = [f"{number}. {hit.title or hit.source}", *hit.snippet.splitlines()]
        lines.append(f"— {hit.source} ({', '.join(hit.providers)})")
        entries.append(
            "\n".join(f"   {line}".rstrip() if at else line for at, line in enumerate(lines))
        )
    return "\n".join(entries)


DAY: Final = 86_400.0
"""Default age in seconds up to which hits are used again."""

_ENTRY: Final = TypeAdapter(tuple[float, list[SearchHit]])


class HitCache:
    """Hits by provider and query.

    The files have the queries' hits in plain text; they are readable by their owner alone. A file
    that cannot be read is as good as none, and one that cannot be written is left out.
    """

    def __init__(self, folder: Path, max_age: float, clock: Callable[[], float]) -> None:
        self._folder = folder
        self._max_age = max_age
        self._clock = clock

    def load(self, provider: str, query: str) -> Sequence[SearchHit] | None:
        """Return the hits of a provider for a query, or `None` if there are none of late."""
        try:
            stored_at, hits = _ENTRY.validate_json(self._locate(provider, query).read_bytes())
        except (OSError, ValidationError):
            return None
        return hits if 0 <= self._clock() - stored_at <= self._max_age else None

    def store(self, provider: str, query: str, hits: Sequence[SearchHit]) -> None:
        """Keep hits; empty ones are not kept, because a provider may only be late to know."""
        if not hits:
            return
        entry = _ENTRY.dump_json((self._clock(), list(hits)))
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Another process never reads half a file: it is made under another name.
            with NamedTemporaryFile(dir=self._folder, delete=False) as file:
                file.write(entry)
            Path(file.name).replace(self._locate(provider, query))

    def _locate(self, provider: str, query: str) -> Path:
        key = json.dumps([provider, query.casefold()])
        return self._folder / f"{sha256(key.encode()).hexdigest()}.json"


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
