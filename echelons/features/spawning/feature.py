"""`SpawningFeature`: agents that make subordinates at run time."""

from __future__ import annotations

from typing import ClassVar

from echelons.features.feature import AgentHooks, Feature, Place
from echelons.features.spawning.tools import SpawnSubordinate
from echelons.guards.spawn import Spawn


class SpawningHooks(AgentHooks):
    """The tool of an agent that may make subordinates.

    Args:
        place: The agent at its place.
        rules: What it may make.
    """

    def __init__(self, place: Place, rules: Spawn) -> None:
        contact_user = place.agent.permissions.contact_user
        self.tools = (SpawnSubordinate(rules, contact_user, has_budget=place.has_budget),)


class SpawningFeature(Feature):
    """Subordinates that are made at run time."""

    name: ClassVar[str] = "spawning"

    def bind(self, place: Place) -> AgentHooks | None:
        """Return the tool of an agent that may make subordinates."""
        rules = place.agent.permissions.spawn
        return SpawningHooks(place, rules) if place.can_call and rules else None


FEATURE = SpawningFeature()
