"""What LangGraph's config tells about a run: its saver, how it is stored, and its namespace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver

from echelons.langgraph_internals import (
    CHECKPOINTER_KEY,
    DURABILITY_KEY,
    READ_KEY,
    RESUMING_KEY,
)
from echelons.langgraph_internals import (
    NS_SEP as SEPARATOR,
)
from echelons.tree.names import RUN


def is_embedded(configurable: Mapping[str, Any]) -> bool:
    """Return whether this graph runs inside a node of another graph."""
    # Only a running graph puts a function there.
    return callable(configurable.get(READ_KEY))


def get_saver(configurable: Mapping[str, Any]) -> BaseCheckpointSaver[Any] | None:
    """Return the saver of a run, or `None` if it has none."""
    saver = configurable.get(CHECKPOINTER_KEY)
    return saver if isinstance(saver, BaseCheckpointSaver) else None


def with_saver(config: RunnableConfig, saver: Any) -> RunnableConfig:
    """Return the config of a run as its nodes get it, with the saver."""
    return {**config, "configurable": {**config["configurable"], CHECKPOINTER_KEY: saver}}


def is_resuming(configurable: Mapping[str, Any]) -> bool:
    """Return whether the enclosing graph resumes a stored run."""
    return bool(configurable.get(RESUMING_KEY))


def stores_each_step(configurable: Mapping[str, Any]) -> bool:
    """Return whether a run stores the writes of each task, not only its final state."""
    return configurable.get(DURABILITY_KEY) != "exit"


def split_namespace(namespace: str) -> list[str]:
    """Return the tasks from the root down to a graph; an empty list for the root.

    Examples:
        >>> split_namespace("delegate:1|flights:2")
        ['delegate:1', 'flights:2']
        >>> split_namespace("")
        []
    """
    return namespace.split(SEPARATOR) if namespace else []


def get_namespace_depth(namespace: str) -> int:
    """Return the number of graphs above a namespace's own.

    Examples:
        >>> get_namespace_depth("delegate:1"), get_namespace_depth("")
        (1, 0)
    """
    return len(split_namespace(namespace))


def build_child_namespace(namespace: str, node: str, task_id: str) -> str:
    """Return the namespace of the graph that a task of this graph runs.

    Examples:
        >>> build_child_namespace("", "delegate", "1")
        'delegate:1'
    """
    return SEPARATOR.join([*split_namespace(namespace), f"{node}:{task_id}"])


def find_run_level(namespace: str, depth: int) -> str | None:
    """Return the namespace of the level, below `depth` graphs, whose foreign graph runs here.

    Returns `None` if the namespace is not of a foreign graph of such a level, or of a graph in it.

    Examples:
        >>> find_run_level("delegate:1|kid:2|run:3", 2)
        'delegate:1|kid:2'
        >>> find_run_level("delegate:1|kid:2|delegate:3", 2)
    """
    parts = split_namespace(namespace)
    below = parts[depth : depth + 1]
    return SEPARATOR.join(parts[:depth]) if below and below[0].startswith(f"{RUN}:") else None


__all__ = ["SEPARATOR"]
