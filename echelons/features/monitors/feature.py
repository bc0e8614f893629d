"""`MonitorFeature`: the monitors of a tree, which watch its events beside a run."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from threading import Event, Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Protocol
from uuid import uuid4

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import RunnableConfig

from echelons.agent import Agent
from echelons.checkpoints.checkpointer import SqliteCheckpointer
from echelons.checkpoints.coordination.orders import POLL_INTERVAL, get_signals, is_under
from echelons.checkpoints.coordination.records import Records
from echelons.checkpoints.ledger import Transaction, get_ledger
from echelons.checkpoints.queries import LatestCheckpointId
from echelons.checkpoints.storage.event_rows import StoredEvent
from echelons.delegation.policy import AlertDecision, DelegationPolicy
from echelons.delegation.request import Usage
from echelons.errors import (
    CheckpointTampered,
    EchelonsError,
    LeaseLost,
    LedgerDamaged,
    StorageError,
)
from echelons.features.feature import Feature, GateScope, RunHooks, RunScope, collect
from echelons.features.monitors.ledger import (
    MAX_EVENTS,
    MONITOR,
    JudgedEvents,
    MonitorLedger,
    PlacedMonitor,
    WatchedEvent,
    build_segment_text,
    build_system_text,
    build_verdict_tools,
    place_monitors,
    read_verdict,
    shorten_words,
)
from echelons.features.monitors.settings import Alert, decide_alert
from echelons.features.registry import open_guards
from echelons.guards.budget import NO_ALLOWANCE, get_allowance
from echelons.guards.gate import CallUsage, Halt, NotedCall, OpenGate, StepGuard
from echelons.identity.lineage import Identity
from echelons.langgraph_internals import CHECKPOINT_MAP_KEY, TASK_ID_KEY
from echelons.models.bound_model import BoundModel
from echelons.models.door import Account, CallRefused, ask
from echelons.models.usage import read_usage
from echelons.nodes.messages import read_message_usage
from echelons.plans import run_plan_steps
from echelons.run_context import CONTEXT_KEY, RunContext
from echelons.text.content_blocks import describe_content
from echelons.text.error_lines import describe_error
from echelons.tree.agent_registry import AgentKind
from echelons.tree.members import walk_tree
from echelons.tree.names import PATH_SEPARATOR

if TYPE_CHECKING:
    from echelons.runtime.run_events import RunEvent


LOG = logging.getLogger(__name__)


class EventSource(Protocol):
    """The reader of the events of a run."""

    def read(self, after: int | None) -> Sequence[WatchedEvent]:
        """Return the events after a number; those since the root's last task for `None`."""
        ...


class StoredEvents:
    """The events of a thread in its database."""

    def __init__(self, saver: SqliteCheckpointer, thread_id: str) -> None:
        self._saver = saver
        self._thread_id = thread_id

    def read(self, after: int | None) -> Sequence[WatchedEvent]:
        """Return the events after a number, see `EventSource`."""
        stored = self._saver.read_events(self._thread_id, after)
        return [
            WatchedEvent(
                stored_event.number,
                stored_event.agent_path,
                stored_event.event.kind,
                _describe_stored(stored_event),
            )
            for stored_event in stored
        ]


class ObservedEvents:
    """The events of a run whose saver keeps none, as the run is seen.

    Events not read when the run ends are lost.
    """

    def __init__(self) -> None:
        self._events: list[WatchedEvent] = []

    def read(self, after: int | None) -> Sequence[WatchedEvent]:
        """Return the events after a number, see `EventSource`."""
        return self._events[after or 0 :]

    def add(self, event: RunEvent) -> None:
        """Add an event of the run."""
        if event.kind != "token":
            arguments = event.data.get("arguments", "")
            text = shorten_words(f"{event.content} {arguments}".strip())
            self._events.append(WatchedEvent(len(self._events) + 1, event.path, event.kind, text))


class MonitorWatch:
    """The monitors of a tree beside one run."""

    def __init__(self, run: RunScope, monitors: Sequence[PlacedMonitor]) -> None:
        self.run = run
        saver, turn, agent = run.saver, run.turn, run.graph.agent
        self.source: EventSource
        self._observed: ObservedEvents | None = None
        if isinstance(saver, SqliteCheckpointer):
            self.source = StoredEvents(saver, turn.thread_id)
        else:
            self.source = self._observed = ObservedEvents()
        # The saver keeps no events.
        self.needs_events = self._observed is not None
        ledger = get_ledger(saver)
        identity = Identity(
            agent.name, (agent.name,), turn.thread_id, run.graph.fingerprint, turn=turn.id
        )
        scope = GateScope(
            agent,
            identity,
            turn.thread_id,
            ledger,
            None,  # a call of theirs belongs to no task whose writes are stored
            turn,
            RunContext(prices=run.prices),
            None,
            {},
            monotonic,
        )
        # Its guards charge their calls, as they do those of the tree.
        self.gate = OpenGate()
        self.gate.guards = {guard.name: guard for guard in open_guards(scope)}
        self.usage = Usage()
        # Once set, they say nothing more.
        self.is_closed = False
        # Is held while a monitor stores what it says.
        self.lock = Lock()
        self._fault: EchelonsError | None = None
        paths = {placed.path for placed in monitors}
        self._watchers = [_Watcher(self, placed, paths) for placed in monitors]
        try:
            events = self.source.read(None)
            numbers = [event.number for event in events] or [1]
            # All events that are there when a turn begins are of earlier ones.
            cursor = numbers[-1] if self.run.is_new and events else numbers[0] - 1
            for watcher in self._watchers:
                watcher.begin(cursor)
        except (CheckpointTampered, LedgerDamaged) as error:
            # The run does not need what is damaged; it gets a warning instead.
            self._fault = error

    def start(self) -> None:
        """Start their threads."""
        if self._fault:
            self._watchers[0].note_failure(self._fault)
            return
        for watcher in self._watchers:
            name = f"monitor {watcher.path}"
            Thread(target=watcher.run, name=name, daemon=True).start()

    def see(self, event: RunEvent | None) -> None:
        """Let them look for events: a step has ended, or an event of the run was seen."""
        if event and self._observed:
            self._observed.add(event)
        for watcher in self._watchers:
            watcher.wakeup.set()

    def close(self) -> Usage:
        """Let them say nothing more. This waits for what is being stored, and for no model."""
        self.is_closed = True
        with self.lock:
            for watcher in self._watchers:
                watcher.wakeup.set()
            return self.usage

    def add_usage(self, usage: Usage) -> None:
        """Add what one of them has spent."""
        with self.lock:
            if not self.is_closed:
                self.usage += usage


class _Watcher:
    """One monitor at work on its thread."""

    def __init__(
        self, watch: MonitorWatch, placed: PlacedMonitor, monitors: Collection[str]
    ) -> None:
        run, agent = watch.run, watch.run.graph.agent
        self.path = placed.path
        # Is set when there may be something to read, and at the end.
        self.wakeup = Event()
        self._watch = watch
        self._placed = placed
        paths = (place.path_text for place in walk_tree(agent))
        # Agents made at run time are known by their events.
        self._known = {path for path in paths if is_under(path, placed.watched)}
        # What monitors say, none of them reads.
        self._monitors = monitors
        self._ledger = get_ledger(run.saver)
        self._note = run.note
        self._record = MonitorLedger(self._ledger, run.turn, placed, agent.limits, run.prices)
        self._model = BoundModel.from_runnable(placed.model.bind_tools(build_verdict_tools()))
        budget = placed.monitor.budget
        self._own = NO_ALLOWANCE.extend("", budget.amounts, budget)
        self._notes: tuple[str, ...] = ()
        self._unread: list[WatchedEvent] = []
        self._read_up_to = 0
        self._has_failed = False
        self._last = self._ledger.get_time()

    def begin(self, cursor: int) -> None:
        """Go on where it was in the turn, or begin after an event."""
        state = self._record.begin(cursor)
        self._read_up_to = 0 if self._watch.needs_events else state.cursor
        self._notes = state.notes

    def run(self) -> None:
        """Judge the events whenever it is time to, until the run ends or nothing is left to spend.

        No caller could catch its errors, so they are logged.
        """
        try:
            while self._wait():
                if halt := self._try_once():
                    why = halt.reason
                    LOG.warning("monitor %s looks no more in this turn: %s", self.path, why)
                    self._note(self.path, "warning", f"looks no more: {why}")
                    return
        except LeaseLost:
            return  # the run ends by the same
        except Exception as error:  # noqa: BLE001  see above
            # The run ends by a closed database as well.
            if getattr(error, "code", "") != "database_closed" and not self._watch.is_closed:
                self.note_failure(error)

    def _try_once(self) -> Halt | None:
        """Judge the unread events, of which there are some; return why it cannot any more."""
        self._last, self._has_failed = self._ledger.get_time(), True
        try:
            held = self._record.reserve_call()
            if isinstance(held, Halt):
                return held
            # One that is paused looks later.
            if held is None:
                return self._judge(self._unread[:MAX_EVENTS])
        except StorageError as error:
            if error.code == "database_closed":
                raise
            # Another process writes; it reads the events again.
            self.note_failure(error)
        return None

    def _wait(self) -> bool:
        """Wait until it is time to judge the unread events; return whether the run goes on."""
        while not self._watch.is_closed:
            self.wakeup.clear()
            for event in self._watch.source.read(self._read_up_to):
                self._read_up_to = event.number
                if is_under(event.path, self._placed.watched) and event.path not in self._monitors:
                    self._known.add(event.path)
                    self._unread.append(event)
            monitor, now = self._placed.monitor, self._ledger.get_time()
            # The clock may have been set back.
            self._last = min(self._last, now)
            is_late = now - self._last >= timedelta(seconds=monitor.every_seconds)
            is_many = len(self._unread) >= monitor.every_events and not self._has_failed
            if bool(self._unread) and (is_many or is_late):
                return True
            self.wakeup.wait(POLL_INTERVAL)
        return False

    def _judge(self, events: Sequence[WatchedEvent]) -> Halt | None:
        """Judge some events; return why the budget of the turn has nothing left for it."""
        self._watch.add_usage(Usage(model_calls=1))
        messages = [
            SystemMessage(build_system_text(self._placed)),
            HumanMessage(build_segment_text(events, self._notes)),
        ]
        checkpoint_id = self._find_root_checkpoint()
        try:
            reply = self._call_model(messages, checkpoint_id)
        except CallRefused as refused:
            return refused.halt if isinstance(refused.halt, Halt) else None
        except Exception as error:  # noqa: BLE001  code of others; it reads the events again
            self.note_failure(error)
            return None
        if not isinstance(reply, AIMessage):
            self.note_failure(TypeError(f"its model returned a {type(reply).__name__}"))
            return None
        self._watch.add_usage(read_message_usage(reply).model_copy(update={"model_calls": 0}))
        used = read_usage(self._model.description, messages, reply, self._own)
        broken = ({"name": call["name"], "args": call["args"]} for call in reply.invalid_tool_calls)
        verdict = read_verdict([*reply.tool_calls, *broken], self._placed, self._known)
        decisions: list[AlertDecision] = [self._decide(raised) for raised in verdict.alerts]
        after = self._find_root_checkpoint()
        judged = JudgedEvents(events[-1].number, reply, used, after, checkpoint_id)
        with self._watch.lock:
            if self._watch.is_closed:
                self._note_call(used, after)
                return None
            if self._watch.needs_events:
                self._note_call(used, after)
            self._record.store_verdict(judged, verdict, decisions)
            self._note_reply(judged.reply)
            for alert, decision in zip(verdict.alerts, decisions, strict=True):
                data = {"about": alert.path, "decision": decision}
                self._note(alert.monitor, "alert", alert.reason, data=data)
            for text in verdict.reports:
                self._note(self.path, "report", text)
        if verdict.alerts:
            get_signals(self._ledger).notify()
        for fault in verdict.faults:
            LOG.warning("monitor %s: %s", self.path, fault)
        del self._unread[: len(events)]
        self._notes = (*self._notes, *verdict.notes)
        self._has_failed = False
        return None

    def _note_call(self, used: CallUsage, after: str) -> None:
        """Record a call whose reply becomes no event, unless it was charged."""
        gate, config = self._watch.gate, self._build_charged_config(after)
        if get_allowance(config, gate) is None:
            call = NotedCall(used, was_admitted=True)
            for note_call in collect([*gate.guards.values()], "note_call", StepGuard):
                call, record = note_call(call, config, limits_tokens=False)
                if record:
                    self._ledger.commit(record)

    def _call_model(self, messages: Sequence[BaseMessage], after: str) -> Any:
        """Return the reply of its model, charged to the budget of the turn if there is one."""
        watch = self._watch
        around, name = watch.run.config, self.path.rpartition(PATH_SEPARATOR)[2]
        config: RunnableConfig = {
            "callbacks": around.get("callbacks"),
            "tags": around.get("tags") or [],
            "metadata": {"agent": name, "agent_path": self.path},
            "run_name": name,
        }
        account = Account.find(self._build_charged_config(after), watch.gate)
        return run_plan_steps(ask(self._model, messages, config, account))

    def _build_charged_config(self, after: str) -> dict[str, Any]:
        """Return the config of a node that would call its model."""
        place = {
            TASK_ID_KEY: uuid4().hex,
            CONTEXT_KEY: RunContext(turn=self._watch.run.turn),
            "checkpoint_ns": "",
            CHECKPOINT_MAP_KEY: {"": after},
        }
        metadata = {"agent_path": self.path, "agent_thread_id": self._record.thread_id}
        return {"configurable": place, "metadata": metadata}

    def _note_reply(self, reply: AIMessage) -> None:
        self._note(
            self.path,
            "message",
            str(reply.text),
            usage=read_message_usage(reply),
            thread_id=self._record.thread_id,
            data={"model": str(reply.response_metadata.get("model_name", "")), "monitor": True},
        )

    def _decide(self, alert: Alert) -> AlertDecision:
        try:
            return decide_alert(self._placed.on_alert, alert)
        except Exception as error:  # noqa: BLE001  code of others
            self.note_failure(error)
            return "tell"

    def _find_root_checkpoint(self) -> str:
        """Return the root's present checkpoint, after which a fork of its past sees nothing."""
        turn, saver = self._watch.run.turn, self._watch.run.saver
        if checkpoint_id := turn.root.checkpoint_id:
            return checkpoint_id
        # Another saver may only be read in its event loop; then all branches see it.
        with suppress(Exception):
            return LatestCheckpointId(turn.thread_id).get(saver) or ""
        return ""

    def note_failure(self, error: Exception) -> None:
        """Log an error, and tell of it by an event."""
        why = describe_error(error, self._watch.run.graph.failures.redactor)
        LOG.warning("monitor %s: %s", self.path, why)
        self._note(self.path, "error", why)


def _describe_stored(stored: StoredEvent) -> str:
    data = stored.event.data
    match stored.event.kind:
        case "message":
            text = f"{data['role']}: {describe_content(data['content'])}"
        case "tool_call" | "delegation":
            text = f"{data['intent']} {data['arguments']}"
        case "order":
            text = f"{data['order']} {data['path']}"
        case _:
            text = str(data.get("value", data))
    return shorten_words(text)


class MonitorsFeature(Feature):
    """Agents that read what others do, and report or alert, but never act."""

    name = "monitors"
    records: ClassVar[Sequence[Records[Any]]] = (MONITOR,)
    needs_session = True

    def compile(
        self, root: Agent, models: Mapping[str, Any], policies: Mapping[str, DelegationPolicy]
    ) -> tuple[PlacedMonitor, ...]:
        """Return the monitors of a tree with their models."""
        return place_monitors(root, models, policies)

    def list_members(self, made: Sequence[PlacedMonitor]) -> Mapping[str, AgentKind]:
        """Return the monitors, by path."""
        return {placed.path: AgentKind.MONITOR for placed in made}

    def find_members(
        self, open_: Transaction, thread_id: str, turn: str
    ) -> Mapping[str, AgentKind]:
        """Return the monitors of a turn that a session has run, by path."""
        return dict.fromkeys(MONITOR.list_names(open_, thread_id, turn), AgentKind.MONITOR)

    def open(self, run: RunScope, made: Sequence[PlacedMonitor]) -> RunHooks:
        """Return the monitors at work beside a run."""
        return MonitorWatch(run, made)


FEATURE = MonitorsFeature()
