"""The floor: the least that the same work costs with LangChain's models and SQLite.

A plain loop, and one transaction a turn. No graph, no resuming, no interrupts.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
)
from langchain_core.runnables import Runnable

from benchmarks.trees import CALL, Role


class Floor:
    """A tree as nested loops; threads are kept in memory too, and written once.

    Args:
        role: The root.
        connection: Where the messages go; shared with the subordinates.
        database: Its path.
    """

    def __init__(self, role: Role, connection: sqlite3.Connection, database: Path) -> None:
        self.database = database
        self._role = role
        self._connection = connection
        self._threads: defaultdict[str, list[BaseMessage]] = defaultdict(list)
        self._tools = {each.name: each for each in role.tools}
        self._below = {each.name: Floor(each, connection, database) for each in role.subordinates}
        self._model: Runnable[Any, AIMessage] = role.model.bind_tools(list(role.tools))

    def invoke(self, given: Any, thread: str) -> str:
        """Do a task and return the answer."""
        new: list[BaseMessage] = [HumanMessage(given)]
        while True:
            reply = self._model.invoke(self._shown(thread, new))
            self._keep(thread, [*new, reply])
            if not reply.tool_calls:
                return str(reply.text)
            new = [_answer(call, self._done(call, thread)) for call in reply.tool_calls]

    async def ainvoke(self, given: Any, thread: str) -> str:
        """Do the same in an event loop."""
        new: list[BaseMessage] = [HumanMessage(given)]
        while True:
            reply = await self._model.ainvoke(self._shown(thread, new))
            self._keep(thread, [*new, reply])
            if not reply.tool_calls:
                return str(reply.text)
            new = [_answer(call, await self._adone(call, thread)) for call in reply.tool_calls]

    def _done(self, call: ToolCall, thread: str) -> str:
        if call["name"] == CALL:
            return self._below[call["args"]["subordinate"]].invoke(call["args"]["message"], thread)
        return str(self._tools[call["name"]].invoke(call["args"]))

    async def _adone(self, call: ToolCall, thread: str) -> str:
        if call["name"] == CALL:
            subordinate = self._below[call["args"]["subordinate"]]
            return await subordinate.ainvoke(call["args"]["message"], thread)
        return str(await self._tools[call["name"]].ainvoke(call["args"]))

    def _shown(self, thread: str, new: Sequence[BaseMessage]) -> list[BaseMessage]:
        return [SystemMessage(self._role.prompt), *self._threads[thread], *new]

    def _keep(self, thread: str, new: Sequence[BaseMessage]) -> None:
        rows = [(thread, self._role.name, each.model_dump_json()) for each in new]
        with self._connection:
            self._connection.executemany(
                "INSERT INTO messages (thread, agent, data) VALUES (?, ?, ?)", rows
            )
        self._threads[thread].extend(new)


def connect(path: Path) -> sqlite3.Connection:
    """Open the floor's database: write-ahead log, ``synchronous=NORMAL``."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute(
        "CREATE TABLE messages (id INTEGER PRIMARY KEY, thread TEXT, agent TEXT, data TEXT)"
    )
    return connection


def _answer(call: ToolCall, result: str) -> ToolMessage:
    return ToolMessage(result, tool_call_id=call["id"], name=call["name"])
