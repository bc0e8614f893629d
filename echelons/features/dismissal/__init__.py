"""Subordinates that are dismissed for good."""
