"""`Memory`: the settings of an agent's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from echelons.errors import invalid_field
from echelons.settings import Settings

if TYPE_CHECKING:
    from echelons.agent import Agent

MIN_BUDGET = 400
"""Fewest tokens of a budget: the guidance of a leaf has some 250."""
DEFAULT_BUDGET = 16_000
"""Tokens that even small models of today read."""


class Memory(Settings):
    """How much of its conversation an agent's model reads at each call.

    The latest turns stay word for word. Earlier turns are summarised: each turn becomes a
    topic, many topics become a paragraph, and paragraphs become one. Nothing is taken out of the
    thread, and the agent can look up what was said, with its tools `recall` and `pin`.

    Attributes:
        budget: Most tokens of instructions and messages at a call; at least 400. The schemas of
            its tools are beside that.
        recent: Turns that stay word for word, as far as the budget allows.
        summarizer: `"model"` to let the agent's model write the summaries, `"extractive"` to make
            them of sentences of the conversation, without a model; by default its model does,
            unless it is the offline planner.

    Raises:
        InvalidSetting: A value is out of its range, or has an unknown name.

    Examples:
        >>> Memory(budget=8000).recent
        6
    """

    budget: int = Field(default=DEFAULT_BUDGET, ge=MIN_BUDGET)
    recent: int = Field(default=6, ge=1)
    summarizer: Literal["model", "extractive"] | None = None


def check_memory(agent: Agent) -> Memory | None:
    """Return the memory of an agent."""
    memory = agent.memory
    if not issubclass(type(memory), Memory | None):
        raise invalid_field(agent.name, "memory", memory, "Memory")
    return memory
