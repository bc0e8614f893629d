"""`ThreadStatus`: the state of a root's thread, which its session reads before it acts.

Reads one checkpoint, and those of the waiting agents, but never the conversation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage
from langgraph.checkpoint.base import CheckpointTuple

from echelons.checkpoints.queries import AllCheckpoints, OneCheckpoint, ReadPlan
from echelons.checkpoints.threads.pending_work import (
    PendingWork,
    Question,
    has_work_left,
    read_pending_work,
)
from echelons.checkpoints.threads.segments import list_pending_writes, read_past
from echelons.identity.lineage import STORED_KEYS_KEY, Identity


@dataclass(frozen=True, slots=True)
class ThreadStatus:
    """The state of a root's thread between two steps.

    Attributes:
        checkpoint: The root's latest checkpoint; `None` if the thread has never run.
        pending_work: The work that it has left.
    """

    checkpoint: CheckpointTuple | None = None
    pending_work: PendingWork = field(default_factory=PendingWork)

    @property
    def finished(self) -> bool:
        """Whether its last turn has ended; true if none has begun."""
        return self.checkpoint is None or not has_work_left(self.checkpoint)

    @property
    def questions(self) -> tuple[Question, ...]:
        """The pending questions, in the order of the tree."""
        return self.pending_work.questions

    @property
    def question_ids(self) -> list[str]:
        """Ids of the pending questions."""
        return [question.id for question in self.questions]

    @property
    def turn(self) -> str:
        """Id of the current or last turn; empty if none is known."""
        identity = Identity.from_metadata(self.checkpoint.metadata) if self.checkpoint else None
        return identity.turn if identity else ""

    @property
    def stored_keys(self) -> dict[str, Any]:
        """The keys of `configurable` that the latest turn has stored, with their values."""
        metadata: Mapping[str, Any] = self.checkpoint.metadata if self.checkpoint else {}
        names = str(metadata.get(STORED_KEYS_KEY, "")).split()
        return {name: metadata[name] for name in names if name in metadata}


def read_thread_status(thread_id: str) -> ReadPlan[ThreadStatus]:
    """Return the status of a root's thread."""
    saved = yield OneCheckpoint(thread_id)
    if saved is None:
        return ThreadStatus()
    return ThreadStatus(saved, (yield from read_pending_work(saved, thread_id)))


def read_last_text(standing: ThreadStatus) -> ReadPlan[str]:
    """Return the text of the last message if it is the root's own; else an empty string."""
    if standing.checkpoint is None:
        return ""
    past = yield from read_past(standing.checkpoint, list_pending_writes(standing.checkpoint))
    last = past.messages[-1] if past.messages else None
    return str(last.text) if isinstance(last, AIMessage) else ""


def read_turn_text(thread_id: str, turn: str) -> ReadPlan[str | None]:
    """Return the last text of the root in a turn, `None` if none of its checkpoints is left.

    Reads every checkpoint of the turn; used only for a turn whose end was not recorded.
    """
    found: list[CheckpointTuple] = yield AllCheckpoints(thread_id, {"turn_id": turn})
    roots = (each for each in found if not each.config["configurable"]["checkpoint_ns"])
    root = next(roots, None)
    return (yield from read_last_text(ThreadStatus(root))) if root else None
