"""`Thread`: one agent's conversation, as it is read back from the checkpoints."""

from __future__ import annotations

from dataclasses import dataclass

from langchain_core.messages import BaseMessage

from echelons.checkpoints.queries import OneCheckpoint
from echelons.checkpoints.thread_events import ThreadEvent, build_thread_events, pair_events


@dataclass(frozen=True, slots=True)
class Thread:
    """One agent's conversation.

    Attributes:
        id: Its own id.
        agent: Name of the agent.
        path: Names from the root to the agent.
        root_thread_id: LangGraph's `thread_id`, under which it is stored.
        superior_thread_id: Thread of the superior that called it; empty for a root.
        name: Its name; only roots have names.
        segments: Number of requests that it has worked on; 1 for a root, 0 if it has not begun.
        begun_at: When its first checkpoint that is left was stored, ISO 8601, UTC; empty if it has
            not begun.
        messages: The conversation, oldest first; that of a foreign graph with its tool calls.
        latest: Its last checkpoint; `None` if it has not begun.
    """

    id: str
    agent: str
    path: tuple[str, ...]
    root_thread_id: str
    superior_thread_id: str
    name: str
    segments: int
    begun_at: str
    messages: tuple[BaseMessage, ...]
    latest: OneCheckpoint | None

    @property
    def events(self) -> tuple[ThreadEvent, ...]:
        """The conversation as events, each call paired with its answer."""
        return pair_events(build_thread_events(self.messages, self.agent, self.id))
