"""The tools of `restaurants`."""

from langchain_core.tools import tool

from echelons.teams.travel import lookups

__all__ = ["find_food", "reserve_table"]

find_food = tool(parse_docstring=True)(lookups.find_food)
reserve_table = tool(parse_docstring=True)(lookups.reserve_table)
