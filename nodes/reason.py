"""``reason``: one turn of thinking. Calls the model once and sorts out what it asked for.

Entered at the start of a segment and after every round of calls. What it writes holds all
that the level does next: the reply, the answers to calls that need no work, and the
threads of the calls that do, so that each thread's id is stored before it runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Protocol

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, message_chunk_to_message
from langchain_core.runnables import Runnable, RunnableConfig

from echelons.forwarding import Forward
from echelons.gate import Halt, Step, gate_of
from echelons.history import Head, History, Past
from echelons.lineage import (
    ROUTES_KEY,
    THREADS_KEY,
    Identity,
    message_id,
    subordinate_thread_id,
)
from echelons.nodes.calls import Abilities, Delegation, Sorted, close, number, sort
from echelons.nodes.finding import routed, unanswerable, unnamed
from echelons.nodes.forwarding import CALL_ID, call_of, passed_up
from echelons.nodes.halting import cut_short, ended
from echelons.nodes.identity import identity_of
from echelons.nodes.mending import mended
from echelons.nodes.shell import Decided, Shell
from echelons.routing import Route


class Finder(Protocol):
    """Finds who takes a task that names nobody."""

    def route(self, task: str, receiver: str, *, without: Collection[str]) -> Route:
        """Rank everybody below a receiver."""
        ...

    async def aroute(self, task: str, receiver: str, *, without: Collection[str]) -> Route:
        """Do the same in an event loop."""
        ...


@dataclass(frozen=True, slots=True)
class Mind:
    """What an agent thinks with.

    Attributes:
        model: The chat model with the agent's tools bound.
        prompt: Its instructions; empty for none.
        abilities: What it may call.
        router: Finds who takes a task that names nobody; ``None`` without subordinates.
    """

    model: Runnable[Any, Any]
    prompt: str
    abilities: Abilities
    router: Finder | None = None


class After(Protocol):
    """The edge behind ``reason``."""

    def foreseen(self, update: Mapping[str, Any], identity: Identity) -> Any:
        """Return what the edge will say when ``reason`` has made an update of a whole reply.

        Args:
            update: Holds the reply, the answers to it, and the head of each thread in it.
            identity: Who replied.
        """
        ...


class Reason(Shell):
    """The node ``reason`` of one level.

    Args:
        mind: What it thinks with.
        history: Reads its earlier segments.
        after: The edge behind it; without one, LangGraph asks whatever edge there is.
    """

    def __init__(self, mind: Mind, history: History, after: After | None = None) -> None:
        super().__init__("reason")
        self._mind = mind
        self._history = history
        self._after = after

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Call the model, unless the segment has reported already, or may not go on."""
        if input.get("response"):
            return {}
        config = config or {}
        identity = identity_of(config)
        if input.get("forward"):
            past = self._history.before(input.get("previous"), config)
            return pass_on(past, input, identity)
        gate = gate_of(config)
        verdict = gate.enter(Step.MODEL, config)
        if verdict:
            return ended(verdict, input["messages"], identity)
        past = self._history.before(input.get("previous"), config)
        reply = self._mind.model.invoke(conversation(self._mind, past, input), config)
        halt = gate.leave(reply, config)
        routes = {
            task: self._router.route(task, identity.agent, without={identity.agent})
            for task in unnamed(reply, self._mind.abilities)
        }
        return self._settled(past, input, reply, halt, identity, routes)

    async def ainvoke(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Any:
        """Call the model, unless the segment has reported already, or may not go on."""
        if input.get("response"):
            return {}
        config = config or {}
        identity = identity_of(config)
        if input.get("forward"):
            past = await self._history.abefore(input.get("previous"), config)
            return pass_on(past, input, identity)
        gate = gate_of(config)
        verdict = await gate.aenter(Step.MODEL, config)
        if verdict:
            return ended(verdict, input["messages"], identity)
        past = await self._history.abefore(input.get("previous"), config)
        reply = await self._mind.model.ainvoke(conversation(self._mind, past, input), config)
        halt = await gate.aleave(reply, config)
        routes = {
            task: await self._router.aroute(task, identity.agent, without={identity.agent})
            for task in unnamed(reply, self._mind.abilities)
        }
        return self._settled(past, input, reply, halt, identity, routes)

    @property
    def _router(self) -> Finder:
        router = self._mind.router
        assert router is not None  # noqa: S101  only a level with subordinates routes
        return router

    def _settled(
        self,
        past: Past,
        state: Mapping[str, Any],
        reply: Any,
        halt: Halt | None,
        identity: Identity,
        routes: Mapping[str, Route],
    ) -> dict[str, Any]:
        update = settle(self._mind, past, state, reply, identity, halt, routes)
        if halt or self._after is None:
            return update
        return Decided(update, self._after.foreseen(update, identity))


def conversation(mind: Mind, past: Past, state: Mapping[str, Any]) -> list[BaseMessage]:
    """Return what the model is shown: instructions, earlier segments, this one."""
    prompt = [SystemMessage(mind.prompt)] if mind.prompt else []
    return [*prompt, *close([*past.messages, *state["messages"]])]


def settle(  # noqa: PLR0913, PLR0917  all that an update is made of
    mind: Mind,
    past: Past,
    state: Mapping[str, Any],
    reply: Any,
    identity: Identity,
    halt: Halt | None = None,
    routes: Mapping[str, Route] | None = None,
) -> dict[str, Any]:
    """Return the update that a reply makes.

    Args:
        mind: What replied.
        past: The segments before this one.
        state: The level's state.
        reply: The reply.
        identity: Who replied.
        halt: Why nothing that it asks for may begin any more, if so.
        routes: Who may take the tasks that name nobody, by task.

    Raises:
        TypeError: The model returned something else than a message.
    """
    message = _own(reply, identity, [*past.messages, *state["messages"]])
    if halt:
        return cut_short(halt, state["messages"], message, identity)
    asked = sort(message, mind.abilities)
    named, ways, nobodys = routed(asked.delegations, routes or {})
    asked = replace(
        asked,
        delegations=tuple(named),
        answers=(*asked.answers, *(unanswerable(*each, message, identity) for each in nobodys)),
    )
    return _update(past, state, message, asked, ways, identity)


def pass_on(past: Past, state: Mapping[str, Any], identity: Identity) -> dict[str, Any]:
    """Return the update of a level that passes a request on, on its way down or back up."""
    done = passed_up(state["messages"], identity)
    if done:
        return done
    forward = Forward.load(state["forward"])
    call = Delegation(CALL_ID, forward.following, forward.request.task, forward.reset)
    return _update(past, state, call_of(forward, identity), Sorted((call,)), {}, identity)


def resolve(
    delegations: Sequence[Delegation],
    known: Mapping[str, Head],
    message: AIMessage,
    identity: Identity,
) -> tuple[dict[str, str], dict[str, Head]]:
    """Decide which thread each call runs on, in call order.

    A call with ``reset`` starts a thread. One without takes the subordinate's latest
    thread, those started earlier in the same message counted, or starts its first.

    Args:
        delegations: The calls.
        known: The threads there are, in the order of their start.
        message: The message that holds the calls.
        identity: Who calls.

    Returns:
        Thread ids by call id, and the entry of each of these threads for the state.
    """
    latest = {head["agent"]: thread for thread, head in known.items()}
    threads: dict[str, str] = {}
    used: dict[str, Head] = {}
    for each in delegations:
        thread = None if each.reset else latest.get(each.subordinate)
        if thread is None:
            thread = subordinate_thread_id(identity.thread_id, message.id or "", each.call_id)
            latest[each.subordinate] = thread
        threads[each.call_id] = thread
        used.setdefault(thread, known.get(thread) or Head(agent=each.subordinate))
    return threads, used


def _own(reply: Any, identity: Identity, before: Sequence[BaseMessage]) -> AIMessage:
    if not isinstance(reply, AIMessage):
        raise TypeError(f"the model of {identity.agent!r} returned {type(reply).__name__}")
    message = mended(message_chunk_to_message(reply))
    assert isinstance(message, AIMessage)  # noqa: S101  a chunk's message is of its kind
    update: dict[str, Any] = {"name": identity.agent}
    taken = {each.id for each in before}
    # A reply with the id of an earlier message would take its place.
    if not message.id or message.id in taken:
        places = (f"{identity.request_id}/{place}" for place in count(len(before)))
        ids = (message_id(identity.thread_id, place) for place in places)
        update["id"] = next(each for each in ids if each not in taken)
    return number(message.model_copy(update=update))


def _update(
    past: Past,
    state: Mapping[str, Any],
    message: AIMessage,
    asked: Sorted,
    ways: Mapping[str, Sequence[Sequence[str]]],
    identity: Identity,
) -> dict[str, Any]:
    known = {**past.heads, **(state.get("heads") or {})}
    threads, heads = resolve(asked.delegations, known, message, identity)
    if threads:
        kept = {THREADS_KEY: threads} | ({ROUTES_KEY: ways} if ways else {})
        metadata = {**message.response_metadata, **kept}
        message = message.model_copy(update={"response_metadata": metadata})
    update: dict[str, Any] = {"messages": [message, *asked.answers]}
    if heads:
        update["heads"] = dict(heads)
    if asked.report is not None:
        update["response"] = asked.report.model_dump(mode="json", exclude_none=True)
    return update
