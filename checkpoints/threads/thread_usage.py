"""The usage of the agents of threads, as events and the ledger say, on any saver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple, Protocol, runtime_checkable

from langchain_core.messages import AIMessage
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.constants import START

from echelons.checkpoints.coordination.grants import CHARGE, GRANT, ChargeRecord, GrantRecord
from echelons.checkpoints.coordination.records import Branch, read_latest_branch
from echelons.checkpoints.delta_channels import MESSAGES
from echelons.checkpoints.ledger import Ledger, StoredRecord, Transaction, build_key
from echelons.checkpoints.queries import (
    AllCheckpoints,
    AllThreadIds,
    LatestCheckpointId,
    LedgerQuery,
    ReadPlan,
    Saver,
)
from echelons.checkpoints.storage.event_rows import build_write_events
from echelons.checkpoints.storage.rows import CallRow, build_call_row, load_call_rows
from echelons.checkpoints.thread_events import WriteLocation
from echelons.checkpoints.threads.thread_status import read_thread_status
from echelons.errors import LedgerDamaged, ThreadNotFound
from echelons.guards.budget import load_amounts
from echelons.guards.prices import Prices
from echelons.langgraph_internals import NS_SEP
from echelons.tree.agent_path import AgentPath
from echelons.tree.names import RUN
from echelons.tree.usage_report import GrantedAmount, StoredCall, UsageReport

_RUN_START = f"{NS_SEP}{RUN}:"
_FOREIGN_NODES = (f"{RUN}:", "act:")


@runtime_checkable
class CallLog(Protocol):
    """A saver that keeps the calls of its threads as rows, as `SqliteCheckpointer` does."""

    def read_call_rows(self, thread_id: str | None) -> list[CallRow]:
        """Return the replies of models and the calls of tools of a root's thread, or of all."""
        ...

    async def aread_call_rows(self, thread_id: str | None) -> list[CallRow]:
        """Async version of `read_call_rows`."""
        ...

    def read_root_checkpoints(self, thread_id: str) -> dict[str, str]:
        """Return the root's checkpoint at which each graph just below it ran, by its namespace."""
        ...

    async def aread_root_checkpoints(self, thread_id: str) -> dict[str, str]:
        """Async version of `read_root_checkpoints`."""
        ...


@dataclass(frozen=True, slots=True)
class StoredCalls:
    """Query for the replies of models and the calls of tools of a root's thread, or of all."""

    thread_id: str | None

    def get(self, saver: Saver) -> list[CallRow]:
        """Return the result."""
        if isinstance(saver, CallLog):
            return saver.read_call_rows(self.thread_id)
        return _list_calls(AllCheckpoints(self.thread_id).get(saver))

    async def aget(self, saver: Saver) -> list[CallRow]:
        """Async version of `get`."""
        if isinstance(saver, CallLog):
            return await saver.aread_call_rows(self.thread_id)
        return _list_calls(await AllCheckpoints(self.thread_id).aget(saver))


@dataclass(frozen=True, slots=True)
class RootCheckpoints:
    """Query for the root's checkpoint at which each graph just below it ran, by its namespace."""

    thread_id: str

    def get(self, saver: Saver) -> Mapping[str, str]:
        """Return the result."""
        if isinstance(saver, CallLog):
            return saver.read_root_checkpoints(self.thread_id)
        return _map_root_checkpoints(AllCheckpoints(self.thread_id).get(saver))

    async def aget(self, saver: Saver) -> Mapping[str, str]:
        """Async version of `get`."""
        if isinstance(saver, CallLog):
            return await saver.aread_root_checkpoints(self.thread_id)
        return _map_root_checkpoints(await AllCheckpoints(self.thread_id).aget(saver))


def read_usage(
    thread_id: str | None, prices: Prices | None = None, *, branch: bool = False
) -> ReadPlan[UsageReport]:
    """Return what the agents of a root's thread have used, or those of all threads.

    Args:
        thread_id: The root's thread; all if `None`.
        prices: The costs of the tokens of models.
        branch: Whether only the branch counts on which each thread goes on.

    Raises:
        ThreadNotFound: The thread has never run.
        CheckpointTampered: A row of it is damaged.
        LedgerDamaged: A grant or a charge is damaged.
    """
    rows: list[CallRow] = yield StoredCalls(thread_id)
    threads = dict.fromkeys(row.call.thread_id for row in rows)
    if thread_id is not None:
        if not rows and (yield LatestCheckpointId(thread_id)) is None:
            raise ThreadNotFound(thread_id)
        threads = {thread_id: None}
    else:
        listed: list[str] | None = yield AllThreadIds()
        threads |= dict.fromkeys(listed or ())
    accounts: _Accounts = yield LedgerQuery(
        partial(_read_accounts, threads=[*threads], is_sum=thread_id is None)
    )
    rows = [*_leave_out_passed_on(rows, accounts), *accounts.charges]
    grants = yield from _close_ended(accounts.grants)
    if branch:
        seen, left = list[CallRow](), list[_GrantRow]()
        for id_ in threads:
            sees, sees_root = yield from _read_sight(id_)
            seen += [row for row in rows if row.call.thread_id == id_ and sees(row)]
            left += [row for row in grants if row.amount.thread_id == id_ and sees_root(row.after)]
        rows, grants = seen, left
    amounts = sorted((row.amount for row in grants), key=lambda amount: amount.path)
    return UsageReport([row.call for row in rows], amounts, prices)


def read_open_grants(thread_id: str) -> ReadPlan[list[GrantedAmount]]:
    """Return what was granted in the last turn of a thread and not yet closed, on its branch.

    Raises:
        LedgerDamaged: A grant is damaged.
    """
    prefix = GRANT.key(thread_id, "")
    stored: list[StoredRecord[GrantRecord]] = yield LedgerQuery(
        lambda ledger: ledger.query(lambda open_: open_.list_records(GRANT, prefix))
    )
    opened = [record for record in stored if not record.value.closed]
    listed = [row for record in opened for row in _list_amounts(record, thread_id)]
    rows = [row for row in (yield from _close_ended(listed)) if not row.amount.closed]
    if not rows:
        return []
    branch: Branch = yield from read_latest_branch(thread_id)
    return [row.amount for row in rows if branch.sees(row.after)]


def _close_ended(rows: Sequence[_GrantRow]) -> ReadPlan[list[_GrantRow]]:
    """Return grants, those of turns that are over closed, be that recorded or not yet."""
    running: dict[str, str] = {}
    for thread_id in dict.fromkeys(row.amount.thread_id for row in rows if not row.amount.closed):
        status = yield from read_thread_status(thread_id)
        running[thread_id] = "" if status.finished else status.turn
    return [
        row
        if row.amount.closed or row.amount.turn_id == running[row.amount.thread_id]
        else row._replace(amount=replace(row.amount, closed=True))
        for row in rows
    ]


class _GrantRow(NamedTuple):
    amount: GrantedAmount
    after: str


@dataclass(frozen=True, slots=True)
class _Accounts:
    """The charges and grants of some threads.

    Attributes:
        charges: The charges as calls; `checkpoint_ns` is empty, and the checkpoint is the root's.
        charged_steps: The agents' threads with the steps in which their model calls were charged.
        noted_replies: The agents' threads with the ids of the replies that were noted.
        grants: The grants, by unit.
    """

    charges: list[CallRow]
    charged_steps: frozenset[tuple[str, str, str]]
    noted_replies: frozenset[tuple[str, str]]
    grants: list[_GrantRow]


def _read_accounts(ledger: Ledger, threads: Iterable[str], *, is_sum: bool) -> _Accounts:
    charges, steps, grants = list[CallRow](), set[tuple[str, str, str]](), list[_GrantRow]()
    replies = set[tuple[str, str]]()
    for thread_id in threads:
        stored, granted = ledger.query(partial(_list_records, thread_id=thread_id))
        is_running = bool(stored) and ledger.get_holder(build_key(thread_id)) is not None
        for record in stored:
            charge = record.value
            if is_sum and charge.inner == "here":
                continue  # it counts in its own thread
            if charge.kind == "model":
                steps.add((charge.agent_thread_id, charge.checkpoint_ns, charge.checkpoint_id))
                if charge.reply_id:
                    replies.add((charge.agent_thread_id, charge.reply_id))
            elif charge.state != "lost" and not charge.inner:
                continue  # the calls of tools are counted as they are in the conversation
            call = _build_charged_call(record, thread_id, is_running)
            charges.append(CallRow(call, "", charge.after))
        for grant in granted:
            grants += _list_amounts(grant, thread_id)
    return _Accounts(charges, frozenset(steps), frozenset(replies), grants)


def _list_records(
    open_: Transaction, thread_id: str
) -> tuple[list[StoredRecord[ChargeRecord]], list[StoredRecord[GrantRecord]]]:
    charges = open_.list_records(CHARGE, CHARGE.key(thread_id, ""))
    return charges, open_.list_records(GRANT, GRANT.key(thread_id, ""))


def _build_charged_call(
    record: StoredRecord[ChargeRecord], thread_id: str, is_running: bool
) -> StoredCall:
    charge = record.value
    tokens = charge.input_tokens, charge.output_tokens, charge.cached_tokens
    if min(tokens) < 0 or charge.tokens < 0:
        raise LedgerDamaged(record.key, "its tokens are negative", CHARGE.name)
    # The process that has reserved it is dead, though nothing has been charged since.
    state = "lost" if charge.state == "reserved" and not is_running else charge.state
    try:
        charged = load_amounts({"money": charge.money} if charge.money else {})
    except ValueError as error:
        raise LedgerDamaged(record.key, str(error), CHARGE.name) from error
    return StoredCall(
        charge.kind,
        state,
        thread_id,
        charge.agent_thread_id,
        AgentPath(charge.path),
        record.at,
        charge.model,
        *tokens,
        charged_tokens=max(charge.tokens - charge.input_tokens - charge.output_tokens, 0),
        money=Decimal(charged["money"]) if charged else None,
        currency=charge.currency,
        inherited=charge.inherited and not charge.inner,
    )


def _list_amounts(record: StoredRecord[GrantRecord], thread_id: str) -> Iterator[_GrantRow]:
    grant, prefix = record.value, GRANT.key(thread_id, "")
    turn_id, _, grant_id = record.key.removeprefix(prefix).partition("/")
    try:
        granted, spent, reserved = (
            {unit: Decimal(str(amount)) for unit, amount in load_amounts(amounts).items()}
            for amounts in (grant.granted, grant.spent, grant.reserved)
        )
    except ValueError as error:
        raise LedgerDamaged(record.key, str(error), GRANT.name) from error
    for unit, amount in granted.items():
        yield _GrantRow(
            GrantedAmount(
                AgentPath(grant.path),
                thread_id,
                turn_id,
                grant_id,
                unit,
                amount,
                spent.get(unit, Decimal(0)),
                reserved.get(unit, Decimal(0)),
                grant.closed,
                grant.currency if unit == "money" else "",
            ),
            grant.after,
        )


def _read_sight(
    thread_id: str,
) -> ReadPlan[tuple[Callable[[CallRow], bool], Callable[[str], bool]]]:
    """Return the filters for records of the branch on which a thread goes on.

    The first is for a call, the second for the root's checkpoint after which something was stored.
    """
    branch: Branch = yield from read_latest_branch(thread_id)
    roots: Mapping[str, str] = yield RootCheckpoints(thread_id)

    def sees(row: CallRow) -> bool:
        top = row.checkpoint_ns.partition(NS_SEP)[0]
        # Of a graph whose checkpoints were pruned, no other branch is left.
        return branch.sees(roots.get(top, "") if top else row.checkpoint_id)

    return sees, branch.sees


def _leave_out_passed_on(rows: Iterable[CallRow], accounts: _Accounts) -> list[CallRow]:
    """Return calls without the replies that were charged, or only passed on.

    The answer of a graph, a Runnable or a function is a message of its own. If models have replied
    within, it is the last of their replies once more.
    """
    calls = list(rows)
    passing: set[tuple[str, str]] = set()
    for row in calls:
        if row.call.kind == "model":
            for level in _iterate_run_levels(row.checkpoint_ns):
                passing.add((row.call.thread_id, level))
    return [
        row
        for row in calls
        if row.call.kind == "tool"
        or (
            (row.call.thread_id, row.checkpoint_ns) not in passing
            and (row.call.agent_thread_id, row.checkpoint_ns, row.checkpoint_id)
            not in accounts.charged_steps
            and not (
                (row.call.agent_thread_id, row.reply_id) in accounts.noted_replies
                and _is_foreign(row.checkpoint_ns)
            )
        )
    ]


def _is_foreign(namespace: str) -> bool:
    """Return whether a namespace is within a tool or a subordinate that is no agent."""
    return any(part.startswith(_FOREIGN_NODES) for part in namespace.split(NS_SEP))


def _iterate_run_levels(namespace: str) -> Iterator[str]:
    """Yield the levels without an agent in whose only node a namespace is."""
    end = namespace.find(_RUN_START)
    while end >= 0:
        yield namespace[:end]
        end = namespace.find(_RUN_START, end + 1)


def _list_calls(checkpoints: Iterable[CheckpointTuple]) -> list[CallRow]:
    """Return the calls in the writes of checkpoints, given newest first."""
    counted: set[tuple[str, ...]] = set()
    rows: list[tuple[Any, ...]] = []
    for saved in reversed([*checkpoints]):
        configurable: Mapping[str, Any] = saved.config["configurable"]
        metadata: Mapping[str, Any] = saved.metadata
        location = WriteLocation(
            str(configurable["thread_id"]),
            str(configurable.get("checkpoint_ns", "")),
            str(configurable["checkpoint_id"]),
            str(metadata.get("agent_thread_id", "")),
            str(metadata.get("agent_path", "")),
        )
        if not location.agent_thread_id:
            continue  # of a graph around the tree
        is_input = metadata.get("source") == "input"
        tasks = groupby(saved.pending_writes or (), key=lambda write: write[0])
        for task_id, writes in tasks:
            values = [write[1:] for write in writes]
            # What an input checkpoint starts with is written by this task, and not named by the
            # saver. A level below the root begins with its first node instead.
            path = START if is_input and not _begins_with_reply(location, values) else ""
            for event in build_write_events(location, values, task_id, path):
                key = location.thread_id, location.agent_thread_id, event.kind, event.key
                row = build_call_row(len(rows) + 1, location, saved.checkpoint["ts"], event)
                if row and key not in counted:
                    counted.add(key)
                    rows.append(row)
    return list(load_call_rows(rows))


def _begins_with_reply(location: WriteLocation, writes: Iterable[tuple[str, Any]]) -> bool:
    """Return whether a level below the root writes a reply of its agent before anything else."""
    for channel, value in writes:
        if channel == MESSAGES and location.checkpoint_ns:
            first = value[0] if isinstance(value, (list, tuple)) and value else value
            return isinstance(first, AIMessage) and first.name == location.agent
    return False


def _map_root_checkpoints(checkpoints: Iterable[CheckpointTuple]) -> dict[str, str]:
    roots: dict[str, str] = {}
    for saved in checkpoints:
        namespace = saved.config["configurable"].get("checkpoint_ns", "")
        if namespace and NS_SEP not in namespace:
            roots[namespace] = str((saved.metadata.get("parents") or {}).get("", ""))
    return roots
