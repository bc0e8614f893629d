"""The tools of `hotels`."""

from langchain_core.tools import tool

from echelons.teams.travel import lookups

__all__ = ["find_places_to_stay"]

find_places_to_stay = tool(parse_docstring=True)(lookups.find_places_to_stay)
