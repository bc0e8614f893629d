"""`MemoryFeature`: what an agent with a memory reads of a long conversation."""

from __future__ import annotations

from typing import ClassVar

from echelons.checkpoints.threads.message_search import search_messages
from echelons.features.feature import AgentHooks, Feature, Place
from echelons.features.memory.tools import Pin, Recall


class MemoryHooks(AgentHooks):
    """The memory of one agent.

    Args:
        place: The agent at its place.
    """

    def __init__(self, place: Place) -> None:
        assert place.agent.memory is not None  # noqa: S101  the registry has looked
        if place.can_call:
            self.tools = (Recall(search_messages), Pin(place.agent.memory.budget))


class MemoryFeature(Feature):
    """The memory of agents."""

    name: ClassVar[str] = "memory"

    def bind(self, place: Place) -> AgentHooks | None:
        """Return the memory of an agent."""
        return MemoryHooks(place)


FEATURE = MemoryFeature()
