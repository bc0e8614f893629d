"""``reason``: one turn of thinking. Calls the model once and sorts out what it asked for.

Entered at the start of a segment and after every round of calls. What it writes holds all
that the level does next: the reply, the answers to calls that need no work, and the
threads of the calls that do, so that each thread's id is stored before it runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, message_chunk_to_message
from langchain_core.runnables import Runnable, RunnableConfig

from echelons.gate import Halt, Step, gate_of
from echelons.history import Head, History, Past
from echelons.lineage import THREADS_KEY, Identity, message_id, subordinate_thread_id
from echelons.nodes.calls import Abilities, Delegation, Sorted, close, number, sort
from echelons.nodes.halting import cut_short, ended
from echelons.nodes.identity import identity_of
from echelons.nodes.mending import mended
from echelons.nodes.shell import Decided, Shell


@dataclass(frozen=True, slots=True)
class Mind:
    """What an agent thinks with.

    Attributes:
        model: The chat model with the agent's tools bound.
        prompt: Its instructions; empty for none.
        abilities: What it may call.
    """

    model: Runnable[Any, Any]
    prompt: str
    abilities: Abilities


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
        gate = gate_of(config)
        verdict = gate.enter(Step.MODEL, config)
        if verdict:
            return ended(verdict, input["messages"], identity_of(config))
        past = self._history.before(input.get("previous"), config)
        reply = self._mind.model.invoke(conversation(self._mind, past, input), config)
        halt = gate.leave(reply, config)
        return self._settled(past, input, reply, halt, identity_of(config))

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
        gate = gate_of(config)
        verdict = await gate.aenter(Step.MODEL, config)
        if verdict:
            return ended(verdict, input["messages"], identity_of(config))
        past = await self._history.abefore(input.get("previous"), config)
        reply = await self._mind.model.ainvoke(conversation(self._mind, past, input), config)
        halt = await gate.aleave(reply, config)
        return self._settled(past, input, reply, halt, identity_of(config))

    def _settled(
        self,
        past: Past,
        state: Mapping[str, Any],
        reply: Any,
        halt: Halt | None,
        identity: Identity,
    ) -> dict[str, Any]:
        update = settle(self._mind, past, state, reply, identity, halt)
        if halt or self._after is None:
            return update
        return Decided(update, self._after.foreseen(update, identity))


def conversation(mind: Mind, past: Past, state: Mapping[str, Any]) -> list[BaseMessage]:
    """Return what the model is shown: instructions, earlier segments, this one."""
    prompt = [SystemMessage(mind.prompt)] if mind.prompt else []
    return [*prompt, *close([*past.messages, *state["messages"]])]


def settle(
    mind: Mind,
    past: Past,
    state: Mapping[str, Any],
    reply: Any,
    identity: Identity,
    halt: Halt | None = None,
) -> dict[str, Any]:
    """Return the update that a reply makes.

    Args:
        mind: What replied.
        past: The segments before this one.
        state: The level's state.
        reply: The reply.
        identity: Who replied.
        halt: Why nothing that it asks for may begin any more, if so.

    Raises:
        TypeError: The model returned something else than a message.
    """
    message = _own(reply, identity, [*past.messages, *state["messages"]])
    if halt:
        return cut_short(halt, state["messages"], message, identity)
    asked = sort(message, mind.abilities)
    known = {**past.heads, **(state.get("heads") or {})}
    threads, heads = resolve(asked.delegations, known, message, identity)
    if threads:
        metadata = {**message.response_metadata, THREADS_KEY: threads}
        message = message.model_copy(update={"response_metadata": metadata})
    return _update(message, asked, heads)


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


def _update(message: AIMessage, asked: Sorted, heads: Mapping[str, Head]) -> dict[str, Any]:
    update: dict[str, Any] = {"messages": [message, *asked.answers]}
    if heads:
        update["heads"] = dict(heads)
    if asked.report is not None:
        update["response"] = asked.report.model_dump(mode="json", exclude_none=True)
    return update
