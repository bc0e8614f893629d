"""`TreeMailboxes`: the mail of a root's thread, read and sent by one run.

What was read is recorded in the transaction that stores the messages with the receiver's thread, so
each is read exactly once: until then, a run that goes on finds it unread. Other savers share no
transaction with the ledger, so there it counts as read right before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from threading import Lock
from typing import Any, ClassVar, Final, NamedTuple
from uuid import uuid5

from langgraph.checkpoint.base import BaseCheckpointSaver

from echelons.checkpoints.coordination.mailbox import (
    LATER,
    MAIL,
    MAIL_READ,
    MAIL_SENT,
    MAILBOX,
    STEERED,
    LaterQuestion,
    Ranges,
    SentCounts,
    StoredMail,
    add_mail,
    check_room,
    iterate_numbers,
    mark_read,
)
from echelons.checkpoints.coordination.orders import ControlOrders, read_orders
from echelons.checkpoints.coordination.records import BranchView, Record, get_root_checkpoint
from echelons.checkpoints.coordination.task_changes import (
    TaskChange,
    commit_changes,
    commit_with_task,
    get_task_changes,
)
from echelons.checkpoints.ledger import Ledger, Transaction, get_ledger
from echelons.checkpoints.queries import LedgerQuery, ReadPlan, arun_plan, run_plan
from echelons.checkpoints.thread_events import WriteLocation, build_later_question_event
from echelons.delegation.mail import MAX_SENT, Mail, Mailboxes, OutgoingMail
from echelons.errors import ControlError, message_refused
from echelons.guards.dismissals import Dismissals, get_dismissals
from echelons.guards.gate import Cut, Halt, StepGuard, get_gate
from echelons.identity.lineage import ECHELONS_NS
from echelons.langgraph_internals import TASK_ID_KEY

_OWNER: Final = "mail"


class SentMail(NamedTuple):
    """A message that an agent has sent."""

    thread_id: str  # LangGraph's id of the thread
    path: str  # path of the agent that reads it
    mail: StoredMail  # the message
    turn: str  # the turn of its sender
    receiver: str  # path of the agent that it is for; empty for a copy

    def store(self, open_: Transaction) -> None:
        """Add it to the mailbox of its receiver."""
        add_mail(open_, self.thread_id, self.path, self.mail)
        if self.receiver:
            MAIL_SENT.change(open_, self._count, self.thread_id, self.mail.sender)

    def _count(self, sent: SentCounts | None) -> SentCounts:
        counts = sent.counts if sent and sent.turn == self.turn else {}
        return SentCounts(self.turn, {**counts, self.receiver: counts.get(self.receiver, 0) + 1})


class TreeMailboxes(Mailboxes, StepGuard):
    """Reads the mailboxes of one run. Safe for any number of threads.

    Attributes:
        has_mail: Whether any agent of the thread was ever sent a message.
        interventions: The number of the latest intervention of each agent that had one.
    """

    name: ClassVar[str] = "mail"

    def __init__(self, saver: BaseCheckpointSaver[Any], thread_id: str) -> None:
        self.has_mail = False
        self._saver = saver
        # Of other savers none: they store no mail with the writes of a task.
        self._task_changes = get_task_changes(saver)
        self._ledger: Ledger = get_ledger(saver)
        self._thread_id = thread_id
        self._lock = Lock()
        self._posting = Lock()
        # An agent may work on several threads at once: each message is delivered to one of them.
        self._readers: dict[tuple[str, int], str] = {}
        # Agents with nothing to read, until the next message.
        self._empty: set[str] = set()
        self._refreshes = 0
        self.interventions: dict[str, int] = {}
        # Interventions that were there when an agent last read its mail on a thread, and those of
        # the replies under way, by the namespaces of their tasks.
        self._known: dict[tuple[str, str], int] = {}
        self._replies: dict[str, tuple[int, Cut, Mapping[str, Any]]] = {}
        self._cuts: dict[str, int] = {}

    def refresh(self, open_: Transaction) -> None:
        """Look for messages again: something was written to the ledger."""
        has_mail = bool(MAILBOX.list_names(open_, self._thread_id))
        latest = STEERED.find_all(open_, self._thread_id) if has_mail else []
        with self._lock:
            self._empty.clear()
            self._refreshes += 1
            self.has_mail = has_mail
            self.interventions = {record.last_part: record.value for record in latest}

    def begin_reply(self, config: Mapping[str, Any], cut: Cut) -> None:
        """Let interventions cut off the reply that the agent of a node's config begins."""
        latest = self._known.get(_get_reader(config), 0) if self._known else 0
        self._replies[config["configurable"]["checkpoint_ns"]] = latest, cut, config
        if self._task_changes and self._task_changes.pending:
            # A run that could not store it may have left something.
            self._task_changes.drop(config["configurable"][TASK_ID_KEY], _OWNER)

    def end_reply(self, config: Mapping[str, Any], *, has_failed: bool) -> None:
        """Note that the reply has ended; if it has failed, others may read it."""
        self._replies.pop(config["configurable"]["checkpoint_ns"], None)
        if has_failed and self._readers:
            path, thread = _get_reader(config)
            with self._lock:
                for key, reader in [*self._readers.items()]:
                    if key[0] == path and reader == thread:
                        del self._readers[key]
                self._empty.discard(path)

    def take_cut(self, namespace: str, path: str) -> Cut | None:
        """Return what cuts a reply off, if an intervention has come in since it began.

        Args:
            namespace: Of the task that calls the model, and no graph within it.
            path: Path of its agent. If it is at work on several threads, one of them reads it.
        """
        # Most agents had none.
        if (latest := self.interventions.get(path)) is None:
            return None
        with self._lock:
            earlier, cut, config = self._replies.get(namespace, (latest, None, {}))
            if cut is None or latest <= earlier:
                return None
            self._replies[namespace] = latest, cut, config
            is_first = latest > self._cuts.get(path, 0)
            self._cuts[path] = latest
            # Another thread may have read it without being cut.
            thread = _get_reader(config)[1]
            is_reader = self._readers.get((path, latest), thread) == thread
        return cut if is_first and is_reader else None

    def read(self, config: Mapping[str, Any]) -> Sequence[Mail]:
        """Return the unread messages of the agent of a node's config, oldest first."""
        return run_plan(self._saver, self._plan_read(config))

    async def aread(self, config: Mapping[str, Any]) -> Sequence[Mail]:
        """Async version of `read`."""
        return await arun_plan(self._saver, self._plan_read(config))

    def note_read(self, mail: Sequence[Mail], config: Mapping[str, Any]) -> None:
        """Let messages count as read once the writes of the node's task are stored."""
        numbers = tuple(message.number for message in mail)
        if numbers:
            after = get_root_checkpoint(config["configurable"])
            where = (self._thread_id, _get_path(config), after)
            change = TaskChange(_OWNER, lambda open_: mark_read(open_, *where, numbers))
            self._commit_with_task([change], config)

    async def anote_read(self, mail: Sequence[Mail], config: Mapping[str, Any]) -> None:
        """Async version of `note_read`."""
        await self._ledger.arun(lambda: self.note_read(mail, config))

    def post(
        self, groups: Sequence[Sequence[OutgoingMail]], config: Mapping[str, Any]
    ) -> list[str]:
        """Send groups of messages once the writes of the node's task are stored.

        Returns:
            Why each group is not sent; empty for one that is.
        """
        turn = str(config["metadata"].get("turn_id", ""))
        dismissals = get_dismissals(get_gate(config))

        def check(open_: Transaction) -> list[str]:
            orders, more = read_orders(open_, self._thread_id, turn), Counter[str]()
            counts = self._count_sent(open_, _get_path(config), turn)
            return [
                _find_overflow(group, counts)
                or self._check_group(open_, group, orders, dismissals, more)
                for group in groups
            ]

        after = get_root_checkpoint(config["configurable"])
        # An agent that is at work on several threads may send from all of them.
        with self._posting:
            errors = self._ledger.query(check)
            now = self._ledger.get_time().isoformat()
            sent = [
                SentMail(
                    self._thread_id,
                    mail.path,
                    StoredMail(mail.sender, mail.text, now, after, mail.kind, mail.to),
                    turn,
                    _get_receiver(mail),
                )
                for group, error in zip(groups, errors, strict=True)
                for mail in group
                if not error
            ]
            changes = [
                TaskChange(_OWNER, message.store, message, concerns_others=True) for message in sent
            ]
            if changes:
                self._commit_with_task(changes, config)
        return errors

    async def apost(
        self, groups: Sequence[Sequence[OutgoingMail]], config: Mapping[str, Any]
    ) -> list[str]:
        """Async version of `post`."""
        return await self._ledger.arun(lambda: self.post(groups, config))

    def _count_sent(self, open_: Transaction, sender: str, turn: str) -> Counter[str]:
        """Return how many messages an agent has sent in a turn, by receiver, also unstored ones."""
        sent = MAIL_SENT.get(open_, self._thread_id, sender)
        counts = Counter(sent.counts if sent and sent.turn == turn else {})
        pending: Sequence[SentMail] = ()
        if self._task_changes:
            pending = self._task_changes.list_subjects(_OWNER)
        place = self._thread_id, sender, turn
        counts.update(
            message.receiver
            for message in pending
            if (message.thread_id, message.mail.sender, message.turn) == place
        )
        return counts

    def _check_group(
        self,
        open_: Transaction,
        group: Sequence[OutgoingMail],
        orders: ControlOrders,
        dismissals: Dismissals,
        more: Counter[str],
    ) -> str:
        """Return why a group of messages cannot be sent; `more` are those before it."""
        for message in group:
            order = orders.find_order(message.path)
            if isinstance(order, Halt):
                return str(message_refused(message.path, order.why))
            dismissal = dismissals.find(message.path)
            if dismissal and not dismissal.graceful:
                return str(dismissal.build_error(message.path))
        try:
            for message in group:
                check_room(open_, self._thread_id, message.path, more[message.path] + 1)
        except ControlError as error:
            return str(error)
        more.update(message.path for message in group)
        return ""

    def _commit_with_task(self, changes: Sequence[TaskChange], config: Mapping[str, Any]) -> None:
        commit_with_task(self._ledger, self._task_changes, changes, config)

    def keep_question(
        self, question: Mapping[str, Any], call_id: str, config: Mapping[str, Any]
    ) -> str:
        """Keep a question of an agent for the user, once for each call, and return its id."""
        configurable, metadata = config["configurable"], config["metadata"]
        task = f"{configurable[TASK_ID_KEY]}/{call_id}"
        question_id = uuid5(ECHELONS_NS, f"later/{task}").hex
        stored = LaterQuestion(
            question={**question},
            path=_get_path(config),
            agent_thread_id=str(metadata.get("agent_thread_id", "")),
            at=self._ledger.get_time().isoformat(),
            after=get_root_checkpoint(configurable),
        )

        place = stored.agent_thread_id, stored.path
        where = WriteLocation(self._thread_id, "", stored.after, *place)
        event = build_later_question_event(question_id, stored.question)

        def keep(open_: Transaction) -> None:
            # A call that was cut short after this is made again.
            if LATER.add(open_, stored, self._thread_id, question_id):
                open_.add_event(where, event)

        commit_changes(self._ledger, [TaskChange(_OWNER, keep)], config)
        return question_id

    def _plan_read(self, config: Mapping[str, Any]) -> ReadPlan[list[Mail]]:
        path, thread = _get_reader(config)
        self._known[path, thread] = self.interventions.get(path, 0)
        if path in self._empty:
            return []
        view = BranchView(self._thread_id, get_root_checkpoint(config["configurable"]))
        refreshes = self._refreshes
        sent, marks = yield LedgerQuery(lambda ledger: ledger.query(self._query_counts(path)))
        seen = yield from view.select(MAIL_READ, marks)
        read = {number for mark in seen for number in iterate_numbers(mark.value)}
        unread = [number for number in range(1, sent + 1) if number not in read]
        messages: list[Record[StoredMail]] = yield LedgerQuery(
            lambda ledger: ledger.query(self._query_mail(path, unread))
        )
        mail = [
            _build_mail(record.last_part, record.value)
            for record in (yield from view.select(MAIL, messages))
        ]
        with self._lock:
            # Not if another of its threads has yet to read, or if a message has come since.
            if not mail and refreshes == self._refreshes:
                self._empty.add(path)
            readers = self._readers
            return [
                message
                for message in mail
                if readers.setdefault((path, message.number), thread) == thread
            ]

    def _query_counts(self, path: str) -> Callable[[Transaction], tuple[int, list[Record[Ranges]]]]:
        def query(open_: Transaction) -> tuple[int, list[Record[Ranges]]]:
            box = MAILBOX.get(open_, self._thread_id, path)
            return (box.sent, MAIL_READ.find_all(open_, self._thread_id, path)) if box else (0, [])

        return query

    def _query_mail(
        self, path: str, numbers: Collection[int]
    ) -> Callable[[Transaction], list[Record[StoredMail]]]:
        def query(open_: Transaction) -> list[Record[StoredMail]]:
            records = (MAIL.find(open_, self._thread_id, path, str(number)) for number in numbers)
            return [record for record in records if record]

        return query


def _get_path(config: Mapping[str, Any]) -> str:
    return str(config["metadata"].get("agent_path", ""))


def _get_reader(config: Mapping[str, Any]) -> tuple[str, str]:
    return _get_path(config), str(config["metadata"].get("agent_thread_id", ""))


def _get_receiver(mail: OutgoingMail) -> str:
    """Return the path of the agent that a message is for; empty for a copy."""
    if mail.kind == "copy":
        return ""
    return mail.to if mail.kind == "held" else mail.path


def _find_overflow(group: Sequence[OutgoingMail], counts: Counter[str]) -> str:
    """Return why a message is one too many; empty, and counted in `known`, if it is not."""
    for receiver in filter(None, map(_get_receiver, group)):
        if counts[receiver] >= MAX_SENT:
            return (
                f"you have sent {receiver} {MAX_SENT} messages in this turn, and no more are "
                "delivered; go on with your own task"
            )
        counts[receiver] += 1
    return ""


def _build_mail(number: str, stored: StoredMail) -> Mail:
    return Mail(int(number), stored.sender, stored.text, stored.at, stored.kind, stored.to)
