"""What tests of routing share: the travel team, and a matcher that says what it was told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from echelons import Agent
from echelons.capabilities import CapabilityMap
from echelons.routing import Match, Profile


class Fixed:
    """A matcher and its own prepared form.

    Attributes:
        asked: The tasks that it was asked for.
    """

    threshold = 0.5

    def __init__(self, **matches: float) -> None:
        self._matches = matches
        self._profiles: Sequence[Profile] = ()
        self.asked: list[str] = []

    def prepare(self, profiles: Sequence[Profile]) -> Fixed:
        self._profiles = profiles
        return self

    def match(self, task: str) -> Mapping[int, Match]:
        self.asked.append(task)
        return {
            place: Match(self._matches[profile.name], profile.confidence)
            for place, profile in enumerate(self._profiles)
            if profile.name in self._matches
        }

    async def amatch(self, task: str) -> Mapping[int, Match]:
        return self.match(task)

    def reasons(self, task: str, place: int) -> Sequence[str]:
        return [f"told so of {self._profiles[place].name}"]


def below(*crowd: Agent) -> CapabilityMap:
    """A head with some subordinates."""
    return CapabilityMap.discover(Agent("head", subordinates=crowd))


def travel() -> CapabilityMap:
    """The travel team of three levels."""
    eat = Agent("restaurants", capabilities={"dining": 0.9, "food": 0.9})
    tours = Agent("tours", capabilities={"tours": 0.9, "guides": 0.9})
    events = Agent("events", capabilities={"shows": 0.9, "concerts": 0.9})
    fun = Agent(
        "experiences",
        capabilities={"activities": 0.9, "restaurants": 0.9},
        subordinates=[eat, tours, events],
    )
    flights = Agent("flights", capabilities={"flights": 0.9, "airlines": 0.9, "trip": 0.7})
    hotels = Agent("hotels", capabilities={"hotels": 0.9, "accommodations": 0.9, "trip": 0.7})
    return below(flights, hotels, fun)
