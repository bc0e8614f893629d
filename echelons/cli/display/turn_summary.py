"""What a turn came to, for the shell, for people and for programs. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from echelons.cli.display.agent_board import Board
from echelons.cli.display.question_text import question_json
from echelons.cli.display.text_format import command_line, count, duration
from echelons.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from echelons.runtime.session_requests import Thread
    from echelons.runtime.session_run import Result

OFFLINE = "offline planner"
"""What a reply of the offline planner gives as its model."""


def code_of(result: Result, board: Board) -> ExitCode:
    """Return the exit code that a turn's end stands for."""
    # Answers that are left to another run are well placed, whatever that run comes to.
    if result.finished or result.queued:
        return ExitCode.FINISHED
    if board.stopping:
        return ExitCode.INTERRUPTED
    return ExitCode.ASKING if result.questions else ExitCode.FAILED


def closing(board: Board, thread: str, code: ExitCode, given: Path | None) -> Iterator[str]:
    """Yield what people should know at the end, beside the answer.

    Args:
        board: The agents of the run.
        thread: The name of its thread.
        code: How it ended.
        given: The database as the command line named it.
    """
    rows = board.rows()
    tokens = sum(row.tokens for row in rows)
    spent = f", {count(tokens)} tokens" if tokens else ""
    agents = f"{len(rows)} agent{'' if len(rows) == 1 else 's'}"
    yield f"{duration(board.seconds)}, {agents}{spent}, thread {thread}"
    if OFFLINE in board.models:
        yield "by the offline planner: rules, no language model"
    # Whoever fails raises an error, so that what ends by itself and is not at its end is paused.
    why = {ExitCode.INTERRUPTED: "stopped", ExitCode.FAILED: "paused"}.get(code)
    if why:
        resume = command_line("resume", "--thread", thread, db=given)
        yield f"{why}; all that was done is stored. Go on with: {resume}"


def unrun(result: Result) -> str:
    """Return why nothing was run, if so; else nothing."""
    if result.queued:
        return "answered; a run is under way on the thread, and takes the answer"
    return "the turn was submitted before, so nothing was run again" if result.replayed else ""


def result_json(result: Result, board: Board, thread: Thread, code: ExitCode) -> dict[str, Any]:
    """Return what a turn came to for programs."""
    return {
        "kind": "result",
        "thread": thread.name,
        "thread_id": thread.id,
        "finished": result.finished,
        "interrupted": code is ExitCode.INTERRUPTED,
        "paused": code is ExitCode.FAILED,
        "text": result.text,
        "questions": [question_json(each, thread.name) for each in result.questions],
        "replayed": result.replayed,
        "queued": result.queued,
        "usage": result.usage.model_dump(),
        "models": sorted(model for model in board.models if model),
        "seconds": round(board.seconds, 3),
        "exit_code": int(code),
    }
