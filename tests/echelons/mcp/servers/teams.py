"""Teams that the tests serve: they answer, ask, wait, print and fail."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.types import interrupt

from echelons import Agent, Permissions
from echelons.testing import Call, ScriptedModel, Step, delegate
from echelons.workspace_tools import file_tools

COUNT = {"type": "integer", "minimum": 1}


def note(text: str) -> None:
    with Path(os.environ["TEAM_NOTES"]).open("a", encoding="utf-8") as file:
        file.write(f"{text}\n")


def ask_name() -> str:
    """Ask for a name: a text."""
    return f"name {interrupt('Whose table?')!r}"


def ask_count() -> str:
    """Ask for a number."""
    return f"count {interrupt('How many seats?', response_schema=COUNT)!r}"


def ask_sure() -> str:
    """Ask for a boolean."""
    return f"sure {interrupt('Sure?', response_schema={'type': 'boolean'})!r}"


def ask_room() -> str:
    """Ask for a choice."""
    return f"room {interrupt('Which room?', response_schema={'enum': ['red', 'blue']})!r}"


def ask_list() -> str:
    """Ask for more than a form has."""
    return f"list {interrupt('Which days?', response_schema={'type': 'array'})!r}"


async def wait() -> str:
    """Wait for ever, and note when that is cancelled."""
    note("waiting")
    try:
        await asyncio.Event().wait()
    finally:
        note("cancelled")
    return "never"


def shout() -> str:
    """Print to the standard output."""
    print("this is no JSON")
    return "shouted"


def fail() -> str:
    """Raise an exception."""
    raise ValueError("no such room; api_key=hunter2-of-ours")


def reserve(room: str) -> str:
    """Reserve a room."""
    return f"reserved {room}"


TOOLS: dict[str, Any] = {
    each.__name__: each
    for each in (ask_name, ask_count, ask_sure, ask_room, ask_list, wait, shout, fail, reserve)
}


def answer(messages: Any) -> Step:
    """Repeat the results of the tools, or the task if there are none."""
    texts = [each.text for each in messages if each.type == "tool"]
    return "; ".join(texts) or f"You said: {messages[-1].text}"


def build_team(name: str, *tools: str, **options: Any) -> Agent:
    """Return a team of two levels whose clerk calls some tools."""
    calls: list[Step] = [Call(each, {"room": "red"} if each == "reserve" else {}) for each in tools]

    def work(messages: Any) -> Step:
        done = sum(each.type == "tool" for each in messages)
        return calls[done] if done < len(calls) else answer(messages)

    model = ScriptedModel({name: lead, "clerk": work})
    clerk = Agent("clerk", "Works", tools=[TOOLS[each] for each in tools], **options)
    return Agent(name, f"The team {name}.", model=model, subordinates=[clerk])


def lead(messages: Any) -> Step:
    """Delegate a new task, and repeat its result."""
    if messages[-1].type == "human":
        return delegate("clerk", messages[-1].text)
    return str(messages[-1].text)


echo = build_team("echo")
asker = build_team("asker", "ask_name", "ask_count", "ask_sure", "ask_room")
lister = build_team("lister", "ask_list")
waiter = build_team("waiter", "wait")
shouter = build_team("shouter", "shout")
failer = build_team("failer", "fail")
approver = build_team("approver", "reserve", permissions=Permissions(approvals={"reserve": "ask"}))


def broken(messages: Any) -> Step:
    """Fail like a provider."""
    raise ConnectionError("no route\nto the model; password=hunter2-of-ours")


breaker = Agent("breaker", "Breaks", model=ScriptedModel(broken))


def read(messages: Sequence[BaseMessage]) -> Any:
    """Read the notes, and say what they are."""
    if messages[-1].type == "tool":
        return messages[-1].text
    return Call("read_file", {"path": "notes.txt"})


reader = Agent("reader", tools=file_tools(), model=ScriptedModel({"reader": read}))
