"""What the agents of threads have used, as events and the ledger say, on any saver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol, runtime_checkable

from langgraph.checkpoint.base import CheckpointTuple
from langgraph.constants import START

from echelons.checkpoints.coordination.branches import Branch, read_latest_branch
from echelons.checkpoints.queries import AllCheckpoints, LatestCheckpointId, ReadPlan, Saver
from echelons.checkpoints.storage.event_rows import build_write_events
from echelons.checkpoints.storage.usage_rows import CallRow, build_call_row, load_call_rows
from echelons.checkpoints.thread_events import WriteLocation
from echelons.errors import ThreadNotFound
from echelons.guards.prices import Prices
from echelons.langgraph_internals import NS_SEP
from echelons.tree.names import RUN
from echelons.tree.usage_report import UsageReport

_RUN_START = f"{NS_SEP}{RUN}:"


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
        prices: What the tokens of models cost.
        branch: Whether only the branch counts on which each thread goes on.

    Raises:
        ThreadNotFound: The thread has never run.
        CheckpointTampered: A row of it is damaged.
    """
    rows: list[CallRow] = yield StoredCalls(thread_id)
    if thread_id is not None and not rows and (yield LatestCheckpointId(thread_id)) is None:
        raise ThreadNotFound(thread_id)
    rows = _leave_out_passed_on(rows)
    if branch:
        seen: list[CallRow] = []
        for each in dict.fromkeys(row.call.thread_id for row in rows):
            sees = yield from _read_sight(each)
            seen += [row for row in rows if row.call.thread_id == each and sees(row)]
        rows = seen
    return UsageReport([row.call for row in rows], (), prices)


def _read_sight(thread_id: str) -> ReadPlan[Callable[[CallRow], bool]]:
    """Return what tells whether a call was made on the branch on which a thread goes on."""
    branch: Branch = yield from read_latest_branch(thread_id)
    roots: Mapping[str, str] = yield RootCheckpoints(thread_id)

    def sees(row: CallRow) -> bool:
        top = row.checkpoint_ns.partition(NS_SEP)[0]
        # Of a graph whose checkpoints were pruned, no other branch is left.
        return branch.sees(roots.get(top, "") if top else row.checkpoint_id)

    return sees


def _leave_out_passed_on(rows: Iterable[CallRow]) -> list[CallRow]:
    """Return calls without the replies that a level without an agent has only passed on.

    The answer of a graph, a Runnable or a function is a message of its own. If models have replied
    within, it is the last of their replies once more.
    """
    found = list(rows)
    passing: set[tuple[str, str]] = set()
    for row in found:
        if row.call.kind == "model":
            for level in _iterate_run_levels(row.checkpoint_ns):
                passing.add((row.call.thread_id, level))
    return [
        row
        for row in found
        if row.call.kind == "tool" or (row.call.thread_id, row.checkpoint_ns) not in passing
    ]


def _iterate_run_levels(namespace: str) -> Iterator[str]:
    """Yield the levels without an agent in whose only node a namespace is."""
    end = namespace.find(_RUN_START)
    while end >= 0:
        yield namespace[:end]
        end = namespace.find(_RUN_START, end + 1)


def _list_calls(checkpoints: Iterable[CheckpointTuple]) -> list[CallRow]:
    """Return the calls in the writes of checkpoints, given newest first."""
    known: set[tuple[str, ...]] = set()
    rows: list[tuple[Any, ...]] = []
    for saved in reversed([*checkpoints]):
        given: Mapping[str, Any] = saved.config["configurable"]
        metadata: Mapping[str, Any] = saved.metadata
        location = WriteLocation(
            str(given["thread_id"]),
            str(given.get("checkpoint_ns", "")),
            str(given["checkpoint_id"]),
            str(metadata.get("agent_thread_id", "")),
            str(metadata.get("agent_path", "")),
        )
        if not location.agent_thread_id:
            continue  # of a graph around the tree
        # What an input checkpoint starts with is written by this task, and not named by the saver.
        path = START if metadata.get("source") == "input" else ""
        tasks = groupby(saved.pending_writes or (), key=lambda write: write[0])
        for task_id, writes in tasks:
            own = [write[1:] for write in writes]
            for event in build_write_events(location, own, task_id, path):
                key = location.thread_id, location.agent_thread_id, event.kind, event.key
                row = build_call_row(len(rows) + 1, location, saved.checkpoint["ts"], event)
                if row and key not in known:
                    known.add(key)
                    rows.append(row)
    return list(load_call_rows(rows))


def _map_root_checkpoints(checkpoints: Iterable[CheckpointTuple]) -> dict[str, str]:
    found: dict[str, str] = {}
    for saved in checkpoints:
        namespace = saved.config["configurable"].get("checkpoint_ns", "")
        if namespace and NS_SEP not in namespace:
            found[namespace] = str((saved.metadata.get("parents") or {}).get("", ""))
    return found
