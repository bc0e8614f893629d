"""The tools of `flights`."""

from langchain_core.tools import tool

from echelons.teams.travel import lookups

__all__ = ["find_flights"]

find_flights = tool(parse_docstring=True)(lookups.find_flights)
