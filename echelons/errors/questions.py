"""Errors of answers to questions.

Raised by sessions and by the commands that answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from echelons.errors.base import SHORT, EchelonsError


class QuestionError(EchelonsError):
    """An answer fits no pending question; nothing was changed."""


class UnknownQuestion(QuestionError):
    """An answer names a question that is not pending.

    Attributes:
        id: The id as it was given.
        pending: Ids of the questions that are.
    """

    id: str
    pending: Sequence[str]
    message = (
        "no question {id:short} is pending (it may be answered already); pending are: {pending}"
    )


class QuestionClosed(UnknownQuestion):
    """An answer names a question that has been answered already, or withdrawn.

    Attributes:
        id: The id as it was given.
        pending: Ids of the questions that still wait.
    """

    message = (
        "question {id:short} is closed: it was answered already, or withdrawn; this answer changed "
        "nothing. Pending are: {pending}"
    )


class WrongAnswer(QuestionError):
    """An answer does not match the schema of its question.

    Attributes:
        id: The question.
        value: The answer as it was given.
        why: What is wrong with it.
    """

    id: str
    value: object
    why: str
    message = (
        "{value:short} does not answer question {id:short}: {why}. Nothing was changed; see the "
        "question's schema (`echelons inbox --json`)"
    )


class AnswerMissing(QuestionError):
    """A question was named, but no answer was given.

    Attributes:
        id: The question; empty if none was named either.
    """

    id: str = ""

    def _describe(self) -> str:
        to = f"question {SHORT.repr(self.id)} was given no answer"
        return (
            f"{to if self.id else 'no answer was given'}; nothing was changed. "
            "Call answer(id, value), or answer({id: value, …}); a value may be None"
        )


class AnswerUnnamed(QuestionError):
    """A value was given beside answers by id, and no question is named for it.

    Attributes:
        value: The value as it was given.
        named: Ids of the questions that are answered.
    """

    value: object
    named: Sequence[str]

    def _describe(self) -> str:
        return (
            f"no question is named for the answer {SHORT.repr(self.value)}, which stands beside "
            f"answers to {', '.join(map(SHORT.repr, self.named)) or 'nothing'}; nothing was "
            "changed. Call answer(id, value), or answer({id: value, …}) alone"
        )


class NoQuestionPending(QuestionError):
    """An answer was given, but there is no pending question.

    Attributes:
        thread: The thread's name or id.
    """

    thread: str
    message = "nothing is asked on thread {thread!r}; send it a task instead"


class InterventionPending(QuestionError):
    """The thread waits for answers, so it takes no new task and cannot resume without them.

    Attributes:
        thread: The thread's name or id.
        pending: Ids of the questions.
    """

    thread: str
    pending: Sequence[str]
    message = (
        "thread {thread!r} waits for an answer to {pending}; answer first (`echelons inbox`, "
        "`echelons answer`), or use another thread"
    )


class QuestionNotNamed(QuestionError):
    """Several questions are pending, and an answer names none of them.

    Attributes:
        pending: Ids of the questions.
    """

    pending: Sequence[str]

    def _describe(self) -> str:
        return (
            f"{len(self.pending)} questions are pending; name one of "
            f"{', '.join(self.pending)} (`echelons inbox` shows them)"
        )


class NothingAsked(QuestionError):
    """An answer was given, but no thread of the database has a pending question.

    Attributes:
        database: The database.
    """

    database: str
    message = "no thread in {database!r} asks anything; `echelons threads` lists them"
