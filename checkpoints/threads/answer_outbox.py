"""The answers to questions: checked, stored before delivery, and marked as delivered after it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Protocol, TypeGuard, runtime_checkable

from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import INTERRUPT
from langgraph.types import Command

from echelons.checkpoints.coordination.dismissal_ledger import read_dismissals, refuse_dismissed
from echelons.checkpoints.coordination.mailbox import (
    LATER,
    LaterQuestion,
    StoredMail,
    answer_later_question,
)
from echelons.checkpoints.coordination.orders import get_signals
from echelons.checkpoints.coordination.records import BranchView, Record, Records
from echelons.checkpoints.ledger import Ledger, Transaction, get_ledger
from echelons.checkpoints.queries import LatestCheckpointId, LedgerQuery, ReadPlan, Saver
from echelons.checkpoints.thread_events import EventKind, ThreadEvent, WriteLocation
from echelons.checkpoints.threads.pending_work import Question, sort_questions
from echelons.checkpoints.threads.thread_status import ThreadStatus, read_thread_status
from echelons.delegation.approvals import find_review
from echelons.delegation.mail import MAIL_BYTES, USER
from echelons.delegation.questions import (
    AgentQuestion,
    build_missed_answer,
    read_question_value,
)
from echelons.errors import NoQuestionPending, QuestionClosed, WrongAnswer, unknown_question
from echelons.text.input_limits import ID_PATTERN, measure_size
from echelons.text.json_schema import find_mismatch
from echelons.tree.agent_path import AgentPath


def read_later_questions(thread_id: str) -> ReadPlan[dict[str, Question]]:
    """Return the open questions of a thread for whose answers no agent waits, by their ids."""
    records: list[Record[LaterQuestion]] = yield LedgerQuery(
        lambda ledger: ledger.query(lambda open_: LATER.find_all(open_, thread_id))
    )
    waiting = [record for record in records if not record.value.answered]
    if not waiting:
        return {}
    # A fork of the past has not asked what was asked after it.
    visible = yield from BranchView(thread_id).select(LATER, waiting)
    dismissals = yield from read_dismissals(thread_id)
    return {
        record.last_part: _build_question(record.last_part, record.value)
        for record in visible
        if not dismissals.find(record.value.path)
    }


def store_later_answers(
    thread_id: str, questions: Mapping[str, Question], answers: Mapping[str, Any], by: str
) -> ReadPlan[None]:
    """Store answers to such questions, all of them or none, and their events.

    Raises:
        InvalidInput: One of them is larger than a message may be.
        QuestionClosed: Another caller has answered one of them first.
        ControlError: The agent that has asked has too many unread messages.
    """
    texts = {key: _render_answer(questions[key], answer) for key, answer in answers.items()}
    for key, text in texts.items():
        measure_size(text, f"the answer to {key!r} with its question", MAIL_BYTES)
    latest: str | None = yield LatestCheckpointId(thread_id)
    after = latest or ""

    def store(ledger: Ledger) -> None:
        at = ledger.get_time().isoformat()

        def answer(open_: Transaction) -> None:
            for key, text in texts.items():
                mail = StoredMail(USER, text, at, after, "answer")
                answer_later_question(open_, thread_id, key, mail)
                path = questions[key].path
                where = WriteLocation(thread_id, "", after, questions[key].thread_id, path)
                data = {"question": key, "value": answers[key], "by": by}
                open_.add_event(where, ThreadEvent(EventKind.ANSWER, key, data))

        ledger.commit(answer)
        get_signals(ledger).notify()

    yield LedgerQuery(store)


def _render_answer(question: Question, answer: Any) -> str:
    text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    return f"{question.value}\n{text}"


def _build_question(key: str, stored: LaterQuestion) -> Question:
    question = AgentQuestion.load(stored.question)
    path = AgentPath(stored.path)
    return Question(
        id=key,
        value=question.text,
        path=path,
        thread_id=stored.agent_thread_id,
        asked_at=stored.at,
        schema=question.response_schema,
        choices=question.choices,
        urgent=question.urgent,
        addressee=question.addressee,
        asker=path.name,
    )


_NO_VALUE: Any = object()


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """An answer as it is stored: its value until it is delivered, and then that it was.

    Attributes:
        value: The answer.
        delivered: Whether its question has it.
        by: Its author, unchecked; empty if the deadline of the question had passed, or if an
            earlier version has stored it.
        at: When it was given, ISO 8601, UTC.
    """

    value: Any = _NO_VALUE
    delivered: bool = False
    by: str = ""
    at: str = ""


def _to_json(answer: StoredAnswer) -> dict[str, Any]:
    if answer.delivered:
        return {"delivered": True}
    return {"value": answer.value, "by": answer.by, "at": answer.at}


ANSWER: Final = Records[StoredAnswer]("answer", StoredAnswer, raw=1, to_json=_to_json)
"""An answer, by the id of its question."""


def read_open_questions(thread_id: str) -> ReadPlan[list[Question]]:
    """Return the unanswered questions of a root's thread, also those that no agent waits for."""
    standing = yield from read_thread_status(thread_id)
    answers = yield from read_stored_answers(thread_id, standing)
    waiting = [question for question in standing.questions if question.id not in answers]
    later = yield from read_later_questions(thread_id)
    return [*sort_questions([*waiting, *later.values()])] if later else waiting


def read_stored_answers(thread_id: str, standing: ThreadStatus) -> ReadPlan[dict[str, Any]]:
    """Return the answers to pending questions of a thread, by question id.

    They were stored, or the deadline of a question has passed, which is answered by that.
    """
    if not standing.questions:
        return {}
    late = yield from read_missed_answers(standing.questions)

    def read(open_: Transaction) -> dict[str, StoredAnswer | None]:
        return {id_: ANSWER.get(open_, thread_id, id_) for id_ in standing.question_ids}

    answers: dict[str, StoredAnswer | None] = yield LedgerQuery(lambda ledger: ledger.query(read))
    stored = {id_: answer.value for id_, answer in answers.items() if _is_undelivered(answer)}
    return {**late, **stored}


def read_missed_answers(questions: Sequence[Question]) -> ReadPlan[dict[str, Any]]:
    """Return what is delivered for questions without an answer in time.

    By question id.
    """
    # Few questions have a deadline: else no time is asked for.
    if all(question.deadline is None for question in questions):
        return {}
    now: datetime = yield LedgerQuery(lambda ledger: ledger.get_time())
    return {
        question.id: build_missed_answer(question.deadline, question.default)
        for question in questions
        if question.deadline is not None and datetime.fromisoformat(question.deadline) <= now
    }


def add_missed_answers(input: Any, head: CheckpointTuple) -> ReadPlan[Any]:
    """Return the input of a resumed run with the end of the questions whose deadline has passed.

    An answer that comes later is not delivered, as in a session.
    """
    writes = head.pending_writes or ()
    interrupts = [asked for _, channel, value in writes if channel == INTERRUPT for asked in value]
    asked = {interrupt.id: read_question_value(interrupt.value) for interrupt in interrupts}
    dated = {id_: question for id_, question in asked.items() if question and question.deadline}
    if not dated:
        return input
    now: datetime = yield LedgerQuery(lambda ledger: ledger.get_time())
    missed: dict[str, Any] = {
        id_: build_missed_answer(question.deadline, question.default)
        for id_, question in dated.items()
        if question.deadline and datetime.fromisoformat(question.deadline) <= now
    }
    if not missed:
        return input
    given = input.resume if isinstance(input, Command) else None
    if isinstance(given, Mapping) and given.keys() <= asked.keys():
        missed = {**given, **missed}
    elif given is not None and asked.keys() != missed.keys():
        return input  # LangGraph refuses an answer that names none of several questions
    if isinstance(input, Command):
        return replace(input, resume=missed)
    return Command(resume=missed)


def check_answers(
    thread: str, thread_id: str, answers: Mapping[str, Any]
) -> ReadPlan[tuple[ThreadStatus, dict[str, Any], dict[str, Any]]]:
    """Check answers against the pending questions of a thread, without storing them.

    Args:
        thread: Its name, for errors.
        thread_id: The root's thread.
        answers: The answers, by question id.

    Returns:
        The status of the thread, the answers that are stored already, by question, and those
        that were given, in the form that the asking graph expects.

    Raises:
        NoQuestionPending: There is no pending question.
        QuestionClosed: A question has been answered or withdrawn.
        ControlError: It was withdrawn, as the agent that has asked was dismissed.
        QuestionError: A question was never asked.
        WrongAnswer: An answer does not match the schema of its question, or is no decision on
            its tool calls.
    """
    standing = yield from read_thread_status(thread_id)
    stored = yield from read_stored_answers(thread_id, standing)
    open_questions = {
        question.id: question for question in standing.questions if question.id not in stored
    }
    for question in answers:
        if question not in open_questions:
            asker: str | None = yield _QuestionAsker(thread_id, question)
            if question in standing.pending_work.dismissed:
                raise standing.pending_work.dismissed[question].build_error(asker or "")
            if asker is not None:
                yield from refuse_dismissed(thread_id, asker)
                raise QuestionClosed(question, list(open_questions))
            if not open_questions:
                raise NoQuestionPending(thread)
            raise unknown_question(question, list(open_questions))
    accepted = {name: accept_answer(open_questions[name], value) for name, value in answers.items()}
    return standing, stored, accepted


def read_answer_versions(
    thread_id: str, answers: Collection[str]
) -> ReadPlan[Mapping[str, int | None]]:
    """Return the ledger version of each stored answer, `None` where there is none."""

    def read(open_: Transaction) -> dict[str, int | None]:
        ids = (id_ for id_ in answers if ID_PATTERN.fullmatch(id_))
        records = {id_: ANSWER.find(open_, thread_id, id_) for id_ in ids}
        return {id_: record.version if record else None for id_, record in records.items()}

    return (yield LedgerQuery(lambda ledger: ledger.query(read)))  # type: ignore[no-any-return]  # a plan is sent what it asked for


def store_answers(
    open_: Transaction,
    thread_id: str,
    answers: Mapping[str, Any],
    status: ThreadStatus,
    by: str,
    prior_versions: Mapping[str, int | None] | None = None,
) -> None:
    """Store answers in the ledger by question id, all of them or none, and their events.

    Args:
        open_: The open transaction of the ledger.
        thread_id: The root's thread.
        answers: The answers.
        status: The status of the thread, with the questions.
        by: The person that gives them.
        prior_versions: The versions from before the answers were checked, if another run is active,
            which may have delivered another caller's answer meanwhile.

    Raises:
        QuestionClosed: Another caller has answered a question first.
    """
    questions = {question.id: question for question in status.questions}
    for question, value in answers.items():
        stored = ANSWER.find(open_, thread_id, question)
        version = stored.version if stored else None
        overtaken = prior_versions is not None and prior_versions[question] != version
        if (stored and _is_undelivered(stored.value)) or overtaken:
            raise QuestionClosed(question, [])
        # A delivered question that is pending again belongs to a fork of the past.
        answer = StoredAnswer(value, by=by, at=open_.now)
        number = ANSWER.put(open_, answer, thread_id, question)
        _add_answer_event(open_, thread_id, status, questions[question], answer, str(number))


def deliver_answers(
    open_: Transaction, thread_id: str, status: ThreadStatus, answers: Mapping[str, Any]
) -> list[tuple[Question, StoredAnswer]]:
    """Return the questions that a run delivers answers to, each with what is stored of its answer.

    An answer that is not stored stands for one whose deadline has passed: its event is added.

    Args:
        open_: The open transaction of the ledger.
        thread_id: The root's thread.
        status: The status of the thread, with the questions.
        answers: The delivered answers, by question id.
    """
    delivered: list[tuple[Question, StoredAnswer]] = []
    for question in status.questions:
        if question.id not in answers:
            continue
        stored = ANSWER.get(open_, thread_id, question.id)
        if _is_undelivered(stored):
            delivered.append((question, stored))
            continue
        missed = question.default
        if question.reviewed_calls:
            missed = {"type": "reject", "message": f"no decision by {question.deadline}"}
        answer = StoredAnswer(missed, at=open_.now)
        _add_answer_event(open_, thread_id, status, question, answer, "missed")
        delivered.append((question, answer))
    return delivered


def describe_answer(question: Question, answer: StoredAnswer) -> tuple[EventKind, dict[str, Any]]:
    """Return the kind and the data of the event of an answer; of a decision without arguments."""
    value, calls = answer.value, question.reviewed_calls
    if not calls:
        return EventKind.ANSWER, {"question": question.id, "value": value, "by": answer.by}
    if isinstance(value, Mapping):
        value = value.get("decisions") or [value] * len(calls)
    decisions = [
        # Not the arguments that it may have changed.
        {"tool": call.tool, **{key: decision[key] for key in _TOLD_OF_DECISIONS if key in decision}}
        for call, decision in zip(calls, value, strict=True)
    ]
    return EventKind.APPROVAL, {"question": question.id, "decisions": decisions, "by": answer.by}


_TOLD_OF_DECISIONS = ("type", "message", "scope")


def _add_answer_event(
    open_: Transaction,
    thread_id: str,
    status: ThreadStatus,
    question: Question,
    answer: StoredAnswer,
    suffix: str,
) -> None:
    path = question.path
    where = WriteLocation(thread_id, "", status.checkpoint_id, question.thread_id, path)
    kind, data = describe_answer(question, answer)
    # A question may be answered again in a fork.
    open_.add_event(where, ThreadEvent(kind, f"{question.id}/{suffix}", data))


def take_due_answers(
    open_: Transaction, thread_id: str, pending: Collection[str], delivered: Collection[str]
) -> dict[str, Any]:
    """Return the answers to pending questions to deliver now, and mark the others as delivered.

    Those of questions in `delivered` have been delivered by this run.
    """
    due: dict[str, Any] = {}
    for answer in ANSWER.find_all(open_, thread_id):
        if not _is_undelivered(answer.value):
            continue
        if answer.last_part in pending and answer.last_part not in delivered:
            due[answer.last_part] = answer.value.value
        else:
            ANSWER.store(open_, answer, StoredAnswer(delivered=True))
    return due


@runtime_checkable
class QuestionLog(Protocol):
    """A saver that keeps a record of every question asked, as `SqliteCheckpointer` does."""

    def find_asker(self, thread_id: str, question_id: str) -> str | None:
        """Return the path of the agent that has asked a question; `None` if it was never asked."""
        ...


@dataclass(frozen=True, slots=True)
class _QuestionAsker:
    """Query for who has asked a question, as far as the ledger and the events know.

    `None` if it was never asked, empty if only that is known.
    """

    thread_id: str
    question: str

    def get(self, saver: Saver) -> str | None:
        """Return the result."""
        if not ID_PATTERN.fullmatch(self.question):
            return None
        if isinstance(saver, QuestionLog):
            asker = saver.find_asker(self.thread_id, self.question)
            if asker is not None:
                return asker
        return get_ledger(saver).query(self._find_in_ledger)

    async def aget(self, saver: Saver) -> str | None:
        """Async version of `get`."""
        return await get_ledger(saver).arun(lambda: self.get(saver))

    def _find_in_ledger(self, open_: Transaction) -> str | None:
        if ANSWER.get(open_, self.thread_id, self.question) is not None:
            return ""
        question = LATER.get(open_, self.thread_id, self.question)
        return question.path if question else None


def _is_undelivered(answer: StoredAnswer | None) -> TypeGuard[StoredAnswer]:
    return answer is not None and answer.value is not _NO_VALUE


def accept_answer(question: Question, answer: Any) -> Any:
    """Return an answer in the form that the asking graph expects.

    Raises:
        WrongAnswer: It is not what the question asks for.
    """
    value, review = answer, find_review(question.value, question.schema)
    if review:
        try:
            value = review.build_resume_value(answer)
        except ValueError as error:
            raise WrongAnswer(question.id, answer, str(error)) from error
    if question.schema is None:
        return value
    if why := find_mismatch(value, question.schema):
        raise WrongAnswer(question.id, answer, why)
    return value
