"""`TreeGate`: the gate of one run, on the ledger of the run's saver.

`graphs` makes one for each run and puts it into the run's config. Orders, dismissals, and whether
answers were left to the run, are read again only after something has been written; each step is
counted in a transaction of its own, in which that is looked at.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from threading import Lock
from time import monotonic
from typing import Any, NoReturn, Self, TypeVar

from langchain_core.messages import AIMessage
from langgraph.errors import GraphDrained

from echelons.checkpoints.coordination.answer_mark import AnswerMark
from echelons.checkpoints.coordination.branches import get_root_checkpoint
from echelons.checkpoints.coordination.change_signals import get_signals
from echelons.checkpoints.coordination.control_orders import (
    ControlOrders,
    OrderListener,
    read_orders,
)
from echelons.checkpoints.ledger import Fence, Ledger, Transaction
from echelons.checkpoints.thread_events import WriteLocation
from echelons.checkpoints.tree_control.agent_aliases import assign_alias
from echelons.checkpoints.tree_control.dismissal_ledger import (
    DismissalLog,
    commit_dismissal,
    find_dismissal,
)
from echelons.checkpoints.tree_control.tree_budgets import TreeBudgets
from echelons.checkpoints.tree_control.usage_meter import METER, Meter
from echelons.errors import LeaseLost, LedgerDamaged, StorageError
from echelons.guards.backpressure import Backpressure
from echelons.guards.budget import Allowance, GrantRequest, NotedCall, UsageListener
from echelons.guards.dismissals import NO_DISMISSALS, Dismissal, DismissalListener, Dismissals
from echelons.guards.gate import Halt, HeldAttempts, Pause, Step, get_allowance
from echelons.guards.limits import Limits
from echelons.guards.mailboxes import NO_MAILBOXES, Mailboxes
from echelons.identity.lineage import Identity, derive_agent_id
from echelons.langgraph_internals import TASK_ID_KEY
from echelons.run_context import get_context
from echelons.text.error_lines import describe_error
from echelons.tree.name_themes import NameTheme
from echelons.tree.names import PATH_SEPARATOR

LOG = logging.getLogger(__name__)
T = TypeVar("T")


class TreeGate:
    """Lets the agents of one run begin a step, or returns why not. Safe for any number of threads.

    Args:
        root: The root agent's identity.
        thread_id: LangGraph's id of the thread.
        limits: The root's.
        ledger: The ledger of the run's saver.
        fence: The run's lease; once it is lost, no step can begin.
        clock: Tells the time, in seconds from any moment.

    Attributes:
        backpressure: Holds back its steps, `None` if nothing does.
        mailboxes: The mail of its agents; none without a saver.
        signals: Those of the ledger.
        held_attempts: Keeps the attempts whose steps it holds, `None` if it holds none.
        answer_mark: Where answers are left to the run; `None` if nothing delivers them.
        note_orders: Is told the orders of the turn when they are read; `None` if nobody is.
        note_dismissals: Is told the dismissals that it sees, each once; `None` if nobody is.
        note_usage: Is told the model calls of which no reply of a thread tells; `None` if nobody
            is.
        dismissals: The dismissals of the thread that the run sees.
        hidden_dismissals: The keys of those that it does not see, as its branch began before them.
        hidden_messages: The ids of the messages of the thread that no model is shown.
        choose_theme: Returns the names for people that spawned agents get; `None` for none.
        budgets: What its agents may spend.
        allowance: What the root may spend; `None` if nothing limits it.
    """

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
        self.backpressure: Backpressure | None = None
        self.mailboxes: Mailboxes = NO_MAILBOXES
        self.held_attempts: HeldAttempts | None = None
        self.answer_mark: AnswerMark | None = None
        self.note_orders: OrderListener | None = None
        self.note_dismissals: DismissalListener | None = None
        self.note_usage: UsageListener | None = None
        self.dismissals: Dismissals = NO_DISMISSALS
        self.hidden_dismissals: frozenset[str] = frozenset()
        self.hidden_messages: frozenset[str] = frozenset()
        self.choose_theme: Callable[[], NameTheme] | None = None
        self.allowance: Allowance | None = None
        self._ledger = ledger
        self._thread_id = thread_id
        self._root_thread_id = root.thread_id
        self.signals = get_signals(self._ledger)
        self._root = PATH_SEPARATOR.join(root.path)
        self.budgets = TreeBudgets(ledger, thread_id, root.turn, self._root, fence, clock)
        # A tree in a tree counts for itself.
        self._meter = Meter(METER.key(thread_id, root.turn, *root.path[1:]), limits, clock)
        self._turn_id = root.turn
        self._orders = ControlOrders()
        self._dismissal_log = DismissalLog(thread_id)
        self._has_answers = False
        self._deadline: datetime | None = None
        self._fence = fence
        self._seen: tuple[int, int] | None = None
        self._has_ended = False
        self._is_timed = False
        self._lock = Lock()

    def enter(
        self, step: Step, config: Mapping[str, Any], grants: Sequence[GrantRequest] = ()
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
        with self._lock:
            self._has_ended = False
            if step in (Step.APPROVAL, Step.RETURN):
                order = self._read_order(path)
                return order if isinstance(order, Halt) else None
            allowance = get_allowance(config)
            if allowance is not None and "seconds" in allowance.grants:
                self._begin_time()
            work = partial(self._enter_in, step, path, config, allowance, grants)
            return self._commit(work)

    def _enter_in(
        self,
        step: Step,
        path: str,
        config: Mapping[str, Any],
        allowance: Allowance | None,
        grants: Sequence[GrantRequest],
        open_: Transaction,
    ) -> Callable[[], Halt | Pause | None]:
        """Return what returns the order that forbids a step, or has counted it."""
        # In the transaction: nothing that was ordered before it is missed.
        seen = self.signals.generation, open_.foreign_writes
        if seen != self._seen:
            self._note_changes(self._read_changes(open_), seen)
        order = self._find_order(path, step)
        if isinstance(order, Halt) or (order and step is Step.MODEL):
            return lambda: order
        if self._has_answers or (self._deadline and self._is_late()):
            self._hold()
        count = partial(self._meter.count, step=step)
        if step is Step.SUBORDINATE and get_context(config).is_spawned:
            count = partial(self._name_and_count, path=path)
        if allowance is None or not (grants or self.budgets.concerns(step, allowance)):
            return count(open_)
        return self._spend(open_, step, allowance, config, grants, count)

    def _begin_time(self) -> None:
        """Let the seconds of the turn's own budget pass, from its first step in this run on."""
        if not self._is_timed and self.allowance and "seconds" in self.allowance.grants:
            self._is_timed = True
            self.budgets.begin_work((self.budgets.root_grant,))

    def _spend(
        self,
        open_: Transaction,
        step: Step,
        allowance: Allowance,
        config: Mapping[str, Any],
        grants: Sequence[GrantRequest],
        count: Callable[[Transaction], Callable[[], Halt | None]],
    ) -> Callable[[], Halt | None]:
        """Count the step of an agent with a budget, if that is not used up."""
        budgets = self.budgets
        halt = budgets.check(open_, step, allowance, config)
        if halt is None and grants:
            halt = budgets.open_grants(open_, grants, config)
        note = None if halt else count(open_)
        # Last: what is checked adds the seconds that are not stored yet.
        note_time = budgets.note_time(open_)

        def note_commit() -> Halt | None:
            note_time()
            return note() if note else halt

        return note_commit

    def _name_and_count(self, open_: Transaction, path: str) -> Callable[[], Halt | None]:
        """Count the step of a spawned agent, which gets its name for people with its first."""
        if self.choose_theme:
            own, theme = derive_agent_id(self._thread_id, path), self.choose_theme()
            try:
                assign_alias(open_, self._thread_id, own, theme, self._thread_id, path)
            except LedgerDamaged as error:
                # Its work does not depend on it.
                LOG.warning("%s gets no name for people: %s", path, describe_error(error))
        return self._meter.count(open_, Step.SUBORDINATE)

    def check_hold(self) -> None:
        """Hold a step of a foreign graph, which is not counted, if answers are to be delivered.

        Raises:
            GraphDrained: They are.
        """
        with self._lock:
            self._refresh()
            if self._has_answers:
                self._hold()

    def find_dismissal(self, open_: Transaction, config: Mapping[str, Any]) -> Halt | None:
        """Return the dismissal that an agent is under in an open transaction of the ledger."""
        # Without the lock of the gate, whose holder may wait for the transaction: so in this order.
        seen, path = self._seen, _get_agent_path(config)
        if seen == (self.signals.generation, open_.foreign_writes):
            found = self.dismissals.find(path)
        else:
            found = find_dismissal(open_, self._thread_id, path, self.hidden_dismissals)
        return Halt("dismissed", found.why) if found and not found.graceful else None

    def dismiss(self, name: str, config: Mapping[str, Any]) -> Sequence[str]:
        """Dismiss a subordinate of the agent, and all below it, for good."""
        above = _get_agent_path(config)
        path, after = f"{above}{PATH_SEPARATOR}{name}", get_root_checkpoint(config["configurable"])
        where = WriteLocation(self._thread_id, "", after, self._root_thread_id, path)
        new = Dismissal(path, by=above)
        # Not within the lock of the gate, which its listeners take.
        done = commit_dismissal(self._ledger, where, new, self.hidden_dismissals, self._fence)
        return [str(each) for each in done.cut_calls]

    def leave(self, reply: Any, config: Mapping[str, Any]) -> Halt | None:
        """Count the tokens of a reply; return why it must not be acted on, or `None`."""
        path = _get_agent_path(config)
        with self._lock:
            # Before anything is counted: all of this runs again if the ledger is busy.
            order = self._read_order(path)
            usage = reply.usage_metadata if isinstance(reply, AIMessage) else None
            if usage:
                # LangChain's cache adds a cost to what may have no tokens.
                tokens = usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
                self._meter.add_tokens(tokens)
            self._has_ended = path == self._root and not getattr(reply, "tool_calls", None)
            return order if isinstance(order, Halt) else None

    @property
    def limits_tokens(self) -> bool:
        """Whether the tokens of its models are limited."""
        return self._meter.limits_tokens

    def note_call(self, call: NotedCall, config: Mapping[str, Any]) -> None:
        """Count and record a model call that has ended, of which no reply of a thread tells.

        In a transaction of its own: the task that made it may fail, or never end.
        """
        allowance, is_step = get_allowance(config), not call.was_admitted
        if not (self.limits_tokens or allowance):
            call = call._replace(estimated_tokens=0)
        tokens = 0 if call.has_failed or call.has_left else call.tokens
        record = None
        if not (call.was_charged or (call.has_failed and allowance is None)):
            record = self.budgets.plan_charge(call, config)

        def note(open_: Transaction) -> Callable[[], None]:
            if tokens or is_step:
                self._meter.count_ended_call(open_, tokens, is_step=is_step)
            if record:
                record(open_)
            return _do_nothing

        if self.note_usage and not (call.is_reply or call.has_failed):
            self.note_usage(call)
        if record or tokens or is_step:
            with self._lock:
                self._commit(note)

    def get_time(self) -> datetime:
        """Return the time of the ledger's clock, in UTC."""
        return self._ledger.get_time()

    def note_deadline(self, deadline: datetime) -> None:
        """Hold the next step after a question's deadline, so that the run takes its default."""
        with self._lock:
            if self._deadline is None or deadline < self._deadline:
                self._deadline = deadline

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
            if not self._has_ended and self._meter.has_counted:
                self._commit(self._meter.count)
            if self._is_timed:
                self._is_timed = False
                self.budgets.end_work((self.budgets.root_grant,))
                self._commit(self.budgets.note_time)

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
        """Return the order for an agent: a dismissal or stop first, then a pause."""
        if self.dismissals is NO_DISMISSALS:
            return self._orders.find_order(path)
        dismissal = self.dismissals.find(path)
        if dismissal and not dismissal.graceful:
            return Halt("dismissed", dismissal.why)
        order = self._orders.find_order(path)
        if dismissal and step is Step.SUBORDINATE and not isinstance(order, Halt):
            return Halt("dismissed", dismissal.why, finishes=True)
        return order

    def _refresh(self) -> None:
        # The counters first: an order that is written after them is read at the next step.
        seen = self.signals.generation, self._ledger.foreign_writes()
        if seen != self._seen:
            self._note_changes(self._ledger.query(self._read_changes), seen)

    def _read_changes(
        self, open_: Transaction
    ) -> tuple[ControlOrders, Dismissals, Sequence[Dismissal]]:
        self.mailboxes.refresh(open_)
        mark = self.answer_mark
        self._has_answers = mark is not None and mark.is_left_behind(open_)
        orders = read_orders(open_, self._thread_id, self._turn_id)
        return orders, *self._dismissal_log.refresh(open_, self.hidden_dismissals)

    def _note_changes(
        self,
        changes: tuple[ControlOrders, Dismissals, Sequence[Dismissal]],
        seen: tuple[int, int],
    ) -> None:
        self._orders, self.dismissals, new = changes
        self._seen = seen
        if new and self.note_dismissals:
            self.note_dismissals(new)
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


def _do_nothing() -> None:
    pass


def _raise_or_log(error: BaseException | None, lost: Exception) -> None:
    # The error that already ends the run, such as an interrupt or a cancellation, comes first.
    if error is None:
        raise lost
    # Not its traceback, which holds that other error.
    LOG.warning("the limits of a run could not be written down: %s", describe_error(lost))


def _get_agent_path(config: Mapping[str, Any]) -> str:
    return str(config["metadata"].get("agent_path", ""))
