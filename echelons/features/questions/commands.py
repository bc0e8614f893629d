"""`echelons inbox` and `echelons answer`: the open questions, and their answers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from echelons.cli import database, output
from echelons.cli.command import (
    ByOption,
    ExitCode,
    OutputOptions,
    RunOutputOptions,
    StoredTeamOptions,
    ThreadOptions,
    check_value,
    command,
    read_text,
    text_argument,
    text_option,
)
from echelons.cli.question_text import format_questions, question_to_json
from echelons.errors import (
    NoQuestionPending,
    QuestionError,
    WrongAnswer,
    no_open_thread,
    unknown_question,
)

if TYPE_CHECKING:
    from echelons.checkpoints.checkpointer import SqliteCheckpointer
    from echelons.checkpoints.threads.pending_work import Question
    from echelons.cli.database import RootStatus
    from echelons.runtime.session import Session
    from echelons.runtime.session_run import AsyncRun

QuestionArgument = Annotated[
    str | None,
    text_argument(
        "QUESTION_ID",
        "The question, by its id or the beginning of it; not needed if only one is pending.",
        check=check_value,
    ),
]
ValueArgument = Annotated[
    str | None,
    text_argument(
        "VALUE", "The answer; [b]-[/b] reads it from the standard input.", check=check_value
    ),
]
JsonValueOption = Annotated[
    bool, typer.Option("--json-value", help="The answer is JSON, not text.")
]
ResultOption = Annotated[
    str | None,
    text_option(
        "--result",
        "TEXT",
        "The result of an interrupted call that [b]happened[/b].",
        check=check_value,
    ),
]
MessageOption = Annotated[
    str | None,
    text_option(
        "--message",
        "TEXT",
        "The reason of [b]reject[/b], or the answer of [b]respond[/b], for a tool call "
        "that waits for a decision.",
        check=check_value,
    ),
]
AddresseeOption = Annotated[
    str | None,
    text_option(
        "--for", "NAME", "Only the questions for one [b]Human[/b] of the tree.", check=check_value
    ),
]
WatchOption = Annotated[
    bool, typer.Option("--watch", help="Go on with new questions as they are asked, until Ctrl-C.")
]
POLL_INTERVAL = 0.2
"""Seconds between two looks at the database of `inbox --watch`."""
SHORTEST_PREFIX = 4
"""Fewest characters of an id's beginning that may stand for it."""


@command("inbox", "inbox --thread trip --json", "inbox --for anna --watch")
def inbox(
    addressee: AddresseeOption = None,
    watch: WatchOption = False,
    *,
    place: ThreadOptions,
    how: OutputOptions,
) -> ExitCode:
    """List the questions that wait for an answer, of all threads or of one."""
    with database.open_database(place.db) as saver:
        if not watch:
            statuses = _list_questions(saver, place, addressee)
            if not _print_questions(saver, statuses, place, how) and not how.json:
                output.print_remark("nothing waits for an answer")
            return ExitCode.FINISHED
        output.print_remark("watching for questions; Ctrl-C ends this")
        try:
            for statuses in _watch_questions(saver, place, addressee):
                _print_questions(saver, statuses, place, how)
        except KeyboardInterrupt:
            pass
    return ExitCode.INTERRUPTED


def _list_questions(
    saver: SqliteCheckpointer, place: ThreadOptions, addressee: str | None
) -> list[RootStatus]:
    """Return the threads with their questions, those with an urgent one first."""
    statuses = [
        replace(
            status,
            questions=tuple(
                question for question in status.questions if addressee in (None, question.addressee)
            ),
        )
        for status in database.list_statuses(saver, place.thread)
    ]
    return sorted(statuses, key=lambda status: not any(q.urgent for q in status.questions))


def _watch_questions(
    saver: SqliteCheckpointer, place: ThreadOptions, addressee: str | None
) -> Iterator[list[RootStatus]]:
    """Yield the threads with the questions, and the damage, that are new since the last look."""
    version, printed = None, set[tuple[str, str]]()
    while True:
        if (latest := saver.foreign_writes()) != version:
            news: list[RootStatus] = []
            for status in _list_questions(saver, place, addressee):
                thread, damage = status.root.id, status.root.damage
                questions = tuple(q for q in status.questions if (thread, q.id) not in printed)
                if questions or (damage and (thread, damage) not in printed):
                    news.append(replace(status, questions=questions))
                printed.update((thread, text) for text in (damage, *(q.id for q in questions)))
            yield news
            version = latest
        time.sleep(POLL_INTERVAL)


def _print_questions(
    saver: SqliteCheckpointer, statuses: list[RootStatus], place: ThreadOptions, how: OutputOptions
) -> bool:
    """Print the questions of some threads; return whether there are any."""
    from echelons.checkpoints.coordination.agent_aliases import list_aliases_by_path

    for status in statuses:
        database.print_damage(status.root)
    asking = [status for status in statuses if status.questions]
    for status in asking:
        thread = database.root_label(status.root)
        aliases = saver.ledger.query(partial(list_aliases_by_path, root_thread=status.root.id))
        if how.json:
            for question in status.questions:
                alias = aliases.get(question.path, "")
                output.print_json({**question_to_json(question, thread), "alias": alias})
        else:
            questions = format_questions(status.questions, place.db, aliases)
            output.print_result(f"thread {thread}\n{questions}\n")
    return bool(asking)


@command(
    "answer yes",
    'answer 3f1c "Friday at eight, please"',
    "answer 3f1c '{\"approved\": true}' --json-value",
    "answer 3f1c - < letter.txt",
    'answer 3f1c reject --message "not today"',
)
def answer(  # noqa: PLR0913  its options
    first: QuestionArgument = None,
    second: ValueArgument = None,
    json_value: JsonValueOption = False,
    *,
    result: ResultOption = None,
    message: MessageOption = None,
    by: ByOption = None,
    place: ThreadOptions,
    remaking: StoredTeamOptions,
    how: RunOutputOptions,
) -> ExitCode:
    """Answer a question, and continue the turn that asked it.

    A tool call that waits for a decision takes [b]approve[/b], [b]edit[/b], [b]reject[/b] or
    [b]respond[/b]; several take one word for all, or a list with [b]--json-value[/b].
    """
    from echelons.cli.turns import run_stored_turn

    with database.open_database(place.db) as saver:
        statuses = database.list_statuses(saver, place.thread)
        questions = [question for status in statuses for question in status.questions]
        try:
            path = str(database.resolve_path(place.db))
            question, words = _match_answer(questions, first, second, path)
        except QuestionError as error:
            if error.code == "unknown_question":
                _explain_closed_question(saver, statuses, error.id)
            raise
        asking = {
            status.root.id: status.root
            for status in statuses
            if any(pending.id == question.id for pending in status.questions)
        }
        options = {"--result": result, "--message": message, "--by": by, "--team": remaking.team}
        given = [part for name, text in options.items() if text for part in (name, text)]
        line = ("answer", question.id, words, *(["--json-value"] if json_value else []), *given)
        database.refuse_copies(f"question {question.id}", saver, asking.keys(), line, place.db)
        [root] = asking.values()
    value = _build_value(question, words, json_value, result, message)

    async def send_answer(session: Session) -> AsyncRun:
        try:
            return await session.aanswer(question.id, value, by=by)
        except WrongAnswer as error:
            if json_value or not isinstance(value, str):
                raise
            hint = "if it is meant as JSON, add --json-value"
            raise WrongAnswer(error.id, error.value, f"{error.why} ({hint})") from error

    return run_stored_turn(root, send_answer, place, remaking, how)


def _match_answer(
    questions: Sequence[Question], first: str | None, second: str | None, path: str
) -> tuple[Question, str]:
    """Return the question that is answered, and the answer.

    Of two words, the first is the id or its beginning; one word is the answer.
    """
    pending = {question.id: question for question in questions}
    if first is None or (second is None and first in pending):
        whole = output.build_command_line("answer", first or "QUESTION_ID", "VALUE")
        raise typer.BadParameter(f"give the answer: {whole}")
    if second is None:
        if not pending:
            raise no_open_thread(path, "asks anything")
        if len(pending) > 1:
            raise QuestionError(
                f"{len(pending)} questions are pending; name one of {{pending}} (`echelons inbox` "
                "shows them)",
                code="question_not_named",
                pending=tuple(pending),
            )
        return questions[0], first
    if first in pending:
        return pending[first], second
    matches = [question for id_, question in pending.items() if id_.startswith(first)]
    if len(matches) != 1 or len(first) < SHORTEST_PREFIX:
        raise unknown_question(first, list(pending))
    return matches[0], second


def _explain_closed_question(
    saver: SqliteCheckpointer, statuses: Iterable[RootStatus], question: str
) -> None:
    """Raise why a question takes no answer, if it was ever asked in one of some threads.

    Raises:
        QuestionError: It has been answered or withdrawn.
        ControlError: It was withdrawn, as the agent that has asked was dismissed.
    """
    from echelons.checkpoints.queries import run_plan
    from echelons.checkpoints.threads.answer_outbox import check_answers

    for root in (status.root for status in statuses if not status.root.damage):
        try:
            run_plan(saver, check_answers(database.root_label(root), root.id, {question: ""}))
        except NoQuestionPending:
            pass
        except QuestionError as error:
            # Another thread has asked it, or none.
            if error.code != "unknown_question":
                raise


def _build_value(
    question: Question, words: str, json_value: bool, result: str | None, message: str | None
) -> Any:
    """Return the answer that the options make of its words."""
    from echelons.delegation.effects import is_outcome_question

    value: Any = read_text(words)
    if json_value:
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise typer.BadParameter(f"the answer is no JSON: {error}") from error
    if result is not None:
        if not is_outcome_question(question.value):
            why = "--result is for a call that was cut short; this asks something"
            raise typer.BadParameter(why)
        value = {"outcome": value, "result": result}
    if message is not None:
        if not question.reviewed_calls:
            why = "--message is for a decision on tool calls; this asks something else"
            raise typer.BadParameter(why)
        value = {"type": value, "message": message}
    return value
