"""Formatting for the command line: text for people, lines and JSON for programs."""
