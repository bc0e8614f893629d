"""The saver of a run, as a node sees it.

LangGraph lends the saver to nested graphs under a key of the config that has no public
name; this is the one module that knows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

CHECKPOINTER_KEY = "__pregel_checkpointer"


def saver_of(config: Mapping[str, Any]) -> BaseCheckpointSaver[Any] | None:
    """Return the saver that a node's run writes to, or ``None`` if nothing is kept."""
    saver = (config.get("configurable") or {}).get(CHECKPOINTER_KEY)
    return saver if isinstance(saver, BaseCheckpointSaver) else None
