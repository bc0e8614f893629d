"""`ThreadStatus`: the state of a root's thread, which its session reads before it acts.

Reads one checkpoint, and those of the waiting agents, but never the conversation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage
from langgraph.checkpoint.base import CheckpointTuple

from echelons.checkpoints.queries import AllCheckpoints, OneCheckpoint, ReadPlan
from echelons.checkpoints.threads.pending_work import (
    PendingWork,
    Question,
    has_work_left,
    read_pending_work,
)
from echelons.checkpoints.threads.segments import list_pending_writes, read_past
from echelons.identity.lineage import ASIDE_KEY, STORED_KEYS_KEY, Identity


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
        """The pending questions, urgent ones first, in the order of the tree."""
        return self.pending_work.questions

    @property
    def question_ids(self) -> list[str]:
        """Ids of the pending questions."""
        return [question.id for question in self.questions]

    def without_questions(self, answered: Collection[str]) -> ThreadStatus:
        """Return the status without the questions that are answered, by their ids."""
        left = tuple(question for question in self.questions if question.id not in answered)
        return replace(self, pending_work=replace(self.pending_work, questions=left))

    @property
    def identity(self) -> Identity | None:
        """The root in its current or last turn; `None` if neither is known."""
        return Identity.from_metadata(self.checkpoint.metadata) if self.checkpoint else None

    @property
    def checkpoint_id(self) -> str:
        """Id of the root's latest checkpoint; empty if the thread has never run."""
        return self.checkpoint.config["configurable"]["checkpoint_id"] if self.checkpoint else ""

    @property
    def turn(self) -> str:
        """Id of the current or last turn; empty if none is known."""
        identity = self.identity
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


def read_turn_messages(status: ThreadStatus) -> ReadPlan[tuple[BaseMessage, ...]]:
    """Return the messages of a root's current or last turn, its task first."""
    if status.checkpoint is None:
        return ()
    past = yield from read_past(status.checkpoint, list_pending_writes(status.checkpoint))
    return select_turn_messages(past.messages)


def select_turn_messages(messages: Sequence[BaseMessage]) -> tuple[BaseMessage, ...]:
    """Return the messages of the last turn of a root's, its task first."""
    tasks = (
        i
        for i in range(len(messages) - 1, -1, -1)
        if isinstance(messages[i], HumanMessage) and ASIDE_KEY not in messages[i].response_metadata
    )
    return tuple(messages[next(tasks, 0) :])


def read_turn_status(thread_id: str, turn: str) -> ReadPlan[ThreadStatus | None]:
    """Return the status of a root's thread at the end of a turn, `None` if nothing is left of it.

    Reads every checkpoint of the turn; used only for a turn whose end was not recorded.
    """
    checkpoints: list[CheckpointTuple] = yield AllCheckpoints(thread_id, {"turn_id": turn})
    roots = (saved for saved in checkpoints if not saved.config["configurable"]["checkpoint_ns"])
    root = next(roots, None)
    return ThreadStatus(root) if root else None
