"""Results of tool calls that their agent did not wait for.

An agent that times out, is stopped or cancelled leaves calls open. The effect journal says which
of them have ended since and which have an unknown outcome. `segments` and `store` append these
answers to the segment, so that neither users nor the agent read that the call did not run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.types import Command

from echelons.checkpoints.coordination.effect_journal import EFFECT, load_entry
from echelons.checkpoints.ledger import get_ledger
from echelons.checkpoints.queries import ReadPlan, Saver
from echelons.effects.journal import CallState, JournalEntry
from echelons.identity.lineage import NOTICES_KEY, Identity, derive_message_id

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
    found: Mapping[str, JournalEntry] = yield JournalQuery(
        thread_id, identity.request_id, tuple(calls)
    )
    return tuple(
        _build_answer(identity, calls[call_id], call_id, entry)
        for call_id, entry in found.items()
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
        found: Mapping[str, JournalEntry] = await get_ledger(saver).arun(lambda: self.get(saver))
        return found


def _build_answer(identity: Identity, tool: str, call_id: str, entry: JournalEntry) -> ToolMessage:
    said = next(_find_answers(entry.result, call_id), None)
    lost = f"it did happen, but its result is lost: {entry.lost}"
    text = lost if entry.lost else UNKNOWN_OUTCOME_TEXT
    return ToolMessage(
        said.content if said else text,
        id=derive_message_id(identity.thread_id, f"late/{identity.request_id}/{call_id}"),
        tool_call_id=call_id,
        name=tool,
        status=said.status if said else "error",
        artifact=said.artifact if said else None,
        additional_kwargs={LATE_KEY: True},
        response_metadata={} if said else {NOTICES_KEY: True},
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
        for each in result:
            yield from _find_answers(each, call_id)
