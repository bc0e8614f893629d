"""`AsyncMethods`: a saver's asynchronous methods, each of which runs its synchronous version."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)

from echelons.errors import StorageError

T = TypeVar("T")


class WorkRunner(Protocol):
    """How a saver's synchronous work is run from an event loop."""

    async def __call__(self, work: Callable[..., T], /, *args: Any) -> T:
        """Run the work, and return its result."""
        ...


class AsyncMethods(BaseCheckpointSaver[str]):
    """A saver whose asynchronous methods run its synchronous ones."""

    _run: WorkRunner

    @abstractmethod
    def _record_failure(self, config: RunnableConfig, failure: StorageError) -> None:
        """Record the failure of a write in its turn."""

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Async version of `get_tuple`."""
        return await self._run(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Async version of `list`."""
        rows = await self._run(
            lambda: [*self.list(config, filter=filter, before=before, limit=limit)]
        )
        for saved in rows:
            yield saved

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Async version of `put`."""
        try:
            return await self._run(self.put, config, checkpoint, metadata, new_versions)
        except StorageError as failure:
            self._record_failure(config, failure)
            raise

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Async version of `put_writes`."""
        try:
            await self._run(self.put_writes, config, writes, task_id, task_path)
        except StorageError as failure:
            self._record_failure(config, failure)
            raise

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Async version of `get_delta_channel_history`."""
        return await self._run(
            lambda: self.get_delta_channel_history(config=config, channels=channels)
        )
