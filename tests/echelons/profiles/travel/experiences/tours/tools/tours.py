"""The tools of `tours`."""

from langchain_core.tools import tool

from echelons.teams.travel import lookups

__all__ = ["find_tours"]

find_tours = tool(parse_docstring=True)(lookups.find_tours)
