"""A thread's earlier segments, and the protocol by which nodes read them from checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypedDict

from echelons.plans import PlanStep
from echelons.tree.names import PATH_SEPARATOR


class Head(TypedDict, total=False):
    """The end of a thread's latest segment, as kept in the superior's state."""

    agent: str  # the owner of the thread
    # The path from below that agent down to the one for which the thread relays requests; missing
    # if the agent works on them itself.
    way: str
    input: dict[str, Any]  # the latest one, if its contract declares one
    spawned: Mapping[str, Any]  # specification of an agent that was made at run time
    status: str  # of the latest response of such an agent
    side: bool  # a side conversation: only a task that names it goes on with it
    grants: Mapping[str, Any]  # for a request that answers the agent's question
    # Of the notices that its agent reads; missing in a head of an earlier version, until the thread
    # is called again.
    notice_mark: str
    checkpoint_ns: str  # of the segment; missing while the thread has not run
    checkpoint_id: str  # the segment's last one; likewise


def build_head(agent: str, way: str) -> Head:
    """Return the head of a thread that has not run yet."""
    return Head(agent=agent, way=way) if way else Head(agent=agent)


def join_path(names: Iterable[str]) -> str:
    """Return the `way` of a head, from the names below its agent down to the final recipient.

    Examples:
        >>> join_path(["experiences", "restaurants"])
        'experiences/restaurants'
    """
    return PATH_SEPARATOR.join(names)


class Past(NamedTuple):
    """The state that a thread's earlier segments hand to the next one."""

    messages: tuple[Any, ...] = ()  # oldest first
    heads: Mapping[str, Head] = MappingProxyType({})  # by thread id, in order of start
    values: Mapping[str, Any] = MappingProxyType({})  # at the end of the latest of them
    cuts: bool = False  # middleware has cut off the messages before these

    def hide_cut(self, state: Mapping[str, Any]) -> Past:
        """Return it without messages if the state of the segment after it cuts them off."""
        cut = state.get("cut")
        return self._replace(messages=()) if cut and cut.get("past") else self


class CarriedState(NamedTuple):
    """The state with which a foreign graph begins a request, with the messages in it."""

    messages: tuple[Any, ...]


class ThreadHistory(Protocol):
    """Reads earlier segments through the saver that a run has inherited."""

    def is_durable(self, config: Mapping[str, Any]) -> bool:
        """Return whether the run has a saver, its own or an inherited one."""
        ...

    def load_head(self, config: Mapping[str, Any]) -> Head:
        """Return the head of the segment that has just run with `config`."""
        ...

    async def aload_head(self, config: Mapping[str, Any]) -> Head:
        """Async version of `load_head`."""
        ...

    def load_past(self, head: Head | None, config: Mapping[str, Any]) -> Past:
        """Return the combined state of a thread's segments up to `load_head`."""
        ...

    async def aload_past(self, head: Head | None, config: Mapping[str, Any]) -> Past:
        """Async version of `load_past`."""
        ...


def build_head_step(history: ThreadHistory, config: Mapping[str, Any]) -> PlanStep:
    """Return `ThreadHistory.load_head` as a step of a plan."""
    return PlanStep(partial(history.load_head, config), partial(history.aload_head, config))


def build_past_step(
    history: ThreadHistory, head: Head | None, config: Mapping[str, Any]
) -> PlanStep:
    """Return `ThreadHistory.load_past` as a step of a plan."""
    return PlanStep(
        partial(history.load_past, head, config), partial(history.aload_past, head, config)
    )


class GraphHistory(ThreadHistory, Protocol):
    """Reads earlier segments, and hands a foreign graph the state that it had in them."""

    def carry_state(
        self,
        previous: Head | None,
        past: Past,
        channels: Mapping[str, Any],
        config: Mapping[str, Any],
    ) -> CarriedState | None:
        """Give a graph that is about to run with `config` the state of its thread, and return it.

        Returns `None` if it had none, or if it has begun with the request.
        """
        ...

    async def acarry_state(
        self,
        previous: Head | None,
        past: Past,
        channels: Mapping[str, Any],
        config: Mapping[str, Any],
    ) -> CarriedState | None:
        """Async version of `carry_state`."""
        ...
