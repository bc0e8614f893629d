"""``Session``: the durable way to run a tree on one thread of one database.

Sends tasks, answers questions, goes on after a crash, and shows what happened. Each method
has an ``a…`` twin for event loops; the two share every decision and differ in the waiting.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, Self, cast

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.runtime import RunControl
from langgraph.types import Command, StateSnapshot

from echelons.agent import Agent
from echelons.boundary import LONGEST_ID, check_notes, check_value, is_label, shortened
from echelons.checkpoints.pending import Question, Waiting, questions, waiting
from echelons.checkpoints.reading import OneCheckpoint, aread, read
from echelons.checkpoints.sqlite import SqliteCheckpointer
from echelons.checkpoints.threads import RootThread, ThreadStore
from echelons.checkpoints.tracing import Trace
from echelons.errors import (
    InterventionPending,
    InvalidDatabase,
    InvalidId,
    InvalidTask,
    InvalidThread,
    NoQuestionPending,
    NothingToResume,
    ThreadNotFound,
    UnfinishedTurn,
    UnknownQuestion,
)
from echelons.lineage import root_thread_id
from echelons.runtime.events import STREAM_MODES
from echelons.runtime.run import AsyncRun, Run, Standing


class Session:
    """A tree at work on one thread.

    Args:
        agent: The tree's root.
        database: Path of a SQLite database, or any LangGraph saver. A path is opened here
            and closed with the session.
        thread: What people call the thread. A UUID is taken as the thread's id itself, and so
            is the id of a thread that a compiled graph has already stored in the database.
        metadata: Texts and numbers stored with each of its checkpoints; ``RootThread`` gives
            them back, so a program can note what it needs to go on in another process.

    Raises:
        InvalidDatabase: The database is neither.
        InvalidThread: The thread's name is empty, too long, no text, or cannot be printed.
        InvalidNote: Something in ``metadata`` cannot be noted.
        StorageError: The database cannot be opened.
        ModelKeyMissing: A named model of the tree has no key.

    Examples:
        >>> from echelons import Agent, Session
        >>> with Session(Agent("head"), ":memory:", thread="trip") as session:
        ...     result = session.send("Hello").result()
        >>> result.finished
        True
    """

    def __init__(
        self,
        agent: Agent,
        database: str | Path | BaseCheckpointSaver[Any],
        *,
        thread: str = "main",
        metadata: Mapping[str, str | int | float | bool] | None = None,
    ) -> None:
        self.thread = _thread(thread)
        self._metadata = check_notes(metadata)
        self.graph = agent.compile(database)
        saver = self.graph.checkpointer
        if not isinstance(saver, BaseCheckpointSaver):
            raise InvalidDatabase(database)
        self._saver = saver
        self.thread_id = _thread_id(saver, thread)
        self._opened = None if saver is database else saver
        self.store = ThreadStore(saver)

    @property
    def config(self) -> RunnableConfig:
        """The LangGraph config of the root thread."""
        return {
            "configurable": {"thread_id": self.thread_id},
            "metadata": {**self._metadata, "thread_name": self.thread},
        }

    def close(self) -> None:
        """Close the database, if this session opened it."""
        if isinstance(self._opened, SqliteCheckpointer):
            self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    def send(self, task: str) -> Run:
        """Give the root a task.

        Raises:
            InvalidTask: It is empty.
            InterventionPending: The thread waits for answers.
            UnfinishedTurn: Its last turn was cut short.
        """
        given = _task(task)

        def check() -> Any:
            self._free(self.graph.get_state(self.config), self.inbox())
            return given

        return self._run(check)

    async def asend(self, task: str) -> AsyncRun:
        """Do what ``send`` does in an event loop.

        Raises:
            InvalidTask: It is empty.
            InterventionPending: The thread waits for answers.
            UnfinishedTurn: Its last turn was cut short.
        """
        given = _task(task)

        async def check() -> Any:
            self._free(await self.graph.aget_state(self.config), await self.ainbox())
            return given

        return await self._arun(check)

    def answer(self, question: str | Mapping[str, Any], value: Any = None) -> Run:
        """Answer pending questions and go on.

        Args:
            question: A question's id, or several answers by their questions' ids.
            value: The answer, if one question is named.

        Raises:
            NoQuestionPending: Nothing is asked.
            UnknownQuestion: A question named is not pending.
        """
        answers = _answers(question, value)
        return self._run(lambda: self._resumption(answers, self.inbox()))

    async def aanswer(self, question: str | Mapping[str, Any], value: Any = None) -> AsyncRun:
        """Do what ``answer`` does in an event loop.

        Raises:
            NoQuestionPending: Nothing is asked.
            UnknownQuestion: A question named is not pending.
        """
        answers = _answers(question, value)

        async def check() -> Any:
            return self._resumption(answers, await self.ainbox())

        return await self._arun(check)

    def resume(self) -> Run:
        """Go on with a turn that was stopped, killed or has failed.

        Raises:
            ThreadNotFound: The thread has never run.
            InterventionPending: Only answers can move it.
            NothingToResume: Its last turn is finished.
        """

        def check() -> Any:
            left = read(self._saver, waiting(self.thread_id))
            self._resumable(self.graph.get_state(self.config), left)

        return self._run(check)

    async def aresume(self) -> AsyncRun:
        """Do what ``resume`` does in an event loop.

        Raises:
            ThreadNotFound: The thread has never run.
            InterventionPending: Only answers can move it.
            NothingToResume: Its last turn is finished.
        """

        async def check() -> Any:
            left = await aread(self._saver, waiting(self.thread_id))
            self._resumable(await self.graph.aget_state(self.config), left)

        return await self._arun(check)

    def inbox(self) -> list[Question]:
        """Return the questions that wait for an answer, in the order of the tree."""
        return read(self._saver, questions(self.thread_id))

    async def ainbox(self) -> list[Question]:
        """Do what ``inbox`` does in an event loop."""
        return await aread(self._saver, questions(self.thread_id))

    def threads(self) -> list[RootThread]:
        """Return the root threads of the database, latest first."""
        return self.store.roots()

    async def athreads(self) -> list[RootThread]:
        """Do what ``threads`` does in an event loop."""
        return await self.store.aroots()

    def trace(self) -> Trace:
        """Return everything that happened on this thread, as a tree.

        Raises:
            ThreadNotFound: The thread has never run.
        """
        return self.store.trace(self.thread_id)

    async def atrace(self) -> Trace:
        """Do what ``trace`` does in an event loop.

        Raises:
            ThreadNotFound: The thread has never run.
        """
        return await self.store.atrace(self.thread_id)

    def _run(self, check: Callable[[], Any]) -> Run:
        """Return a run on what ``check`` gives; it refuses now, and again when the run starts.

        Another run may have moved the thread in between.
        """
        check()

        def start(control: RunControl) -> Iterator[Any]:
            return self.graph.stream(check(), self.config, **_streaming(control))

        return Run(start, lambda: _standing(self.graph.get_state(self.config), self.inbox()))

    async def _arun(self, check: Callable[[], Awaitable[Any]]) -> AsyncRun:
        await check()

        async def start(control: RunControl) -> AsyncGenerator[Any]:
            given = await check()
            stream = self.graph.astream(given, self.config, **_streaming(control))
            async with aclosing(cast("AsyncGenerator[Any]", stream)) as parts:
                async for part in parts:
                    yield part

        async def standing() -> Standing:
            return _standing(await self.graph.aget_state(self.config), await self.ainbox())

        return AsyncRun(start, standing)

    def _free(self, state: StateSnapshot, inbox: list[Question]) -> None:
        if inbox:
            raise InterventionPending(self.thread, [question.id for question in inbox])
        if state.tasks:
            raise UnfinishedTurn(self.thread)

    def _resumable(self, state: StateSnapshot, left: Waiting) -> None:
        if not state.values and not state.tasks:
            raise ThreadNotFound(self.thread)
        if not state.tasks:
            raise NothingToResume(self.thread)
        if left.questions and not left.moves:
            raise InterventionPending(self.thread, [question.id for question in left.questions])

    def _resumption(self, answers: Mapping[str, Any], inbox: list[Question]) -> Command[Any]:
        pending = [question.id for question in inbox]
        if not pending:
            raise NoQuestionPending(self.thread)
        for question in answers:
            if question not in pending:
                raise UnknownQuestion(question, pending)
        return Command(resume=dict(answers))


def _streaming(control: RunControl) -> dict[str, Any]:
    return {"stream_mode": list(STREAM_MODES), "subgraphs": True, "control": control}


def _thread_id(saver: BaseCheckpointSaver[Any], name: str) -> str:
    # A graph of the user's own may have used the name as LangGraph's id itself. Only ours is
    # asked: a saver for event loops may not be read here.
    if isinstance(saver, SqliteCheckpointer) and OneCheckpoint(name).get(saver) is not None:
        return name
    return root_thread_id(name)


def _thread(name: str) -> str:
    if not is_label(name):
        raise InvalidThread(name)
    return name


def _task(task: str) -> dict[str, Any]:
    if not isinstance(task, str) or not task.strip():
        raise InvalidTask(task)
    return {"messages": [HumanMessage(check_value(task, "the task"))]}


def _answers(question: str | Mapping[str, Any], value: Any) -> Mapping[str, Any]:
    if not isinstance(question, (str, Mapping)):
        raise InvalidId("id of a question", shortened(question), LONGEST_ID)
    given = question if isinstance(question, Mapping) else {question: value}
    return {key: check_value(each, f"the answer to {key!r}") for key, each in given.items()}


def _standing(state: StateSnapshot, inbox: list[Question]) -> Standing:
    messages = state.values.get("messages") or []
    last = messages[-1] if messages else None
    text = str(last.text) if isinstance(last, AIMessage) else ""
    return Standing(text, inbox, finished=not state.tasks)
