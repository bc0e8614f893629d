"""The travel team: its agents, their capabilities and their tools.

`echelons run travel` loads it; its full name is `echelons.teams.travel.team:team`.
"""

from __future__ import annotations

from collections.abc import Callable

from langchain_core.tools import BaseTool, tool

from echelons.agent import Agent
from echelons.teams.travel import vocabulary
from echelons.teams.travel.flights import find_flights
from echelons.teams.travel.lookups import find_events, find_food, find_places_to_stay, find_tours
from echelons.teams.travel.reservations import reserve_table

_FACTS = "Answer only from what your tools return, keep the sources, and say what is not known."
_LEAD = "Delegate each part of the task to the subordinate that fits, then put the answers together"


def team() -> Agent:
    """Return the head of the travel team.

    >>> [member.name for member in team().subordinates]
    ['flights', 'hotels', 'experiences']
    """
    flights = Agent(
        "flights",
        "Finds airports, distances and estimated flight times",
        prompt=f"You know airports and how far they are apart. {_FACTS}",
        tools=_make_tools(find_flights),
        capabilities=vocabulary.FLIGHTS,
    )
    hotels = Agent(
        "hotels",
        "Finds hotels and districts to stay in",
        prompt=f"You know where to stay. {_FACTS}",
        tools=_make_tools(find_places_to_stay),
        capabilities=vocabulary.HOTELS,
    )
    return Agent(
        "head",
        "Plans trips",
        prompt=f"You plan trips. {_LEAD}, with their sources.",
        subordinates=[flights, hotels, _build_experiences()],
    )


def _build_experiences() -> Agent:
    restaurants = Agent(
        "restaurants",
        "Finds food, restaurants and markets, and has tables reserved by a human",
        prompt=f"You know dishes and places to eat. Reserve only what is asked for. {_FACTS}",
        tools=_make_tools(find_food, reserve_table),
        capabilities=vocabulary.RESTAURANTS,
    )
    tours = Agent(
        "tours",
        "Finds sights, museums, walks and outings",
        prompt=f"You know what there is to see. {_FACTS}",
        tools=_make_tools(find_tours),
        capabilities=vocabulary.TOURS,
    )
    events = Agent(
        "events",
        "Finds opera, concerts, theatre and recurring festivals",
        prompt=f"You know what is on. {_FACTS}",
        tools=_make_tools(find_events),
        capabilities=vocabulary.EVENTS,
    )
    return Agent(
        "experiences",
        "Finds things to do: food, sights and events",
        prompt=f"You plan what to do on a trip. {_LEAD}, with their sources.",
        subordinates=[restaurants, tours, events],
        capabilities=vocabulary.EXPERIENCES,
    )


def _make_tools(*functions: Callable[..., str]) -> list[BaseTool]:
    """Make LangChain tools; names, arguments and their descriptions come from the functions."""
    return [tool(parse_docstring=True)(function) for function in functions]
