"""Upkeep of a database: delete, copy, prune, check, back up."""
