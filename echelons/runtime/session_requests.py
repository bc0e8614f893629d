"""The requests of a session, and their decisions: run, return a stored result, or refuse.

`send`, `answer` and `resume` are a request each. Its `decide` is a plan that reads
the status of the thread; the session executes it once when it is called, so that a caller is
refused at once, and again under the thread's lease, where the status cannot change, unless
nothing at all has been written to the database in between.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple, TypeAlias
from uuid import uuid4

from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.types import Command
from pydantic import BaseModel

from echelons.checkpoints.coordination import turns
from echelons.checkpoints.coordination.dismissal_ledger import read_dismissals
from echelons.checkpoints.coordination.orders import get_signals
from echelons.checkpoints.coordination.records import build_branch
from echelons.checkpoints.coordination.turns import TurnEnd, mark_answers_left
from echelons.checkpoints.ledger import Lease, Ledger, Transaction, build_key
from echelons.checkpoints.queries import (
    AllCheckpoints,
    CheckpointParents,
    LedgerQuery,
    ReadPlan,
)
from echelons.checkpoints.threads import answer_outbox
from echelons.checkpoints.threads.agent_states import resolve_agent
from echelons.checkpoints.threads.answer_outbox import read_later_questions, store_later_answers
from echelons.checkpoints.threads.control import (
    check_paused,
    is_root_stopped,
    lift_pauses,
    locate_order,
    read_control_orders,
)
from echelons.checkpoints.threads.thread_status import (
    ThreadStatus,
    read_thread_status,
    read_turn_status,
)
from echelons.delegation.approvals import Decision
from echelons.delegation.contract import Contract, dump_model
from echelons.delegation.request import render_facts, render_input
from echelons.errors import (
    InterventionPending,
    NothingToResume,
    QuestionError,
    ThreadBusy,
    ThreadError,
    ThreadNotFound,
    UnfinishedTurn,
    invalid_id,
    invalid_task,
    invalid_value,
    not_paused,
)
from echelons.guards.budget import Budget
from echelons.identity.lineage import (
    ADDRESSEE_KEY,
    INPUT_KEY,
    REQUEST_CONTEXT_KEY,
    choose_user_name,
)
from echelons.runtime.run_end import RunEnd, read_run_end, read_turn_end
from echelons.text.content_blocks import copy_blocks, find_block_fault
from echelons.text.input_limits import (
    MESSAGE_BYTES,
    check_context,
    check_id,
    check_value,
    list_items,
    read_text,
    refuse_unreadable,
    shorten_repr,
)
from echelons.tree.names import PATH_SEPARATOR

Task: TypeAlias = str | Sequence[Mapping[str, Any]] | BaseModel | Mapping[str, Any]
"""A task: a text, content blocks as LangChain writes them, such as a text and a picture, or the
input that the contract of the root declares."""

MISSING: Any = object()
"""The default of an answer that was not given; `None` is a valid answer."""
QUEUED = "queued: the run that holds the thread takes the answers"
STORED = "stored: the agent that has asked is told before its next model call"
FORGOTTEN = "nothing is left of the turn in the database"


class SessionThread(NamedTuple):
    """A root's thread: its name and id, and the root's declared confidence and name."""

    name: str
    id: str
    confidence: float = 1.0
    root: str = ""


@dataclass(frozen=True, slots=True)
class StartRun:
    """Run the tree."""

    graph_input: Any
    turn: str
    # Digest of the task that starts it, if it may be submitted again.
    task: str = ""
    status_before: ThreadStatus = field(default_factory=ThreadStatus)
    # The keys of `configurable` that a continued turn has stored, with their values.
    stored_keys: Mapping[str, Any] = field(default_factory=dict)


RunDecision = StartRun | RunEnd
LedgerWriter = Callable[[Transaction], None]
"""Writes to the ledger in the given transaction."""


@dataclass(frozen=True, slots=True)
class EarlyDecision:
    """A decision from before the lease, and the version of the store that it was read from."""

    decision: RunDecision
    store_version: tuple[int, int] | None


@dataclass(slots=True)
class SessionRequest(ABC):
    """A request of a session."""

    # The decision from when the session was called; `None` before that.
    early: EarlyDecision | None = field(default=None, init=False)
    # The turn before was stopped and has to be ended first.
    ends_stopped: bool = field(default=False, init=False)

    @abstractmethod
    def decide(self, thread: SessionThread) -> ReadPlan[RunDecision]:
        """Decide what to do in the current status of the thread, without changing it."""

    def plan_writes(self, thread: SessionThread, go: StartRun) -> ReadPlan[LedgerWriter]:
        """Return the writer of what must be stored before the tree runs."""
        yield from ()
        return _write_nothing

    def decide_early(self, thread: SessionThread) -> ReadPlan[None]:
        """Decide before anything starts; refuse a request that cannot be carried out."""
        version = yield LedgerQuery(lambda ledger: ledger.query(lambda open_: open_.store_version))
        yield from self.refuse_held_thread(thread)
        self.early = EarlyDecision((yield from self.decide(thread)), version)

    def decide_under_lease(self, thread: SessionThread, lease: Lease) -> ReadPlan[RunDecision]:
        """Return the early decision if nothing has been written since, or decide again."""
        early = self.early
        if early and early.store_version and early.store_version == lease.store_version:
            return early.decision
        return (yield from self.decide(thread))

    def refuse_held_thread(self, thread: SessionThread) -> ReadPlan[None]:
        """Refuse a thread that another run holds."""
        holder = yield LedgerQuery(lambda ledger: ledger.get_holder(build_key(thread.id)))
        if holder is not None:
            raise ThreadBusy(thread.name, holder.pid, holder.since)

    def meet_other_run(self, thread: SessionThread, busy: ThreadBusy) -> ReadPlan[RunEnd | None]:
        """Return the result beside another run; `None` to wait, as it ends or has just begun."""
        yield from ()
        raise ThreadBusy(thread.name, busy.pid, busy.since) from busy


@dataclass(slots=True)
class SendRequest(SessionRequest):
    """A task for the root."""

    task: str | list[dict[str, Any]]
    # The caller's id of the turn; `None` if it will not be submitted again.
    turn: str | None
    context: Mapping[str, Any] = field(default_factory=dict)
    # The agents below the root, down to the one that the task is for.
    addressee: Sequence[str] = ()
    # The fields of the input that the root's contract declares; `None` without one.
    input: Mapping[str, Any] | None = None
    # `None` for what the root's permissions say.
    budget: Budget | None = None

    def decide(self, thread: SessionThread) -> ReadPlan[RunDecision]:
        """Start a turn, resume it, or return its stored answer."""
        status = yield from read_thread_status(thread.id)
        if self.turn is None:
            return (yield from self._start_turn(thread, status, str(uuid4())))
        digest = turns.digest_task(self.task, self.context, self.addressee)
        turn, past = self.turn, None
        if record := (yield from _find_turn(thread, turn)):
            turn, record, past = yield from _find_turn_on_branch(thread, turn, record, status)
        if record is None:
            return (yield from self._start_turn(thread, status, turn, digest))
        if record.task != digest:
            raise ThreadError(
                "turn {turn_id!r} of thread {thread!r} was another task, or had another "
                "request_context; send the same task with the same context to get its answer "
                "again, or give the new task an id of its own. Nothing was changed",
                code="turn_reused",
                turn_id=self.turn,
                thread=thread.name,
            )
        if status.turn == turn and not status.finished:
            continued = yield from _continue_turn(thread, status)
            return continued or RunEnd.from_open_turn(status, replayed=True)
        end = None if past else record.load_end()
        if end is None or end.response is None:
            # Its process died at the start of the turn, or at its end before that was stored; or
            # only its text was, by an earlier version.
            past = past or (yield from read_turn_status(thread.id, turn))
            if past is None and end is None and record.announced:
                return (yield from self._start_turn(thread, status, turn, digest))
            if past is not None:
                end = yield from read_turn_end(past, thread.confidence)
        return RunEnd.from_turn_end(end or TurnEnd("", reason=FORGOTTEN), replayed=True)

    def plan_writes(self, thread: SessionThread, go: StartRun) -> ReadPlan[LedgerWriter]:
        """Store the end of the previous turn, if its process died before it could."""
        before = go.status_before.turn if go.status_before.finished else ""
        if not before:
            return _write_nothing
        record = yield from _find_turn(thread, before)
        if record and record.text is not None:
            return _write_nothing
        end = None
        if record:
            end = yield from read_turn_end(go.status_before, thread.confidence)
        return lambda open_: turns.finish_turn(open_, thread.id, before, end)

    def _start_turn(
        self, thread: SessionThread, status: ThreadStatus, turn: str, digest: str = ""
    ) -> ReadPlan[StartRun]:
        # Refuse a task for an agent that was dismissed, be it the root.
        dismissals = yield from read_dismissals(thread.id)
        if dismissals:
            path = PATH_SEPARATOR.join((thread.root, *self.addressee))
            if dismissal := dismissals.find(path):
                raise dismissal.build_error(path)
        if not status.finished and not self.ends_stopped:
            self.ends_stopped = yield from is_root_stopped(thread.id, thread.root)
        else:
            # It has been ended by now, or something else is at work.
            self.ends_stopped = False
        answers = yield from answer_outbox.read_stored_answers(thread.id, status)
        still_open = [
            question_id for question_id in status.question_ids if question_id not in answers
        ]
        if still_open and not self.ends_stopped:
            raise InterventionPending(thread.name, still_open)
        if not (status.finished or self.ends_stopped):
            raise UnfinishedTurn(thread.name)
        message = HumanMessage(content=self.task, id=str(uuid4()))  # type: ignore[arg-type]
        if self.addressee:
            message.response_metadata[ADDRESSEE_KEY] = [*self.addressee]
        if self.input is not None:
            message.response_metadata[INPUT_KEY] = self.input
        if not self.context:
            return StartRun({"messages": [message]}, turn, digest, status)
        message.response_metadata[REQUEST_CONTEXT_KEY] = self.context
        # As a subordinate gets it: the facts, and then the task word for word.
        facts = HumanMessage(render_facts(self.context), id=str(uuid4()))
        return StartRun({"messages": [facts, message]}, turn, digest, status)


@dataclass(slots=True)
class AnswerRequest(SessionRequest):
    """Answers to questions."""

    # By question, without those to questions that nothing waits for: they are stored at once.
    answers: Mapping[str, Any]
    by: str
    has_stored: bool = field(default=False, init=False)

    def decide_early(self, thread: SessionThread) -> ReadPlan[None]:
        """Check the answers, and store those to questions that no agent waits for."""
        later = yield from read_later_questions(thread.id)
        immediate = {key: answer for key, answer in self.answers.items() if key in later}
        self.answers = {key: answer for key, answer in self.answers.items() if key not in later}
        accepted = {
            key: answer_outbox.accept_answer(later[key], immediate[key]) for key in immediate
        }
        # Both before anything is stored: all of them are accepted, or none.
        if self.answers:
            yield from super(AnswerRequest, self).decide_early(thread)
        if accepted:
            yield from store_later_answers(thread.id, later, accepted, self.by)
            # What was decided before that was of another version of the store.
            self.has_stored, self.early = True, None

    def decide(self, thread: SessionThread) -> ReadPlan[RunDecision]:
        """Check the answers, and continue with them."""
        if not self.answers:
            end = yield from read_run_end(thread.id, thread.confidence)
            return replace(end, replayed=True, reason=end.reason or STORED)
        checked = yield from answer_outbox.check_answers(thread.name, thread.id, self.answers)
        status, stored, accepted = checked
        return _continue_with(Command(resume={**stored, **accepted}), status)

    def plan_writes(self, thread: SessionThread, go: StartRun) -> ReadPlan[LedgerWriter]:
        """Store the answers."""
        yield from ()
        accepted = {name: go.graph_input.resume[name] for name in self.answers}
        status, by = go.status_before, self.by
        return lambda open_: answer_outbox.store_answers(open_, thread.id, accepted, status, by)

    def refuse_held_thread(self, thread: SessionThread) -> ReadPlan[None]:
        """Refuse no thread: the answers can be left to the run that holds it."""
        yield from ()

    def meet_other_run(self, thread: SessionThread, busy: ThreadBusy) -> ReadPlan[RunEnd | None]:
        """Leave the answers to the run that holds the thread, unless it is starting or ending."""
        if not self.answers:
            return RunEnd("running", reason=STORED, queued=True)
        before = yield from answer_outbox.read_answer_versions(thread.id, self.answers)
        checked = yield from answer_outbox.check_answers(thread.name, thread.id, self.answers)

        def leave(open_: Transaction) -> bool:
            if not mark_answers_left(open_, thread.id):
                return False
            answer_outbox.store_answers(open_, thread.id, checked[2], checked[0], self.by, before)
            return True

        def leave_and_signal(ledger: Ledger) -> bool:
            left = ledger.commit(leave)
            if left:
                get_signals(ledger).notify()
            return left

        left = yield LedgerQuery(leave_and_signal)
        return RunEnd("running", reason=QUEUED, queued=True) if left else None


@dataclass(slots=True)
class ResumeRequest(SessionRequest):
    """Resume a turn that was cut short or paused."""

    # The agent whose pause is to end, with those below it; `None` for all.
    path: str | None
    by: str

    def decide(self, thread: SessionThread) -> ReadPlan[RunDecision]:
        """Resume with the answers that were stored and not delivered."""
        status = yield from read_thread_status(thread.id)
        if status.checkpoint is None:
            raise ThreadNotFound(thread.name)
        if self.path is not None:
            if read_text(self.path) is None:
                raise not_paused(self.path, ())
            self.path = yield from resolve_agent(thread.id, self.path)
            yield from check_paused(thread.id, self.path)
        if status.finished:
            raise NothingToResume(thread.name, [*(yield from read_later_questions(thread.id))])
        continued = yield from _continue_turn(thread, status)
        if continued is None and (yield from read_control_orders(thread.id)).paused:
            # Nothing else can continue, but the pauses end: pending questions are asked again.
            return _continue_with(None, status)
        if continued is None:
            raise InterventionPending(thread.name, status.question_ids)
        return continued

    def plan_writes(self, thread: SessionThread, go: StartRun) -> ReadPlan[LedgerWriter]:
        """Lift the pauses."""
        yield from ()
        saved, path = go.status_before.checkpoint, self.path
        if saved is None:
            return _write_nothing
        where = locate_order(saved, thread.id, path)
        return lambda open_: lift_pauses(open_, where, go.turn, path, self.by)


def build_send_request(
    task: Task,
    turn_id: str | None,
    request_context: Mapping[str, Any] | None = None,
    addressee: Sequence[str] = (),
    contract: Contract | None = None,
) -> SendRequest:
    """Return the request to send a task; `contract` is the root's."""
    content: Any = read_text(task)
    fields: Mapping[str, Any] | None = None
    if contract and contract.input and not addressee:
        fields = _read_root_input(contract, task, content)
        content = render_input(fields)
    if content is not None:
        content = check_value(content, "the task")
    elif issubclass(type(task), (list, tuple)):
        with refuse_unreadable(lambda why: invalid_task(task, why)):
            content = list_items(task)
            fault = find_block_fault(content) if content else ""
        if not fault:
            content = copy_blocks(content, "the task")
            # What a block said of itself may have been something else.
            fault = find_block_fault(content) if content else ""
        if fault:
            raise invalid_task(task, fault)
    if not content or (isinstance(content, str) and not content.strip()):
        raise invalid_task(task)
    if addressee and not isinstance(content, str):
        raise invalid_task(task, "only a text can be sent to an agent below the root")
    turn = None if turn_id is None else check_id(turn_id, "turn_id")
    context = check_context(request_context, "request_context")
    return SendRequest(content, turn, context, addressee, fields)


def _read_root_input(contract: Contract, task: Any, text: str | None) -> dict[str, Any]:
    """Return the fields of the input that a root is sent: an instance, its fields, or a text."""
    if text is not None:
        return dump_model(contract.read_task(text))
    fields = dump_model(task) if isinstance(task, BaseModel) else task
    return dump_model(contract.read_input(fields))


def build_answer_request(
    question: str | Mapping[str, Any], value: Any, by: str | None = None
) -> AnswerRequest:
    """Return the request to answer one question, or several by their ids."""
    with refuse_unreadable(lambda why: invalid_value("the answers", shorten_repr(question), why)):
        is_mapping = isinstance(question, Mapping)
        pairs = (
            list_items(question.items()) if isinstance(question, Mapping) else [(question, value)]
        )
        answers: dict[str, Any] = {}
        for key, answer in pairs:
            if (name := read_text(key)) is None:
                raise invalid_id("id of a question", shorten_repr(key))
            answers[name] = answer if answer is MISSING else _to_json(answer)
    if is_mapping and value is not MISSING:
        raise QuestionError(
            "no question is named for the answer {value:short}, which stands beside answers to "
            "{named:each}; nothing was changed. Call answer(id, value), or answer({{id: value, "
            "…}}) alone",
            code="answer_unnamed",
            value=value,
            named=tuple(answers),
        )
    if not answers:
        raise _answer_missing()
    for name, answer in answers.items():
        if answer is MISSING:
            raise _answer_missing(name)
        answers[name] = check_value(answer, f"the answer to {shorten_repr(name)}")
    return AnswerRequest(answers, choose_user_name(by))


def _to_json(answer: Any) -> Any:
    """Return an answer with its decisions as JSON: alone, in a list, or in LangChain's form."""
    listed = answer.get("decisions") if isinstance(answer, Mapping) else answer
    if isinstance(listed, list | tuple):
        # It may never end; one more item than bytes are allowed is too large.
        items = islice(listed, MESSAGE_BYTES + 1)
        plain = [item.to_json() if isinstance(item, Decision) else item for item in items]
        return plain if listed is answer else {**answer, "decisions": plain}
    return answer.to_json() if isinstance(answer, Decision) else answer


def _find_turn(thread: SessionThread, turn: str) -> ReadPlan[turns.TurnRecord | None]:
    record: turns.TurnRecord | None = yield LedgerQuery(
        lambda ledger: ledger.query(lambda open_: turns.find_turn(open_, thread.id, turn))
    )
    return record


def _find_turn_on_branch(
    thread: SessionThread, turn: str, record: turns.TurnRecord, status: ThreadStatus
) -> ReadPlan[tuple[str, turns.TurnRecord | None, ThreadStatus | None]]:
    """Return a turn as the branch has it on which a thread goes on.

    Orders, limits and grants are stored by turn, so a turn that another branch has is begun under
    another id.

    Returns:
        The id under which it runs, its record, `None` if the branch has none, and its status if
        another branch has ended it otherwise.
    """
    parents: Mapping[str, str | None] = yield CheckpointParents(thread.id)
    if len({*parents.values()}) == len(parents):
        return turn, record, None
    branch = build_branch(parents, status.checkpoint_id)
    names: list[str] = yield LedgerQuery(
        lambda ledger: ledger.query(lambda open_: turns.TURN.list_names(open_, thread.id))
    )
    for id_ in (turn, *(name for name in names if name.startswith(f"{turn}:"))):
        stored: list[CheckpointTuple] = yield AllCheckpoints(thread.id, {"turn_id": id_}, "")
        seen = [saved for saved in stored if branch.has(saved.checkpoint["id"])]
        if seen or not stored:  # if all were pruned, no other branch is left
            past = ThreadStatus(seen[0]) if len(seen) < len(stored) else None
            return id_, (yield from _find_turn(thread, id_)), past
    return f"{turn}:{status.checkpoint_id}", None, None


def _write_nothing(open_: Transaction) -> None:
    """Write nothing."""


def _continue_turn(thread: SessionThread, status: ThreadStatus) -> ReadPlan[StartRun | None]:
    """Return how a turn continues, `None` if it needs new answers."""
    answers = yield from answer_outbox.read_stored_answers(thread.id, status)
    if status.questions and not (answers or status.pending_work.can_proceed):
        return None
    return _continue_with(Command(resume=answers) if answers else None, status)


def _continue_with(graph_input: Command[Any] | None, status: ThreadStatus) -> StartRun:
    turn = status.turn or str(uuid4())
    return StartRun(graph_input, turn, status_before=status, stored_keys=status.stored_keys)


def _answer_missing(question: str = "") -> QuestionError:
    what = "question {id!r} was given no answer" if question else "no answer was given"
    return QuestionError(
        f"{what}; nothing was changed. Call answer(id, value), or answer({{{{id: value, …}}}}); a "
        "value may be None",
        code="answer_missing",
        id=question,
    )
