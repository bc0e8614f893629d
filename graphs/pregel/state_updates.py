"""A graph whose stored state can be updated by hand, with the identity of its agent.

Studio does it, and any caller of `update_state`. LangGraph then runs the edges of a node with
the caller's config only, and stores a checkpoint with the caller's metadata only: the identity
that a run would carry is read from the checkpoint that is updated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from langchain_core.runnables import RunnableConfig, ensure_config
from langchain_core.runnables.config import merge_configs
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.types import StateUpdate

from echelons.checkpoints.delta_channels import with_messages
from echelons.checkpoints.inherited_config import saver_of
from echelons.checkpoints.queries import OneCheckpoint, Plan, Saver, aread, read
from echelons.graphs.pregel.inline_writes import Inline
from echelons.identity.lineage import Identity
from echelons.langgraph_internals import parent_config

Supersteps = Sequence[Sequence[StateUpdate]]


class Editable(Inline):
    """A graph whose `update_state` keeps the agent's identity."""

    def bulk_update_state(self, config: RunnableConfig, supersteps: Supersteps) -> RunnableConfig:
        """Update a stored state, see `CompiledStateGraph.bulk_update_state`.

        Raises:
            InvalidMessages: The `messages` of an update are not messages.
        """
        found = self._edited(config)
        stored = read(found[0], _identity(found[1])) if found else None
        with _in_the_name_of(stored or self._unstored(config), config) as named:
            return super().bulk_update_state(named, _whole(supersteps))

    async def abulk_update_state(
        self, config: RunnableConfig, supersteps: Supersteps
    ) -> RunnableConfig:
        """Async version of `bulk_update_state`."""
        found = self._edited(config)
        stored = await aread(found[0], _identity(found[1])) if found else None
        with _in_the_name_of(stored or self._unstored(config), config) as named:
            return await super().abulk_update_state(named, _whole(supersteps))

    def around(self, config: RunnableConfig | None) -> RunnableConfig:
        """Return a call's config, merged with the graph's own and the one around the call."""
        return ensure_config(merge_configs(self.config, config))

    def _unstored(self, config: RunnableConfig) -> Identity | None:
        """Return the identity of the state where nothing is stored yet."""
        return None

    def _edited(self, config: RunnableConfig) -> tuple[Saver, OneCheckpoint] | None:
        given = self.around(config)["configurable"]
        saver = saver_of(given) or self.checkpointer
        if not isinstance(saver, BaseCheckpointSaver) or given.get("thread_id") is None:
            return None
        namespace = str(given.get("checkpoint_ns") or "")
        return saver, OneCheckpoint(
            str(given["thread_id"]), namespace, given.get("checkpoint_id") or None
        )


def _whole(supersteps: Supersteps) -> Supersteps:
    return [
        [update._replace(values=with_messages(update.values)) for update in step]
        for step in supersteps
    ]


def _identity(place: OneCheckpoint) -> Plan[Identity | None]:
    saved = yield place
    return Identity.read(saved.metadata) if saved else None


@contextmanager
def _in_the_name_of(identity: Identity | None, config: RunnableConfig) -> Iterator[RunnableConfig]:
    own = identity.metadata() if identity else {}
    # LangGraph drops a config's metadata after the first of several steps; the config around
    # the call reaches them all.
    token = parent_config.set(_with(own, parent_config.get() or {}))
    try:
        yield _with(own, config)
    finally:
        parent_config.reset(token)


def _with(own: dict[str, str], config: RunnableConfig) -> RunnableConfig:
    return {**config, "metadata": {**(config.get("metadata") or {}), **own}}
