"""The turn engine: runs the requests of a session on one thread, under its lease.

A run takes the lease, decides, streams the tree until it is idle, delivers the answers that
have arrived meanwhile, and releases the lease. `drive` and `adrive` differ only in awaiting.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Mapping
from contextlib import aclosing, closing
from dataclasses import dataclass
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.errors import GraphDrained

from echelons.checkpoints.checkpointer import SqliteCheckpointer
from echelons.checkpoints.coordination.turns import TURN_KEY, Turn
from echelons.checkpoints.ledger import Fence, Lease, Transaction, key, ledger_of
from echelons.checkpoints.queries import InLedger, Plan, aread, read
from echelons.errors import ThreadBusy
from echelons.graphs.compiled_tree import AgentGraph
from echelons.graphs.invocation.resume_check import acheck_resume, check_resume
from echelons.runtime.run_end import Ending, ending_of, settled, take_answers
from echelons.runtime.run_events import RunEvent
from echelons.runtime.run_record import Tally
from echelons.runtime.session_requests import Go, Request, Thread

WAIT = 0.005
"""Seconds between two attempts to take the lease of a run that is about to end.

What such a run still does takes about one of them.
"""


@dataclass(frozen=True, slots=True)
class Engine:
    """Runs a tree on one thread.

    Attributes:
        graph: The compiled tree.
        saver: The checkpointer.
        thread: The root's thread.
        metadata: Stored with each checkpoint.
    """

    graph: AgentGraph
    saver: BaseCheckpointSaver[Any]
    thread: Thread
    metadata: Mapping[str, Any]

    @property
    def config(self) -> RunnableConfig:
        """The LangGraph config of the root thread."""
        return {
            "configurable": {"thread_id": self.thread.id},
            "metadata": {**self.metadata, "thread_name": self.thread.name},
        }

    def look(self, request: Request) -> None:
        """Refuse a request that cannot be carried out, before anything starts."""
        read(self.saver, request.look(self.thread))

    async def alook(self, request: Request) -> None:
        """Async version of `look`."""
        await aread(self.saver, request.look(self.thread))

    def ending(self) -> Ending:
        """Return the result of the thread's last run."""
        return read(self.saver, ending_of(self.thread.id))

    async def aending(self) -> Ending:
        """Async version of `ending`."""
        return await aread(self.saver, ending_of(self.thread.id))

    def drive(self, request: Request, tally: Tally) -> Generator[RunEvent]:
        """Run a request, and yield its events.

        Raises:
            EchelonsError: It cannot be carried out; each reason has its own error.
        """
        tally.begun = True
        held = self._held(request)
        if isinstance(held, Ending):
            tally.ending = held
            return
        with held as lease:
            decision = read(self.saver, request.decide(self.thread))
            if isinstance(decision, Ending):
                tally.ending = decision
                return
            given = decision.given
            check_resume(self.graph.agent, self.saver, given, self.config)
            turn = self._turn(decision, lease.fence)
            read(self.saver, self._kept(request, decision, turn))
            while tally.ending is None:
                tally.delivers(given)
                try:
                    with closing(self._stream(given, turn, tally)) as parts:
                        for part in parts:
                            yield from tally.events(part)
                except GraphDrained:
                    tally.paused = True
                given = tally.end(read(self.saver, settled(turn, tally.progress)))

    async def adrive(self, request: Request, tally: Tally) -> AsyncGenerator[RunEvent]:
        """Async version of `drive`."""
        tally.begun = True
        held = await self._aheld(request)
        if isinstance(held, Ending):
            tally.ending = held
            return
        async with held as lease:
            decision = await aread(self.saver, request.decide(self.thread))
            if isinstance(decision, Ending):
                tally.ending = decision
                return
            given = decision.given
            await acheck_resume(self.graph.agent, self.saver, given, self.config)
            turn = self._turn(decision, lease.fence)
            await aread(self.saver, self._kept(request, decision, turn))
            while tally.ending is None:
                tally.delivers(given)
                try:
                    async with aclosing(self._astream(given, turn, tally)) as parts:
                        async for part in parts:
                            for event in tally.events(part):
                                yield event
                except GraphDrained:
                    tally.paused = True
                given = tally.end(await aread(self.saver, settled(turn, tally.progress)))

    def _held(self, request: Request) -> Lease | Ending:
        while True:
            try:
                return ledger_of(self.saver).lease(key(self.thread.id))
            except ThreadBusy as busy:
                ending = read(self.saver, request.meet(self.thread, busy))
            if ending is not None:
                return ending
            time.sleep(WAIT)

    async def _aheld(self, request: Request) -> Lease | Ending:
        while True:
            try:
                return await ledger_of(self.saver).alease(key(self.thread.id))
            except ThreadBusy as busy:
                ending = await aread(self.saver, request.meet(self.thread, busy))
            if ending is not None:
                return ending
            await asyncio.sleep(WAIT)

    def _turn(self, decision: Go, fence: Fence) -> Turn:
        return Turn(self.thread.id, decision.turn, fence, decision.task)

    def _kept(self, request: Request, go: Go, turn: Turn) -> Plan[None]:
        """Store what must not be lost, once the tree is known to be able to run."""
        keep = yield from request.keep(self.thread, go)
        # `SqliteCheckpointer` announces a turn with its first checkpoint; other savers keep the
        # ledger in memory, where both are lost together.
        here = not isinstance(self.saver, SqliteCheckpointer)

        def begin(open_: Transaction) -> None:
            take_answers(open_, turn)
            keep(open_)
            if here:
                turn.announce(open_)

        yield InLedger(lambda ledger: ledger.commit(begin))

    def _stream(self, given: Any, turn: Turn, tally: Tally) -> Generator[Any]:
        stream: Iterator[Any] = self.graph.stream(given, self._config(turn), **tally.streaming)
        return cast("Generator[Any]", stream)

    def _astream(self, given: Any, turn: Turn, tally: Tally) -> AsyncGenerator[Any]:
        stream: AsyncIterator[Any] = self.graph.astream(
            given, self._config(turn), **tally.streaming
        )
        return cast("AsyncGenerator[Any]", stream)

    def _config(self, turn: Turn) -> RunnableConfig:
        config = self.config
        return {**config, "configurable": {**config["configurable"], TURN_KEY: turn}}
