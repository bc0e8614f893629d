"""Runs a turn for `run`, `answer` and `resume`, shows it, and prints its result.

The questions of a turn are asked on the terminal, if there is one.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

from echelons.agent import Agent
from echelons.checkpoints.queries import Saver, arun_plan
from echelons.checkpoints.threads.answer_outbox import read_answer_versions
from echelons.cli import output
from echelons.cli.board import OFFLINE_MODEL, AgentBoard, choose_view
from echelons.cli.command import ExitCode, RunOutputOptions, StoredTeamOptions, ThreadOptions
from echelons.cli.database import resolve_path, root_label
from echelons.cli.question_prompt import LEFT_OPEN, ask_questions
from echelons.cli.question_text import format_questions, question_to_json
from echelons.cli.team_loader import TeamSpec, load_team, load_team_profiles, resolve_stored_team
from echelons.errors import EchelonsError, LedgerDamaged, ThreadError
from echelons.runtime.run_events import RunEvent
from echelons.runtime.session import Session
from echelons.runtime.session_requests import SessionThread
from echelons.runtime.session_run import AsyncRun, Result
from echelons.text.error_lines import describe_error

if TYPE_CHECKING:
    from echelons.checkpoints.threads.store import RootThread

ANSWERS_INTERVAL = 0.25
"""Seconds between two looks at the database for answers from elsewhere."""


@dataclass(frozen=True, slots=True)
class PlannedTurn:
    """A turn to run, of the team that its thread records, in the database of the command line.

    The remarks are printed at its start, and when it has finished.
    """

    agent: Agent
    team: TeamSpec
    thread: str
    db: Path | None
    start: Callable[[Session], Awaitable[AsyncRun]]
    opening_remarks: tuple[str, ...] = ()
    closing_remarks: tuple[str, ...] = ()


def run_planned_turn(turn: PlannedTurn, how: RunOutputOptions, loop: asyncio.Runner) -> ExitCode:
    """Run a turn in an event loop, which is then closed; show it, and print its result.

    On a terminal its questions are asked, and the turn goes on with what is answered.
    """
    runner = _TurnRunner(turn, how)
    # The loop's threads end while a second Ctrl-C still ends the process.
    with _handle_ctrl_c(runner.pause, runner.restore_terminal), loop:
        return loop.run(runner.run())


def run_stored_turn(
    root: RootThread,
    start: Callable[[Session], Awaitable[AsyncRun]],
    place: ThreadOptions,
    remaking: StoredTeamOptions,
    how: RunOutputOptions,
) -> ExitCode:
    """Load the team of a stored thread, run the turn that `start` starts, and show it."""
    team = resolve_stored_team(root, remaking, resolve_path(place.db))
    track = output.choose_tracker(silent=how.json or how.quiet)
    with asyncio.Runner() as loop:
        agent = load_team(team, loop=loop, track=track)
        turn = PlannedTurn(agent, team, root_label(root), place.db, start)
        return run_planned_turn(turn, how, loop)


@contextmanager
def _handle_ctrl_c(pause: Callable[[], None], abandon: Callable[[], None]) -> Iterator[None]:
    """Let the first Ctrl-C pause, and the second end the process; what is stored stays stored."""
    pressed = False

    def handle_signal(signum: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            abandon()
            # Not an exception: a thread that hangs in a model's call would hold it up.
            os._exit(ExitCode.INTERRUPTED)
        pressed = True
        pause()

    before = signal.signal(signal.SIGINT, handle_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class _TurnRunner:
    def __init__(self, turn: PlannedTurn, how: RunOutputOptions) -> None:
        self._turn = turn
        self._how = how
        self._board = AgentBoard(time.monotonic)
        self._run: AsyncRun | None = None
        self._thread = SessionThread(turn.thread, "")
        self._ended = False
        self._view = choose_view(self._board, how)
        self._asks = sys.stdin.isatty() and sys.stderr.isatty() and not (how.json or how.quiet)
        # By their ids: those that were left open are not asked again.
        self._asked = set[str]()

    def pause(self) -> None:
        """Handle the first Ctrl-C: pause the run; without one, or at a question, interrupt."""
        if self._run is None or self._ended:
            raise KeyboardInterrupt
        self._board.stopping = True
        self._run.pause()
        self._view.show_stopping()

    def restore_terminal(self) -> None:
        """Restore the terminal; called in a signal handler, right before the process ends."""
        self._view.restore_terminal()

    async def run(self) -> ExitCode:
        turn = self._turn
        database, metadata = resolve_path(turn.db), turn.team.to_metadata()
        opened = Session(
            turn.agent,
            database,
            thread=turn.thread,
            metadata=metadata,
            workspace=turn.team.workspace,
            prices=turn.team.prices,
            spawnable=load_team_profiles(turn.team),
        )
        async with opened as session:
            self._thread = SessionThread(session.thread, session.thread_id)
            run, remarks = await turn.start(session), turn.opening_remarks
            while True:
                async with run as self._run:
                    self._ended = False
                    self._print_remarks(remarks)
                    with self._view:
                        watching = asyncio.create_task(self._watch_answers(session))
                        try:
                            async for event in _iterate_events(run, self._turn.thread):
                                self._board.apply_event(event)
                                self._view.show_event(event)
                        finally:
                            watching.cancel()
                        self._ended = True
                        result = await run.result()
                        self._board.apply_result(result)
                answers = await self._ask(session) if result.status == "asking" else {}
                if not answers:
                    break
                run, remarks = await session.aanswer(answers), ()
                for question in answers.keys() & self._board.questions.keys():
                    self._board.mark_answered(question)
                self._view = choose_view(self._board, self._how)
            code = print_turn_result(result, self._board, self._thread, turn.db, self._how)
            if code is ExitCode.FINISHED:
                self._print_remarks(turn.closing_remarks)
            # These answers are only stored; the turn did not wait for them.
            if result.finished and (answers := await self._ask(session)):
                stored = await (await session.aanswer(answers)).result()
                output.print_remark(stored.reason)
        return code

    async def _ask(self, session: Session) -> dict[str, Any]:
        """Return the answers to open questions that are typed on the terminal, if there is one."""
        if not self._asks or self._board.stopping:
            return {}
        questions = [q for q in await session.ainbox() if q.id not in self._asked]
        if questions and not self._asked:
            output.print_remark(LEFT_OPEN)
        self._asked.update(question.id for question in questions)
        answers = ask_questions(questions)
        # Meanwhile others may have answered, or a deadline may have passed.
        left = {question.id for question in await session.ainbox()} if answers else set[str]()
        for question in answers.keys() - left:
            output.print_remark(f"question {question} was closed meanwhile")
        return {question: value for question, value in answers.items() if question in left}

    async def _watch_answers(self, session: Session) -> None:
        """Show which questions are answered elsewhere, and what is left of budgets.

        This run delivers the answers at its end.
        """
        saver = cast("Saver", session.graph.checkpointer)
        while True:
            await asyncio.sleep(ANSWERS_INTERVAL)
            if self._view.shows_budgets:
                # Of what is damaged nothing is left, which the run itself says.
                with suppress(LedgerDamaged):
                    self._board.note_left(await session.thread_store.agrants(session.thread_id))
            if questions := [*self._board.questions]:
                plan = read_answer_versions(session.thread_id, questions)
                versions = await arun_plan(saver, plan)
                for question in questions:
                    if versions.get(question) is not None:
                        self._view.show_answered(self._board.mark_answered(question))

    def _print_remarks(self, texts: Iterable[str]) -> None:
        if not (self._how.json or self._how.quiet):
            for text in texts:
                output.print_remark(text)


def print_turn_result(
    result: Result,
    board: AgentBoard,
    thread: SessionThread,
    db: Path | None,
    how: RunOutputOptions,
) -> ExitCode:
    """Print the result of a turn and the remarks at its end, and return its exit code."""
    code = _choose_exit_code(result, board)
    if how.json:
        output.print_json(_result_to_json(result, board, thread, code))
        return code
    if result.text:
        output.print_prose(result.text)
    if result.questions:
        output.print_result(format_questions(result.questions, db))
    if not how.quiet:
        for remark in _list_closing_remarks(result, board, thread.name, code, db):
            output.print_remark(remark)
    return code


def _choose_exit_code(result: Result, board: AgentBoard) -> ExitCode:
    # Answers that another run takes are delivered, however that run ends. A turn that was limited,
    # stopped or dismissed has ended, and needs nothing more.
    if result.status in ("finished", "limited", "stopped", "dismissed", "running"):
        return ExitCode.FINISHED
    if board.stopping:
        return ExitCode.INTERRUPTED
    return ExitCode.ASKING if result.questions else ExitCode.FAILED


def _list_closing_remarks(
    result: Result, board: AgentBoard, thread: str, code: ExitCode, db: Path | None
) -> Iterator[str]:
    if result.queued:
        yield "answered; a run is under way on the thread, and takes the answer"
        return
    if result.replayed:
        yield "the turn was submitted before, so nothing was run again"
    if result.reason:
        reason = result.reason.removeprefix(f"{result.status}: ")
        yield f"{result.status} ({output.escape_controls(reason)})"
    if result.replayed:
        return
    rows = board.list_rows()
    tokens = sum(row.tokens for row in rows)
    spent = f", {output.format_number(tokens)} tokens" if tokens else ""
    agents = output.format_count(len(rows), "agent")
    yield f"{output.format_duration(board.seconds)}, {agents}{spent}, thread {thread}"
    if OFFLINE_MODEL in board.models:
        yield "by the offline planner: rules, no language model"
    # A failure raises an error, so a run that returned without finishing was paused.
    if code in (ExitCode.INTERRUPTED, ExitCode.FAILED):
        resume = output.build_command_line("resume", "--thread", thread, db=db)
        yield f"paused; all that was done is stored. Go on with: {resume}"


def _result_to_json(
    result: Result, board: AgentBoard, thread: SessionThread, code: ExitCode
) -> dict[str, Any]:
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
        "questions": [question_to_json(question, thread.name) for question in result.questions],
        "replayed": result.replayed,
        "queued": result.queued,
        "response": result.response and result.response.model_dump(mode="json"),
        "usage": result.usage.model_dump(),
        "models": sorted(model for model in board.models if model),
        "seconds": round(board.seconds, 3),
        "exit_code": int(code),
    }


async def _iterate_events(run: AsyncRun, thread: str) -> AsyncIterator[RunEvent]:
    try:
        async for event in run:
            yield event
    except EchelonsError:
        raise
    except Exception as error:
        raise ThreadError(
            "the turn of thread {thread!r} stopped at {reason}; all that was done before is "
            "stored, and `echelons resume` goes on from there",
            code="run_failed",
            thread=thread,
            reason=describe_error(error),
        ) from error
