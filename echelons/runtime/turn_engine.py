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
from echelons.checkpoints.ledger import Fence, Lease, Transaction, build_key, get_ledger
from echelons.checkpoints.queries import LedgerQuery, ReadPlan, arun_plan, run_plan
from echelons.errors import ThreadBusy
from echelons.graphs.compiled_tree import AgentGraph
from echelons.graphs.invocation.resume_check import acheck_resume, check_resume
from echelons.runtime.run_end import RunEnd, open_for_answers, read_run_end, settle_run
from echelons.runtime.run_events import RunEvent
from echelons.runtime.run_record import RunRecord
from echelons.runtime.session_requests import SessionRequest, SessionThread, StartRun

LEASE_POLL_INTERVAL = 0.005
"""Seconds between two attempts to take the lease of a run that is about to end.

What such a run still does takes about one of them.
"""


@dataclass(frozen=True, slots=True)
class TurnEngine:
    """Runs a tree on one thread.

    Attributes:
        graph: The compiled tree.
        saver: The checkpointer.
        thread: The root's thread.
        metadata: Stored with each checkpoint.
    """

    graph: AgentGraph
    saver: BaseCheckpointSaver[Any]
    thread: SessionThread
    metadata: Mapping[str, Any]

    @property
    def config(self) -> RunnableConfig:
        """The LangGraph config of the root thread."""
        return {
            "configurable": {"thread_id": self.thread.id},
            "metadata": {**self.metadata, "thread_name": self.thread.name},
        }

    def check_request(self, request: SessionRequest) -> None:
        """Refuse a request that cannot be carried out, before anything starts."""
        run_plan(self.saver, request.check_early(self.thread))

    async def acheck_request(self, request: SessionRequest) -> None:
        """Async version of `check_request`."""
        await arun_plan(self.saver, request.check_early(self.thread))

    def read_run_end(self) -> RunEnd:
        """Return the result of the thread's last run."""
        return run_plan(self.saver, read_run_end(self.thread.id))

    async def aread_run_end(self) -> RunEnd:
        """Async version of `read_run_end`."""
        return await arun_plan(self.saver, read_run_end(self.thread.id))

    def run_request(self, request: SessionRequest, tally: RunRecord) -> Generator[RunEvent]:
        """Run a request, and yield its events.

        Raises:
            EchelonsError: It cannot be carried out; each reason has its own error.
        """
        tally.started = True
        held = self._take_lease(request)
        if isinstance(held, RunEnd):
            tally.run_end = held
            return
        with held as lease:
            decision = run_plan(self.saver, request.decide(self.thread))
            if isinstance(decision, RunEnd):
                tally.run_end = decision
                return
            given = decision.graph_input
            check_resume(self.graph.agent, self.saver, given, self.config)
            turn = self._build_turn(decision, lease.fence)
            run_plan(self.saver, self._write_start(request, decision, turn))
            while tally.run_end is None:
                tally.record_delivery(given)
                try:
                    with closing(self._stream(given, turn, tally)) as parts:
                        for part in parts:
                            yield from tally.record_part(part)
                except GraphDrained:
                    tally.paused = True
                given = tally.record_end(run_plan(self.saver, settle_run(turn, tally.progress)))

    async def arun_request(
        self, request: SessionRequest, tally: RunRecord
    ) -> AsyncGenerator[RunEvent]:
        """Async version of `run_request`."""
        tally.started = True
        held = await self._atake_lease(request)
        if isinstance(held, RunEnd):
            tally.run_end = held
            return
        async with held as lease:
            decision = await arun_plan(self.saver, request.decide(self.thread))
            if isinstance(decision, RunEnd):
                tally.run_end = decision
                return
            given = decision.graph_input
            await acheck_resume(self.graph.agent, self.saver, given, self.config)
            turn = self._build_turn(decision, lease.fence)
            await arun_plan(self.saver, self._write_start(request, decision, turn))
            while tally.run_end is None:
                tally.record_delivery(given)
                try:
                    async with aclosing(self._astream(given, turn, tally)) as parts:
                        async for part in parts:
                            for event in tally.record_part(part):
                                yield event
                except GraphDrained:
                    tally.paused = True
                given = tally.record_end(
                    await arun_plan(self.saver, settle_run(turn, tally.progress))
                )

    def _take_lease(self, request: SessionRequest) -> Lease | RunEnd:
        while True:
            try:
                return get_ledger(self.saver).lease(build_key(self.thread.id))
            except ThreadBusy as busy:
                ending = run_plan(self.saver, request.meet_other_run(self.thread, busy))
            if ending is not None:
                return ending
            time.sleep(LEASE_POLL_INTERVAL)

    async def _atake_lease(self, request: SessionRequest) -> Lease | RunEnd:
        while True:
            try:
                return await get_ledger(self.saver).alease(build_key(self.thread.id))
            except ThreadBusy as busy:
                ending = await arun_plan(self.saver, request.meet_other_run(self.thread, busy))
            if ending is not None:
                return ending
            await asyncio.sleep(LEASE_POLL_INTERVAL)

    def _build_turn(self, decision: StartRun, fence: Fence) -> Turn:
        return Turn(self.thread.id, decision.turn, fence, decision.task)

    def _write_start(self, request: SessionRequest, go: StartRun, turn: Turn) -> ReadPlan[None]:
        """Store what must not be lost, once the tree is known to be able to run."""
        keep = yield from request.plan_writes(self.thread, go)
        # `SqliteCheckpointer` announces a turn with its first checkpoint; other savers keep the
        # ledger in memory, where both are lost together.
        here = not isinstance(self.saver, SqliteCheckpointer)

        def begin(open_: Transaction) -> None:
            open_for_answers(open_, turn)
            keep(open_)
            if here:
                turn.announce(open_)

        yield LedgerQuery(lambda ledger: ledger.commit(begin))

    def _stream(self, given: Any, turn: Turn, tally: RunRecord) -> Generator[Any]:
        stream: Iterator[Any] = self.graph.stream(
            given, self._turn_config(turn), **tally.stream_options
        )
        return cast("Generator[Any]", stream)

    def _astream(self, given: Any, turn: Turn, tally: RunRecord) -> AsyncGenerator[Any]:
        stream: AsyncIterator[Any] = self.graph.astream(
            given, self._turn_config(turn), **tally.stream_options
        )
        return cast("AsyncGenerator[Any]", stream)

    def _turn_config(self, turn: Turn) -> RunnableConfig:
        config = self.config
        return {**config, "configurable": {**config["configurable"], TURN_KEY: turn}}
