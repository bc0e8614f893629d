"""`MemoryFeature`: what an agent with a memory reads of a long conversation."""

from __future__ import annotations

from typing import ClassVar

from echelons.checkpoints.threads.message_search import search_messages
from echelons.features.feature import AgentHooks, AgentStep, Feature, Place, Prompt
from echelons.features.memory.prompt_memory import PromptMemory
from echelons.features.memory.settings import Memory
from echelons.features.memory.tools import Pin, Recall
from echelons.models import is_offline_planner
from echelons.plans import Plan


class MemoryHooks(AgentHooks):
    """The memory of one agent."""

    def __init__(self, settings: Memory, place: Place) -> None:
        if place.can_call:
            self.tools = (Recall(search_messages), Pin(settings.budget))
        model, writes = place.model, settings.summarizer == "model"
        if settings.summarizer is None:
            writes = not is_offline_planner(model)
        # The offline planner, and a function that chooses, write no summaries.
        has_writer = writes and hasattr(model, "bind_tools")
        self._memory = PromptMemory(settings, model if has_writer else None)

    def prepare_prompt(self, prompt: Prompt, step: AgentStep) -> Plan[Prompt]:
        """Make the conversation fit into the budget of the memory."""
        return self._memory.shorten(prompt, step.config)


class MemoryFeature(Feature):
    """The memory of agents."""

    name: ClassVar[str] = "memory"

    def bind(self, place: Place) -> AgentHooks | None:
        """Return the memory of an agent."""
        settings = place.agent.memory
        return MemoryHooks(settings, place) if settings else None


FEATURE = MemoryFeature()
