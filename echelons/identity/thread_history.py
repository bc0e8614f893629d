"""A thread's earlier segments, and the protocol by which nodes read them from checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypedDict

from echelons.plans import PlanStep
from echelons.tree.names import PATH_SEPARATOR


class Head(TypedDict, total=False):
    """The end of a thread's latest segment, as kept in the superior's state.

    Attributes:
        agent: The agent that owns the thread.
        way: The path from below that agent down to the one for which the thread relays requests;
            missing if the agent works on them itself.
        input: The latest input that the agent was given, if its contract declares one.
        spawned: The specification of an agent that was made at run time.
        status: The status of the latest response of such an agent; missing before the first.
        side: Whether it is a side conversation, which a task goes on with only if it names it;
            missing if it is not.
        grants: The grants with which a request that answers the agent's question goes on; missing
            if it has none.
        notice_mark: The mark of the notices that its agent reads; missing in a head of an earlier
            version, until the thread is called again.
        checkpoint_ns: Namespace of the segment; missing while the thread has not run.
        checkpoint_id: The segment's last checkpoint; likewise.
    """

    agent: str
    way: str
    input: dict[str, Any]
    spawned: Mapping[str, Any]
    status: str
    side: bool
    grants: Mapping[str, Any]
    notice_mark: str
    checkpoint_ns: str
    checkpoint_id: str


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
    """The state that a thread's earlier segments hand to the next one.

    Attributes:
        messages: Their messages, oldest first.
        heads: The heads of the threads that they started, by thread id, in order of start.
        values: The state with which the latest of them ended, as far as it is stored as a value.
        cuts: Whether a middleware has cut off what was before these messages.
    """

    messages: tuple[Any, ...] = ()
    heads: Mapping[str, Head] = MappingProxyType({})
    values: Mapping[str, Any] = MappingProxyType({})
    cuts: bool = False

    def hide_cut(self, state: Mapping[str, Any]) -> Past:
        """Return it without messages if the state of the segment after it cuts them off."""
        cut = state.get("cut")
        return self._replace(messages=()) if cut and cut.get("past") else self


class CarriedState(NamedTuple):
    """The state with which a foreign graph begins a request, if its thread has one.

    Attributes:
        messages: The messages that it holds already.
    """

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
        """Give a graph that is about to run with `config` the state that it had, and return it.

        Returns `None` if it had none, or if it has begun with the request.

        Args:
            previous: The end of its thread's latest segment.
            past: The state of all its segments.
            channels: Its channels.
            config: The config of the task that runs it.
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
