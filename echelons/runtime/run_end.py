"""The record of a run, its end, and what is read of a turn from what is stored of it.

A turn that has ended is judged by its messages, any other by the work that it has left. The end is
stored before the lease of the thread is released.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from uuid import uuid4

from langchain_core.messages import BaseMessage
from langgraph.runtime import RunControl
from langgraph.types import Command

from echelons.checkpoints.coordination import turns
from echelons.checkpoints.coordination.orders import ControlOrders, GivenOrder
from echelons.checkpoints.coordination.turns import AnswerMark, EndStatus, Turn, TurnEnd
from echelons.checkpoints.ledger import Transaction
from echelons.checkpoints.queries import LedgerQuery, ReadPlan
from echelons.checkpoints.threads import answer_outbox
from echelons.checkpoints.threads.answer_outbox import StoredAnswer
from echelons.checkpoints.threads.pending_work import Question
from echelons.checkpoints.threads.thread_status import (
    ThreadStatus,
    read_thread_status,
    read_turn_messages,
    select_turn_messages,
)
from echelons.delegation.request import DelegationRequest, DelegationResponse, Usage
from echelons.features.registry import open_features
from echelons.guards.dismissals import Dismissal
from echelons.guards.gate import Backpressure, NotedCall
from echelons.nodes.planning.final_answer import read_final_text
from echelons.nodes.planning.relay import build_halt_report, read_halt
from echelons.nodes.subordinate import build_response
from echelons.runtime.run_events import (
    STREAM_MODES,
    EventTranslator,
    RunEvent,
    RunEventKind,
    build_answer_event,
    build_dismissal_event,
    build_order_event,
)
from echelons.text.error_lines import Redactor, redact_secrets
from echelons.tree.agent_path import AgentPath
from echelons.tree.names import PATH_SEPARATOR

if TYPE_CHECKING:
    from echelons.features.feature import RunHooks, RunScope


TurnStatus: TypeAlias = EndStatus | Literal["asking", "paused", "running"]
"""The status of a turn at the end of a run; `running` if another run goes on with it."""


def read_turn_end(status: ThreadStatus, confidence: float) -> ReadPlan[TurnEnd]:
    """Return the end of a root's last turn, read from the checkpoint at its end."""
    messages = yield from read_turn_messages(status)
    return build_turn_end(status, messages, confidence)


def build_turn_end(
    status: ThreadStatus, messages: Sequence[BaseMessage], confidence: float
) -> TurnEnd:
    """Return the end of a turn with these messages, its task first."""
    identity, last = status.identity, messages[-1] if messages else None
    if identity is None:
        return TurnEnd("", reason="nothing has run on the thread")
    request = DelegationRequest(
        id=identity.turn,
        origin=identity.agent,
        current=identity.agent,
        task=str(messages[0].text) if messages else "",
        path=AgentPath(identity.path),
    )
    halt = read_halt(last) if last else None
    report = build_halt_report(halt, messages[:-1]) if halt else None
    outcome = {"messages": messages, "response": report}
    response = build_response(request, outcome, confidence)
    ended: EndStatus = "finished"
    if halt:
        ended = halt.kind if halt.kind in ("stopped", "dismissed") else "limited"
    elif response.end == "length":
        ended = "limited"
    text = read_final_text(messages)
    if not text.strip() and response.result:
        text = response.result
    return TurnEnd(text, ended, response.reason, response)


def describe_open_turn(status: ThreadStatus, left: str = "") -> tuple[TurnStatus, str]:
    """Return the status of a turn that has not ended, and why; `left` is why its run was left."""
    work = status.pending_work
    held = f"paused: {', '.join(sorted(work.paused))}" if work.paused else ""
    if left and (work.can_proceed or not work.questions):
        return "paused", f"{left}: the run ended after its current step; `resume` continues it"
    if work.questions:
        paths = dict.fromkeys(question.path for question in work.questions)
        needed = f"question: an answer is needed by {', '.join(paths)}"
        return "asking", "; ".join(filter(None, (needed, held)))
    return "paused", held or "cut short: `resume` continues the turn"


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The result of a run."""

    status: TurnStatus
    text: str = ""
    # Why the turn has no whole answer, or a remark on it; empty for neither.
    reason: str = ""
    questions: tuple[Question, ...] = ()
    response: DelegationResponse | None = None
    # Nothing was run, as the turn had been submitted before.
    replayed: bool = False
    # Answers were left to the run that holds the thread.
    queued: bool = False

    @classmethod
    def from_turn_end(cls, end: TurnEnd, replayed: bool = False) -> RunEnd:
        """Return the result of a run whose turn has ended."""
        return cls(end.status, end.text, end.reason, response=end.response, replayed=replayed)

    @classmethod
    def from_open_turn(
        cls,
        status: ThreadStatus,
        left: str = "",
        replayed: bool = False,
        answered: Collection[str] = (),
    ) -> RunEnd:
        """Return the result of a run whose turn has not ended; the next delivers `answered`."""
        status = status.without_questions(answered) if answered else status
        standing, reason = describe_open_turn(status, left)
        return cls(standing, "", reason, status.questions, replayed=replayed)


class RunRecord:
    """The record of a run in progress; the engine writes it, `Run` and `AsyncRun` show it."""

    def __init__(self, redact: Redactor = redact_secrets) -> None:
        self.control = RunControl()
        self.backpressure = Backpressure()
        self.usage = Usage()
        self.started = False
        self.ended = False
        self.is_watched = True
        self.paused = False
        self.held = False
        self.run_end: RunEnd | None = None
        self.delivered: set[str] = set()
        self.withdrawn: set[str] = set()
        self.hooks: Sequence[RunHooks] = ()
        self._needs_events = False
        self._translator = EventTranslator(redact)
        self._noted: list[RunEvent] = []
        self._orders_noted = 0
        self._dismissals_noted: set[Dismissal] = set()

    @property
    def stream_options(self) -> dict[str, Any]:
        """The stream options of LangGraph, with the control that stops it."""
        return {"stream_mode": list(STREAM_MODES), "subgraphs": True, "control": self.control}

    def skip_events(self) -> None:
        """Yield no more events up to the end of the run, and hold back none of its steps."""
        self.is_watched = False
        self.backpressure.lift()

    def note_answers(self, answers: Iterable[tuple[Question, StoredAnswer]]) -> None:
        """Note the answers that the run delivers next, with their questions."""
        self._noted += [build_answer_event(*answer) for answer in answers]

    def skip_orders(self, orders: ControlOrders) -> None:
        """Note that orders were given before the run."""
        self._orders_noted = len(orders.given)

    def note_orders(self, orders: Sequence[GivenOrder]) -> None:
        """Note the orders of the turn; each becomes an event once. Any thread may call it."""
        new, self._orders_noted = orders[self._orders_noted :], len(orders)
        self._noted += [build_order_event(order) for order in new]

    def skip_dismissals(self, dismissals: Iterable[Dismissal]) -> None:
        """Note that agents were dismissed before the run."""
        self._dismissals_noted.update(dismissals)

    def note_dismissals(self, new: Iterable[Dismissal]) -> None:
        """Note dismissals; each becomes an event once. Any thread may call it."""
        for dismissal in new:
            if dismissal not in self._dismissals_noted:
                self._dismissals_noted.add(dismissal)
                self._noted.append(build_dismissal_event(dismissal))

    def note_call(self, call: NotedCall) -> None:
        """Note a model call that may not be in the stream. Any thread may call it."""
        key = call.reply_id or uuid4().hex
        self._translator.noted_calls[key] = Usage.from_call(call.used)

    def add_noted_calls(self) -> None:
        """Add the usage of the calls that were noted and not in the stream."""
        noted = self._translator.noted_calls
        self.usage = sum((noted.pop(key) for key in [*noted]), self.usage)

    def note_event(self, path: str, kind: str, content: str, **fields: Any) -> None:
        """Note an event of a feature. Any thread may call it."""
        self._noted.append(RunEvent(path, RunEventKind(kind), content, **fields))

    def open_hooks(self, run: RunScope) -> None:
        """Open the features of the tree that work beside the run."""
        self.hooks = open_features(run)
        self._needs_events = any(hooks.needs_events for hooks in self.hooks)

    def close_hooks(self) -> None:
        """End what features do beside the run, and add what they have used."""
        for hooks in self.hooks:
            self.usage += hooks.close()

    def take_noted(self) -> Iterator[RunEvent]:
        """Yield the events noted since the last call: answers, orders, and those of features."""
        while self._noted:
            event = self._noted.pop(0)
            if self.is_watched:
                yield event

    def record_drain(self, mark: AnswerMark) -> None:
        """Record why the tree was drained: to deliver answers, or as the run is paused or left."""
        self.held = mark.has_held and not self.control.drain_requested
        self.paused = not self.held

    def record_part(self, part: Any) -> Iterator[RunEvent]:
        """Yield the events of a part of LangGraph's stream, and record them."""
        # Goes on when the consumer asks for more: only then a step that was announced may begin.
        if not (self.is_watched or self._needs_events):
            self.usage = self._translator.add_usage(self.usage, part)
            for hooks in self.hooks:
                hooks.see(None)
            return
        yield from self.take_noted()
        for event in self._translator.translate_part(part):
            if event.kind is RunEventKind.MESSAGE:
                self.usage += event.usage
            for hooks in self.hooks:
                hooks.see(event)
            if self.is_watched:
                yield event
        _, mode, payload = part
        if mode == "tasks":
            held = self.backpressure
            (held.take_start if "input" in payload else held.take_end)(payload["id"])


def read_run_end(thread_id: str, confidence: float) -> ReadPlan[RunEnd]:
    """Return the result of the last run of a thread, read from its checkpoints."""
    status = yield from read_thread_status(thread_id)
    if not status.finished:
        answers = yield from answer_outbox.read_stored_answers(thread_id, status)
        return RunEnd.from_open_turn(status, answered=answers)
    return RunEnd.from_turn_end((yield from read_turn_end(status, confidence)))


def settle_run(
    turn: Turn, mark: AnswerMark, record: RunRecord, confidence: float
) -> ReadPlan[Command[Any] | None]:
    """End the run, or return its next input if answers have arrived meanwhile."""
    # The run also continues if its steps were held, or if an agent with a pending question was
    # stopped meanwhile, as its superior can continue. One transaction, so that an answer either
    # finds a run that will deliver it, or has to wait for the thread.
    turn.check_failures()
    status = yield from read_thread_status(turn.thread_id)
    withdrawn = status.pending_work.withdrawn - record.withdrawn
    end: TurnEnd | None = None
    if status.finished and (held := turn.root.get_messages(status.checkpoint_id)):
        end = build_turn_end(status, select_turn_messages(held), confidence)
    elif status.finished:
        end = yield from read_turn_end(status, confidence)

    missed = yield from answer_outbox.read_missed_answers(status.questions)

    def close_run(open_: Transaction) -> RunEnd | Command[Any] | None:
        open_.require_lease(turn.fence)
        # A run that was drained may not have reached the tools that its answers are for: they
        # stay due.
        delivered = () if record.paused or record.held else record.delivered
        due = answer_outbox.take_due_answers(open_, turn.thread_id, status.question_ids, delivered)
        due = {**missed, **due}
        if (due or withdrawn or record.held) and not record.paused:
            mark.take(open_)
            if due:
                record.note_answers(
                    answer_outbox.deliver_answers(open_, turn.thread_id, status, due)
                )
            return Command(resume=due) if due else None
        mark.close(open_)
        if end is None:
            left = record.control.drain_reason or "" if record.paused else ""
            return RunEnd.from_open_turn(status, left, answered=due)
        turns.finish_turn(open_, turn.thread_id, turn.id, end)
        return RunEnd.from_turn_end(end)

    settled = yield LedgerQuery(lambda ledger: ledger.commit(close_run))
    if isinstance(settled, RunEnd):
        record.run_end = settled
        return None
    record.withdrawn |= withdrawn
    if record.held:
        record.held = False
        answered = settled.resume if settled else ()
        paths = [question.path.parts for question in status.questions if question.id in answered]
        paths_above = {
            PATH_SEPARATOR.join(path[:end]) for path in paths for end in range(len(path) + 1)
        }
        mark.held_attempts.restart(paths_above)
        record.backpressure.forget_starts()
    return settled  # type: ignore[no-any-return]  # a plan is sent what it asked for
