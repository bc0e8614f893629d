"""The calls of a test model, one record each; safe to use from several threads.

`ScriptedModel` writes it; tests read it, for instance to show that no finished call ran again.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage


@dataclass(frozen=True)
class CallRecord:
    """One call of a model.

    Attributes:
        number: Its index among all calls of the model, from 0.
        agent: The name of the calling agent, or None if the call names none.
        path: The path of that agent in the tree, or None.
        thread_id: The id of the agent's thread, or None.
        messages: The conversation as the model saw it.
        tools: The names of the tools that it could call.
        metadata: All metadata of the call.
    """

    number: int
    agent: str | None
    path: str | None
    thread_id: str | None
    messages: tuple[BaseMessage, ...]
    tools: tuple[str, ...]
    metadata: Mapping[str, Any]

    @property
    def question(self) -> Hashable:
        """A key that is equal for calls of one agent with equal messages in the same thread."""
        return (self.agent, self.thread_id, tuple(_message_content(m) for m in self.messages))


def _message_content(message: BaseMessage) -> Hashable:
    """Return the content of a message, without its id and metadata."""
    calls = repr(message.tool_calls) if isinstance(message, AIMessage) else ""
    answered = message.tool_call_id if isinstance(message, ToolMessage) else ""
    return (message.type, repr(message.content), calls, answered)


class CallLog:
    """All calls of one model, shared by all bindings of it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started: list[CallRecord] = []
        self._finished: list[CallRecord] = []
        self._bindings: list[tuple[str, ...]] = []

    def record_start(
        self, metadata: Mapping[str, Any], messages: Iterable[BaseMessage], tools: Iterable[str]
    ) -> CallRecord:
        """Record that a call begins."""
        with self._lock:
            record = CallRecord(
                number=len(self._started),
                agent=metadata.get("agent"),
                path=metadata.get("agent_path"),
                thread_id=metadata.get("agent_thread_id"),
                messages=tuple(messages),
                tools=tuple(tools),
                metadata=dict(metadata),
            )
            self._started.append(record)
        return record

    def record_finish(self, record: CallRecord) -> None:
        """Record that a call gave its whole answer."""
        with self._lock:
            self._finished.append(record)

    def record_binding(self, tools: Iterable[str]) -> None:
        """Record that tools were bound."""
        with self._lock:
            self._bindings.append(tuple(tools))

    @property
    def started(self) -> list[CallRecord]:
        """All calls, in the order in which they began."""
        with self._lock:
            return list(self._started)

    @property
    def finished(self) -> list[CallRecord]:
        """The calls that gave their whole answer, in the order in which they did."""
        with self._lock:
            return list(self._finished)

    @property
    def bindings(self) -> list[tuple[str, ...]]:
        """The names of the tools of each binding, in order."""
        with self._lock:
            return list(self._bindings)

    def find_repeated(self) -> list[CallRecord]:
        """Return the calls whose question an earlier, finished call had already.

        Calls without a thread id count as one thread, so two equal delegations of an agent
        that passes no thread id look like a repetition.
        """
        ended = {record.number for record in self.finished}
        answered: set[Hashable] = set()
        repeated = []
        for record in self.started:
            if record.question in answered:
                repeated.append(record)
            if record.number in ended:
                answered.add(record.question)
        return repeated
