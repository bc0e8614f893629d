"""Finds messages of a conversation by words, with SQLite's full-text index FTS5.

The index is made of the conversation when it is asked: so it has no rows to be deleted, pruned or
copied, a fork finds only its own past, and it is the same with every saver.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any

_WORD = re.compile(r"\w+")


def search_messages(messages: Sequence[Any], query: str, limit: int) -> list[int]:
    """Return the places of the messages that fit a query best, in the order of the conversation.

    A message fits if it has one of the words; the more of them, and the rarer they are, the better
    (BM25). The query is data: no part of it is an operator of the index.

    Args:
        messages: The conversation.
        query: Words.
        limit: Most places.
    """
    words = list(dict.fromkeys(_WORD.findall(query.lower())))[:64]
    if not words:
        return []
    match = " OR ".join(f'"{word}"' for word in words)
    rows = (
        (place + 1, str(message.text).encode("utf-8", "replace").decode())
        for place, message in enumerate(messages)
        if message.text
    )
    with closing(sqlite3.connect(":memory:")) as index:
        index.execute("CREATE VIRTUAL TABLE said USING fts5(text, tokenize = 'unicode61')")
        index.executemany("INSERT INTO said (rowid, text) VALUES (?, ?)", rows)
        matches = index.execute(
            "SELECT rowid FROM said WHERE said MATCH ? ORDER BY rank LIMIT ?", (match, limit)
        ).fetchall()
    return sorted(place - 1 for (place,) in matches)
