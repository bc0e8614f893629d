"""Makes a ``Call`` of what one of LangGraph's tasks is about to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from echelons.effects.journal import Call, Nature


def call_of(
    config: Mapping[str, Any], call_id: str, tool: str, arguments: Mapping[str, Any], nature: Nature
) -> Call:
    """Return the call that a task makes.

    Args:
        config: The config of the task's node.
        call_id: The call's id in the model's message.
        tool: Whom it calls.
        arguments: What it is given.
        nature: What it does to carry it out twice.
    """
    given, metadata = config["configurable"], config.get("metadata") or {}
    # The namespace of a task ends with its node and its id.
    task_id = str(given.get("checkpoint_ns", "")).rpartition(":")[2]
    path = str(metadata.get("agent_path", ""))
    thread_id = str(given.get("thread_id", ""))
    request_id = str(metadata.get("request_id", ""))
    return Call(thread_id, task_id, call_id, tool, path, arguments, nature, request_id)
