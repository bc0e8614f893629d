"""The state that a tool reads by `InjectedState` and `ToolRuntime`: that of its agent's thread.

A level's own state has the messages of one request; those of earlier requests of the thread are in
earlier segments, and come before them, as hooks and prompts see them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args, get_origin, get_type_hints

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.prebuilt import InjectedState, ToolRuntime

from echelons.identity.thread_history import Past
from echelons.langgraph_internals import READ_KEY, list_state_keys


def reads_state(tool: BaseTool) -> bool:
    """Return whether a tool is given the state, as far as LangGraph finds that out."""
    functions = (getattr(tool, "func", None), getattr(tool, "coroutine", None))
    hints = [_read_hints(each) for each in (*functions, tool.args_schema) if each is not None]
    return any(_asks_for_state(name, kind) for hint in hints for name, kind in hint.items())


def extend_state(past: Past, config: RunnableConfig) -> Mapping[str, Any] | None:
    """Return the state of a task's level with the messages of the whole thread.

    `None` if these are the level's own alone.
    """
    state: dict[str, Any] = config["configurable"][READ_KEY](sorted(list_state_keys(config)))
    earlier = past.hide_cut(state).messages
    return {**state, "messages": [*earlier, *state["messages"]]} if earlier else None


def _read_hints(thing: Any) -> Mapping[str, Any]:
    if isinstance(thing, Mapping):  # a JSON Schema
        return {}
    try:
        return get_type_hints(thing, include_extras=True)
    except (AttributeError, NameError, TypeError):
        return {}


def _asks_for_state(name: str, kind: Any) -> bool:
    parts = (kind, get_origin(kind), *get_args(kind))
    wanted = (InjectedState, ToolRuntime)
    return name == "runtime" or any(
        isinstance(part, wanted) or (isinstance(part, type) and issubclass(part, wanted))
        for part in parts
    )
