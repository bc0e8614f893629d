"""What a segment hands to the next: a foreign graph's state, and results that came late."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata, CheckpointTuple
from langgraph.types import Command

from echelons.checkpoints.coordination.journal import EFFECT, load_entry
from echelons.checkpoints.delta_channels import MESSAGES
from echelons.checkpoints.ledger import get_ledger
from echelons.checkpoints.queries import (
    AllCheckpoints,
    ChannelWrites,
    OneCheckpoint,
    ReadPlan,
    Saver,
)
from echelons.checkpoints.run_config import find_run_level, get_namespace_depth
from echelons.delegation.effects import CallState, JournalEntry
from echelons.identity.lineage import NOTICES_KEY, Identity, derive_message_id, require_identity
from echelons.identity.thread_history import CarriedState, Head
from echelons.langgraph_internals import CHECKPOINT_MAP_KEY, DeltaSnapshot

CARRIED_KEY = "carried"
"""Metadata key of a copied checkpoint, in which the graph has not begun with its request."""


@dataclass(frozen=True, slots=True)
class CheckpointCopy:
    """Stores a checkpoint in the namespace of a config; a query, so that plans can contain it."""

    config: RunnableConfig
    checkpoint: Checkpoint
    metadata: CheckpointMetadata

    def get(self, saver: Saver) -> RunnableConfig:
        """Store it and return its address."""
        versions = self.checkpoint["channel_versions"]
        return saver.put(self.config, self.checkpoint, self.metadata, versions)

    async def aget(self, saver: Saver) -> RunnableConfig:
        """Async version of `get`."""
        versions = self.checkpoint["channel_versions"]
        return await saver.aput(self.config, self.checkpoint, self.metadata, versions)


def plan_carrying(
    previous: Head, finished: Head | None, channels: Mapping[str, Any], config: Mapping[str, Any]
) -> ReadPlan[CarriedState | None]:
    """Copy a graph's state to where it is about to run, and return what it holds.

    Returns `None` if there is nothing to copy, or if the graph has begun with the request.

    Args:
        previous: The end of the thread's latest segment.
        finished: The end of the graph in the latest segment that it has finished, if there is one.
        channels: The graph's channels.
        config: The config of the task that runs the graph.
    """
    configurable = config["configurable"]
    here = OneCheckpoint(str(configurable["thread_id"]), str(configurable["checkpoint_ns"]))
    saved: CheckpointTuple | None = yield here
    if saved is not None:
        # A process that died after the copy left it alone in the namespace.
        copied = CARRIED_KEY in saved.metadata
        return _build_carried_state(saved.checkpoint) if copied else None
    saved_state = yield from _find_state(
        previous, finished, here.thread_id, require_identity(config).thread_id
    )
    if saved_state is None:
        return None
    checkpoint = yield from _copy_checkpoint(saved_state, channels)
    metadata: Any = {
        "source": "fork",
        "step": saved_state.metadata.get("step", 0),
        "parents": configurable.get(CHECKPOINT_MAP_KEY, {}),
        CARRIED_KEY: True,
    }
    yield CheckpointCopy(cast("RunnableConfig", config), checkpoint, metadata)
    return _build_carried_state(checkpoint)


def read_graph_calls(
    rows: Sequence[CheckpointTuple], levels: Iterable[str]
) -> ReadPlan[dict[str, list[BaseMessage]]]:
    """Read the tool calls of the foreign graph of a thread, and their answers, by segment.

    Includes those of graphs inside it, and of a request that failed or is not finished.

    Args:
        rows: All checkpoints of the thread, newest first.
        levels: The namespaces of its segments.
    """
    calls: dict[str, list[BaseMessage]] = {level: [] for level in levels}
    depth = get_namespace_depth(next(iter(calls), ""))
    latest: dict[str, CheckpointTuple] = {}
    for row in reversed(rows):
        latest[row.config["configurable"]["checkpoint_ns"]] = row
    seen: set[str] = set()
    for namespace, row in latest.items():
        level = find_run_level(namespace, depth)
        if level in calls:
            # A graph's state holds the messages of earlier requests, too.
            new = {message.id or str(message): message for message in (yield from _read_calls(row))}
            calls[level] += [
                _strip_records(message) for key, message in new.items() if key not in seen
            ]
            seen |= new.keys()
    return calls


def _read_calls(row: CheckpointTuple) -> ReadPlan[list[BaseMessage]]:
    """Read the messages of a graph that are tool calls, or answers of tools."""
    checkpoint = row.checkpoint
    held = checkpoint["channel_values"].get(MESSAGES)
    writes = list(row.pending_writes or ())
    if held is None and MESSAGES in checkpoint["channel_versions"]:
        histories = yield ChannelWrites(row.config, (MESSAGES,))
        history = histories.get(MESSAGES) or {}
        held, writes = history.get("seed"), [*history.get("writes", ()), *writes]
    written = [held, *(value for _, channel, value in writes if channel == MESSAGES)]
    return [
        message
        for message in _iterate_messages(written)
        if isinstance(message, ToolMessage)
        or (isinstance(message, AIMessage) and message.tool_calls)
    ]


def _strip_records(message: BaseMessage) -> BaseMessage:
    """Return a message without the records of a tree that a graph contains: they are not ours."""
    empty: dict[str, Any] = {"response_metadata": {}}
    if isinstance(message, ToolMessage):
        empty["artifact"] = None
    return message.model_copy(update=empty)


def _iterate_messages(values: Iterable[Any]) -> Iterator[BaseMessage]:
    for value in values:
        held = value.value if isinstance(value, DeltaSnapshot) else value
        for item in held if isinstance(held, (list, tuple)) else (held,):
            if isinstance(item, BaseMessage):
                yield item


def _find_state(
    previous: Head, finished: Head | None, thread_id: str, agent_thread_id: str
) -> ReadPlan[CheckpointTuple | None]:
    """Return the graph's last checkpoint, that of an unfinished request if that is the latest."""
    level = previous["checkpoint_ns"]
    depth = get_namespace_depth(level)
    if not finished or find_run_level(finished["checkpoint_ns"], depth) != level:
        rows: list[CheckpointTuple] = yield AllCheckpoints(
            thread_id, {"agent_thread_id": agent_thread_id}
        )
        for row in rows:
            namespace = row.config["configurable"]["checkpoint_ns"]
            is_level = get_namespace_depth(namespace) == depth + 1
            if is_level and find_run_level(namespace, depth) == level:
                return row
    if not finished:
        return None
    return (yield OneCheckpoint(thread_id, finished["checkpoint_ns"], finished["checkpoint_id"]))  # type: ignore[no-any-return]  # a plan is sent what it asked for


def _copy_checkpoint(saved: CheckpointTuple, channels: Mapping[str, Any]) -> ReadPlan[Checkpoint]:
    """Return a checkpoint with its delta channels whole, since it has no past to replay.

    It keeps its id: in a fork, LangGraph looks for a state that is older than where it began.
    """
    values = dict(saved.checkpoint["channel_values"])
    absent = tuple(
        name
        for name in saved.checkpoint["channel_versions"]
        if name not in values and isinstance(channels.get(name), DeltaChannel)
    )
    histories: Mapping[str, Any] = (yield ChannelWrites(saved.config, absent)) if absent else {}
    for name in absent:
        history, empty = histories.get(name) or {}, channels[name]
        channel = empty.from_checkpoint(history.get("seed", empty.typ()))
        channel.replay_writes(history.get("writes") or ())
        values[name] = DeltaSnapshot(channel.get())
    return cast("Checkpoint", {**saved.checkpoint, "channel_values": values})


def _build_carried_state(checkpoint: Checkpoint) -> CarriedState:
    held = checkpoint["channel_values"].get(MESSAGES)
    held = held.value if isinstance(held, DeltaSnapshot) else held
    return CarriedState(tuple(held) if isinstance(held, (list, tuple)) else ())


LATE_KEY = "echelons_late"
"""Key in `additional_kwargs` of an answer that came too late for its agent."""
UNKNOWN_OUTCOME_TEXT = "cut short, and what came of it is not known"


def read_late_answers(
    saved: CheckpointTuple, messages: Sequence[BaseMessage], *, ended: bool
) -> ReadPlan[tuple[ToolMessage, ...]]:
    """Return the late answers to a segment's open calls, for those that had begun.

    Args:
        saved: The segment's latest checkpoint.
        messages: The segment's messages.
        ended: Whether it no longer runs; then calls with an unknown outcome are answered, too.
    """
    calls, identity = list_open_calls(messages), Identity.from_metadata(saved.metadata)
    if not calls or identity is None or not identity.request_id:
        return ()
    thread_id = str(saved.config["configurable"]["thread_id"])
    entries: Mapping[str, JournalEntry] = yield JournalQuery(
        thread_id, identity.request_id, tuple(calls)
    )
    return tuple(
        _build_answer(identity, calls[call_id], call_id, entry)
        for call_id, entry in entries.items()
        if ended or entry.state is CallState.DONE
    )


def list_open_calls(messages: Sequence[BaseMessage]) -> dict[str, str]:
    """Return the tool names of the unanswered calls at the end of a conversation, by call id."""
    answered: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, AIMessage):
            calls = ((call["id"] or "", call["name"]) for call in message.tool_calls)
            return {call_id: name for call_id, name in calls if call_id not in answered}
        if not isinstance(message, ToolMessage):
            break
        answered.add(message.tool_call_id)
    return {}


@dataclass(frozen=True, slots=True)
class JournalQuery:
    """Query for the journal entries of some calls of a segment, by call id."""

    thread_id: str
    request_id: str
    call_ids: tuple[str, ...]

    def get(self, saver: Saver) -> Mapping[str, JournalEntry]:
        """Return the result."""
        entries: dict[str, JournalEntry] = {}
        for record in get_ledger(saver).query(lambda open_: EFFECT.find_all(open_, self.thread_id)):
            call = record.value
            if call.request == self.request_id and call.call_id in self.call_ids:
                entries[call.call_id] = load_entry(saver.serde, record.key, record)
        return entries

    async def aget(self, saver: Saver) -> Mapping[str, JournalEntry]:
        """Async version of `get`."""
        entries: Mapping[str, JournalEntry] = await get_ledger(saver).arun(lambda: self.get(saver))
        return entries


def _build_answer(identity: Identity, tool: str, call_id: str, entry: JournalEntry) -> ToolMessage:
    message = next(_find_answers(entry.result, call_id), None)
    lost = f"it did happen, but its result is lost: {entry.lost}"
    text = lost if entry.lost else UNKNOWN_OUTCOME_TEXT
    return ToolMessage(
        message.content if message else text,
        id=derive_message_id(identity.thread_id, f"late/{identity.request_id}/{call_id}"),
        tool_call_id=call_id,
        name=tool,
        status=message.status if message else "error",
        artifact=message.artifact if message else None,
        additional_kwargs={LATE_KEY: True},
        response_metadata={} if message else {NOTICES_KEY: True},
    )


def _find_answers(result: Any, call_id: str) -> Iterator[ToolMessage]:
    """Yield the answers to a call in the result that its node would have returned."""
    if isinstance(result, ToolMessage):
        if result.tool_call_id == call_id:
            yield result
    elif isinstance(result, Command):
        yield from _find_answers(result.update, call_id)
    elif isinstance(result, Mapping):
        yield from _find_answers(result.get("messages"), call_id)
    elif isinstance(result, Iterable) and not isinstance(result, (str, BaseMessage)):
        for item in result:
            yield from _find_answers(item, call_id)
