"""LangGraph's checkpoint namespaces: `node:task` for each graph on the way down."""

from __future__ import annotations

from echelons.langgraph_internals import NS_SEP as SEPARATOR
from echelons.tree.names import RUN

__all__ = ["SEPARATOR"]


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
