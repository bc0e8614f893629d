"""The tables of the ledger: step 2 of the database's schema."""

from __future__ import annotations

LEDGER = """
CREATE TABLE ledger_entries (
    id INTEGER PRIMARY KEY,
    stream TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    at TEXT NOT NULL,
    record TEXT NOT NULL,
    UNIQUE (stream, sequence)
);
CREATE TABLE ledger_values (
    version INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    at TEXT NOT NULL,
    value TEXT NOT NULL
);
CREATE TABLE ledger_leases (
    name TEXT PRIMARY KEY,
    epoch INTEGER NOT NULL,
    pid INTEGER NOT NULL,
    since TEXT NOT NULL
);
"""
"""``AUTOINCREMENT`` is what keeps a version from being given twice, also after a deletion."""
