"""Rows in SQLite: written, sealed, verified, cached and read back."""
