"""Plans that hide messages of a thread from its models, and list which could be hidden.

A provider may refuse a whole request for one message, at each later turn. No model is called, and
nothing is run. Any process with the saver and the thread's id can do it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from echelons.checkpoints.coordination.repairs import read_hidden_messages, store_hidden_messages
from echelons.checkpoints.ledger import Fence
from echelons.checkpoints.queries import ReadPlan
from echelons.checkpoints.threads.store import read_branch_threads
from echelons.checkpoints.threads.trace import Thread
from echelons.errors import ThreadError
from echelons.identity.lineage import is_from_model
from echelons.models.hidden_messages import find_hidden

LONG: Final = 20_000
"""Characters from which on a message is long: some servers of small models read no more."""
_PREVIEW: Final = 80
_TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_TEXTS: Final = frozenset({"text", "tool_use", "tool_call", "function_call"})


@dataclass(frozen=True, slots=True)
class HideableMessage:
    """A message that could be hidden from the models of a thread, or is.

    Attributes:
        id: Its id.
        path: Path of the agent in whose conversation it is, such as `"head/north"`.
        kind: `"human"` for a task or mail, `"ai"` for a reply, `"tool"` for a result.
        size: Its characters, with the arguments of its calls.
        why: Why a provider may refuse it, one reason after the other; empty for one that is only
            hidden.
        preview: The begin of its text, or the calls that it makes.
        hidden: Whether it is hidden.
    """

    id: str
    path: str
    kind: str
    size: int
    why: tuple[str, ...]
    preview: str
    hidden: bool = False


def list_hideable(thread_id: str) -> ReadPlan[list[HideableMessage]]:
    """Return the messages of a thread that providers may refuse, and those that are hidden.

    Args:
        thread_id: The root's thread.

    Raises:
        ThreadNotFound: The thread has never run.
    """
    threads = yield from read_branch_threads(thread_id)
    hidden = yield from read_hidden_messages(thread_id)
    return [message for thread in threads.values() for message in _list_of(thread, hidden)]


def repair_thread(
    thread_id: str, thread: str, ids: Sequence[str], by: str, fence: Fence, *, undo: bool
) -> ReadPlan[list[HideableMessage]]:
    """Hide messages of a thread, with the results of hidden calls, or show them again.

    Args:
        thread_id: The root's thread.
        thread: Its name, for errors.
        ids: The messages; with `undo`, none of them means all.
        by: The person that does it.
        fence: The lease under which it is done.
        undo: Whether they are shown again.

    Returns:
        The messages that are hidden now.

    Raises:
        ThreadNotFound: The thread has never run.
        ThreadError: It has no message with one of the ids.
        LeaseLost: Another run holds the thread now.
    """
    threads = yield from read_branch_threads(thread_id)
    known_ids = {str(message.id) for one in threads.values() for message in one.messages}
    if unknown := [message_id for message_id in ids if message_id not in known_ids]:
        raise ThreadError(
            "thread {thread!r} has no message {message_id:short}; list those that can be hidden "
            "with `echelons repair` or Session.repair()",
            code="unknown_message",
            message_id=unknown[0],
            thread=thread,
        )
    chosen = set[str]()
    for one in threads.values():
        chosen |= find_hidden(one.messages, ids)
    if undo:
        yield from store_hidden_messages(thread_id, (), chosen if ids else None, by, fence)
    else:
        yield from store_hidden_messages(thread_id, chosen, (), by, fence)
    hidden = yield from read_hidden_messages(thread_id)
    return [
        message for one in threads.values() for message in _list_of(one, hidden) if message.hidden
    ]


def _list_of(thread: Thread, hidden: Collection[str]) -> Iterator[HideableMessage]:
    messages = thread.messages
    # The place of the latest reply of a model: it has read all before it.
    places = range(len(messages) - 1, -1, -1)
    accepted = next(
        (
            place
            for place in places
            if isinstance(messages[place], AIMessage)
            and is_from_model(messages[place].response_metadata)
        ),
        -1,
    )
    for place, message in enumerate(messages):
        why = (*_list_reasons(message), *(("no reply has come since",) if place > accepted else ()))
        is_hidden = message.id in hidden
        if message.id and (why or is_hidden):
            yield HideableMessage(
                message.id,
                thread.path,
                message.type,
                _measure(message),
                why,
                _preview(message),
                is_hidden,
            )


def _list_reasons(message: BaseMessage) -> Iterator[str]:
    content: Any = message.content
    if not isinstance(content, str):
        kinds = [str(block.get("type")) for block in content if isinstance(block, Mapping)]
        if others := dict.fromkeys(kind for kind in kinds if kind not in _TEXTS):
            yield f"has blocks that not all providers take: {', '.join(others)}"
    if (size := _measure(message)) >= LONG:
        yield f"is long: {size:,} characters"
    if isinstance(message, AIMessage):
        names = [str(call["name"]) for call in (*message.tool_calls, *message.invalid_tool_calls)]
        if odd := [name for name in names if not _TOOL_NAME.fullmatch(name)]:
            yield f"calls a tool by a name that providers refuse: {shorten(odd[0], 40)!r}"
        if message.invalid_tool_calls:
            yield "has a call whose arguments are no JSON object"
        if not (message.text or names):
            yield "is an empty reply"


def _measure(message: BaseMessage) -> int:
    content: Any = message.content
    calls = message.tool_calls if isinstance(message, AIMessage) else ()
    return len(content if isinstance(content, str) else repr(content)) + len(f"{calls or ''}")


def _preview(message: BaseMessage) -> str:
    text = shorten(str(message.text), _PREVIEW, placeholder="…")
    if isinstance(message, AIMessage) and message.tool_calls:
        return f"{text} [{', '.join(call['name'] for call in message.tool_calls)}]".strip()
    if isinstance(message, ToolMessage) and message.name:
        return f"{message.name}: {text}"
    return text
