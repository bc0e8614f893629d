"""What a provider finds: hits, without duplicates, in one order and one format, and their cache."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from html import unescape
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from pydantic import TypeAdapter, ValidationError

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
