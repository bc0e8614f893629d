"""Where a root's thread stands: what its session reads before it decides anything.

One checkpoint, and those of the agents that wait; never the conversation.
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
    """A thread between two steps.

    Attributes:
        saved: The root's latest checkpoint; `None` if the thread has never run.
        waiting: What it waits for.
    """

    saved: CheckpointTuple | None = None
    waiting: Waiting = field(default_factory=Waiting)

    @property
    def finished(self) -> bool:
        """Whether its last turn is at its end; so it is where none has begun."""
        return self.saved is None or not is_at_work(self.saved)

    @property
    def questions(self) -> tuple[Question, ...]:
        """What it asks, in the order of the tree."""
        return self.waiting.questions

    @property
    def pending(self) -> list[str]:
        """The ids of what it asks."""
        return [question.id for question in self.questions]

    @property
    def turn(self) -> str:
        """The turn that it is in, or has finished last; empty if none is known."""
        identity = Identity.read(self.saved.metadata) if self.saved else None
        return identity.turn if identity else ""


def standing_of(thread_id: str) -> Plan[Standing]:
    """Return where a root's thread stands."""
    saved = yield OneCheckpoint(thread_id)
    if saved is None:
        return Standing()
    return Standing(saved, (yield from waiting_at(saved, thread_id)))


def last_words(standing: Standing) -> Plan[str]:
    """Return what the root said last; empty if the last word is not its own."""
    if standing.saved is None:
        return ""
    past = yield from past_plan(standing.saved, since(standing.saved))
    last = past.messages[-1] if past.messages else None
    return str(last.text) if isinstance(last, AIMessage) else ""


def words_of(thread_id: str, turn: str) -> Plan[str | None]:
    """Return what the root said last in a turn, `None` if nothing is left of it.

    Reads every checkpoint of the turn; asked only for one whose end nobody wrote down.
    """
    found: list[CheckpointTuple] = yield AllCheckpoints(thread_id, {"turn_id": turn})
    roots = (each for each in found if not each.config["configurable"]["checkpoint_ns"])
    root = next(roots, None)
    return (yield from last_words(Standing(root))) if root else None
