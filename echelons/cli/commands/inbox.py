"""`echelons inbox` and `echelons answer`: the open questions, and their answers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from echelons.cli import database, output, unfinished_threads
from echelons.cli.command import command
from echelons.cli.display.question_text import format_questions, match_answer, question_to_json
from echelons.cli.display.text_format import (
    check_value_argument,
    read_text_argument,
)
from echelons.cli.exit_codes import ExitCode
from echelons.cli.options import (
    ByOption,
    OutputOptions,
    RunOutputOptions,
    StoredTeamOptions,
    ThreadOptions,
)
from echelons.cli.stored_team import run_stored_turn
from echelons.errors import QuestionError, WrongAnswer
from echelons.tree.names import PATH_SEPARATOR

if TYPE_CHECKING:
    from echelons.checkpoints.checkpointer import SqliteCheckpointer
    from echelons.checkpoints.threads.pending_work import Question
    from echelons.cli.unfinished_threads import RootStatus
    from echelons.runtime.session import Session
    from echelons.runtime.session_run import AsyncRun

QuestionArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="QUESTION_ID",
        help="The question, by its id or the beginning of it; not needed if only one is pending.",
        callback=check_value_argument,
    ),
]
ValueArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="VALUE",
        help="The answer; [b]-[/b] reads it from the standard input.",
        callback=check_value_argument,
    ),
]
JsonValueOption = Annotated[
    bool, typer.Option("--json-value", help="The answer is JSON, not text.")
]
ResultOption = Annotated[
    str | None,
    typer.Option(
        "--result",
        metavar="TEXT",
        help="The result of an interrupted call that [b]happened[/b].",
        callback=check_value_argument,
    ),
]
MessageOption = Annotated[
    str | None,
    typer.Option(
        "--message",
        metavar="TEXT",
        help="The reason of [b]reject[/b], or the answer of [b]respond[/b], for a tool call "
        "that waits for a decision.",
        callback=check_value_argument,
    ),
]


AddresseeOption = Annotated[
    str | None,
    typer.Option(
        "--for",
        metavar="NAME",
        help="Only the questions for one [b]Human[/b] of the tree.",
        callback=check_value_argument,
    ),
]


WatchOption = Annotated[
    bool, typer.Option("--watch", help="Go on with new questions as they are asked, until Ctrl-C.")
]
POLL_INTERVAL = 0.2
"""Seconds between two looks at the database of `inbox --watch`."""


@command
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
            listed = _list_questions(saver, place, addressee)
            if not _print_questions(saver, listed, place, how) and not how.json:
                output.print_remark("nothing waits for an answer")
            return ExitCode.FINISHED
        output.print_remark("watching for questions; Ctrl-C ends this")
        try:
            for listed in _watch_questions(saver, place, addressee):
                _print_questions(saver, listed, place, how)
        except KeyboardInterrupt:
            pass
        return ExitCode.INTERRUPTED


def _list_questions(
    saver: SqliteCheckpointer, place: ThreadOptions, addressee: str | None
) -> list[RootStatus]:
    """Return the threads, each with its questions, those with an urgent one first."""
    listed = unfinished_threads.list_root_statuses(saver, place.thread)
    if addressee is not None:
        listed = [each.select_questions(addressee) for each in listed]
    return sorted(listed, key=lambda each: not any(asked.urgent for asked in each.questions))


def _watch_questions(
    saver: SqliteCheckpointer, place: ThreadOptions, addressee: str | None
) -> Iterator[list[RootStatus]]:
    """Yield the threads with the questions, and the damage, that are new since the last look."""
    written, known = None, set[tuple[str, str]]()
    while True:
        if (now := saver.foreign_writes()) != written:
            new: list[RootStatus] = []
            for each in _list_questions(saver, place, addressee):
                thread, damage = each.root.id, each.root.damage
                asked = tuple(one for one in each.questions if (thread, one.id) not in known)
                if asked or (damage and (thread, damage) not in known):
                    new.append(replace(each, questions=asked))
                known.update((thread, told) for told in (damage, *(one.id for one in asked)))
            yield new
            written = now
        time.sleep(POLL_INTERVAL)


def _print_questions(
    saver: SqliteCheckpointer, listed: list[RootStatus], place: ThreadOptions, how: OutputOptions
) -> bool:
    """Print the questions of some threads; return whether there are any."""
    from echelons.checkpoints.tree_control.agent_aliases import list_aliases_by_path

    for each in listed:
        database.print_damage(each.root)
    asking = [each for each in listed if each.questions]
    for each in asking:
        thread = database.root_label(each.root)
        aliases = saver.ledger.query(partial(list_aliases_by_path, root_thread=each.root.id))
        if how.json:
            for question in each.questions:
                alias = aliases.get(PATH_SEPARATOR.join(question.path), "")
                output.print_json({**question_to_json(question, thread), "alias": alias})
        else:
            asked = format_questions(each.questions, place.db, aliases)
            output.print_result(f"thread {thread}\n{asked}\n")
    return bool(asking)


@command
def answer(  # noqa: PLR0913  each option stands for itself
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
    with database.open_database(place.db) as saver:
        found = unfinished_threads.list_root_statuses(saver, place.thread)
        roots = {question.id: each.root for each in found for question in each.questions}
        asked = [question for each in found for question in each.questions]
        try:
            path = str(database.resolve_path(place.db))
            question, words = match_answer(asked, first, second, path)
        except QuestionError as error:
            if error.code == "unknown_question":
                unfinished_threads.explain_closed_question(saver, found, error.id)
            raise
    value = _build_value(question, words, json_value, result, message)

    async def send_answer(session: Session) -> AsyncRun:
        try:
            return await session.aanswer(question.id, value, by=by)
        except WrongAnswer as error:
            if json_value or not isinstance(value, str):
                raise
            hint = "if it is meant as JSON, add --json-value"
            raise WrongAnswer(error.id, error.value, f"{error.why} ({hint})") from error

    return run_stored_turn(roots[question.id], send_answer, place, remaking, how)


def _build_value(
    question: Question, words: str, json_value: bool, result: str | None, message: str | None
) -> Any:
    """Return the answer that the options make of its words."""
    from echelons.effects.journal import is_outcome_question

    value: Any = read_text_argument(words)
    if json_value:
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise typer.BadParameter(f"the answer is no JSON: {error}") from error
    if result is not None:
        if not is_outcome_question(question.value):
            raise typer.BadParameter(
                "--result is for a call that was cut short; this asks something"
            )
        value = {"outcome": value, "result": result}
    if message is not None:
        if not question.reviewed_calls:
            raise typer.BadParameter(
                "--message is for a decision on tool calls; this asks something else"
            )
        value = {"type": value, "message": message}
    return value
