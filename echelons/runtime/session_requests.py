"""The requests of a session, and their decisions: run, return a stored result, or refuse.

`send`, `answer` and `resume` are a request each. Its `decide` is a plan that reads
the status of the thread; the session executes it once when it is called, so that a caller is
refused at once, and again under the thread's lease, where the status cannot change.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import uuid4

from langgraph.types import Command

from echelons.checkpoints.coordination import turns
from echelons.checkpoints.ledger import Transaction, key
from echelons.checkpoints.queries import InLedger, Plan
from echelons.checkpoints.threads import answer_outbox
from echelons.checkpoints.threads.stop_and_pause import check_paused, lift, orders_plan
from echelons.checkpoints.threads.thread_status import Standing, last_words, standing_of, words_of
from echelons.errors import (
    InterventionPending,
    NothingToResume,
    ThreadBusy,
    ThreadNotFound,
    TurnReused,
    UnfinishedTurn,
)
from echelons.runtime.run_end import Ending, is_open


class Thread(NamedTuple):
    """A root's thread: its name and its id."""

    name: str
    id: str


@dataclass(frozen=True, slots=True)
class Go:
    """Run the tree.

    Attributes:
        given: The input of the graph.
        turn: Id of the new or resumed turn.
        task: Digest of the task that starts it, if it may be submitted again.
        before: Status of the thread before it.
    """

    given: Any
    turn: str
    task: str = ""
    before: Standing = field(default_factory=Standing)


Decision = Go | Ending
Keeping = Callable[[Transaction], None]
"""Writes to the ledger in the given transaction."""


class Request(ABC):
    """A request of a session."""

    @abstractmethod
    def decide(self, thread: Thread) -> Plan[Decision]:
        """Decide what to do in the current status of the thread, without changing it."""

    def keep(self, thread: Thread, go: Go) -> Plan[Keeping]:
        """Return the writer of what must be stored before the tree runs."""
        yield from ()
        return _nothing

    def look(self, thread: Thread) -> Plan[None]:
        """Refuse a request that cannot be carried out, before anything starts."""
        holder = yield InLedger(lambda ledger: ledger.holder(key(thread.id)))
        if holder is not None:
            raise ThreadBusy(thread.name, holder.pid, holder.since)
        yield from self.decide(thread)

    def meet(self, thread: Thread, busy: ThreadBusy) -> Plan[Ending | None]:
        """Handle another run in progress on the thread.

        Returns:
            The result of the request, or `None` to wait: the other run is about to end, or
            has only just started.

        Raises:
            ThreadBusy: The request cannot be combined with the other run.
        """
        yield from ()
        raise ThreadBusy(thread.name, busy.pid, busy.since) from busy


@dataclass(frozen=True, slots=True)
class Sending(Request):
    """A task for the root.

    Attributes:
        task: The task.
        given: The task as input of the graph.
        turn: The caller's id of the turn; `None` if it will not be submitted again.
    """

    task: str
    given: Mapping[str, Any]
    turn: str | None

    def decide(self, thread: Thread) -> Plan[Decision]:
        """Start a turn, resume it, or return its stored answer."""
        standing = yield from standing_of(thread.id)
        if self.turn is None:
            return (yield from _begun(thread, Go(self.given, str(uuid4()), before=standing)))
        own = turns.digest(self.task)
        known = yield from _known(thread, self.turn)
        if known is None:
            return (yield from _begun(thread, Go(self.given, self.turn, own, standing)))
        if known.task != own:
            raise TurnReused(self.turn, thread.name)
        return (yield from self._again(thread, standing, known))

    def keep(self, thread: Thread, go: Go) -> Plan[Keeping]:
        """Store the end of the previous turn, if its process died before it could."""
        before = go.before.turn
        known = (yield from _known(thread, before)) if before else None
        if known is None or known.text is not None:
            return _nothing
        text = yield from last_words(go.before)
        return lambda open_: turns.finish(open_, thread.id, before, text)

    def _again(self, thread: Thread, standing: Standing, known: turns.Known) -> Plan[Decision]:
        if standing.turn == self.turn and not standing.finished:
            return (yield from _gone_on(thread, standing)) or Ending(
                questions=standing.questions, replayed=True
            )
        text = known.text
        if text is None:
            # Its process died at the start of the turn, or at its end before that was stored.
            turn = self.turn or ""
            text = yield from words_of(thread.id, turn)
            if text is None and known.announced:
                return (yield from _begun(thread, Go(self.given, turn, known.task, standing)))
        return Ending(text or "", finished=True, replayed=True)


@dataclass(frozen=True, slots=True)
class Answering(Request):
    """Answers to questions.

    Attributes:
        answers: By question.
    """

    answers: Mapping[str, Any]

    def decide(self, thread: Thread) -> Plan[Decision]:
        """Check the answers, and continue with them."""
        standing, given = yield from answer_outbox.check(thread.name, thread.id, self.answers)
        return Go(Command(resume={**given, **self.answers}), standing.turn or str(uuid4()))

    def keep(self, thread: Thread, go: Go) -> Plan[Keeping]:
        """Store the answers."""
        yield from ()
        return lambda open_: answer_outbox.write_down(open_, thread.id, self.answers)

    def look(self, thread: Thread) -> Plan[None]:
        """Refuse invalid answers, even while another run holds the thread."""
        yield from answer_outbox.check(thread.name, thread.id, self.answers)

    def meet(self, thread: Thread, busy: ThreadBusy) -> Plan[Ending | None]:
        """Leave the answers to the run that holds the thread, unless it is starting or ending."""
        before = yield from answer_outbox.versions(thread.id, self.answers)
        yield from answer_outbox.check(thread.name, thread.id, self.answers)

        def leave(open_: Transaction) -> bool:
            if not is_open(open_, thread.id):
                return False
            answer_outbox.write_down(open_, thread.id, self.answers, before)
            return True

        left = yield InLedger(lambda ledger: ledger.commit(leave))
        return Ending(queued=True) if left else None


@dataclass(frozen=True, slots=True)
class Resuming(Request):
    """Resume a turn that was cut short or paused.

    Attributes:
        path: The agent whose pause is to end, with those below it; `None` for all.
    """

    path: str | None = None

    def decide(self, thread: Thread) -> Plan[Decision]:
        """Resume with the answers that were stored and not delivered."""
        standing = yield from standing_of(thread.id)
        if standing.saved is None:
            raise ThreadNotFound(thread.name)
        if self.path is not None:
            yield from check_paused(thread.id, self.path)
        if standing.finished:
            raise NothingToResume(thread.name)
        going = yield from _gone_on(thread, standing)
        if going is None and (yield from orders_plan(thread.id)).paused:
            # Nothing else can continue, but the pauses end: pending questions are asked again.
            return Go(None, standing.turn)
        if going is None:
            raise InterventionPending(thread.name, standing.pending)
        return going

    def keep(self, thread: Thread, go: Go) -> Plan[Keeping]:
        """Lift the pauses."""
        yield from ()
        return lambda open_: lift(open_, thread.id, go.turn, self.path)


def _known(thread: Thread, turn: str) -> Plan[turns.Known | None]:
    found: turns.Known | None = yield InLedger(
        lambda ledger: ledger.look(lambda open_: turns.known(open_, thread.id, turn))
    )
    return found


def _nothing(open_: Transaction) -> None:
    """Write nothing."""


def _begun(thread: Thread, go: Go) -> Plan[Go]:
    given = yield from answer_outbox.given_to(thread.id, go.before)
    still_open = [each for each in go.before.pending if each not in given]
    if still_open:
        raise InterventionPending(thread.name, still_open)
    if not go.before.finished:
        raise UnfinishedTurn(thread.name)
    return go


def _gone_on(thread: Thread, standing: Standing) -> Plan[Go | None]:
    """Return how a turn continues, `None` if it needs new answers."""
    given = yield from answer_outbox.given_to(thread.id, standing)
    if standing.questions and not (given or standing.waiting.moves):
        return None
    return Go(Command(resume=given) if given else None, standing.turn or str(uuid4()))
