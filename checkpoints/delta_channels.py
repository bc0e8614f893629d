"""The delta channels of a level: `messages` and `heads`, each with its own reducer.

A delta channel stores the writes, not the whole value, and replays them through the reducer
when it is read. It is beta in LangGraph. `graphs.state` declares the state with `Messages` and
`Entries`; `threads.segments` and `storage.cached_saver` rebuild their values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Annotated, Any, Self, TypeAlias, get_args, get_origin
from uuid import uuid4

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    BaseMessageChunk,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
    message_chunk_to_message,
)
from langgraph.channels import DeltaChannel
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Overwrite

from echelons.errors import CheckpointTampered, invalid_messages
from echelons.identity.lineage import derive_message_id
from echelons.text.error_lines import read_error_text
from echelons.text.input_limits import refuse_unreadable

MESSAGES = "messages"
"""The state key of the conversation."""
HEADS = "heads"
"""The state key of the ends of the subordinates' threads."""

MESSAGE_ROLES = frozenset(
    {"human", "user", "ai", "assistant", "system", "developer", "function", "tool", "remove"}
)
"""Roles that LangChain accepts as the first item of a `(role, text)` pair."""

SNAPSHOT_INTERVAL = 100
"""Updates after which the whole value is stored as a snapshot, to bound the replay."""


def reduce_messages(held: Sequence[BaseMessage] | None, writes: Sequence[Any]) -> list[BaseMessage]:
    """Fold writes into a list of messages.

    Messages are appended; one with the id of an existing message replaces it. `RemoveMessage`
    removes a message, `REMOVE_ALL_MESSAGES` all before it. A message without an id gets one
    from its position and content, so that each replay gives the same id.

    Folding two batches one after the other gives the same as folding them together, as a delta
    channel requires.

    Args:
        held: The messages so far.
        writes: Messages, or lists of them, in any form that LangChain accepts.

    Raises:
        NotImplementedError, ValueError: LangChain cannot convert a write to a message.
    """
    new = [*chain.from_iterable(writes)] if {list}.issuperset(map(type, writes)) else []
    # The ordinary case. Any other kind is converted first, such as a pair or a chunk.
    if not _STORED_KINDS.issuperset(map(type, new)) or not new:
        new = list(_coerce_messages(writes))
    if _is_append_only(held or (), new):
        return [*(held or ()), *new]
    messages = list(held or ())
    places: dict[str, int] | None = None
    for write in new:
        if places is None:
            places = {message.id: place for place, message in enumerate(messages) if message.id}
        message = write if write.id else _assign_id(write, messages, places)
        if isinstance(message, RemoveMessage):
            messages = _remove_message(message.id, messages, places)
            places = None
        elif (place := places.get(message.id or "")) is not None:
            messages[place] = message
        else:
            places[message.id or ""] = len(messages)
            messages.append(message)
    return messages


def _is_append_only(messages: Sequence[BaseMessage], new: Sequence[BaseMessage]) -> bool:
    """Return whether all new messages can simply be appended, the ordinary case.

    Cheaper than building an index of the list: the loop runs in C.
    """
    if len(new) == 1:
        only = new[0].id
        removes = isinstance(new[0], RemoveMessage)
        return bool(only) and not removes and only not in map(_get_id, messages)
    ids = set(map(_get_id, new))
    if len(ids) != len(new) or not all(ids):
        return False
    others = {*map(type, new)} - _STORED_KINDS
    if others and any(issubclass(kind, RemoveMessage) for kind in others):
        return False
    return ids.isdisjoint(map(_get_id, messages))


_get_id = attrgetter("id")
_STORED_KINDS = frozenset({AIMessage, HumanMessage, SystemMessage, ToolMessage})
"""Kinds of messages that a level stores as they are."""


class SpacedDeltaChannel(DeltaChannel[Any]):
    """A delta channel whose snapshots become rarer as the value grows.

    The next snapshot waits for as many updates as the value has entries, so all snapshots
    together are at most about twice the size of the last; at a fixed interval they would grow
    with the square of the length.
    """

    __slots__ = ("_least",)

    @property
    def snapshot_frequency(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Updates after which the next snapshot is stored."""
        # LangGraph asks for it several times a step.
        value, least = self.value, self._least
        entries = len(value) if type(value) is list or type(value) is dict else 0
        return entries if entries > least else least

    @snapshot_frequency.setter
    def snapshot_frequency(self, least: int) -> None:
        self._least = least

    def copy(self) -> Self:
        """Return a copy of the channel, with a copy of its list or dictionary."""
        # LangGraph copies each channel for each conditional edge and each call of a tool.
        new = object.__new__(type(self))
        new.key, new.typ, new.reducer, new._least = self.key, self.typ, self.reducer, self._least
        new.value = self.value.copy() if type(self.value) in (list, dict) else self.value
        return new


Messages: TypeAlias = Annotated[
    list[AnyMessage],
    SpacedDeltaChannel(reduce_messages, list, snapshot_frequency=SNAPSHOT_INTERVAL),
]
"""The type of a `messages` key in a state."""


def normalize_messages(values: Any) -> Any:
    """Return a caller's state update with its messages converted and given ids.

    A run stores its input unchanged: texts and pairs would have no id there, and an invalid
    message would be noticed only after it was stored.

    Raises:
        InvalidInput: LangChain cannot convert the value under `messages`.
    """
    value = values.get(MESSAGES) if isinstance(values, Mapping) else None
    if value is None or isinstance(value, Overwrite):
        return values
    messages = convert_messages(value)
    named = [
        message if message.id else message.model_copy(update={"id": str(uuid4())})
        for message in messages
    ]
    return {**values, MESSAGES: named}


def convert_messages(value: Any) -> list[BaseMessage]:
    """Return what a caller gives as messages as LangChain's.

    Raises:
        InvalidInput: LangChain cannot convert it.
    """
    with refuse_unreadable(lambda why: invalid_messages(value, why)):
        try:
            return list(_coerce_messages([value]))
        except (ValueError, TypeError, KeyError, NotImplementedError) as error:
            raise invalid_messages(value, _error_line(error)) from error


def reduce_entries(
    held: Mapping[str, Any] | None, writes: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Merge mappings of mappings: later fields win, entries keep their first position."""
    entries = dict(held or {})
    for write in writes:
        for key, fields in write.items():
            entries[key] = {**entries.get(key, {}), **fields}
    return entries


Entries: TypeAlias = Annotated[
    dict[str, Any], SpacedDeltaChannel(reduce_entries, dict, snapshot_frequency=SNAPSHOT_INTERVAL)
]
"""The type of a state key that collects entries, such as the heads of threads."""

DELTA_CHANNELS = {MESSAGES: Messages, HEADS: Entries}
"""The delta channels of a level, by their state keys."""


def rebuild_channel(annotated: Any, stored: Any, writes: Sequence[tuple[str, str, Any]]) -> Any:
    """Return the value of a channel, from its stored value and the writes since then.

    Args:
        annotated: The type of the state key, `Messages` or `Entries`.
        stored: The channel's value in a checkpoint: a snapshot, a plain value, or `None`.
        writes: Pending writes `(task id, channel, value)` since then, oldest first.

    Raises:
        CheckpointTampered: The reducer cannot take them.
    """
    kind, channel = get_args(annotated)
    empty = get_origin(kind)()
    try:
        held: DeltaChannel[Any] = channel.from_checkpoint(empty if stored is None else stored)
        held.replay_writes(writes)
        return held.get()
    except (AttributeError, KeyError, NotImplementedError, TypeError, ValueError) as error:
        raise CheckpointTampered("the state of a thread", _error_line(error)) from error


def _error_line(error: Exception) -> str:
    # It quotes the input, which may be long or contain a lone surrogate.
    first = read_error_text(error).partition("\n")[0][:200]
    return first.encode("utf-8", "backslashreplace").decode()


def _coerce_messages(writes: Iterable[Any]) -> Iterable[BaseMessage]:
    for write in writes:
        for item in write if _is_message_list(write) else [write]:
            message = item if isinstance(item, BaseMessage) else convert_to_messages([item])[0]
            if isinstance(message, BaseMessageChunk):
                message = message_chunk_to_message(message)
            yield message


def _is_message_list(write: Any) -> bool:
    # ("user", "text") is one message; a list of such pairs is many. Stored tuples may
    # come back as lists, so a role and a text count as one message in both forms.
    if not isinstance(write, (list, tuple)):
        return False
    pair = len(write) == 2 and all(isinstance(part, str) for part in write)
    return not (pair and write[0] in MESSAGE_ROLES)


def _assign_id(
    message: BaseMessage, messages: Sequence[BaseMessage], taken: Mapping[str, int]
) -> BaseMessage:
    last = messages[-1].id if messages else ""
    count = len(messages)
    while (
        free := derive_message_id(f"{last}/{message.type}", f"{count}/{message.content!r}")
    ) in taken:
        count += 1
    return message.model_copy(update={"id": free})


def _remove_message(
    wanted: str | None, messages: list[BaseMessage], places: Mapping[str, int]
) -> list[BaseMessage]:
    if wanted == REMOVE_ALL_MESSAGES:
        return []
    place = places.get(wanted or "")
    # Removing a missing message is no error: a replay may contain a removal twice.
    return messages if place is None else messages[:place] + messages[place + 1 :]
