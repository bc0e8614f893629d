"""The tools of `flights`."""

from langchain_core.tools import tool

from echelons.teams.travel import flights

__all__ = ["find_flights"]

find_flights = tool(parse_docstring=True)(flights.find_flights)
