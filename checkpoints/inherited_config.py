"""What a run inherits from the graph around it: its saver, and whether it resumes.

LangGraph lends both under keys of the config that have no public name; this is the one
module that knows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

CHECKPOINTER_KEY = "__pregel_checkpointer"
RESUMING_KEY = "__pregel_resuming"
DURABILITY_KEY = "__pregel_durability"
READ_KEY = "__pregel_read"


def is_embedded(configurable: Mapping[str, Any]) -> bool:
    """Return whether a node of another graph runs this one; only a graph can lend a function."""
    return callable(configurable.get(READ_KEY))


def saver_of(configurable: Mapping[str, Any]) -> BaseCheckpointSaver[Any] | None:
    """Return the saver that a run was lent, or `None` if nothing is kept."""
    saver = configurable.get(CHECKPOINTER_KEY)
    return saver if isinstance(saver, BaseCheckpointSaver) else None


def is_resuming(configurable: Mapping[str, Any]) -> bool:
    """Return whether the graph around this one goes on with a stored run."""
    return bool(configurable.get(RESUMING_KEY))


def keeps_each_step(configurable: Mapping[str, Any]) -> bool:
    """Return whether a run stores what each task wrote, and not only how it ended."""
    return configurable.get(DURABILITY_KEY) != "exit"
