"""The tools of `events`."""

from langchain_core.tools import tool

from echelons.teams.travel import lookups

__all__ = ["find_events"]

find_events = tool(parse_docstring=True)(lookups.find_events)
