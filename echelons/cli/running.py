"""Runs a turn for ``run``, ``answer`` and ``resume``, shows it, and tells what it came to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from echelons.agent import Agent
from echelons.cli import output
from echelons.cli.board import Board
from echelons.cli.closing import closing, code_of, result_json
from echelons.cli.exits import ExitCode
from echelons.cli.interrupts import interruptible
from echelons.cli.options import RunOutput
from echelons.cli.questions import questions_text
from echelons.cli.teams import TeamName
from echelons.cli.views import view_of
from echelons.errors import EchelonsError, RunFailed
from echelons.nodes.failures import describe
from echelons.runtime.events import RunEvent
from echelons.runtime.run import AsyncRun, Result
from echelons.runtime.session import Session


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn that is to be run.

    Attributes:
        agent: The tree.
        team: What the tree is made from; its thread notes that.
        thread: The name of its thread.
        database: Where it is stored.
        given: The database as the command line named it, for the commands that are printed.
        begin: Begins it.
        before: What people should know when it begins.
        after: What they should know when it has finished.
    """

    agent: Agent
    team: TeamName
    thread: str
    database: Path
    given: Path | None
    begin: Callable[[Session], Awaitable[AsyncRun]]
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


def carry_out(turn: Turn, how: RunOutput) -> ExitCode:
    """Run a turn, show it, print what it came to, and return the exit code.

    Raises:
        RunFailed: A model or a function failed.
        EchelonsError: The turn cannot begin or go on.
    """
    board = Board(time.monotonic)
    result = asyncio.run(_run(turn, board, how))
    code = code_of(result, board)
    if how.json:
        output.tell_json(result_json(result, board, turn.thread, code))
        return code
    if result.text:
        output.tell_prose(result.text)
    if result.questions:
        output.tell(questions_text(result.questions, turn.given))
    after = turn.after if code is ExitCode.FINISHED else ()
    _remark((*closing(board, turn.thread, code, turn.given), *after), how)
    return code


async def _run(turn: Turn, board: Board, how: RunOutput) -> Result:
    notes = turn.team.metadata()
    async with Session(turn.agent, turn.database, thread=turn.thread, metadata=notes) as session:
        async with await turn.begin(session) as run:
            _remark(turn.before, how)
            view = view_of(board, how)

            def pause() -> None:
                board.stopping = True
                run.pause()
                view.stopping()

            with view, interruptible(pause, view.abandon):
                async for event in _events(run, turn.thread):
                    board.show(event)
                    view.show(event)
                result = await run.result()
                board.end(result)
        return result


async def _events(run: AsyncRun, thread: str) -> AsyncIterator[RunEvent]:
    try:
        async for event in run:
            yield event
    except EchelonsError:
        raise
    except Exception as error:
        raise RunFailed(thread, describe(error)) from error


def _remark(texts: tuple[str, ...], how: RunOutput) -> None:
    if not (how.json or how.quiet):
        for text in texts:
            output.remark(text)
