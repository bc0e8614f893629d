"""`Feature`: what agents can do or must obey beside the loop, which knows no feature's name.

A feature is bound to each agent when a tree is compiled. The loop collects the hooks that it
overrides, so a hook that is not overridden costs nothing. A hook that may block is a plan, see
`echelons.plans`: it is written once for threads and event loops.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from echelons.plans import Plan

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage, SystemMessage, ToolCall
    from langchain_core.runnables import RunnableConfig

    from echelons.agent import Agent
    from echelons.guards.gate import Gate, Halt, Pause
    from echelons.identity.lineage import Identity
    from echelons.identity.thread_history import Past
    from echelons.nodes.planning.join_results import JoinedState
    from echelons.nodes.planning.reply_handler import ReplyContext

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Place:
    """An agent at its place in a tree, to which features are bound when the tree is compiled.

    Attributes:
        agent: The agent.
        model: Its chat model, or a function that chooses one.
        can_call: Whether its model can call tools.
        reports: Whether its superior is an agent.
    """

    agent: Agent
    model: Any
    can_call: bool
    reports: bool


@dataclass(frozen=True, slots=True)
class AgentStep:
    """One step of an agent: a call of its model, and what follows of the reply.

    Attributes:
        joined: The state of the level.
        past: The segments before it.
        identity: The agent.
        config: The config of the task.
        gate: Admits what the agent does.
        is_async: Whether the step runs in an event loop.
    """

    joined: JoinedState
    past: Past
    identity: Identity
    config: RunnableConfig
    gate: Gate
    is_async: bool

    @property
    def messages(self) -> Sequence[BaseMessage]:
        """The messages of the segment."""
        messages: Sequence[BaseMessage] = self.joined.state["messages"]
        return messages

    def add_messages(self, messages: Sequence[BaseMessage]) -> AgentStep:
        """Return the step with messages that the model reads last; `Outcome` stores them."""
        return replace(self, joined=self.joined.add_messages(messages)) if messages else self


@dataclass(slots=True)
class Outcome:
    """The result of a step.

    Attributes:
        update: The update of the level.
        reply: The reply with its calls; `None` if the model was not called, or was cut off.
        halt: Why a reply must not be acted on, or why the segment ends without one.
        added: The messages that hooks have added to what the model reads, to be stored.
    """

    update: dict[str, Any] = field(default_factory=dict)
    reply: ReplyContext | None = None
    halt: Halt | Pause | None = None
    added: list[BaseMessage] = field(default_factory=list)


class Prompt(NamedTuple):
    """What a model is about to read.

    Attributes:
        system: Its instructions.
        messages: The conversation.
        notes: What the reply keeps of it in its metadata, by the keys of features.
    """

    system: SystemMessage | None
    messages: Sequence[BaseMessage]
    notes: Mapping[str, Any] = {}


class ToolScope(NamedTuple):
    """What a call of a built-in tool may read when it runs.

    Attributes:
        config: The config of the task.
        read_thread: Returns the messages of the agent's thread.
        refusal: The update of a call that must not begin; `None` if it may.
        is_durable: Whether the run is stored, so that it can wait for an answer.
    """

    config: RunnableConfig
    read_thread: Callable[[], Plan[list[BaseMessage]]]
    refusal: Any = None
    is_durable: bool = True


class BuiltIn(ABC):
    """A tool that the library gives an agent."""

    name: ClassVar[str]

    @property
    @abstractmethod
    def schema(self) -> dict[str, Any]:
        """What the model is shown of it."""

    @abstractmethod
    def execute(self, call: ToolCall, scope: ToolScope) -> Plan[dict[str, Any]]:
        """Run a call in `act`, and return the update of the level."""


class AgentHooks:
    """What a feature does at the steps of one agent. A subclass overrides what it needs.

    Attributes:
        tools: The tools that it gives the agent.
    """

    tools: Sequence[BuiltIn] = ()

    def has_news(self, step: AgentStep) -> Plan[bool]:
        """Return whether the model must be called although tools have given the answer."""
        raise NotImplementedError

    def around_step(
        self, step: AgentStep, proceed: Callable[[AgentStep], Plan[Outcome]]
    ) -> Plan[Outcome]:
        """Run around a step: before its model is called, and after its reply was understood.

        What it stores with the task is committed with the update that it returns.
        """
        raise NotImplementedError

    def prepare_prompt(self, prompt: Prompt, step: AgentStep) -> Plan[Prompt]:
        """Return what the model reads at this call; the thread keeps what it has."""
        raise NotImplementedError


class Feature:
    """One thing that agents can do or must obey. A subclass overrides what it needs."""

    name: ClassVar[str]

    def bind(self, place: Place) -> AgentHooks | None:
        """Return what it does at the steps of an agent; `None` for nothing."""
        return None


def collect(hooks: Sequence[Any], method: str, base: type) -> tuple[Callable[..., Any], ...]:
    """Return the methods of the hooks that override one of their base class, outermost first."""
    declared = getattr(base, method)
    return tuple(
        getattr(hook, method) for hook in hooks if getattr(type(hook), method) is not declared
    )


def compose(
    wraps: Sequence[Callable[[S, Callable[[S], Plan[T]]], Plan[T]]],
    innermost: Callable[[S], Plan[T]],
) -> Callable[[S], Plan[T]]:
    """Return wraps around a plan, the first outermost; without wraps, the plan itself."""
    whole = innermost
    for wrap in reversed(wraps):
        whole = partial(_call_wrap, wrap, whole)
    return whole


def _call_wrap(
    wrap: Callable[[S, Callable[[S], Plan[T]]], Plan[T]],
    proceed: Callable[[S], Plan[T]],
    step: S,
) -> Plan[T]:
    return wrap(step, proceed)
