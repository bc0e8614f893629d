"""Plans for the questions for whose answers no agent waits: listed, checked and answered.

The answer to one is mail, which the agent reads before its next model call.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from echelons.checkpoints.coordination.change_signals import get_signals
from echelons.checkpoints.coordination.mailbox import (
    LATER,
    LaterQuestion,
    StoredMail,
    answer_later_question,
)
from echelons.checkpoints.coordination.records import BranchView, Record
from echelons.checkpoints.ledger import Ledger, Transaction
from echelons.checkpoints.queries import LatestCheckpointId, LedgerQuery, ReadPlan
from echelons.checkpoints.thread_events import EventKind, ThreadEvent, WriteLocation
from echelons.checkpoints.threads.pending_work import Question
from echelons.checkpoints.tree_control.dismissal_ledger import read_dismissals
from echelons.messaging.agent_question import AgentQuestion
from echelons.messaging.mail import MAIL_BYTES, USER
from echelons.text.input_limits import measure_size
from echelons.tree.names import PATH_SEPARATOR


def read_later_questions(thread_id: str) -> ReadPlan[dict[str, Question]]:
    """Return the open questions of a thread for whose answers no agent waits, by their ids."""
    records: list[Record[LaterQuestion]] = yield LedgerQuery(
        lambda ledger: ledger.query(lambda open_: LATER.find_all(open_, thread_id))
    )
    waiting = [record for record in records if not record.value.answered]
    if not waiting:
        return {}
    # A fork of the past has not asked what was asked after it.
    asked = yield from BranchView(thread_id).select(LATER, waiting)
    dismissals = yield from read_dismissals(thread_id)
    return {
        record.last_part: _build_question(record.last_part, record.value)
        for record in asked
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
    texts = {key: _render_answer(questions[key], each) for key, each in answers.items()}
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
                path = PATH_SEPARATOR.join(questions[key].path)
                where = WriteLocation(thread_id, "", after, questions[key].thread_id, path)
                data = {"question": key, "value": answers[key], "by": by}
                open_.add_event(where, ThreadEvent(EventKind.ANSWER, key, data))

        ledger.commit(answer)
        get_signals(ledger).notify()

    yield LedgerQuery(store)


def _render_answer(question: Question, answer: Any) -> str:
    said = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    return f"{question.value}\n{said}"


def _build_question(key: str, stored: LaterQuestion) -> Question:
    asked = AgentQuestion.load(stored.question)
    path = tuple(stored.path.split(PATH_SEPARATOR))
    return Question(
        id=key,
        value=asked.text,
        path=path,
        thread_id=stored.agent_thread_id,
        asked_at=stored.at,
        schema=asked.response_schema,
        choices=asked.choices,
        urgent=asked.urgent,
        addressee=asked.addressee,
        asker=path[-1],
    )
