"""The tools that look facts up: places to stay, food, tours and events.

Plain functions; `team` gives them to the agents. Each returns one fact a line with its source,
and raises `ToolException` for an unknown place, naming the known ones. None knows prices,
opening hours or whether anything is free.
"""

from __future__ import annotations

from echelons.teams.travel.fact_answers import Topic, answer_topic

STAYS = Topic("places to stay", ("hotel", "district"), "stay hotel accommodation room night")
FOOD = Topic(
    "food and drink",
    ("dish", "restaurant", "market", "cafe", "drink", "shop"),
    "food eat dine dining meal lunch dinner supper cuisine culinary speciality specialty table",
)
TOURS = Topic("sights", ("museum", "sight", "walk"), "tour sight sightseeing see visit trip guide")
EVENTS = Topic("venues and events", ("venue", "festival"), "event show evening see watch")


def find_places_to_stay(place: str) -> str:
    """Find districts to stay in and long-standing hotels, without prices or vacancies.

    Args:
        place: A city or country, such as "Rome" or "Japan".
    """
    return answer_topic(STAYS, place)


def find_food(place: str, dish: str | None = None) -> str:
    """Find dishes, restaurants, cafés and markets, without prices or opening hours.

    Args:
        place: A city or country, such as "Bologna" or "Italy".
        dish: What to look for, such as "pasta", "seafood" or "vegetarian".
    """
    return answer_topic(FOOD, place, dish)


def find_tours(place: str, interest: str | None = None) -> str:
    """Find sights, museums, walks and outings, without prices or opening hours.

    Args:
        place: A city or country, such as "Florence" or "Greece".
        interest: What to look for, such as "art", "history", "hiking" or "architecture".
    """
    return answer_topic(TOURS, place, interest)


def find_events(place: str, kind: str | None = None) -> str:
    """Find opera houses, concert halls, theatres and recurring festivals, without programmes.

    Args:
        place: A city or country, such as "Verona" or "Austria".
        kind: What to look for, such as "opera", "jazz", "film" or "carnival".
    """
    return answer_topic(EVENTS, place, kind)
