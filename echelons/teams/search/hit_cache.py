"""A cache of hits in a folder, one small file for each provider and query."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

from pydantic import TypeAdapter, ValidationError

from echelons.teams.search.hits import SearchHit

DAY: Final = 86_400.0
"""Default age in seconds up to which hits are used again."""

_ENTRY: Final = TypeAdapter(tuple[float, list[SearchHit]])


class HitCache:
    """Hits by provider and query.

    The files have the queries' hits in plain text; they are readable by their owner alone. A file
    that cannot be read is as good as none, and one that cannot be written is left out.

    Args:
        folder: Where the files are; it is made if it is missing.
        max_age: Age in seconds up to which hits are used.
        clock: Returns the seconds since 1970.
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
