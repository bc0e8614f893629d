"""Who is compared: each framework at its settings, with what it stores of its own accord.

To add one, write its module beside this file and its pins in ``pins/``, and name it here.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.rivals import AS_IT_COMES, FLOOR, FULL, OURS, OURS_FULL

EVERY_STEP = "every step of every agent, before the next"
BEHIND = "every step of every agent, while the next runs"


@dataclass(frozen=True, slots=True)
class Entry:
    """One framework at one setting.

    Attributes:
        name: The framework.
        module: The module of this folder that stands for it.
        setting: How it is set.
        keeps: What it stores of the chain, and when.
        synchronous: SQLite's setting of that name.
        environment: Whose pins it needs; ``None`` for our own environment.
    """

    name: str
    module: str
    setting: str
    keeps: str
    synchronous: str = "FULL"
    environment: str | None = None

    @property
    def key(self) -> str:
        """Name and setting."""
        return f"{self.name}, {self.setting}"


def _langgraph(name: str, module: str) -> tuple[Entry, Entry]:
    return (
        Entry(name, module, "as it comes", BEHIND, environment=name),
        Entry(name, module, "FULL, sync", EVERY_STEP, environment=name),
    )


OWN = Entry("echelons", "house", OURS, EVERY_STEP, "NORMAL")
OWN_FULL = Entry("echelons", "house", OURS_FULL, EVERY_STEP)
HANDWRITTEN = Entry("hand-written LangGraph", "house", AS_IT_COMES, BEHIND)

ENTRIES: tuple[Entry, ...] = (
    OWN,
    OWN_FULL,
    HANDWRITTEN,
    Entry("hand-written LangGraph", "house", FULL, EVERY_STEP),
    *_langgraph("create-agent", "create_agent"),
    *_langgraph("langgraph-supervisor", "supervisor"),
    *_langgraph("deepagents", "deep_agents"),
    Entry(
        "openai-agents",
        "openai_agents",
        "as it comes",
        "the root's items, after each turn and its tools",
        environment="openai-agents",
    ),
    Entry(
        "openai-agents",
        "openai_agents",
        "a session for each agent",
        "every agent's items, after each turn and its tools",
        environment="openai-agents",
    ),
    Entry(
        "pydantic-ai",
        "pydantic_agents",
        "by hand",
        "the root's messages, at the end",
        environment="pydantic-ai",
    ),
    Entry(
        "pydantic-ai",
        "pydantic_agents",
        "DBOS",
        "every model turn and tool call, before the next",
        environment="pydantic-ai",
    ),
    Entry(
        "agno",
        "agno_team",
        "as it comes",
        "each team's run, at its end",
        environment="agno",
    ),
    Entry(
        "agno",
        "agno_team",
        "tool-batch, members too",
        "each team's and member's run, after each turn and its tools",
        environment="agno",
    ),
    Entry("the floor", "house", FLOOR, "every message, a transaction a turn", "NORMAL"),
)
