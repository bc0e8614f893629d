"""A conversation as text, one paragraph for each message. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from echelons.cli.display.text_format import format_tool_call

if TYPE_CHECKING:
    from echelons.checkpoints.thread_events import ThreadEvent


def format_conversation(agent: str, events: Sequence[ThreadEvent]) -> str:
    """Return the conversation of a thread as text.

    Args:
        agent: The agent of the thread.
        events: The thread's events, oldest first.
    """
    said: list[str] = []
    for event in events:
        if event.kind == "message":
            said.append(_format_message(agent, event.data))
        elif said:  # a call stands below the message that makes it
            said[-1] = f"{said[-1]}\n  {_format_call(event.data)}"
    return "\n\n".join(said)


def _format_message(agent: str, data: Mapping[str, Any]) -> str:
    who = {"human": "task", "ai": agent, "tool": "result"}.get(data["role"], data["role"])
    if data.get("status") == "error":
        who = f"{who} (error)"
    words = "\n".join(_iterate_texts(data["content"]))
    return f"{who}:\n  " + words.replace("\n", "\n  ") if words else f"{who}:"


def _iterate_texts(content: Any) -> Iterator[str]:
    """Yield the texts of a message; for a block without text, its type."""
    if isinstance(content, str):
        if content:
            yield content
        return
    for block in content:
        if isinstance(block, str):
            yield block
        elif isinstance(block, Mapping):
            yield str(block.get("text") or f"[{block.get('type', 'data')}]")


def _format_call(data: Mapping[str, Any]) -> str:
    arguments, thread = data["arguments"], data.get("sub_agent_thread_id")
    if thread is None:
        return f"calls {format_tool_call(data['intent'], arguments)}"
    words = str(arguments.get("message", "")).replace("\n", "\n    ")
    # Without a named subordinate, the request holds the one that routing found.
    sent = data.get("request") or {}
    whom = sent.get("current") or arguments.get("subordinate") or "whoever can"
    return f"asks {whom}, on thread {thread}:\n    {words}"
