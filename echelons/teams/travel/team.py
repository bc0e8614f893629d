"""The travel team: its agents, their capabilities and their tools.

`echelons run travel` loads it; its full name is `echelons.teams.travel.team:team`.

Superiors and the offline planner match the words of a task against the capabilities, longer phrases
first. The lists have only what the tools can answer, so no trains, no fares and no beaches; and no
word that is more often a circumstance than a wish ("evening", "area", "arrival"), because it would
involve an agent that the task does not need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from langchain_core.tools import BaseTool, tool

from echelons.agent import Agent
from echelons.teams.travel.lookups import (
    find_events,
    find_flights,
    find_food,
    find_places_to_stay,
    find_tours,
    reserve_table,
)


def _rate_words(levels: Mapping[float, str]) -> Mapping[str, float]:
    return {
        word.strip(): confidence
        for confidence, listed in levels.items()
        for word in listed.split(",")
    }


# A trip needs a way there and a bed, whatever else it is about.
_TRIP = "trip, travel, holiday, vacation, journey, getaway, honeymoon, itinerary, city break"

# Things to do in general: sights and events answer that.
_THINGS = "activities, experiences, things to do, what to do, there to do"

FLIGHTS = _rate_words(
    {
        0.95: "flights, flying, fly, airports, flew, flown, round trip",
        0.8: "plane, airplane, aeroplane, airline, aviation, iata, distance, nonstop, how far",
        0.7: _TRIP,
    }
)

HOTELS = _rate_words(
    {
        0.95: "hotels, accommodation, lodging, stay, place to stay, where to stay",
        0.85: "inn, ryokan, room, suite, sleep, overnight, hostel, guesthouse,"
        "bed and breakfast, bed",
        0.7: _TRIP,
        0.6: "walking distance, resort",
    }
)

EXPERIENCES = _rate_words({0.9: _THINGS})

RESTAURANTS = _rate_words(
    {
        0.95: "restaurants, food, dining, eat, cuisine, dishes, dine, dining room",
        0.9: "dinner, lunch, breakfast, brunch, supper, meal, gastronomy, culinary, foodie,"
        "street food, specialities, specialties, table, reserve a table, book a table, eatery",
        0.85: "pizza, pasta, sushi, tapas, ramen, noodles, seafood, fish, oysters, steak, meat,"
        "tacos, cheese, bread, pastry, cake, dessert, sweets, chocolate, ice cream, gelato, soup,"
        "sandwich, burger, curry, barbecue, vegetarian, vegan, risotto, croissant,"
        "bakery, delicatessen, pizzeria, trattoria, osteria, bistro, brasserie, bouchon, tavern,"
        "pub, bar, cafe, coffee, coffee house, tea, wine, beer, beer garden, whisky, cocktails,"
        "drinks, delicious, tasty, tasting, gourmet, chef, cooking, hungry, kaiseki, paella,"
        "schnitzel, churros",
        0.7: "food market, markets, snack, afternoon tea",
    }
)

TOURS = _rate_words(
    {
        0.95: "tours, sightseeing, museums, sights, guided, guides, attractions,"
        "what to see, things to see",
        0.9: "art, gallery, monuments, landmarks, history, historic, historical, architecture,"
        "ruins, archaeology, archaeological, castle, palace, cathedral, church, basilica, temple,"
        "shrine, heritage, unesco, painting, sculpture, exhibits, ancient, renaissance, medieval",
        0.8: "walking, walk, hiking, hike, excursion, outing, day trip, boat trip, parks, gardens,"
        "viewpoint, mosaic, frescoes, baroque, gothic, impressionism, antiquities, science,"
        "aquarium, tower, bridge, fortress, pyramids, colosseum, louvre, prado, acropolis, pompeii",
        0.6: "culture, nature, canals, catacombs, manga",
        0.5: _THINGS,
    }
)

EVENTS = _rate_words(
    {
        0.95: "events, concerts, opera, festivals, theatre, theater, performances",
        0.9: "music, musical, ballet, jazz, orchestra, symphony, carnival, parade, gig, shows,"
        "philharmonic, flamenco, fado, kabuki, bunraku, recital, cabaret, broadway, mariachi,"
        "oktoberfest, mardi gras, matsuri, biennale, celebrations, fireworks",
        0.8: "dance, dancing, film, cinema, entertainment, nightlife, drama, comedy, singing,"
        "singer, band, sumo, wrestling, marathon, stage, venue, premiere, puppets, marionettes",
        0.6: "culture, sport, club, book fair, performers",
        0.5: _THINGS,
    }
)


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
        capabilities=FLIGHTS,
    )
    hotels = Agent(
        "hotels",
        "Finds hotels and districts to stay in",
        prompt=f"You know where to stay. {_FACTS}",
        tools=_make_tools(find_places_to_stay),
        capabilities=HOTELS,
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
        capabilities=RESTAURANTS,
    )
    tours = Agent(
        "tours",
        "Finds sights, museums, walks and outings",
        prompt=f"You know what there is to see. {_FACTS}",
        tools=_make_tools(find_tours),
        capabilities=TOURS,
    )
    events = Agent(
        "events",
        "Finds opera, concerts, theatre and recurring festivals",
        prompt=f"You know what is on. {_FACTS}",
        tools=_make_tools(find_events),
        capabilities=EVENTS,
    )
    return Agent(
        "experiences",
        "Finds things to do: food, sights and events",
        prompt=f"You plan what to do on a trip. {_LEAD}, with their sources.",
        subordinates=[restaurants, tours, events],
        capabilities=EXPERIENCES,
    )


def _make_tools(*functions: Callable[..., str]) -> list[BaseTool]:
    """Make LangChain tools; names, arguments and their descriptions come from the functions."""
    return [tool(parse_docstring=True)(function) for function in functions]
