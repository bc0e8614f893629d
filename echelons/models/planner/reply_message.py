"""Converts a reply to a LangChain message: its call ids, its usage, its streamed chunks.

`offline_planner` uses it. Everything is derived from the conversation, so that the same messages
and tools give the same message.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolCall
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call_chunk

from echelons.language.task_shares import split_task
from echelons.models.planner.planner_turn import PlannerTurn
from echelons.models.planner.reply_plan import (
    PLANNER_NAME,
    NearestNote,
    PlannedReply,
    TaskSharing,
    plan_reply,
)
from echelons.models.planner.toolbox import Toolbox

PROVIDER: Final = "echelons"

CHARACTERS_PER_TOKEN: Final = 4
"""Usage is estimated: four characters of text or JSON count as one token, rounded up for each
message, each call and the list of tools. This is a rule of thumb for English; no tokenizer is
used, because no language model reads the text."""

_WORD_BEGINS: Final = re.compile(r"(?<=\s)(?=\S)")


def build_message(
    messages: Sequence[BaseMessage],
    tools: Sequence[Any],
    sharing: TaskSharing = split_task,
    describe_nearest: NearestNote | None = None,
) -> AIMessage:
    """Return the planner's message in reply to `messages`, with `tools` in OpenAI's format."""
    turn, box = PlannerTurn.from_messages(messages), Toolbox.from_tools(tools)
    said = plan_reply(turn, box, sharing, describe_nearest)
    written = [_write_message(message) for message in messages]
    calls = _build_tool_calls(said, "\n".join(written))
    read = _count_tokens(*written, *([_to_json(tools)] if tools else []))
    wrote = _count_tokens(said.text, *(_to_json(call["args"]) for call in calls))
    usage = UsageMetadata(input_tokens=read, output_tokens=wrote, total_tokens=read + wrote)
    return AIMessage(
        content=said.text,
        tool_calls=calls,
        usage_metadata=usage,
        response_metadata={
            "model_name": PLANNER_NAME,
            "model_provider": PROVIDER,
            "finish_reason": "tool_calls" if calls else "stop",
        },
    )


def split_message(message: AIMessage) -> Iterator[AIMessageChunk]:
    """Yield `message` word by word, then call by call; the chunks add up to the message."""
    for word in _WORD_BEGINS.split(str(message.content)) if message.content else ():
        yield AIMessageChunk(content=word)
    for index, call in enumerate(message.tool_calls):
        written = _to_json(call["args"])
        part = tool_call_chunk(name=call["name"], args=written, id=call["id"], index=index)
        yield AIMessageChunk(content="", tool_call_chunks=[part])
    yield AIMessageChunk(
        content="",
        usage_metadata=message.usage_metadata,
        response_metadata=message.response_metadata,
        chunk_position="last",
    )


def _build_tool_calls(said: PlannedReply, conversation: str) -> list[ToolCall]:
    """Return the calls, with ids hashed from the conversation and their index in the message."""
    seed = hashlib.sha256(conversation.encode("utf-8", "surrogatepass"))
    made: list[ToolCall] = []
    for index, call in enumerate(said.calls):
        one = seed.copy()
        one.update(f"\n{index} {call.name} {_to_json(call.args)}".encode("utf-8", "surrogatepass"))
        id_ = f"call_{one.hexdigest()[:24]}"
        made.append(ToolCall(name=call.name, args=dict(call.args), id=id_, type="tool_call"))
    return made


def _write_message(message: BaseMessage) -> str:
    """Return the type, text and calls of a message, without its random id."""
    calls: Iterable[ToolCall] = message.tool_calls if isinstance(message, AIMessage) else ()
    made = "".join(f"\n{call['name']} {_to_json(call['args'])}" for call in calls)
    return f"{message.type}: {message.text}{made}"


def _count_tokens(*texts: str) -> int:
    return sum(-(-len(text) // CHARACTERS_PER_TOKEN) for text in texts)


def _to_json(value: object) -> str:
    return json.dumps(value, default=str)
