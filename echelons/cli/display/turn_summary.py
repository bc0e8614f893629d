"""The result of a turn as exit code, text and JSON. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from echelons.cli.display.agent_board import OFFLINE_MODEL, AgentBoard
from echelons.cli.display.question_text import question_to_json
from echelons.cli.display.text_format import (
    build_command_line,
    escape_controls,
    format_count,
    format_duration,
)
from echelons.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from echelons.runtime.session_requests import SessionThread
    from echelons.runtime.session_run import Result


def choose_exit_code(result: Result, board: AgentBoard) -> ExitCode:
    """Return the exit code for the result of a turn."""
    # Answers that another run takes are delivered, however that run ends. A turn that was limited,
    # stopped or dismissed has ended, and needs nothing more.
    if result.status in ("finished", "limited", "stopped", "dismissed", "running"):
        return ExitCode.FINISHED
    if board.stopping:
        return ExitCode.INTERRUPTED
    return ExitCode.ASKING if result.questions else ExitCode.FAILED


def format_closing(
    result: Result, board: AgentBoard, thread: str, code: ExitCode, given: Path | None
) -> Iterator[str]:
    """Yield the remarks at the end of a turn; `given` is the database of the command line."""
    yield from format_status(result)
    rows = board.list_rows()
    tokens = sum(row.tokens for row in rows)
    spent = f", {format_count(tokens)} tokens" if tokens else ""
    agents = f"{len(rows)} agent{'' if len(rows) == 1 else 's'}"
    yield f"{format_duration(board.seconds)}, {agents}{spent}, thread {thread}"
    if OFFLINE_MODEL in board.models:
        yield "by the offline planner: rules, no language model"
    # A failure raises an error, so a run that returned without finishing was paused.
    if code in (ExitCode.INTERRUPTED, ExitCode.FAILED):
        resume = build_command_line("resume", "--thread", thread, db=given)
        yield f"paused; all that was done is stored. Go on with: {resume}"


def format_status(result: Result) -> Iterator[str]:
    """Yield the status of a turn with its reason, if it has one and has come to rest."""
    if result.reason and not result.queued:
        reason = result.reason.removeprefix(f"{result.status}: ")
        yield f"{result.status} ({escape_controls(reason)})"


def explain_no_run(result: Result) -> str:
    """Return why nothing was run; empty if something was."""
    if result.queued:
        return "answered; a run is under way on the thread, and takes the answer"
    return "the turn was submitted before, so nothing was run again" if result.replayed else ""


def turn_result_to_json(
    result: Result, board: AgentBoard, thread: SessionThread, code: ExitCode
) -> dict[str, Any]:
    """Return the result of a turn as a JSON object."""
    return {
        "kind": "result",
        "thread": thread.name,
        "thread_id": thread.id,
        "status": result.status,
        "reason": result.reason,
        "finished": result.finished,
        "interrupted": code is ExitCode.INTERRUPTED,
        "paused": code is ExitCode.FAILED,
        "text": result.text,
        "questions": [question_to_json(each, thread.name) for each in result.questions],
        "replayed": result.replayed,
        "queued": result.queued,
        "response": result.response and result.response.model_dump(mode="json"),
        "usage": result.usage.model_dump(),
        "models": sorted(model for model in board.models if model),
        "seconds": round(board.seconds, 3),
        "exit_code": int(code),
    }
