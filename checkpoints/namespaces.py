"""LangGraph's checkpoint namespaces: `node:task` for each graph on the way down."""

from __future__ import annotations

from echelons.langgraph_internals import NS_SEP as SEPARATOR

__all__ = ["SEPARATOR"]


def parts_of(namespace: str) -> list[str]:
    """Return the tasks from the root down to a graph; an empty list for the root.

    Examples:
        >>> parts_of("delegate:1|flights:2")
        ['delegate:1', 'flights:2']
        >>> parts_of("")
        []
    """
    return namespace.split(SEPARATOR) if namespace else []


def depth_of(namespace: str) -> int:
    """Return the number of graphs above a namespace's own.

    Examples:
        >>> depth_of("delegate:1"), depth_of("")
        (1, 0)
    """
    return len(parts_of(namespace))


def below(namespace: str, node: str, task_id: str) -> str:
    """Return the namespace of the graph that a task of this graph runs.

    Examples:
        >>> below("", "delegate", "1")
        'delegate:1'
    """
    return SEPARATOR.join([*parts_of(namespace), f"{node}:{task_id}"])
