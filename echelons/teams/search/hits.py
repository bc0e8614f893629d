"""What a provider finds: hits, without duplicates, in one order and one format."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import unescape
from typing import Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

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
    r"""Return a provider's text without tags, entities and line ends, cut at `limit` characters.

    >>> clean_text("the <span class='m'>North</span>\n Sea &amp; more", 20)
    'the North Sea & more'
    """
    shown = " ".join(unescape(_TAG.sub("", str(text or ""))).split())
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def normalise_url(url: str) -> str:
    """Return what two addresses of one page have in common.

    Scheme, `www.`, letters' case in the host, standard ports, fragments, a last slash and tracking
    parameters make no other page.

    >>> normalise_url("http://www.Example.org:80/a/?utm_source=x&b=1#c")
    'example.org/a?b=1'
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
    pairs = [each for each in parse_qsl(parts.query) if not _TRACKING.fullmatch(each[0])]
    query = urlencode(sorted(pairs))
    path = unquote(parts.path).rstrip("/")
    return f"{place}{path}{f'?{query}' if query else ''}"


def merge_hits(found: Sequence[Sequence[SearchHit]]) -> list[SearchHit]:
    """Return the hits of several providers, best first, each page once.

    A page counts for each provider by its rank there, so one that several have found comes first.
    """
    scores: dict[str, float] = {}
    merged: dict[str, SearchHit] = {}
    for hits in found:
        own = {normalise_url(hit.source): hit for hit in reversed(hits)}
        for rank, (key, hit) in enumerate(reversed(own.items()), start=1):
            scores[key] = scores.get(key, 0.0) + 1 / (FUSION_CONSTANT + rank)
            known = merged.get(key, hit)
            providers = tuple(dict.fromkeys((*known.providers, *hit.providers)))
            longer = max(known.snippet, hit.snippet, key=len)
            merged[key] = SearchHit(known.title, known.source, longer, providers)
    ranked = sorted(merged, key=lambda key: -scores[key])
    return [merged[key] for key in ranked[:MOST_HITS]]


def format_hits(hits: Sequence[SearchHit]) -> str:
    """Return hits as numbered entries: title, text, and source with the providers.

    >>> print(format_hits([SearchHit("Tides", "sea/tides.md:3", "Twice a day.", ("folder",))]))
    1. Tides
       Twice a day.
       — sea/tides.md:3 (folder)
    """
    entries = []
    for number, hit in enumerate(hits, start=1):
        lines = [f"{number}. {hit.title or hit.source}", *hit.snippet.splitlines()]
        lines.append(f"— {hit.source} ({', '.join(hit.providers)})")
        entries.append(
            "\n".join(f"   {line}".rstrip() if at else line for at, line in enumerate(lines))
        )
    return "\n".join(entries)
