"""The turn engine: runs the requests of a session on one thread, under its lease.

A run takes the lease, decides, streams the tree until it is idle, delivers the answers that
have arrived meanwhile, and releases the lease.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Generator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.errors import GraphBubbleUp, GraphDrained
from langgraph.graph import END
from langgraph.types import Command, StateUpdate

from echelons.background_loop import BackgroundLoop
from echelons.checkpoints.checkpointer import SqliteCheckpointer
from echelons.checkpoints.coordination.dismissal_ledger import (
    find_hidden_dismissals,
    list_dismissal_keys,
    load_dismissals,
)
from echelons.checkpoints.coordination.grants import grant_turn
from echelons.checkpoints.coordination.orders import ControlOrders, read_orders
from echelons.checkpoints.coordination.repairs import list_repair_keys, read_hidden_messages
from echelons.checkpoints.coordination.turns import AnswerMark, Turn
from echelons.checkpoints.ledger import Lease, Transaction, build_key, get_ledger
from echelons.checkpoints.queries import LedgerQuery, OneCheckpoint, ReadPlan, arun_plan, run_plan
from echelons.checkpoints.threads.answer_outbox import deliver_answers
from echelons.checkpoints.threads.control import is_root_stopped
from echelons.checkpoints.threads.thread_status import read_thread_status, read_turn_messages
from echelons.delegation.spawned_agents import SpawnableAgent
from echelons.errors import LeaseLost, NothingToResume, ThreadBusy
from echelons.features.feature import RunScope
from echelons.graphs.compiled_tree import AgentGraph
from echelons.graphs.entry import check_depth
from echelons.graphs.run_checks import check_checkpoint
from echelons.guards.gate import Halt
from echelons.guards.prices import Prices
from echelons.nodes.planning.relay import build_halt_update
from echelons.plans import Plan, PlanStep, PlanStream, StreamPlan, astream_plan, stream_plan
from echelons.run_context import CONTEXT_KEY, RunContext
from echelons.runtime.run_end import RunEnd, RunRecord, settle_run
from echelons.runtime.run_events import RunEvent
from echelons.runtime.run_options import RunOptions
from echelons.runtime.session_requests import (
    AnswerRequest,
    ResumeRequest,
    SendRequest,
    SessionRequest,
    SessionThread,
    StartRun,
)
from echelons.text.error_lines import describe_error
from echelons.tree.name_themes import NameTheme

LOG = logging.getLogger(__name__)
LEASE_POLL_INTERVAL = 0.005
"""Seconds between two attempts to take the lease of a run that is about to end.

What such a run still does takes about one of them.
"""


@dataclass(frozen=True, slots=True)
class TurnEngine:
    """Runs a tree on one thread."""

    graph: AgentGraph
    saver: BaseCheckpointSaver[Any]
    thread: SessionThread
    options: RunOptions
    # What its session opened for features, by their names.
    features: Mapping[str, Any] = field(default_factory=dict)
    # The agents that others may be made after.
    spawnable: Mapping[str, SpawnableAgent] = field(default_factory=dict)
    # `None` for the names of the root or the thread.
    theme: NameTheme | None = None
    prices: Prices | None = None
    # Where synchronous runs run what is only async.
    loop: BackgroundLoop = field(default_factory=BackgroundLoop)

    @property
    def config(self) -> RunnableConfig:
        """The LangGraph config of the root thread."""
        return {
            "configurable": {"thread_id": self.thread.id},
            "metadata": {**self.options.stored_metadata, "thread_name": self.thread.name},
        }

    def check_request(self, request: SessionRequest) -> ReadPlan[None]:
        """Refuse a request that cannot be carried out, before anything starts."""
        check_depth(self.graph.agent, {})
        if isinstance(request, AnswerRequest) and len(request.answers) > 1:
            # Some may be stored at once, and others by a run that this tree cannot make.
            yield from self._check_tree()
        yield from request.decide_early(self.thread)
        if request.early and isinstance(request.early.decision, StartRun):
            self.options.complete(request.early.decision.stored_keys)

    def _check_tree(self) -> ReadPlan[None]:
        yield from check_checkpoint(self.graph.agent, OneCheckpoint(self.thread.id), self.spawnable)

    def run_request(self, request: SessionRequest, record: RunRecord) -> Generator[RunEvent]:
        """Run a request, and yield its events."""
        return stream_plan(self._plan_run(request, record))

    def arun_request(self, request: SessionRequest, record: RunRecord) -> AsyncGenerator[RunEvent]:
        """Async version of `run_request`."""
        return astream_plan(self._plan_run(request, record))

    def _plan_run(self, request: SessionRequest, record: RunRecord) -> StreamPlan[None]:
        record.started = True
        if request.ends_stopped:
            yield from self._end_stopped_turn()
        lease = yield from self._take_lease(request)
        if isinstance(lease, RunEnd):
            record.run_end = lease
            return
        try:
            begun = yield self.read(self._begin_turn(request, lease, record))
            if isinstance(begun, RunEnd):
                record.run_end = begun
                return
            graph_input, turn, mark, options = begun
            try:
                for hooks in record.hooks:
                    hooks.start()
                while record.run_end is None:
                    yield from record.take_noted()
                    yield from self._stream_events(graph_input, turn, mark, options, record)
                    yield from record.take_noted()
                    settling = settle_run(turn, mark, record, self.thread.confidence)
                    graph_input = yield self.read(settling)
            finally:
                record.add_noted_calls()
                if record.hooks:
                    # What one of them stores may wait for another process.
                    close = record.close_hooks
                    yield PlanStep(close, partial(asyncio.to_thread, close))
            if record.hooks:
                yield from record.take_noted()
        finally:
            yield PlanStep(lease.release, lease.arelease)

    def read(self, plan: ReadPlan[Any]) -> PlanStep:
        """Return the step that runs a plan of queries."""
        return PlanStep(partial(run_plan, self.saver, plan), partial(arun_plan, self.saver, plan))

    def lease(self) -> PlanStep:
        """Return the step that takes the lease of the thread."""
        ledger, key = get_ledger(self.saver), build_key(self.thread.id)
        return PlanStep(partial(ledger.lease, key), partial(ledger.alease, key))

    def _end_stopped_turn(self) -> StreamPlan[None]:
        """End the turn that was stopped, so that another can begin."""
        record = RunRecord()
        record.skip_events()
        try:
            yield from self._plan_run(ResumeRequest(None, ""), record)
        except NothingToResume:
            pass
        except (ThreadBusy, LeaseLost):
            raise
        except Exception as error:  # noqa: BLE001  raised again, unless the turn was stopped
            lease = yield self.lease()
            try:
                yield from self._end_failed_turn(error)
            finally:
                yield PlanStep(lease.release, lease.arelease)

    def _end_failed_turn(self, error: Exception) -> Plan[None]:
        """End a stopped turn in its stored state, or raise the error that it has failed with."""
        if not (steps := (yield self.read(self._plan_end(error)))):
            raise error
        graph = self.graph
        yield PlanStep(
            partial(graph.bulk_update_state, self.config, steps),
            partial(graph.abulk_update_state, self.config, steps),
        )

    def _plan_end(self, error: Exception) -> ReadPlan[list[list[StateUpdate]]]:
        """Return the updates that end a stopped turn; none if its error has to be raised."""
        # What ends a stopped agent, such as a hook of a middleware, may fail as well: then the turn
        # is ended in its stored state, and no step runs.
        root = self.graph.agent.name
        if isinstance(error, (LeaseLost, GraphBubbleUp)) or not (
            yield from is_root_stopped(self.thread.id, root)
        ):
            return []
        status = yield from read_thread_status(self.thread.id)
        if status.finished or (identity := status.identity) is None:
            return []
        LOG.warning("the stopped turn is ended without its last steps: %s", describe_error(error))
        messages = yield from read_turn_messages(status)
        halt = ControlOrders(stopped=(root,)).find_order(root)
        assert isinstance(halt, Halt)  # noqa: S101  it is stopped
        update = build_halt_update(halt, messages, identity)
        clear = [StateUpdate(None, END)]
        return [clear, [StateUpdate(update, "reason")], clear]

    def _take_lease(self, request: SessionRequest) -> Plan[Lease | RunEnd]:
        while True:
            try:
                return (yield self.lease())  # type: ignore[no-any-return]  # a plan is sent what it asked for
            except ThreadBusy as busy:
                ending = yield self.read(request.meet_other_run(self.thread, busy))
            if ending is not None:
                return ending  # type: ignore[no-any-return]  # as above
            wait = partial(time.sleep, LEASE_POLL_INTERVAL)
            yield PlanStep(wait, partial(asyncio.sleep, LEASE_POLL_INTERVAL))

    def _begin_turn(
        self, request: SessionRequest, lease: Lease, record: RunRecord
    ) -> ReadPlan[tuple[Any, Turn, AnswerMark, RunOptions] | RunEnd]:
        """Return what the graph is run with, or the result, after storing what must not be lost."""
        decision = yield from request.decide_under_lease(self.thread, lease)
        if isinstance(decision, RunEnd):
            return decision
        options = self.options.complete(decision.stored_keys)
        graph_input, status = decision.graph_input, decision.status_before
        if not isinstance(graph_input, Mapping):
            yield from self._check_tree()
        mark = AnswerMark(self.thread.id, lease.fence)
        turn = Turn(
            self.thread.id,
            decision.turn,
            lease.fence,
            decision.task,
            backpressure=record.backpressure,
            answer_mark=mark,
            note_orders=record.note_orders,
            note_dismissals=record.note_dismissals,
            note_usage=record.note_call,
        )
        answers = graph_input.resume if isinstance(graph_input, Command) else None
        write = yield from request.plan_writes(self.thread, decision)

        def begin(open_: Transaction) -> tuple[list[str], list[str]]:
            mark.open(open_)
            if not isinstance(graph_input, Mapping):
                record.skip_orders(read_orders(open_, turn.thread_id, turn.id))
            write(open_)
            budget = request.budget if isinstance(request, SendRequest) else None
            if budget or not isinstance(graph_input, Mapping):
                currency = self.prices.currency if self.prices else ""
                root = self.graph.agent.name
                turn.root.allowance = grant_turn(
                    open_, turn.thread_id, turn.id, root, budget, currency
                )
            if answers:
                delivered = deliver_answers(open_, self.thread.id, status, answers)
                record.note_answers(delivered)
            # `SqliteCheckpointer` announces a turn with its first checkpoint; other savers keep
            # the ledger in memory, where both are lost together.
            if not isinstance(self.saver, SqliteCheckpointer):
                turn.announce(open_)
            keys = list_dismissal_keys(open_, self.thread.id)
            record.skip_dismissals(load_dismissals(open_, keys))
            return keys, list_repair_keys(open_, self.thread.id)

        dismissals, repairs = yield LedgerQuery(lambda ledger: ledger.commit(begin))
        if repairs or dismissals:
            hidden = yield from find_hidden_dismissals(self.thread.id, dismissals)
            messages = yield from read_hidden_messages(self.thread.id)
            turn = replace(turn, hidden_dismissals=hidden, hidden_messages=messages)
        if self.graph.made:
            config, is_new = options.build_config(self.thread), isinstance(graph_input, Mapping)
            run = RunScope(
                self.graph, self.saver, turn, config, is_new, record.note_event, self.prices
            )
            yield LedgerQuery(lambda _: record.open_hooks(run))
        return graph_input, turn, mark, options

    def _stream_events(
        self, input: Any, turn: Turn, mark: AnswerMark, options: RunOptions, record: RunRecord
    ) -> StreamPlan[None]:
        """Run the tree until it is idle, and yield the events."""
        try:
            arguments = self._build_arguments(input, turn, options, record)
            yield PlanStream(
                partial(self._stream, arguments),
                partial(self.graph.astream, **arguments),
                record.record_part,
            )
        except GraphDrained:
            record.record_drain(mark)
        except Exception as error:  # noqa: BLE001  raised again, unless the turn was stopped
            yield from self._end_failed_turn(error)

    def _stream(self, arguments: dict[str, Any]) -> Any:
        """Run the tree synchronously: what is only async has a loop."""
        configurable = arguments["config"]["configurable"]
        configurable[CONTEXT_KEY] = replace(configurable[CONTEXT_KEY], loop=self.loop)
        return self.graph.stream(**arguments)

    def _build_arguments(
        self,
        input: Any,
        turn: Turn,
        options: RunOptions,
        record: RunRecord,
    ) -> dict[str, Any]:
        if isinstance(input, Command) and isinstance(input.resume, dict):
            record.delivered.update(input.resume)
        config = options.build_config(self.thread)
        # Not within that of a session around it, whose tool may run this one.
        config["configurable"][CONTEXT_KEY] = RunContext(
            turn=turn,
            features=self.features,
            spawnable=self.spawnable,
            theme=self.theme,
            prices=self.prices,
        )
        return {
            "input": input,
            "config": config,
            "context": options.context,
            **record.stream_options,
        }
