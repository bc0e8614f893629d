"""`reason`: one step of the agent loop. Calls the model once and parses its reply.

Entered at the start of a segment and after every round of calls. Its update holds all that
the level does next: the reply, the answers to calls that need no work, and the threads of
the other calls, so that each thread's id is stored before it runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    SystemMessage,
    ToolMessage,
    message_chunk_to_message,
)
from langchain_core.runnables import Runnable, RunnableConfig

from echelons.delegation.calls import Delegation
from echelons.delegation.policy import Delegating
from echelons.delegation.relayed_request import Forward
from echelons.delegation.request_builder import RequestLimits
from echelons.guards.gate import Halt, Step, gate_of
from echelons.identity.lineage import (
    PARTS_KEY,
    REQUESTS_KEY,
    ROUTES_KEY,
    THREADS_KEY,
    Identity,
    foreign,
    message_id,
    request_id,
    require_identity,
)
from echelons.identity.thread_history import History, Past, way_of
from echelons.nodes.base_node import Shell
from echelons.nodes.delegating.queued_request import Order, part_entry, tool_message
from echelons.nodes.messages import mended
from echelons.nodes.planning.delegation_plan import (
    Finder,
    Found,
    Plan,
    parts_of,
    planned,
    refusal,
    unnamed,
)
from echelons.nodes.planning.duplicates import answered
from echelons.nodes.planning.early_end import cut_short, ended
from echelons.nodes.planning.join_results import answer_of, join_parts
from echelons.nodes.planning.relay_messages import CALL_ID, call_of, passed_up
from echelons.nodes.planning.thread_choice import resolve
from echelons.nodes.planning.tool_calls import Abilities, Sorted, close, number, sort


@dataclass(frozen=True, slots=True)
class Mind:
    """The settings of an agent's `reason` node.

    Attributes:
        model: The chat model with the agent's tools bound.
        prompt: The agent's instructions; empty for none.
        abilities: The tools that it may call.
        finder: Routes tasks that name no subordinate; `None` without subordinates.
        rules: The agent's delegation policy.
        depth: Levels of the tree.
    """

    model: Runnable[Any, Any]
    prompt: str
    abilities: Abilities
    finder: Finder | None = None
    rules: Delegating = field(default_factory=Delegating)
    depth: int = 1


class Reason(Shell):
    """The node `reason` of one level.

    Args:
        mind: The agent's settings.
        history: Reads the earlier segments of the thread.
    """

    def __init__(self, mind: Mind, history: History) -> None:
        super().__init__("reason")
        self._mind = mind
        self._history = history

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Call the model, unless the segment has already reported, or is halted."""
        config = config or {}
        identity = require_identity(config)
        joined = join_parts(input, identity)
        state = joined.state
        if state.get("response"):
            return joined.within({})
        if state.get("forward"):
            past = self._history.before(state.get("previous"), config)
            return pass_on(past, state, identity)
        gate = gate_of(config)
        verdict = gate.enter(Step.MODEL, config)
        if verdict:
            return joined.within(ended(verdict, state["messages"], identity))
        past = self._history.before(state.get("previous"), config)
        reply = self._mind.model.invoke(conversation(self._mind, past, state), config)
        halt = gate.leave(reply, config)
        thought = thought_of(self._mind, past, state, reply, identity)
        found = {
            (task, splits): self._finder.find(
                task, identity.agent, parts=parts_of(thought.asked, splits)
            )
            for task, splits in unnamed(thought.asked, self._mind.rules)
        }
        return joined.within(self._settled(thought, halt, found, config))

    async def ainvoke(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Any:
        """Async version of `invoke`."""
        config = config or {}
        identity = require_identity(config)
        joined = join_parts(input, identity)
        state = joined.state
        if state.get("response"):
            return joined.within({})
        if state.get("forward"):
            past = await self._history.abefore(state.get("previous"), config)
            return pass_on(past, state, identity)
        gate = gate_of(config)
        verdict = await gate.arun(lambda: gate.enter(Step.MODEL, config))
        if verdict:
            return joined.within(ended(verdict, state["messages"], identity))
        past = await self._history.abefore(state.get("previous"), config)
        reply = await self._mind.model.ainvoke(conversation(self._mind, past, state), config)
        halt = await gate.arun(lambda: gate.leave(reply, config))
        thought = thought_of(self._mind, past, state, reply, identity)
        found = {
            (task, splits): await self._finder.afind(
                task, identity.agent, parts=parts_of(thought.asked, splits)
            )
            for task, splits in unnamed(thought.asked, self._mind.rules)
        }
        return joined.within(self._settled(thought, halt, found, config))

    @property
    def _finder(self) -> Finder:
        finder = self._mind.finder
        assert finder is not None  # noqa: S101  only a level with subordinates asks for one
        return finder

    def _settled(
        self,
        thought: Thought,
        halt: Halt | None,
        found: Mapping[tuple[str, bool], Sequence[Found]],
        config: RunnableConfig,
    ) -> dict[str, Any]:
        if halt:
            return cut_short(halt, thought.messages, thought.message, thought.identity)
        mind = self._mind
        limits = thought.asked.requests and RequestLimits.begin(mind.depth, mind.rules, config)
        return settle(mind, thought, found, limits or None)


@dataclass(frozen=True, slots=True)
class Thought:
    """A model's reply with the context that is needed to act on it.

    Attributes:
        message: The reply, as it is stored.
        asked: The parsed calls of the reply.
        past: The segments before this one.
        state: The level's state.
        identity: The agent that replied.
    """

    message: AIMessage
    asked: Sorted
    past: Past
    state: Mapping[str, Any]
    identity: Identity

    @property
    def messages(self) -> list[BaseMessage]:
        """The segment's messages before the reply."""
        return list(self.state["messages"])


def thought_of(
    mind: Mind, past: Past, state: Mapping[str, Any], reply: Any, identity: Identity
) -> Thought:
    """Return a model's reply, parsed and with its context.

    Raises:
        TypeError: The model did not return a message.
    """
    message = _own(reply, identity, [*past.messages, *state["messages"]])
    return Thought(message, sort(message, mind.abilities), past, state, identity)


def conversation(mind: Mind, past: Past, state: Mapping[str, Any]) -> list[BaseMessage]:
    """Return the messages for the model: instructions, earlier segments, this segment."""
    prompt = [SystemMessage(mind.prompt)] if mind.prompt else []
    return [*prompt, *close([*past.messages, *state["messages"]])]


def settle(
    mind: Mind,
    thought: Thought,
    found: Mapping[tuple[str, bool], Sequence[Found]],
    limits: RequestLimits | None = None,
) -> dict[str, Any]:
    """Return the state update for a reply.

    Args:
        mind: The agent's settings.
        thought: The reply.
        found: The routes of the tasks that name no subordinate.
        limits: The limits of the requests; `None` without requests.
    """
    plan = planned(thought.asked, found, mind.rules, mind.abilities.width, mind.abilities.only)
    before, thread = thought.messages, thought.identity.thread_id
    plan.refuse_repeated(lambda task: answered(task, before, thread))
    ahead = {call_id: way_of(each.ahead[0][1:]) for call_id, each in plan.ways.items()}
    return _update(thought, plan, ahead, limits)


def pass_on(past: Past, state: Mapping[str, Any], identity: Identity) -> dict[str, Any]:
    """Return the update of a level that relays a request down, or its response back up."""
    done = passed_up(state["messages"], identity)
    if done:
        return done
    forward = Forward.load(state["forward"])
    call = Delegation(CALL_ID, forward.following, forward.request.task, forward.reset)
    thought = Thought(call_of(forward, identity), Sorted((call,)), past, state, identity)
    return _update(thought, Plan([call]), {CALL_ID: way_of(forward.request.route[1:])})


def _own(reply: Any, identity: Identity, before: Sequence[BaseMessage]) -> AIMessage:
    if not isinstance(reply, AIMessage):
        raise TypeError(f"the model of {identity.agent!r} returned {type(reply).__name__}")
    message = mended(message_chunk_to_message(reply))
    assert isinstance(message, AIMessage)  # noqa: S101  a chunk's message is of its kind
    update: dict[str, Any] = {"name": identity.agent, "response_metadata": foreign(message)}
    taken = {each.id for each in before}
    # A reply with the id of an earlier message would replace that message.
    if not message.id or message.id in taken:
        places = (f"{identity.request_id}/{place}" for place in count(len(before)))
        ids = (message_id(identity.thread_id, place) for place in places)
        update["id"] = next(each for each in ids if each not in taken)
    return number(message.model_copy(update=update))


def _update(
    thought: Thought, plan: Plan, ways: Mapping[str, str], limits: RequestLimits | None = None
) -> dict[str, Any]:
    message, identity = thought.message, thought.identity
    known = {**thought.past.heads, **(thought.state.get("heads") or {})}
    threads, heads = resolve(plan.requests, ways, known, message, identity)
    kept: dict[str, Any] = {}
    if threads:
        kept[THREADS_KEY] = threads
    if plan.ways:
        kept[ROUTES_KEY] = {call_id: ways.stored() for call_id, ways in plan.ways.items()}
    if plan.parted:
        kept[PARTS_KEY] = {each.call_id: each.stored() for each in plan.parted}
    if limits and (notes := _notes(plan, message, threads, limits)):
        kept[REQUESTS_KEY] = notes
    if kept:
        metadata = {**message.response_metadata, **kept}
        message = message.model_copy(update={"response_metadata": metadata})
    answers, parts = _refused(plan, message, identity)
    update: dict[str, Any] = {"messages": [message, *thought.asked.answers, *answers]}
    if heads:
        update["heads"] = dict(heads)
    if parts:
        update["parts"] = parts
    report = thought.asked.report
    if report is not None:
        update["response"] = report.model_dump(mode="json", exclude_none=True)
    return update


def _notes(
    plan: Plan, message: AIMessage, threads: Mapping[str, str], limits: RequestLimits
) -> dict[str, dict[str, Any]]:
    """Return the limits of each request for the message's metadata, by call id."""
    notes: dict[str, dict[str, Any]] = {}
    begun: set[str] = set()
    named = {call["id"]: call["args"].get("subordinate") for call in message.tool_calls}
    for each in plan.requests:
        note, thread = limits.fields, threads[each.call_id]
        if thread in begun:
            # Its deadline is set when the request before it on the same thread has ended.
            note.pop("deadline", None)
        begun.add(thread)
        name = named.get(each.call_id, each.subordinate)
        if name != each.subordinate and each.call_id not in plan.ways:
            note["current"] = each.subordinate
        if note:
            notes[each.call_id] = note
    return notes


def _refused(
    plan: Plan, message: AIMessage, identity: Identity
) -> tuple[list[ToolMessage], dict[str, Any]]:
    """Return the tool messages of refused calls, and the state entries of refused parts."""
    whole: list[ToolMessage] = []
    parts: dict[str, Any] = {}
    several = {part.call_id for each in plan.parted for part in each.parts}
    tools = {call["id"]: call["name"] for call in message.tool_calls}
    for call, why in plan.refused:
        request, answer = refusal(call, why, message.id or "", identity)
        if call.call_id in several:
            parts[request.id] = part_entry(answer)
        else:
            order = Order(request, call.call_id, identity.thread_id, continues=False)
            whole.append(tool_message(order, answer, tools[call.call_id]))
    for each in plan.parted:
        if ended := answer_of(each, message, parts, identity):
            whole.append(ended)
            over = (request_id(identity.thread_id, message.id or "", p.call_id) for p in each.parts)
            parts = {key: entry for key, entry in parts.items() if key not in set(over)}
    return whole, parts
