"""`VerifiedSaver`: LangGraph's SQLite saver with reads that check every row.

LangGraph's own reads return whatever the bytes decode to. These validate every row, and its seal
if the database has seals. `SqliteCheckpointer` inherits it, and `maintenance` reads through one.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Self

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_id,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.sqlite import SqliteSaver

from echelons.checkpoints.storage.delta_history import Walk, written
from echelons.checkpoints.storage.monotonic_ids import follow
from echelons.checkpoints.storage.parent_map import Parents, Place, whole
from echelons.checkpoints.storage.rows import CheckpointRow, WriteRow, metadata_of, tuple_of
from echelons.checkpoints.storage.seals import CHECKPOINTS, WRITES, NoSeals, Seals
from echelons.errors import CheckpointTampered
from echelons.langgraph_internals import search_where

Known = dict[Place, Parents]
"""Stored parent maps by checkpoint."""
_UNREADABLE = ("Could not decode to UTF-8", "malformed JSON")
"""Prefixes of SQLite's messages about a damaged row, rather than a damaged database."""


class GuardedSaver(SqliteSaver):
    """A SQLite saver that raises `CheckpointTampered` for any damaged row."""

    def __init__(
        self, conn: sqlite3.Connection, serde: SerializerProtocol, seals: Seals | None = None
    ) -> None:
        super().__init__(conn, serde=serde)
        self._seals = seals or NoSeals()

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> Self:
        """Return the saver unchanged: no environment variable affects what it reads."""
        return self

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint: the latest of its namespace unless an id is given.

        Raises:
            CheckpointTampered: A row of it is damaged.
        """
        wanted = get_checkpoint_id(config)
        place = place_of(config)
        with self._reading(config) as cursor:
            if wanted:
                cursor.execute(f"{_AT} AND checkpoint_id = ?", (*place, wanted))
            else:
                cursor.execute(f"{_AT} ORDER BY checkpoint_id DESC LIMIT 1", place)
            found = cursor.fetchone()
            saved = self._tuple(cursor, found) if found else None
            last = cursor.execute(_LAST, place).fetchone()[0] if wanted else found and found[2]
        if last:
            follow(str(last))
        return saved._replace(config=config) if saved and wanted else saved

    def latest(self, config: RunnableConfig) -> str | None:
        """Return the id of the latest checkpoint of a namespace, without loading the checkpoint."""
        with self._reading(config) as cursor:
            last = cursor.execute(_LAST, place_of(config)).fetchone()[0]
        return None if last is None else str(last)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Return checkpoints, newest first; all are read at once, so that no cursor stays open.

        Raises:
            CheckpointTampered: A row is damaged.
        """
        where, given = search_where(config, filter, before)
        query = f"{CHECKPOINTS} {where} ORDER BY checkpoint_id DESC"
        if limit is not None:
            query, given = f"{query} LIMIT ?", (*given, limit)
        with self._reading(config) as cursor:
            found = cursor.execute(query, given).fetchall()
            known: Known = {}
            return iter([self._tuple(cursor, each, known) for each in found])

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return the history of some delta channels before a checkpoint.

        Raises:
            CheckpointTampered: A row on the way is damaged or missing.
        """
        wanted = get_checkpoint_id(config) or self.latest(config)
        with self._reading(config) as cursor:
            return self._gone_back(cursor, place_of(config), wanted, Walk(channels, self.serde))

    def _gone_back(
        self, cursor: sqlite3.Cursor, place: tuple[str, str], wanted: str | None, walk: Walk
    ) -> dict[str, DeltaChannelHistory]:
        cursor.execute(_CHAIN, (*place, wanted, *place, *place))
        while (found := cursor.fetchone()) and walk.goes_on(self._row(CheckpointRow, found)):
            pass
        walk.arrive()
        return {
            channel: walk.history(channel, self._writes(cursor, place, channel, passed))
            for channel, passed in walk.passed.items()
        }

    def _writes(
        self, cursor: sqlite3.Cursor, place: tuple[str, str], channel: str, passed: Sequence[str]
    ) -> Iterable[WriteRow]:
        cursor.execute(_OF_CHANNEL, (*place, channel, json.dumps(passed)))
        return [self._row(WriteRow, each) for each in cursor.fetchall()]

    def _tuple(
        self, cursor: sqlite3.Cursor, found: Sequence[Any], known: Known | None = None
    ) -> CheckpointTuple:
        row = self._row(CheckpointRow, found)
        cursor.execute(_WRITTEN_AT, row[:3])
        rows = [self._row(WriteRow, each) for each in cursor.fetchall()]
        saved = tuple_of(row, written(rows, self.serde), self.serde)
        if parents := saved.metadata.get("parents"):
            above = partial(self._parents, cursor, {} if known is None else known, row.thread_id)
            saved.metadata["parents"] = whole(parents, above)
        return saved

    def _parents(
        self, cursor: sqlite3.Cursor, known: Known, thread_id: str, namespace: str, name: str
    ) -> Parents:
        place = (thread_id, namespace, name)
        if place not in known:
            found = cursor.execute(f"{_AT} AND checkpoint_id = ?", place).fetchone()
            row = self._row(CheckpointRow, found) if found else None
            known[place] = (metadata_of(row).get("parents") or {}) if row else {}
        return known[place]

    def _row(self, kind: Any, found: Sequence[Any]) -> Any:
        *columns, seal = found
        row = kind(*columns)
        self._seals.check(row, seal)
        return row

    @contextmanager
    def _reading(self, config: RunnableConfig | None) -> Iterator[sqlite3.Cursor]:
        with self.cursor(transaction=False) as cursor:
            try:
                yield cursor
            except sqlite3.OperationalError as error:
                if str(error).startswith(_UNREADABLE):
                    where = f"a row of thread {place_of(config)[0]!r}" if config else "a row"
                    raise CheckpointTampered(where, str(error)) from error
                raise


def place_of(config: RunnableConfig) -> tuple[str, str]:
    """Return the thread id and the namespace of a config."""
    given = config["configurable"]
    return str(given["thread_id"]), str(given.get("checkpoint_ns", ""))


_AT = f"{CHECKPOINTS} WHERE thread_id = ? AND checkpoint_ns = ?"
_LAST = "SELECT max(checkpoint_id) FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ?"
_WRITTEN_AT = f"{WRITES} WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
# Follows each row to its parent; SQLite returns them in that order, one by one.
_CHAIN = f"""
WITH RECURSIVE chain (id, above) AS (
    SELECT checkpoint_id, parent_checkpoint_id FROM checkpoints
    WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?
    UNION ALL
    SELECT checkpoint_id, parent_checkpoint_id
    FROM chain CROSS JOIN checkpoints ON checkpoint_id = above
    WHERE thread_id = ? AND checkpoint_ns = ?
)
{CHECKPOINTS.replace(" FROM checkpoints", " FROM chain CROSS JOIN checkpoints")}
ON checkpoint_id = chain.id WHERE thread_id = ? AND checkpoint_ns = ?
"""  # noqa: S608
_OF_CHANNEL = (
    f"{WRITES} WHERE thread_id = ? AND checkpoint_ns = ? AND channel = ?"  # noqa: S608
    " AND checkpoint_id IN (SELECT value FROM json_each(?))"
)
