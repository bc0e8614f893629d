"""`TreeGate`: the gate of one run, with the meter of its turn, on the ledger of the run's saver."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from threading import Lock
from time import monotonic
from typing import Any, Final, NoReturn, Self, TypeVar

from langchain_core.messages import AIMessage
from langgraph.errors import GraphDrained
from pydantic import FiniteFloat

from echelons.checkpoints.coordination.orders import (
    ControlOrders,
    OrderListener,
    get_signals,
    read_orders,
)
from echelons.checkpoints.coordination.records import Records
from echelons.checkpoints.coordination.turns import AnswerMark
from echelons.checkpoints.ledger import Fence, Ledger, Transaction
from echelons.errors import LeaseLost, StorageError
from echelons.guards.gate import (
    Backpressure,
    CallUsage,
    Cut,
    Halt,
    HeldAttempts,
    InnerRow,
    NotedCall,
    OuterStep,
    Pause,
    Step,
    StepGuard,
    UsageListener,
)
from echelons.guards.limits import Limits
from echelons.identity.lineage import Identity
from echelons.langgraph_internals import TASK_ID_KEY
from echelons.text.error_lines import describe_error
from echelons.tree.names import PATH_SEPARATOR

LOG = logging.getLogger(__name__)
T = TypeVar("T")
_HOOKS: Final = (
    *("refresh", "find_order", "read_order", "take_cut", "concerns"),
    *("admit_inner", "note_call", "close"),
)
"""The methods of guards that are called if they are overridden; `admit` goes with `concerns`."""


@dataclass(frozen=True, slots=True)
class TurnUsage:
    """The amounts that a turn has spent."""

    steps: int = 0  # model calls, tool calls and runs of subordinates
    calls: int = 0  # model calls
    tokens: int = 0  # tokens that models reported
    seconds: FiniteFloat = 0.0  # time that it has been running


METER: Final = Records[TurnUsage]("meter", TurnUsage, raw=sys.maxsize)
"""The counts of a turn, by its id and the path of the agent at the root of its tree."""


class Meter:
    """Counts for one run. Not safe for several threads at once: the gate's lock guards it."""

    def __init__(self, name: str, limits: Limits, clock: Callable[[], float] = monotonic) -> None:
        # Whether it has counted a step.
        self.has_counted = False
        self._name = name
        self._limits = limits
        self._clock = clock
        self._tokens = 0
        self._since = clock()

    def add_tokens(self, tokens: int) -> None:
        """Count the tokens of a reply, which are stored with the next step."""
        self._tokens += tokens

    @property
    def limits_tokens(self) -> bool:
        """Whether there is a limit of tokens."""
        return self._limits.tokens is not None

    def count_ended_call(self, open_: Transaction, tokens: int, *, is_step: bool) -> None:
        """Count a model call that has ended, whatever limit that reaches."""
        record = open_.get_record(METER, self._name)
        before = record.value if record else TurnUsage()
        spent = TurnUsage(
            before.steps + is_step, before.calls + is_step, before.tokens + tokens, before.seconds
        )
        open_.set_read(self._name, record.version if record else None, METER.encode(spent))

    def count(self, open_: Transaction, step: Step | None = None) -> Callable[[], Halt | None]:
        """Count a step, or the end of a run, with the tokens and seconds since the last step.

        The transaction may be rolled back, so nothing changes here before its commit. The caller
        then calls the result, which returns the limit that is reached, if one is.
        """
        record = open_.get_record(METER, self._name)
        before = record.value if record else TurnUsage()
        tokens, now = self._tokens, self._clock()
        spent = TurnUsage(
            before.steps + (step is not None),
            before.calls + (step is Step.MODEL),
            before.tokens + tokens,
            before.seconds + now - self._since,
        )
        if step and (reached := self._find_reached_limit(spent, step)):
            return lambda: reached
        open_.set_read(self._name, record.version if record else None, METER.encode(spent))

        def note_commit() -> None:
            self.has_counted = True
            self._tokens -= tokens
            self._since = now

        return note_commit

    def find_left(self, open_: Transaction) -> list[tuple[str, int | float]]:
        """Return what is left of each limit."""
        record = open_.get_record(METER, self._name)
        spent = record.value if record else TurnUsage()
        passed = self._clock() - self._since
        left = [
            ("steps", self._limits.steps, spent.steps),
            ("calls", self._limits.calls, spent.calls),
            ("tokens", self._limits.tokens, spent.tokens + self._tokens),
            ("seconds", self._limits.seconds, spent.seconds + passed),
        ]
        return [(unit, max(limit - used, 0)) for unit, limit, used in left if limit is not None]

    def _find_reached_limit(self, spent: TurnUsage, step: Step) -> Halt | None:
        limits = self._limits
        if spent.steps > limits.steps:
            return _make_halt(limits.steps, limits.steps, "steps")
        if step is Step.MODEL and limits.calls is not None and spent.calls > limits.calls:
            return _make_halt(limits.calls, limits.calls, "model calls")
        if limits.tokens is not None and spent.tokens >= limits.tokens:
            return _make_halt(spent.tokens, limits.tokens, "tokens")
        if limits.seconds is not None and spent.seconds >= limits.seconds:
            return _make_halt(spent.seconds, limits.seconds, "seconds")
        return None


def _make_halt(spent: float, limit: float, what: str) -> Halt:
    return Halt("limit", f"{spent:.10g} of {limit:.10g} {what}")


class TreeGate:
    """Lets the agents of one run begin a step, or returns why not. Safe for many threads."""

    def __init__(
        self,
        root: Identity,
        thread_id: str,
        limits: Limits,
        ledger: Ledger,
        fence: Fence | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        # The ledger's own: a step of every agent calls it.
        self.arun = ledger.arun
        # Holds back steps; `None` if nothing does.
        self.backpressure: Backpressure | None = None
        # The attempts whose steps it holds; `None` if it holds none.
        self.held_attempts: HeldAttempts | None = None
        # Where answers are left to the run; `None` if nothing delivers them.
        self.answer_mark: AnswerMark | None = None
        # Gets the orders of the turn when they are read.
        self.note_orders: OrderListener | None = None
        # Gets the model calls that no reply of a thread shows.
        self.note_usage: UsageListener | None = None
        # Ids of messages of the thread that no model is shown.
        self.hidden_messages: frozenset[str] = frozenset()
        # The step that its tree is run in; `None` outside of another tree.
        self.outer: OuterStep | None = None
        # By the names of their features.
        self.guards: Mapping[str, Any] = {}
        self._ledger = ledger
        self._thread_id = thread_id
        self.signals = get_signals(self._ledger)
        self._root = PATH_SEPARATOR.join(root.path)
        # A tree in a tree counts for itself.
        self._meter = Meter(METER.key(thread_id, root.turn, *root.path[1:]), limits, clock)
        self._turn_id = root.turn
        self._orders = ControlOrders()
        self._has_answers = False
        self._deadline: datetime | None = None
        # Once the lease is lost, no step can begin.
        self._fence = fence
        self._seen: tuple[int, int] | None = None
        self._has_ended = False
        self._is_closed = False
        self._overriding: dict[str, Sequence[StepGuard]] = dict.fromkeys(_HOOKS, ())
        self._lock = Lock()

    def add_guards(self, guards: Sequence[StepGuard]) -> None:
        """Let features decide, in their order; before the first step."""
        self.guards = {guard.name: guard for guard in guards}
        for hook in _HOOKS:
            declared = getattr(StepGuard, hook)
            self._overriding[hook] = [
                guard for guard in guards if getattr(type(guard), hook) is not declared
            ]

    def enter(
        self, step: Step, config: Mapping[str, Any], claims: Sequence[Any] = ()
    ) -> Halt | Pause | None:
        """Return why a step must not begin; else count it, and return `None`.

        Raises:
            GraphDrained: The run was left, or has answers to deliver: the step stays undone until
                it is resumed.
        """
        held = self.backpressure
        if held and not held.wait_for_start(config["configurable"][TASK_ID_KEY]):
            raise GraphDrained("closed")
        path = _get_agent_path(config)
        if self.outer and step not in (Step.PERMISSION, Step.RETURN):
            with self._lock:
                order = self._read_order(path)
            if isinstance(order, Halt) or (order and step is Step.MODEL):
                return order
            # Before its own count, with which a request has what it claims.
            if halt := self.outer.admit(step, config):
                return halt
        with self._lock:
            self._has_ended = False
            if step in (Step.PERMISSION, Step.RETURN):
                order = self._read_order(path)
                return order if isinstance(order, Halt) else None
            guards = [
                guard
                for guard in self._overriding["concerns"]
                if guard.concerns(step, config, claims)
            ]
            return self._commit(partial(self._enter_in, step, config, guards, claims))

    def _enter_in(
        self,
        step: Step,
        config: Mapping[str, Any],
        guards: Sequence[StepGuard],
        claims: Sequence[Any],
        open_: Transaction,
    ) -> Callable[[], Halt | Pause | None]:
        """Return what returns the order that forbids a step, or has counted it."""
        # In the transaction: nothing that was ordered before it is missed.
        seen = self.signals.generation, open_.foreign_writes
        if seen != self._seen:
            self._note_changes(self._read_changes(open_), seen)
        order = self._find_order(_get_agent_path(config), step)
        if isinstance(order, Halt) or (order and step is Step.MODEL):
            return lambda: order
        if self._has_answers or (self._deadline and self._is_late()):
            self._hold()
        halts = (guard.admit(open_, step, config, claims) for guard in guards)
        halt = next(filter(None, halts), None)
        note = None if halt else self._meter.count(open_, step)
        if note and not guards:
            return note
        # Last: what is decided reads what is not stored yet.
        ends = [guard.finish(open_) for guard in guards]

        def note_commit() -> Halt | None:
            for end in filter(None, ends):
                end()
            return note() if note else halt

        return note_commit

    def check_hold(self) -> None:
        """Hold a step of a foreign graph, which is not counted, if answers are to be delivered.

        Raises:
            GraphDrained: They are.
        """
        with self._lock:
            self._refresh()
            if self._has_answers:
                self._hold()

    def read_order(self, open_: Transaction, config: Mapping[str, Any]) -> Halt | None:
        """Return the order of a guard that an agent is under in an open transaction."""
        # Without the lock of the gate, whose holder may wait for the transaction: so in this order.
        seen, path = self._seen, _get_agent_path(config)
        is_fresh = seen == (self.signals.generation, open_.foreign_writes)
        orders = (
            guard.read_order(open_, path, is_fresh=is_fresh)
            for guard in self._overriding["read_order"]
        )
        return next(filter(None, orders), None)

    def leave(self, reply: Any, config: Mapping[str, Any]) -> Halt | None:
        """Count the tokens of a reply; return why it must not be acted on, or `None`."""
        path, tokens, halt = _get_agent_path(config), 0, None
        with self._lock:
            # Before anything is counted: all of this runs again if the ledger is busy.
            order = self._read_order(path)
            usage = reply.usage_metadata if isinstance(reply, AIMessage) else None
            if usage:
                # LangChain's cache adds a cost to what may have no tokens.
                tokens = usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
            if self.outer:
                halt = self.outer.count(_build_left_call(reply), config)
            if tokens:
                self._meter.add_tokens(tokens)
            self._has_ended = path == self._root and not getattr(reply, "tool_calls", None)
            return order if isinstance(order, Halt) else halt

    def admit_inner(self, step: Step, config: Mapping[str, Any], rows: InnerRow) -> Halt | None:
        """Count a step of a tree that a step of an agent runs, or return what forbids it."""
        if self._is_closed:
            return self._find_last_halt(config)
        if self.outer and (halt := self.outer.admit(step, config)):
            return halt

        def admit(open_: Transaction) -> Callable[[], Halt | None]:
            guards = self._overriding["admit_inner"] if rows else ()
            halts = (guard.admit_inner(open_, step, config, rows) for guard in guards)
            halt = next(filter(None, halts), None)
            return (lambda: halt) if halt else self._meter.count(open_, step)

        with self._lock:
            self._has_ended = False
            order = self._read_order(_get_agent_path(config))
            return order if isinstance(order, Halt) else self._commit(admit)

    def count_inner(
        self, call: NotedCall, config: Mapping[str, Any], *, is_step: bool = False
    ) -> Halt | None:
        """Count a model call of such a tree that has ended; return why it is not acted on."""
        if self._is_closed:
            return self._find_last_halt(config)
        if self.outer:
            self.outer.count(call, config, is_step=is_step)
        if self.note_usage and call.inner and not call.has_failed:
            self.note_usage(call)
        with self._lock:
            self._record_call(call, config, is_step=is_step)
            order = self._read_order(_get_agent_path(config))
            return order if isinstance(order, Halt) else None

    def find_left(self) -> Mapping[str, int | float]:
        """Return what is left of the limits, by their names, for a tree in another process."""
        outer = self.outer.gate.find_left() if self.outer else {}
        with self._lock:
            left = self._ledger.query(self._meter.find_left)
        return {**outer, **{unit: min(amount, outer.get(unit, amount)) for unit, amount in left}}

    def _find_last_halt(self, config: Mapping[str, Any]) -> Halt | None:
        """Return the order that an agent was under when the run ended."""
        # Work that outlives its tool goes on by itself, unless it was stopped.
        with self._lock:
            order = self._find_order(_get_agent_path(config))
        return order if isinstance(order, Halt) else None

    @property
    def limits_tokens(self) -> bool:
        """Whether the tokens of its models are limited."""
        outer = self.outer
        return self._meter.limits_tokens or bool(outer and outer.gate.limits_tokens)

    def note_call(self, call: NotedCall, config: Mapping[str, Any]) -> None:
        """Count and record a model call that has ended, which no reply of a thread reports.

        In a transaction of its own: the task that made it may fail, or never end.
        """
        is_step = not call.was_admitted
        if self.note_usage and not (call.is_reply or call.has_failed):
            self.note_usage(call)
        with self._lock:
            self._record_call(call, config, is_step=is_step)
        if self.outer:
            self.outer.count(call, config, is_step=is_step)

    def _record_call(self, call: NotedCall, config: Mapping[str, Any], *, is_step: bool) -> None:
        """Count and record a model call that has ended."""
        records = []
        for guard in self._overriding["note_call"]:
            call, record = guard.note_call(call, config, limits_tokens=self.limits_tokens)
            if record:
                records.append(record)
        tokens = 0 if call.has_failed or call.has_left else call.tokens

        def note(open_: Transaction) -> Callable[[], None]:
            if tokens or is_step:
                self._meter.count_ended_call(open_, tokens, is_step=is_step)
            for record in records:
                record(open_)
            return lambda: None

        if records or tokens or is_step:
            self._commit(note)

    def get_time(self) -> datetime:
        """Return the time of the ledger's clock, in UTC."""
        return self._ledger.get_time()

    def note_deadline(self, deadline: datetime) -> None:
        """Hold the next step after a question's deadline, so that the run takes its default."""
        with self._lock:
            if self._deadline is None or deadline < self._deadline:
                self._deadline = deadline

    def list_cutters(self) -> list[Callable[[str, str], Cut | None]]:
        """Return what may cut off replies at a token, see `StepGuard.take_cut`."""
        return [guard.take_cut for guard in self._overriding["take_cut"]]

    def find_halt(self, config: Mapping[str, Any]) -> Halt | None:
        """Return the order that ends the agent, by what was read last."""
        order = self._find_order(_get_agent_path(config))
        return order if isinstance(order, Halt) else None

    def listen(
        self, config: Mapping[str, Any], callback: Callable[[Halt], None]
    ) -> Callable[[], None]:
        """Call a function, from any thread, if the agent is stopped while it runs."""
        path = _get_agent_path(config)

        def check_order() -> None:
            with self._lock:
                order = self._read_order(path)
            if isinstance(order, Halt):
                callback(order)

        remove = self.signals.listen(check_order)
        self.signals.start_polling(self._ledger)
        return remove

    def close(self) -> None:
        """Store the tokens and seconds since the last step, unless the turn has ended.

        Raises:
            StorageError, LeaseLost: These tokens and seconds are then missing from the counts.
        """
        with self._lock:
            self._is_closed = True
            if not self._has_ended and self._meter.has_counted:
                self._commit(self._meter.count)
            for guard in self._overriding["close"]:
                if work := guard.close():
                    self._commit(work)

    async def aclose(self) -> None:
        """Async version of `close`."""
        await self._ledger.arun(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.close()
        except (StorageError, LeaseLost) as lost:
            _raise_or_log(error, lost)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            await self.aclose()
        except (StorageError, LeaseLost) as lost:
            _raise_or_log(error, lost)

    def _commit(self, work: Callable[[Transaction], Callable[[], T]]) -> T:
        def fenced(open_: Transaction) -> Callable[[], T]:
            if self._fence:
                open_.require_lease(self._fence)
            return work(open_)

        return self._ledger.commit(fenced)()

    def look(self) -> None:
        """Look for new orders and messages between two steps."""
        with self._lock:
            self._refresh()

    def _read_order(self, path: str) -> Halt | Pause | None:
        self._refresh()
        return self._find_order(path)

    def _find_order(self, path: str, step: Step | None = None) -> Halt | Pause | None:
        """Return the order for an agent: one that ends it at once first, a pause last."""
        orders = self._orders
        # Asked at each token: most turns have no orders.
        order = orders.find_order(path) if orders.stopped or orders.paused else None
        for guard in self._overriding["find_order"]:
            halt = guard.find_order(path, step)
            if halt and not (halt.finishes and isinstance(order, Halt)):
                order = halt
        return order

    def _refresh(self) -> None:
        # The counters first: an order that is written after them is read at the next step.
        seen = self.signals.generation, self._ledger.foreign_writes()
        if seen != self._seen:
            self._note_changes(self._ledger.query(self._read_changes), seen)

    def _read_changes(self, open_: Transaction) -> tuple[ControlOrders, list[Callable[[], object]]]:
        """Return the orders, and the calls that notify listeners of what guards have read."""
        mark = self.answer_mark
        self._has_answers = mark is not None and mark.is_left_behind(open_)
        orders = read_orders(open_, self._thread_id, self._turn_id)
        calls = [guard.refresh(open_) for guard in self._overriding["refresh"]]
        return orders, [call for call in calls if call]

    def _note_changes(
        self, changes: tuple[ControlOrders, list[Callable[[], object]]], seen: tuple[int, int]
    ) -> None:
        self._orders, calls = changes
        self._seen = seen
        for call in calls:
            call()
        if self._orders.given and self.note_orders:
            self.note_orders(self._orders.given)

    def _is_late(self) -> bool:
        """Return whether a question's deadline has passed that the run can act on."""
        assert self._deadline is not None  # noqa: S101  its caller has looked
        if self.answer_mark is None or self.get_time() < self._deadline:
            return False
        # Questions that still wait are asked again when the run goes on, with their deadlines.
        self._deadline = None
        return True

    def _hold(self) -> NoReturn:
        """Hold a step until the run has delivered the answers that were left to it.

        LangGraph lets the steps beside it end, and stores them.
        """
        assert self.answer_mark is not None  # noqa: S101  it has said that there are answers
        self.answer_mark.has_held = True
        raise GraphDrained("answered")


def _raise_or_log(error: BaseException | None, lost: Exception) -> None:
    # The error that already ends the run, such as an interrupt or a cancellation, comes first.
    if error is None:
        raise lost
    # Not its traceback, which holds that other error.
    LOG.warning("the limits of a run could not be written down: %s", describe_error(lost))


def _build_left_call(reply: Any) -> NotedCall:
    """Return the call of an agent's own step, for the step around its tree."""
    is_message = isinstance(reply, AIMessage)
    usage = reply.usage_metadata if is_message else None
    name = str(reply.response_metadata.get("model_name", "")) if is_message else ""
    # LangChain's cache gives a reply a cost alone.
    used = CallUsage(name, {**usage} if usage and "input_tokens" in usage else None)
    return NotedCall(used, was_admitted=True)


def _get_agent_path(config: Mapping[str, Any]) -> str:
    return str(config["metadata"].get("agent_path", ""))
