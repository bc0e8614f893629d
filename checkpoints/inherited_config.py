"""The settings that a run inherits from the enclosing graph: its saver, and whether it resumes.

LangGraph passes both under private keys of the config.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver

from echelons.langgraph_internals import CHECKPOINTER_KEY, DURABILITY_KEY, READ_KEY, RESUMING_KEY


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
