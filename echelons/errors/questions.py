"""Errors of answers that do not fit what is asked.

Raised by sessions and by the commands that answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from echelons.errors.base import SHORT, EchelonsError


class QuestionError(EchelonsError):
    """An answer does not fit what is asked; nothing was changed."""


class UnknownQuestion(QuestionError):
    """An answer names a question that is not pending.

    Attributes:
        id: The id as it was given.
        pending: Ids of the questions that are.
    """

    def __init__(self, id: str, pending: Sequence[str]) -> None:
        self.id = id
        self.pending = tuple(pending)
        super().__init__(
            f"no question {SHORT.repr(id)} is pending (it may be answered already); "
            f"pending are: {', '.join(self.pending) or 'none'}"
        )


class QuestionClosed(UnknownQuestion):
    """An answer names a question that has been answered already, or withdrawn.

    Attributes:
        id: The id as it was given.
        pending: Ids of the questions that still wait.
    """

    def __init__(self, id: str, pending: Sequence[str]) -> None:
        self.id = id
        self.pending = tuple(pending)
        super(UnknownQuestion, self).__init__(
            f"question {SHORT.repr(id)} is closed: it was answered already, or withdrawn; this "
            f"answer changed nothing. Pending are: {', '.join(self.pending) or 'none'}"
        )


class WrongAnswer(QuestionError):
    """An answer is not what its question asks for.

    Attributes:
        id: The question.
        value: The answer as it was given.
        why: What is wrong with it.
    """

    def __init__(self, id: str, value: object, why: str) -> None:
        self.id = id
        self.value = value
        self.why = why
        super().__init__(
            f"{SHORT.repr(value)} does not answer question {SHORT.repr(id)}: {why}. "
            "Nothing was changed; see the question's schema (`echelons inbox --json`)"
        )


class AnswerMissing(QuestionError):
    """A question was named, and nothing was said to it.

    Attributes:
        id: The question; empty if none was named either.
    """

    def __init__(self, id: str = "") -> None:
        self.id = id
        whose = f"question {SHORT.repr(id)} was given no answer" if id else "no answer was given"
        super().__init__(
            f"{whose}; nothing was changed. Call answer(id, value), or answer({{id: value, …}}); "
            "a value may be None"
        )


class AnswerUnnamed(QuestionError):
    """A value was given beside answers by id, and no question is named for it.

    Attributes:
        value: The value as it was given.
        named: Ids of the questions that are answered.
    """

    def __init__(self, value: object, named: Sequence[str]) -> None:
        self.value = value
        self.named = tuple(named)
        super().__init__(
            f"no question is named for the answer {SHORT.repr(value)}, which stands beside "
            f"answers to {', '.join(map(SHORT.repr, self.named)) or 'nothing'}; nothing was "
            "changed. Call answer(id, value), or answer({id: value, …}) alone"
        )


class NoQuestionPending(QuestionError):
    """An answer was given, and nobody asked.

    Attributes:
        thread: The thread's name or id.
    """

    def __init__(self, thread: str) -> None:
        self.thread = thread
        super().__init__(f"nothing is asked on thread {thread!r}; send it a task instead")


class InterventionPending(QuestionError):
    """The thread waits for answers, so it takes no new task and cannot simply go on.

    Attributes:
        thread: The thread's name or id.
        pending: Ids of the questions.
    """

    def __init__(self, thread: str, pending: Sequence[str]) -> None:
        self.thread = thread
        self.pending = tuple(pending)
        super().__init__(
            f"thread {thread!r} waits for an answer to {', '.join(self.pending)}; "
            "answer first (`echelons inbox`, `echelons answer`), or use another thread"
        )


class QuestionNotNamed(QuestionError):
    """Several questions are pending, and an answer does not say to which it belongs.

    Attributes:
        pending: Ids of the questions.
    """

    def __init__(self, pending: Sequence[str]) -> None:
        self.pending = tuple(pending)
        super().__init__(
            f"{len(self.pending)} questions are pending; name one of "
            f"{', '.join(self.pending)} (`echelons inbox` shows them)"
        )


class NothingAsked(QuestionError):
    """An answer was given, and no thread of the database asks anything.

    Attributes:
        database: The database.
    """

    def __init__(self, database: str) -> None:
        self.database = database
        super().__init__(f"no thread in {database!r} asks anything; `echelons threads` lists them")
