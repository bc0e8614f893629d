"""Errors of input and of answers to questions; refused before anything is stored."""

from __future__ import annotations

from collections.abc import Sequence

from echelons.errors.base import EchelonsError


class InvalidInput(EchelonsError):
    """The input is refused before anything runs; nothing was stored."""


class QuestionError(EchelonsError):
    """An answer fits no pending question; nothing was changed."""


class QuestionClosed(QuestionError):
    """An answer names a question that has been answered already, or withdrawn.

    Attributes:
        id: The id as it was given.
        pending: Ids of the questions that still wait.
    """

    code = "question_closed"

    def __init__(self, id: str, pending: Sequence[str]) -> None:
        super().__init__(
            "question {id:short} is closed: it was answered already, or withdrawn; this answer "
            "changed nothing. Pending are: {pending}",
            id=id,
            pending=tuple(pending),
        )


class WrongAnswer(QuestionError):
    """An answer does not match the schema of its question, or is no decision on its tool calls.

    Attributes:
        id: The question.
        value: The answer as it was given.
        why: The fault.
    """

    code = "wrong_answer"

    def __init__(self, id: str, value: object, why: str) -> None:
        super().__init__(
            "{value:short} does not answer question {id:short}: {why}. Nothing was changed; see "
            "the question (`echelons inbox --json`)",
            id=id,
            value=value,
            why=why,
        )


class NoQuestionPending(QuestionError):
    """An answer was given, but there is no pending question.

    Attributes:
        thread: The thread's name or id.
    """

    code = "no_question_pending"

    def __init__(self, thread: str) -> None:
        super().__init__(
            "nothing is asked on thread {thread!r}; send it a task instead",
            thread=thread,
        )


class InterventionPending(QuestionError):
    """The thread waits for answers, so it takes no new task and cannot resume without them.

    Attributes:
        thread: The thread's name or id.
        pending: Ids of the questions.
    """

    code = "intervention_pending"

    def __init__(self, thread: str, pending: Sequence[str]) -> None:
        super().__init__(
            "thread {thread!r} waits for an answer to {pending}; answer first (`echelons inbox`, "
            "`echelons answer`), or use another thread",
            thread=thread,
            pending=tuple(pending),
        )


def invalid_thread(thread: object) -> InvalidInput:
    """Return the error of what is no name of a thread."""
    return InvalidInput(
        "{thread:short} is no name of a thread; give some words, 512 characters at most, that can "
        "be printed, or the thread's UUID",
        code="invalid_thread",
        thread=thread,
    )


def invalid_task(task: object, why: str = "") -> InvalidInput:
    """Return the error of a task that is empty, or neither a text nor content blocks."""
    text = "{task!r} is no task: {why}" if why else "{task!r} is no task; give some words"
    return InvalidInput(text, code="invalid_task", task=task, why=why)


def invalid_messages(given: object, why: str) -> InvalidInput:
    """Return the error of what is given as messages, and is none."""
    return InvalidInput(
        "messages={given:short}: {why}; give a text, a message, or a list of messages or of pairs "
        'such as ("user", "Plan a trip"). Nothing was stored',
        code="invalid_messages",
        given=given,
        why=why,
    )


def invalid_id(
    what: str,
    id: str,
    allowed: str = "1 to 128 of the letters A-Z and a-z, digits, '.', '_', ':' and '-'",
) -> InvalidInput:
    """Return the error of an id or a name that has characters it may not have, or too many."""
    return InvalidInput(
        "{id} is no {what}; use {allowed}",
        code="invalid_id",
        what=what,
        id=id,
        allowed=allowed,
    )


def input_too_large(what: str, size: int, limit: int) -> InvalidInput:
    """Return the error of a message, an answer or a whole input that is too large."""
    return InvalidInput(
        "{what} has {size} bytes or more, the limit is {limit}; send it in parts, or store it "
        "elsewhere and send its address",
        code="input_too_large",
        what=what,
        size=size,
        limit=limit,
    )


def invalid_value(what: str, value: str, why: str) -> InvalidInput:
    """Return the error of a value that is not plain data."""
    return InvalidInput(
        "{what} holds {value}, which cannot be taken: {why}; give texts, numbers, true or false, "
        "nothing, and lists and mappings of these",
        code="invalid_value",
        what=what,
        value=value,
        why=why,
    )


def invalid_note(key: str, why: str) -> InvalidInput:
    """Return the error of an entry of a session's metadata that cannot be stored."""
    return InvalidInput(
        "metadata {key} cannot be noted: {why}; give texts, numbers, true or false, under keys of "
        "letters, digits, '.', '_', ':' and '-'",
        code="invalid_note",
        key=key,
        why=why,
    )


def invalid_option(option: str, value: str, why: str) -> InvalidInput:
    """Return the error of what cannot be passed to the runs of a session or a tree."""
    return InvalidInput(
        "{option}= holds {value}: {why}. Nothing was run",
        code="invalid_option",
        option=option,
        value=value,
        why=why,
    )


def unknown_question(id: str, pending: Sequence[str]) -> QuestionError:
    """Return the error of an answer to a question that is not pending."""
    return QuestionError(
        "no question {id:short} is pending (it may be answered already); pending are: {pending}",
        code="unknown_question",
        id=id,
        pending=tuple(pending),
    )


def invalid_strategy(strategy: str, why: str) -> InvalidInput:
    """Return the error of a strategy of pruning that is unknown, or has an invalid limit."""
    return InvalidInput(
        "{strategy} {why}; nothing was changed", code="invalid_strategy", strategy=strategy, why=why
    )
