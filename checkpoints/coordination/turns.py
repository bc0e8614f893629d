"""Turns of sessions: the lease check of each write, and the record of each turn."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Final, Literal, TypeAlias

from langchain_core.messages import BaseMessage

from echelons.checkpoints.clock import utc_now
from echelons.checkpoints.coordination.grants import close_grants
from echelons.checkpoints.coordination.orders import OrderListener
from echelons.checkpoints.coordination.records import Records
from echelons.checkpoints.ledger import Fence, Transaction, build_key, require_lease
from echelons.checkpoints.ledger.sqlite_ledger import SqliteTransaction
from echelons.checkpoints.ledger.transaction import MAX_RECORD_SIZE
from echelons.delegation.request import DelegationResponse, Status
from echelons.errors import StorageError, UnreadableRecord
from echelons.guards.budget import Allowance
from echelons.guards.dismissals import DismissalListener
from echelons.guards.gate import Backpressure, HeldAttempts, UsageListener
from echelons.run_context import CONTEXT_KEY, NO_CONTEXT, RunContext

OPEN_EPOCH: Final = Records[int]("open", int)
"""The epoch of the run that answers may be left to."""
CLOSED_EPOCH = 0
"""An epoch that no run has, stored while no run takes answers."""


class AnswerMark:
    """The mark of one run; each answer that is left to the run gives it a new version."""

    def __init__(self, thread_id: str, fence: Fence) -> None:
        # Whether a step was held since answers were last taken.
        self.has_held = False
        self.held_attempts = HeldAttempts()
        self._thread_id = thread_id
        self._fence = fence
        self._version: int | None = None

    def open(self, open_: Transaction) -> None:
        """Let others leave answers to the run from now on.

        This comes after its own answers are stored: an answer that is left to a run which then ends
        at a conflict would never be delivered.

        Raises:
            LeaseLost: Another run holds the thread now.
        """
        open_.require_lease(self._fence)
        self._version = OPEN_EPOCH.put(open_, self._fence.epoch, self._thread_id)

    def close(self, open_: Transaction) -> None:
        """Let others leave no more answers to the run."""
        OPEN_EPOCH.put(open_, CLOSED_EPOCH, self._thread_id)

    def take(self, open_: Transaction) -> None:
        """Note that the answers left so far are taken, in the transaction that reads them."""
        mark = OPEN_EPOCH.find(open_, self._thread_id)
        self._version = mark.version if mark else None
        self.has_held = False

    def is_left_behind(self, open_: Transaction) -> bool:
        """Return whether answers wait that the run has not taken."""
        mark = OPEN_EPOCH.find(open_, self._thread_id)
        return mark is not None and mark.version != self._version


def mark_answers_left(open_: Transaction, thread_id: str) -> bool:
    """Announce answers to the run that holds a thread, in their transaction; return if it can."""
    epoch, holder = OPEN_EPOCH.get(open_, thread_id), open_.get_last_holder(build_key(thread_id))
    if holder is None or epoch != holder.epoch:
        return False
    # Its version grows; the value stays as earlier versions read it.
    OPEN_EPOCH.put(open_, holder.epoch, thread_id)
    return True


MAX_ANSWER_LENGTH = 2**20
"""Characters of an answer that are kept with its turn; the thread itself has all of it."""
MAX_RESPONSE_LENGTH = 2**18
"""Characters of JSON of a response that are kept with its turn; a longer one is kept without the
responses below it, and with a shorter result."""

EndStatus: TypeAlias = Literal["finished", "limited", "stopped", "dismissed"]
"""How a turn has ended: with an answer, at a limit, by an order to stop, or for good."""


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """The end of a turn."""

    # The root's last message.
    text: str
    status: EndStatus = "finished"
    # Why there is no whole answer, or a remark on it.
    reason: str = ""
    # `None` in a row of an earlier version.
    response: DelegationResponse | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the end as it is stored."""
        kept = {"text": self.text[:MAX_ANSWER_LENGTH], "status": self.status, "reason": self.reason}
        if self.response is None:
            return kept
        response = self.response
        # The answer is kept already.
        if response.status is Status.FULFILLED:
            response = response.model_copy(update={"result": ""})
        # As text: responses may be nested deeper than the ledger's values.
        stored = json.dumps(response.stored(), ensure_ascii=False)
        if len(stored) > MAX_RESPONSE_LENGTH:
            result = response.result[: MAX_RESPONSE_LENGTH // 2]
            response = response.model_copy(update={"result": result, "subordinate_responses": ()})
            stored = json.dumps(response.stored(), ensure_ascii=False)
        return {**kept, "response": stored}


@dataclass(slots=True)
class RootState:
    """The state of a session's root, as its run has seen it itself."""

    checkpoint_id: str = ""  # the root's last checkpoint that the run has stored; empty before it
    # The root's messages there, once the run has ended.
    messages: Sequence[BaseMessage] | None = None
    # What it may spend in the turn; `None` if its turn was given no budget.
    allowance: Allowance | None = None

    def get_messages(self, checkpoint_id: str) -> Sequence[BaseMessage] | None:
        """Return the messages at a checkpoint, or `None` if the run has not ended there."""
        return self.messages if checkpoint_id == self.checkpoint_id else None


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn that is running."""

    thread_id: str
    id: str  # the turn's id, given by its caller or its session
    fence: Fence  # the run's lease
    task: str = ""  # digest of its task, if the caller may submit it again
    # The error of a failed write. Later writes are refused, for they may depend on it. LangGraph
    # goes on for a while: it does not wait for the input's checkpoint, and drops the error if an
    # agent below asks a question.
    failures: list[StorageError] = field(default_factory=list, compare=False)
    # Holds back its steps until the events before have been taken.
    backpressure: Backpressure | None = field(default=None, compare=False)
    root: RootState = field(default_factory=RootState, compare=False)
    # Where answers are left to its run; `None` if its run takes none.
    answer_mark: AnswerMark | None = field(default=None, compare=False)
    # Called with all orders of the turn whenever its gate reads them.
    note_orders: OrderListener | None = field(default=None, compare=False)
    # Called with the dismissals that its gate reads for the first time.
    note_dismissals: DismissalListener | None = field(default=None, compare=False)
    # Keys of the dismissals that its branch does not see.
    hidden_dismissals: frozenset[str] = field(default=frozenset(), compare=False)
    # Ids of the messages of its thread that no model is shown.
    hidden_messages: frozenset[str] = field(default=frozenset(), compare=False)
    # Called with the model calls that no reply of a thread shows.
    note_usage: UsageListener | None = field(default=None, compare=False)

    def check_write(self, cursor: sqlite3.Cursor) -> None:
        """Refuse a write of a run that has lost its lease, or whose earlier write failed.

        Raises:
            LeaseLost: Another run has the thread now.
            StorageError: An earlier write has failed.
        """
        self.check_failures()
        require_lease(cursor, self.fence)

    def check_in(self, open_: Transaction) -> None:
        """Check the same as `check_write`, in a transaction of the ledger."""
        self.check_failures()
        open_.require_lease(self.fence)

    def check_failures(self) -> None:
        """Refuse to go on after a failed write, with its `StorageError`."""
        for failure in self.failures[:1]:
            raise copy(failure)

    def record_begin(self, cursor: sqlite3.Cursor) -> None:
        """Record a turn that may be submitted again, in the transaction of its first checkpoint."""
        if self.task:
            open_ = SqliteTransaction(cursor, utc_now, MAX_RECORD_SIZE)
            TURN.add(open_, TurnRecord(self.task), self.thread_id, self.id)

    def announce(self, open_: Transaction) -> None:
        """Record a turn that may be submitted again, where the checkpoints are stored elsewhere.

        Its first checkpoint may never be stored: then it is known and has not begun.
        """
        if self.task:
            TURN.add(open_, TurnRecord(self.task, announced=True), self.thread_id, self.id)


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """The record of a turn, as it is stored; the end is in it once the turn has ended."""

    task: str  # digest of its task
    announced: bool = False  # whether it was recorded before its first checkpoint was stored
    text: str | None = None  # the root's last message; `None` until the turn has ended
    status: EndStatus = "finished"  # how it has ended
    reason: str = ""  # why it has no whole answer, or a remark on the answer
    response: str | None = None  # the root's response as JSON; `None` in a row from before

    def to_json(self) -> dict[str, Any]:
        """Return the record as it is stored."""
        kept: dict[str, Any] = {"task": self.task}
        if self.announced:
            kept["announced"] = True
        if self.text is not None:
            kept |= {"text": self.text, "status": self.status, "reason": self.reason}
        if self.response is not None:
            kept["response"] = self.response
        return kept

    def load_end(self) -> TurnEnd | None:
        """Return the end of the turn, `None` if it has not ended.

        Raises:
            UnreadableRecord: The response in it is damaged.
        """
        if self.text is None:
            return None
        response = None
        if self.response is not None:
            try:
                stored = json.loads(self.response)
            except (ValueError, RecursionError) as error:
                raise UnreadableRecord(DelegationResponse.__name__, str(error)) from error
            response = DelegationResponse.load(stored)
            if response.status is Status.FULFILLED:
                response = response.model_copy(update={"result": self.text})
        return TurnEnd(self.text, self.status, self.reason, response)


TURN: Final = Records[TurnRecord]("turn", TurnRecord, raw=1, to_json=lambda turn: turn.to_json())
"""A turn that may be submitted again, by its id."""


def record_failure(configurable: Mapping[str, Any], failure: StorageError) -> None:
    """Record a failed write in its turn, unless an earlier one has failed."""
    turn = get_turn(configurable)
    if turn and not turn.failures:
        turn.failures.append(failure)


def get_turn(configurable: Mapping[str, Any]) -> Turn | None:
    """Return the turn of a write, `None` outside of sessions."""
    context: RunContext = configurable.get(CONTEXT_KEY, NO_CONTEXT)
    return context.turn


def find_turn(open_: Transaction, thread_id: str, turn_id: str) -> TurnRecord | None:
    """Return the record of a turn, `None` if it is not known."""
    return TURN.get(open_, thread_id, turn_id)


def finish_turn(open_: Transaction, thread_id: str, turn_id: str, end: TurnEnd | None) -> None:
    """End a turn: close its grants, and store its end if it may be submitted again.

    The end is `None` if nothing is to be stored of it.
    """
    close_grants(open_, thread_id, turn_id=turn_id)
    if end is None:
        return
    record = TURN.get(open_, thread_id, turn_id)
    if record and record.text is None:
        TURN.put(open_, replace(record, **end.to_json()), thread_id, turn_id)


def digest_task(
    task: str | Sequence[Any], context: Mapping[str, Any], addressee: Sequence[str] = ()
) -> str:
    """Return the SHA-256 digest of a task, with its context and its addressee, in hex.

    A task is a text, or blocks as JSON.
    """
    whole: Any = [task, context] if context else task
    if addressee:
        whole = [task, context, addressee]
    if not isinstance(whole, str):
        # Twice: in JSON all keys are texts, and can be sorted.
        whole = json.dumps(json.loads(json.dumps(whole)), sort_keys=True)
    return sha256(whole.encode()).hexdigest()
