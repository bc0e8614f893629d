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
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    version INTEGER NOT NULL,
    at TEXT NOT NULL,
    value TEXT NOT NULL
);
CREATE TABLE ledger_floor (version INTEGER NOT NULL);
INSERT INTO ledger_floor VALUES (0);
CREATE TABLE ledger_leases (
    name TEXT PRIMARY KEY,
    epoch INTEGER NOT NULL,
    pid INTEGER NOT NULL,
    since TEXT NOT NULL
);
"""
