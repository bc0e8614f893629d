"""`ThreadStatus`: the state of a root's thread, which its session reads before it acts.

Reads one checkpoint, and those of the waiting agents, but never the conversation.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from langchain_core.messages import AIMessage
from langgraph.checkpoint.base import CheckpointTuple

from echelons.checkpoints.queries import AllCheckpoints, OneCheckpoint, Plan
from echelons.checkpoints.threads.pending_work import Question, Waiting, is_at_work, waiting_at
from echelons.checkpoints.threads.segments import past_plan, since
from echelons.identity.lineage import Identity


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of a root's thread between two steps.

    Attributes:
        saved: The root's latest checkpoint; `None` if the thread has never run.
        waiting: The work that it has left.
    """

    saved: CheckpointTuple | None = None
    waiting: Waiting = field(default_factory=Waiting)

    @property
    def finished(self) -> bool:
        """Whether its last turn has ended; true if none has begun."""
        return self.saved is None or not is_at_work(self.saved)

    @property
    def questions(self) -> tuple[Question, ...]:
        """The pending questions, in the order of the tree."""
        return self.waiting.questions

    @property
    def pending(self) -> list[str]:
        """Ids of the pending questions."""
        return [question.id for question in self.questions]

    @property
    def turn(self) -> str:
        """Id of the current or last turn; empty if none is known."""
        identity = Identity.read(self.saved.metadata) if self.saved else None
        return identity.turn if identity else ""


def standing_of(thread_id: str) -> Plan[Standing]:
    """Return the status of a root's thread."""
    saved = yield OneCheckpoint(thread_id)
    if saved is None:
        return Standing()
    return Standing(saved, (yield from waiting_at(saved, thread_id)))


def last_words(standing: Standing) -> Plan[str]:
    """Return the text of the last message if it is the root's own; else an empty string."""
    if standing.saved is None:
        return ""
    past = yield from past_plan(standing.saved, since(standing.saved))
    last = past.messages[-1] if past.messages else None
    return str(last.text) if isinstance(last, AIMessage) else ""


def words_of(thread_id: str, turn: str) -> Plan[str | None]:
    """Return the last text of the root in a turn, `None` if none of its checkpoints is left.

    Reads every checkpoint of the turn; used only for a turn whose end was not recorded.
    """
    found: list[CheckpointTuple] = yield AllCheckpoints(thread_id, {"turn_id": turn})
    roots = (each for each in found if not each.config["configurable"]["checkpoint_ns"])
    root = next(roots, None)
    return (yield from last_words(Standing(root))) if root else None
