"""Reads of a saver as plans, so that each is written once for sync and async callers.

A plan is a generator that yields queries and is sent their results. `run_plan` runs one
synchronously, `arun_plan` in an event loop. Histories, threads and questions are read by plans.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import methodcaller
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, DeltaChannelHistory

from echelons.checkpoints.ledger import Ledger, get_ledger
from echelons.checkpoints.run_config import get_namespace_depth
from echelons.checkpoints.thread_events import UserAction
from echelons.errors import checkpoint_not_found, invalid_option
from echelons.identity.lineage import Identity
from echelons.langgraph_internals import CHECKPOINT_MAP_KEY
from echelons.plans import adrive_plan, drive_plan
from echelons.text.input_limits import list_items, refuse_unreadable, shorten_repr
from echelons.tree.names import PATH_SEPARATOR

Saver: TypeAlias = BaseCheckpointSaver[Any]
T = TypeVar("T")


class Query(Protocol):
    """One query of a saver."""

    def get(self, saver: Saver) -> Any:
        """Return the result."""
        ...

    async def aget(self, saver: Saver) -> Any:
        """Async version of `get`."""
        ...


ReadPlan: TypeAlias = Generator[Query, Any, T]


@dataclass(frozen=True, slots=True)
class OneCheckpoint:
    """Query for one checkpoint: the latest of its namespace unless an id is given."""

    thread_id: str
    checkpoint_ns: str = ""
    checkpoint_id: str | None = None

    @property
    def config(self) -> RunnableConfig:
        """The config that addresses it."""
        configurable = {"thread_id": self.thread_id, "checkpoint_ns": self.checkpoint_ns}
        if self.checkpoint_id:
            configurable["checkpoint_id"] = self.checkpoint_id
        return {"configurable": configurable}

    def get(self, saver: Saver) -> CheckpointTuple | None:
        """Return the result."""
        return saver.get_tuple(self.config)

    async def aget(self, saver: Saver) -> CheckpointTuple | None:
        """Async version of `get`."""
        return await saver.aget_tuple(self.config)


class LatestIdIndex(Protocol):
    """A saver that can look up the id of its latest checkpoint without loading it."""

    def get_latest_id(self, config: RunnableConfig) -> str | None:
        """Return the id of the latest checkpoint of a namespace."""
        ...

    async def aget_latest_id(self, config: RunnableConfig) -> str | None:
        """Async version of `get_latest_id`."""
        ...


@dataclass(frozen=True, slots=True)
class LatestCheckpointId:
    """Query for the id of the latest checkpoint of a namespace."""

    thread_id: str
    checkpoint_ns: str = ""

    def get(self, saver: Saver) -> str | None:
        """Return the result."""
        latest = OneCheckpoint(self.thread_id, self.checkpoint_ns)
        if index := _find_latest_id_index(saver):
            return index.get_latest_id(latest.config)
        saved = latest.get(saver)
        return saved.config["configurable"]["checkpoint_id"] if saved else None

    async def aget(self, saver: Saver) -> str | None:
        """Async version of `get`."""
        latest = OneCheckpoint(self.thread_id, self.checkpoint_ns)
        if index := _find_latest_id_index(saver):
            return await index.aget_latest_id(latest.config)
        saved = await latest.aget(saver)
        return saved.config["configurable"]["checkpoint_id"] if saved else None


def _find_latest_id_index(saver: Any) -> LatestIdIndex | None:
    # Asked at every delegation: `isinstance` of a protocol would take 36 calls.
    return saver if hasattr(saver, "aget_latest_id") else None


@runtime_checkable
class ParentIndex(Protocol):
    """A saver that can look up the parents of its checkpoints without loading them."""

    def get_parents(self, thread_id: str) -> dict[str, str | None]:
        """Return the parent of each checkpoint of a root, by its id."""
        ...

    async def aget_parents(self, thread_id: str) -> dict[str, str | None]:
        """Async version of `get_parents`."""
        ...


@dataclass(frozen=True, slots=True)
class CheckpointParents:
    """Query for the parent of each checkpoint of a root, by its id; `None` for the first."""

    thread_id: str

    def get(self, saver: Saver) -> Mapping[str, str | None]:
        """Return the result."""
        if isinstance(saver, ParentIndex):
            return saver.get_parents(self.thread_id)
        return _map_parents(AllCheckpoints(self.thread_id, namespace="").get(saver))

    async def aget(self, saver: Saver) -> Mapping[str, str | None]:
        """Async version of `get`."""
        if isinstance(saver, ParentIndex):
            return await saver.aget_parents(self.thread_id)
        return _map_parents(await AllCheckpoints(self.thread_id, namespace="").aget(saver))


@runtime_checkable
class ThreadIdIndex(Protocol):
    """A saver that can list its threads without reading their rows."""

    def list_thread_ids(self) -> list[str]:
        """Return LangGraph's id of every thread."""
        ...

    async def alist_thread_ids(self) -> list[str]:
        """Async version of `list_thread_ids`."""
        ...


@dataclass(frozen=True, slots=True)
class AllThreadIds:
    """Query for the ids of all threads; `None` if the saver cannot list them unread."""

    def get(self, saver: Saver) -> list[str] | None:
        """Return the result."""
        return saver.list_thread_ids() if isinstance(saver, ThreadIdIndex) else None

    async def aget(self, saver: Saver) -> list[str] | None:
        """Async version of `get`."""
        return await saver.alist_thread_ids() if isinstance(saver, ThreadIdIndex) else None


@runtime_checkable
class UserActionLog(Protocol):
    """A saver that keeps what people gave the agents of a thread, as `SqliteCheckpointer` does."""

    def read_user_actions(self, thread_id: str) -> list[UserAction]:
        """Return the answers, approvals and orders under a root's thread, in order."""
        ...

    async def aread_user_actions(self, thread_id: str) -> list[UserAction]:
        """Async version of `read_user_actions`."""
        ...


@dataclass(frozen=True, slots=True)
class UserActions:
    """Query for what people gave the agents of a thread; nothing where the saver keeps none."""

    thread_id: str

    def get(self, saver: Saver) -> list[UserAction]:
        """Return the result."""
        return saver.read_user_actions(self.thread_id) if isinstance(saver, UserActionLog) else []

    async def aget(self, saver: Saver) -> list[UserAction]:
        """Async version of `get`."""
        if isinstance(saver, UserActionLog):
            return await saver.aread_user_actions(self.thread_id)
        return []


@dataclass(frozen=True, slots=True)
class ChannelWrites:
    """Query for the history of some delta channels up to a checkpoint."""

    config: RunnableConfig
    channels: tuple[str, ...]

    def get(self, saver: Saver) -> Mapping[str, DeltaChannelHistory]:
        """Return the result."""
        return saver.get_delta_channel_history(config=self.config, channels=self.channels)

    async def aget(self, saver: Saver) -> Mapping[str, DeltaChannelHistory]:
        """Async version of `get`."""
        return await saver.aget_delta_channel_history(config=self.config, channels=self.channels)


@dataclass(frozen=True, slots=True)
class AllCheckpoints:
    """Query for all checkpoints of a root's thread with the given metadata, newest first.

    With a namespace, only those of that namespace.
    """

    thread_id: str | None
    metadata: Mapping[str, str] = field(default_factory=dict)
    namespace: str | None = None

    @property
    def config(self) -> RunnableConfig | None:
        """The config that addresses them; `None` for all threads."""
        if not self.thread_id:
            return None
        place = {} if self.namespace is None else {"checkpoint_ns": self.namespace}
        return {"configurable": {"thread_id": self.thread_id, **place}}

    def get(self, saver: Saver) -> list[CheckpointTuple]:
        """Return the result."""
        return _sort_newest_first(saver.list(self.config, filter=dict(self.metadata)))

    async def aget(self, saver: Saver) -> list[CheckpointTuple]:
        """Async version of `get`."""
        rows = [row async for row in saver.alist(self.config, filter=dict(self.metadata))]
        return _sort_newest_first(rows)


class AgentThread(NamedTuple):
    """The facts known of an agent's thread without its conversation.

    Attributes:
        path: Path of the agent.
        superior_thread_id: Thread of its superior; empty for a root.
        latest: Its newest checkpoint.
        begun_at: When it began, ISO 8601, UTC; empty if that is not known.
        calls: Whether it may have called subordinates, or been given one.
    """

    path: str
    superior_thread_id: str
    latest: OneCheckpoint
    begun_at: str
    calls: bool


@runtime_checkable
class AgentThreadIndex(Protocol):
    """A saver that knows the threads of the agents under a root without loading them."""

    def read_agent_threads(self, thread_id: str) -> dict[str, AgentThread]:
        """Return the threads under a root's thread, by their ids."""
        ...

    async def aread_agent_threads(self, thread_id: str) -> dict[str, AgentThread]:
        """Async version of `read_agent_threads`."""
        ...


@dataclass(frozen=True, slots=True)
class AgentThreads:
    """Query for the threads of the agents under a root's thread, by their ids."""

    thread_id: str

    def get(self, saver: Saver) -> dict[str, AgentThread]:
        """Return the result."""
        if isinstance(saver, AgentThreadIndex):
            return saver.read_agent_threads(self.thread_id)
        return _index_agent_threads(AllCheckpoints(self.thread_id).get(saver))

    async def aget(self, saver: Saver) -> dict[str, AgentThread]:
        """Async version of `get`."""
        if isinstance(saver, AgentThreadIndex):
            return await saver.aread_agent_threads(self.thread_id)
        return _index_agent_threads(await AllCheckpoints(self.thread_id).aget(saver))


def select_latest(rows: Iterable[tuple[str, OneCheckpoint]]) -> dict[str, OneCheckpoint]:
    """Return the newest checkpoint of each agent's thread.

    A thread's own checkpoints are those of the graph that is highest in the tree: its delegations
    and foreign graphs run below.

    Args:
        rows: Checkpoints, each with the id of the agent's thread that it belongs to.
    """
    latest: dict[str, tuple[tuple[int, str], OneCheckpoint]] = {}
    for thread_id, row in rows:
        rank = -get_namespace_depth(row.checkpoint_ns), row.checkpoint_id or ""
        if thread_id not in latest or rank > latest[thread_id][0]:
            latest[thread_id] = rank, row
    return {thread_id: row for thread_id, (_, row) in latest.items()}


def _index_agent_threads(rows: Iterable[CheckpointTuple]) -> dict[str, AgentThread]:
    """Return the threads to which checkpoints belong, given newest first."""
    places: list[tuple[str, OneCheckpoint]] = []
    identities: dict[str, tuple[Identity, str]] = {}
    for row in rows:
        if identity := Identity.from_metadata(row.metadata):
            configurable = row.config["configurable"]
            at = OneCheckpoint(
                configurable["thread_id"],
                configurable["checkpoint_ns"],
                configurable["checkpoint_id"],
            )
            places.append((identity.thread_id, at))
            identities[identity.thread_id] = identity, row.checkpoint["ts"]
    return {
        thread_id: AgentThread(
            PATH_SEPARATOR.join(identity.path),
            identity.superior_thread_id,
            latest,
            begun_at,
            calls=True,
        )
        for thread_id, latest in select_latest(places).items()
        for identity, begun_at in [identities[thread_id]]
    }


@dataclass(frozen=True, slots=True)
class LedgerQuery:
    """Query that runs a function on the ledger of the saver."""

    work: Callable[[Ledger], Any]

    def get(self, saver: Saver) -> Any:
        """Return the function's result."""
        return self.work(get_ledger(saver))

    async def aget(self, saver: Saver) -> Any:
        """Async version of `get`."""
        ledger = get_ledger(saver)
        return await ledger.arun(lambda: self.work(ledger))


def list_named_checkpoints(configurable: Mapping[str, Any]) -> list[OneCheckpoint]:
    """Return the checkpoints that a run or an update with this `configurable` begins from.

    Raises:
        InvalidInput: Its map of checkpoints is no mapping.
    """
    mapped: Any = configurable.get(CHECKPOINT_MAP_KEY, {})
    checkpoint_id = configurable.get("checkpoint_id")
    if type(mapped) is dict and not mapped and not checkpoint_id:
        return []
    if not isinstance(mapped, Mapping):
        why = "it is no mapping of namespaces to ids of checkpoints; leave it out"
        raise invalid_option("configurable", f"{CHECKPOINT_MAP_KEY}={shorten_repr(mapped)}", why)
    with refuse_unreadable(partial(invalid_option, "configurable", CHECKPOINT_MAP_KEY)):
        named = {str(namespace): checkpoint for namespace, checkpoint in list_items(mapped.items())}
    if checkpoint_id:
        named[str(configurable.get("checkpoint_ns") or "")] = checkpoint_id
    thread_id = str(configurable["thread_id"])
    return [
        OneCheckpoint(thread_id, namespace, checkpoint) for namespace, checkpoint in named.items()
    ]


def check_named_checkpoints(named: Iterable[OneCheckpoint]) -> ReadPlan[None]:
    """Check that checkpoints exist.

    Raises:
        ThreadError: One does not, or is another thread's.
    """
    for checkpoint in named:
        if not isinstance(checkpoint.checkpoint_id, str) or not (yield checkpoint):
            raise checkpoint_not_found(
                checkpoint.checkpoint_id, checkpoint.thread_id, checkpoint.checkpoint_ns
            )


def _map_parents(rows: Iterable[CheckpointTuple]) -> dict[str, str | None]:
    return {
        row.config["configurable"]["checkpoint_id"]: (
            row.parent_config["configurable"]["checkpoint_id"] if row.parent_config else None
        )
        for row in rows
    }


def _sort_newest_first(rows: Iterable[CheckpointTuple]) -> list[CheckpointTuple]:
    # LangGraph's in-memory saver lists one namespace after the other. Ids grow with time.
    return sorted(rows, key=lambda row: row.config["configurable"]["checkpoint_id"], reverse=True)


def run_plan(saver: Saver, plan: ReadPlan[T]) -> T:
    """Run a plan and return its result."""
    return drive_plan(plan, methodcaller("get", saver))


async def arun_plan(saver: Saver, plan: ReadPlan[T]) -> T:
    """Async version of `run_plan`."""
    return await adrive_plan(plan, methodcaller("aget", saver))
