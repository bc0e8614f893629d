"""A subordinate as a node of its superior's delegation graph.

Maps the request to the subordinate's own state, runs its level, writes the response, and
goes to the next request of the same thread or ends. The two never share state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any, cast

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import Runnable, RunnableConfig

from echelons.delegation.aggregation import told
from echelons.delegation.race import Entrant, raced, races_of
from echelons.delegation.relayed_request import Forward
from echelons.delegation.request import (
    DelegationRequest,
    DelegationResponse,
    Status,
    Usage,
)
from echelons.errors import DelegationError, MisplacedRequest
from echelons.guards.circuit_breaker import End
from echelons.guards.gate import HALT_KEY, Halt, Pause, Step, gate_of
from echelons.identity.lineage import Identity, message_id, require_identity
from echelons.identity.thread_history import Head, head_of, way_of
from echelons.nodes.base_node import Shell
from echelons.nodes.delegating.attempt import Asked, Terms, aask, ask
from echelons.nodes.delegating.queued_request import Order
from echelons.nodes.delegating.request_queue import Desk, Onward, check
from echelons.nodes.delegating.run_level import Failure
from echelons.nodes.messages import usage_of
from echelons.nodes.planning.relay_messages import PASSED_KEY, passed_of
from echelons.tree.names import DELEGATING_TOOLS, PATH_SEPARATOR

EMPTY = "empty: it has answered nothing"
_NOTHING: Mapping[str, Any] = {"status": Status.UNABLE, "reason": EMPTY}


class Subordinate(Shell):
    """The node of one subordinate."""

    def __init__(
        self,
        name: str,
        level: Runnable[Any, Any],
        confidence: float,
        desk: Desk,
    ) -> None:
        super().__init__(name, runs=[level])
        self._agent = name
        self._level = level
        self._confidence = confidence
        self._desk = desk

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run the first request of the queue."""
        (order, own), begun = _prepared(self._agent, input, config), monotonic()
        history, halt = self._desk.history, gate_of(own).enter(Step.SUBORDINATE, own)
        if wrong := _misplaced(order, own):
            asked = Asked(wrong)
        elif halt and (barred := _barred(halt, history.head(own))):
            asked = Asked(barred)
        else:
            start, terms = brief(order, order.end(input)), self._terms(order, own)
            asked = ask(self._level, start, own, terms)
        head = history.head(own)
        step = self._after(order, asked, own, config or {}, monotonic() - begun)
        if part := _wins(order, step):
            step = step._replace(place=races_of(own).place(part))
        return self._desk.advance(input, step, _end(self._agent, order, head, input))

    async def ainvoke(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Any:
        """Async version of `invoke`."""
        (order, own), begun = _prepared(self._agent, input, config), monotonic()
        history, gate = self._desk.history, gate_of(own)
        halt = await gate.arun(lambda: gate.enter(Step.SUBORDINATE, own))
        if wrong := _misplaced(order, own):
            asked = Asked(wrong)
        elif halt and (barred := _barred(halt, await history.ahead(own))):
            asked = Asked(barred)
        else:
            start, terms = brief(order, order.end(input)), self._terms(order, own)
            asked = await aask(self._level, start, own, terms)
        head = await history.ahead(own)
        step = self._after(order, asked, own, config or {}, monotonic() - begun)
        if part := _wins(order, step):
            races = races_of(own)
            step = step._replace(place=await races.arun(partial(races.place, part)))
        return self._desk.advance(input, step, _end(self._agent, order, head, input))

    def _terms(self, order: Order, own: RunnableConfig) -> Terms:
        superior = PATH_SEPARATOR.join(require_identity(own).path[:-1])
        own_time = (self._desk.timeout, order.request.seconds)
        seconds = min((each for each in own_time if each is not None), default=None)
        way = (order.request.current, *order.request.route)
        return Terms(way[0], way[-1], superior, seconds, order.part)

    def _after(
        self,
        order: Order,
        asked: Asked,
        own: RunnableConfig,
        config: RunnableConfig,
        spent: float,
    ) -> Onward:
        answer = respond(order.request, asked.outcome, self._confidence)
        if asked.too_much:
            answer = answer.model_copy(update={"reason": f"{answer.reason}; {asked.too_much}"})
        part = order.part
        # A subordinate that was stopped because others have won needs no fallback. Its gate has
        # read the race already, so this does not block.
        over = asked.too_much or (part and part.enough and races_of(own).has_lost(part))
        return self._desk.onward(order, answer, config, spent, tries_on=not over)


def _wins(order: Order, step: Onward) -> Entrant | None:
    """Return the race entry of a request that has been fulfilled, if it takes part in a race."""
    fulfilled = step.answer is not None and step.answer.status is Status.FULFILLED
    return order.part if fulfilled and order.part and order.part.enough else None


def _end(agent: str, order: Order, head: Head, state: Mapping[str, Any]) -> Head | None:
    """Return the head of a request's thread after the request has run."""
    # A failed segment is part of the thread too; one without rows leaves the old head.
    if not head:
        return order.end(state)
    return {**head, **head_of(agent, way_of(order.request.route))}


def _misplaced(order: Order, own: RunnableConfig) -> Failure | None:
    """Return the failure of a request that is addressed to another agent, `None` if it is not.

    The library makes no such request, but the database may have been edited.
    """
    path, request = require_identity(own).path, order.request
    try:
        whole = request.path[-2:] == path[-2:] and request.path[0] == request.origin
        if not whole or request.current != path[-1]:
            raise MisplacedRequest(path[-1], path[-2])
        check(request, len(path) - 1)
    except DelegationError as error:
        return Failure(error.reason, End.NOTHING)
    return None


def _barred(verdict: Halt | Pause, begun: Head) -> Failure | None:
    """Return the failure of a halted subordinate, or `None` if it runs nevertheless.

    When a limit is reached, a subordinate that began before a crash or an interrupt still
    runs, so that it ends by itself with its partial result. A pause takes effect in `reason`.
    """
    if isinstance(verdict, Pause) or (begun and verdict.kind == "limit"):
        return None
    return Failure(verdict.reason if begun else f"not run: {verdict.reason}")


def brief(order: Order, head: Head | None) -> dict[str, Any]:
    """Return the input state of a subordinate's segment."""
    request, thread = order.request, order.thread_id
    task = HumanMessage(request.task, id=message_id(thread, request.id))
    messages = [task]
    if request.context:
        facts = "\n".join(f"{what}: {fact}" for what, fact in request.context.items())
        # Before the task: the last message of a superior is the task, word for word.
        messages.insert(0, HumanMessage(facts, id=message_id(thread, f"context/{request.id}")))
    start: dict[str, Any] = {"messages": messages, "request": request.id}
    if head and "checkpoint_id" in head:
        start["previous"] = dict(head)
    if order.request.route:
        start["forward"] = Forward(order.request, order.reset).stored()
    return start


def respond(
    request: DelegationRequest, outcome: Mapping[str, Any] | Failure, confidence: float
) -> DelegationResponse:
    """Return the response to a request from the output of its segment.

    A plain answer is `fulfilled` with the declared confidence; a report states its own status;
    a failure is `unable`, and so is an answer without text.
    """
    base = DelegationResponse(
        request_id=request.id,
        agent=request.current,
        status=Status.UNABLE,
        path=request.path,
    )
    if isinstance(outcome, Failure):
        return base.model_copy(update={"reason": outcome.reason, "failed": True})
    messages: list[BaseMessage] = outcome["messages"]
    below = tuple(_responses(messages))
    reported: Mapping[str, Any] = outcome.get("response") or {}
    said = _with_text(reported, _text(messages))
    passed = passed_of(said)
    if passed:
        # It is the response of the agent that answered, with the path to it.
        return passed.model_copy(update={"request_id": request.id})
    status = Status(said["status"])
    default = 0.0 if status is Status.UNABLE else confidence
    return base.model_copy(
        update={
            "status": status,
            "result": said.get("result", ""),
            "confidence": said.get("confidence", default),
            "reason": said.get("reason", ""),
            # The agent did not report an empty or interrupted answer itself.
            "failed": status is Status.UNABLE and (HALT_KEY in said or said is _NOTHING),
            "usage": _usage(messages, below),
            "subordinate_responses": told(below),
        }
    )


def _prepared(
    name: str, state: Mapping[str, Any], config: RunnableConfig | None
) -> tuple[Order, RunnableConfig]:
    order = Order.load(state["queue"][0])
    superior = require_identity(config)
    own = replace(
        superior,
        agent=name,
        path=(*superior.path, name),
        thread_id=order.thread_id,
        superior_thread_id=superior.thread_id,
        request_id=order.request.id,
    )
    named = with_identity(config or {}, own)
    return order, cast("RunnableConfig", raced(named, order.part))


def with_identity(config: RunnableConfig, identity: Identity) -> RunnableConfig:
    """Return the config with an identity that the caller's metadata cannot override."""
    return {**config, "metadata": {**(config.get("metadata") or {}), **identity.metadata()}}


def _responses(messages: list[BaseMessage]) -> list[DelegationResponse]:
    return [
        DelegationResponse.load(message.artifact)
        for message in messages
        if isinstance(message, ToolMessage)
        and message.name in DELEGATING_TOOLS
        and message.artifact is not None
    ]


def _usage(messages: list[BaseMessage], below: tuple[DelegationResponse, ...]) -> Usage:
    total = sum(map(usage_of, messages), Usage())
    return sum((each.usage for each in below), total)


def _text(messages: list[BaseMessage]) -> str:
    last = messages[-1] if messages else None
    return str(last.text) if isinstance(last, AIMessage) else ""


def _with_text(reported: Mapping[str, Any], text: str) -> Mapping[str, Any]:
    """Return a segment's report, with the final text as result where the report has none."""
    said = reported or {"status": Status.FULFILLED}
    if said["status"] != Status.FULFILLED or PASSED_KEY in said:
        return said
    reports = said.get("result", "")
    result = reports if reports.strip() else text
    # An empty result is useless, and as `fulfilled` it would win against real answers.
    return {**said, "result": result} if result.strip() else _NOTHING
