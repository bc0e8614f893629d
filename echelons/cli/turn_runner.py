"""Runs a turn for `run`, `answer` and `resume`, shows it, and prints its result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from echelons.agent import Agent
from echelons.cli import output
from echelons.cli.ctrl_c import interruptible
from echelons.cli.display.agent_board import Board
from echelons.cli.display.question_text import questions_text
from echelons.cli.display.run_views import view_of
from echelons.cli.display.turn_summary import closing, code_of, result_json, unrun
from echelons.cli.exit_codes import ExitCode
from echelons.cli.options import RunOutput
from echelons.cli.team_loader import TeamName
from echelons.errors import EchelonsError, RunFailed
from echelons.runtime.run_events import RunEvent
from echelons.runtime.session import Session
from echelons.runtime.session_requests import Thread
from echelons.runtime.session_run import AsyncRun, Result
from echelons.text.error_lines import describe_error


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn to run.

    Attributes:
        agent: The root agent.
        team: What the team is built from; the thread records it.
        thread: The name of the thread.
        database: The path of the database.
        given: The database as given on the command line, for the commands that are printed.
        begin: Starts the turn.
        before: Remarks that are printed at its start.
        after: Remarks that are printed when it has finished.
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
    """Run a turn, show it, print its result, and return the exit code.

    Raises:
        RunFailed: A model or a function failed.
        EchelonsError: The turn cannot start or go on.
    """
    performance = _Performance(turn, how)
    with interruptible(performance.pause, performance.view.abandon):
        return performance.told(asyncio.run(performance.run()))


class _Performance:
    """Runs one turn and shows it."""

    def __init__(self, turn: Turn, how: RunOutput) -> None:
        self._turn = turn
        self._how = how
        self._board = Board(time.monotonic)
        self._running: AsyncRun | None = None
        self._thread = Thread(turn.thread, "")
        self._ended = False
        self.view = view_of(self._board, how)

    def pause(self) -> None:
        """Handle the first Ctrl-C: pause the run, unless it has ended."""
        if self._running is None:
            raise KeyboardInterrupt
        if not self._ended:
            self._board.stopping = True
            self._running.pause()
            self.view.stopping()

    async def run(self) -> Result:
        """Run the turn and show it."""
        turn = self._turn
        async with Session(
            turn.agent, turn.database, thread=turn.thread, metadata=turn.team.metadata()
        ) as session:
            self._thread = Thread(session.thread, session.thread_id)
            async with await turn.begin(session) as self._running:
                self._remark(turn.before)
                with self.view:
                    async for event in _events(self._running, turn.thread):
                        self._board.show(event)
                        self.view.show(event)
                    self._ended = True
                    result = await self._running.result()
                    self._board.end(result)
            return result

    def told(self, result: Result) -> ExitCode:
        """Print the result of the turn, and return the exit code."""
        turn, board = self._turn, self._board
        code = code_of(result, board)
        if self._how.json:
            output.tell_json(result_json(result, board, self._thread, code))
            return code
        if result.text:
            output.tell_prose(result.text)
        if result.questions:
            output.tell(questions_text(result.questions, turn.given))
        after = turn.after if code is ExitCode.FINISHED else ()
        unmoved = unrun(result)
        ended = (unmoved,) if unmoved else closing(board, turn.thread, code, turn.given)
        self._remark((*ended, *after))
        return code

    def _remark(self, texts: tuple[str, ...]) -> None:
        if not (self._how.json or self._how.quiet):
            for text in texts:
                output.remark(text)


async def _events(run: AsyncRun, thread: str) -> AsyncIterator[RunEvent]:
    try:
        async for event in run:
            yield event
    except EchelonsError:
        raise
    except Exception as error:
        raise RunFailed(thread, describe_error(error)) from error
