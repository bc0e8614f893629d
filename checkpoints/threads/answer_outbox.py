"""Answers on their way: written down before they are delivered, and remembered afterwards.

LangGraph keeps an answer once the asking task has taken it. Until then a killed process would
lose it, and one that arrives while the thread is at work has nowhere to go. So every answer of
a session is written into the ledger first, and delivered from there by whoever holds the thread.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard, runtime_checkable

from echelons.checkpoints.ledger import Ledger, Transaction, Value, key, ledger_of
from echelons.checkpoints.queries import InLedger, Plan, Saver
from echelons.checkpoints.threads.pending_work import Question
from echelons.checkpoints.threads.thread_status import Standing, standing_of
from echelons.errors import NoQuestionPending, QuestionClosed, UnknownQuestion, WrongAnswer
from echelons.text.input_limits import ID


def open_questions(thread_id: str) -> Plan[list[Question]]:
    """Return the questions of a root's thread that nobody has answered yet."""
    standing = yield from standing_of(thread_id)
    given = yield from given_to(thread_id, standing)
    return [question for question in standing.questions if question.id not in given]


def given_to(thread_id: str, standing: Standing) -> Plan[dict[str, Any]]:
    """Return the answers that are written down for what a thread asks, by question."""
    if not standing.questions:
        return {}

    def look(ledger: Ledger) -> dict[str, Any]:
        found = {each: ledger.get(_key(thread_id, each)) for each in standing.pending}
        return {each: value.value["value"] for each, value in found.items() if _is_due(value)}

    return (yield InLedger(look))  # type: ignore[no-any-return]  # a plan is sent what it asked for


def check(thread: str, thread_id: str, answers: Mapping[str, Any]) -> Plan[None]:
    """Check answers against what a thread asks; nothing is changed.

    Args:
        thread: What people call it.
        thread_id: The root's thread.
        answers: What is answered, by question.

    Raises:
        NoQuestionPending: Nothing is asked.
        QuestionClosed: A question named was asked once, and is answered or withdrawn.
        UnknownQuestion: A question named was never asked.
        WrongAnswer: An answer is not what its question asks for.
    """
    standing = yield from standing_of(thread_id)
    given = yield from given_to(thread_id, standing)
    asked = {each.id: each for each in standing.questions if each.id not in given}
    for question in answers:
        if question not in asked:
            if (yield _WasAsked(thread_id, question)):
                raise QuestionClosed(question, list(asked))
            if not asked:
                raise NoQuestionPending(thread)
            raise UnknownQuestion(question, list(asked))
    for question, value in answers.items():
        _fit(asked[question], value)


def versions(thread_id: str, answers: Collection[str]) -> Plan[Mapping[str, int | None]]:
    """Return which version of each answer is written down, `None` for no answer."""

    def look(ledger: Ledger) -> dict[str, int | None]:
        known = (each for each in answers if ID.fullmatch(each))
        found = {each: ledger.get(_key(thread_id, each)) for each in known}
        return {each: value.version if value else None for each, value in found.items()}

    return (yield InLedger(look))  # type: ignore[no-any-return]  # a plan is sent what it asked for


def write_down(
    open_: Transaction,
    thread_id: str,
    answers: Mapping[str, Any],
    before: Mapping[str, int | None] | None = None,
) -> None:
    """Write answers down, all of them or none.

    Args:
        open_: The ledger.
        thread_id: The root's thread.
        answers: What is answered, by question.
        before: The versions before the answers were checked, where another run is at work: it
            may have delivered somebody else's meanwhile.

    Raises:
        QuestionClosed: Somebody was faster.
    """
    for question, value in answers.items():
        name = _key(thread_id, question)
        found = open_.get(name)
        version = found.version if found else None
        if _is_due(found) or (before is not None and before[question] != version):
            raise QuestionClosed(question, [])
        # What was delivered once and is asked again was gone back to: another branch of time.
        open_.compare_and_set(name, version, {"value": value})


def due(
    open_: Transaction, thread_id: str, pending: Collection[str], delivered: Collection[str]
) -> dict[str, Any]:
    """Return the answers to deliver now, and remember which have been.

    Args:
        open_: The ledger.
        thread_id: The root's thread.
        pending: What it asks now.
        delivered: What this run has delivered answers to.
    """
    found: dict[str, Any] = {}
    prefix = _key(thread_id, "")
    for name in open_.keys(prefix):
        answer = open_.get(name)
        question = name.removeprefix(prefix)
        if answer is None or not _is_due(answer):
            continue
        if question in pending and question not in delivered:
            found[question] = answer.value["value"]
        else:
            open_.compare_and_set(name, answer.version, {"delivered": True})
    return found


@runtime_checkable
class QuestionLog(Protocol):
    """A saver that keeps a record of every question asked, as `SqliteCheckpointer` does."""

    def has_question(self, thread_id: str, question_id: str) -> bool:
        """Return whether a question was ever asked under a root's thread."""
        ...


@dataclass(frozen=True, slots=True)
class _WasAsked:
    """Asks whether a question was ever asked, as far as anybody remembers."""

    thread_id: str
    question: str

    def get(self, saver: Saver) -> bool:
        """Look in this thread."""
        if not ID.fullmatch(self.question):
            return False
        if ledger_of(saver).get(_key(self.thread_id, self.question)) is not None:
            return True
        return isinstance(saver, QuestionLog) and saver.has_question(self.thread_id, self.question)

    async def aget(self, saver: Saver) -> bool:
        """Look in an event loop."""
        return bool(await ledger_of(saver).arun(lambda: self.get(saver)))


def _is_due(found: Value | None) -> TypeGuard[Value]:
    return found is not None and isinstance(found.value, Mapping) and "value" in found.value


def _fit(question: Question, value: Any) -> None:
    if question.schema is None:
        return
    # Few questions have a schema, and the library takes a tenth of a second to load.
    from jsonschema import SchemaError, ValidationError, validate

    try:
        validate(value, question.schema)
    except ValidationError as error:
        raise WrongAnswer(question.id, value, error.message) from error
    except SchemaError:
        # A tool's own mistake is not the answer's: its interrupt says what it takes.
        return


def _key(thread_id: str, question: str) -> str:
    return key(thread_id, "answer", question)
