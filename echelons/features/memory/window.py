"""The window of a conversation: the messages that stay as they are, in turns and steps. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from echelons.features.memory.summaries import Summaries
from echelons.identity.lineage import MEMORY_KEY, PIN_KEY
from echelons.models.fitting import is_task


def find_summaries(messages: Sequence[BaseMessage]) -> Summaries:
    """Return the latest summaries of a conversation, which stand in a reply.

    They are near: what is behind the messages that they cover fits into a prompt.

    Raises:
        UnreadableRecord: They are damaged.
    """
    for message in reversed(messages):
        stored = message.response_metadata.get(MEMORY_KEY)
        # A reply before which nothing was summarised only counts the tokens read.
        if stored is not None and not (isinstance(stored, dict) and "upto" not in stored):
            return Summaries.load(stored)
    return Summaries()


def find_window(messages: Sequence[BaseMessage], summaries: Summaries) -> int:
    """Return the place of the first message that no summary covers.

    A pruned or a cut conversation has fewer messages than were covered.
    """
    end = summaries.count
    if 0 < end <= len(messages) and messages[end - 1].id == summaries.upto:
        return end
    if not summaries.upto:
        return 0
    places = range(len(messages) - 1, -1, -1)
    return next((place + 1 for place in places if messages[place].id == summaries.upto), 0)


def iterate_pins(messages: Sequence[BaseMessage]) -> Iterator[str]:
    """Yield the texts that are pinned in some messages."""
    for message in messages:
        if isinstance(message, ToolMessage):
            pinned = message.response_metadata.get(PIN_KEY)
            if isinstance(pinned, str):
                yield pinned


def find_pins(messages: Sequence[BaseMessage]) -> tuple[str, ...]:
    """Return all texts that are pinned in a conversation, oldest first."""
    summaries = find_summaries(messages)
    return (*summaries.pins, *iterate_pins(messages[find_window(messages, summaries) :]))


def split_turns(messages: Sequence[BaseMessage]) -> list[int]:
    """Return the places at which turns begin; what is before the first task is one, too."""
    places = [place for place, message in enumerate(messages) if is_task(message)]
    return places if places[:1] == [0] else [0, *places]


def split_steps(messages: Sequence[BaseMessage]) -> list[int]:
    """Return the places at which steps begin: a reply, with all up to the next one, is one.

    All that has come in after the last reply is of its step, since the model has not read it yet.
    """
    return [place for place, message in enumerate(messages) if isinstance(message, AIMessage)]


def render_turn(messages: Sequence[BaseMessage]) -> str:
    """Return what is said in some messages, for a summary of them."""
    lines: list[str] = []
    for message in messages:
        text = str(message.text)
        if isinstance(message, AIMessage) and message.tool_calls:
            text = f"{text} [{', '.join(call['name'] for call in message.tool_calls)}]".strip()
        if text and not (isinstance(message, ToolMessage) and PIN_KEY in message.response_metadata):
            lines.append(text)
    return "\n".join(lines)
