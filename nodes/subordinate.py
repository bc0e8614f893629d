"""A subordinate as a node of its superior's delegation graph.

Maps the request into the subordinate's own state, runs its level, writes the response, and
goes to the next request of the same thread or ends. The state of the two is never shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.types import Command

from echelons.delegation import (
    DelegationRequest,
    DelegationResponse,
    Status,
    Usage,
)
from echelons.forwarding import Forward
from echelons.gate import HALT_KEY, Halt, Pause, Step, gate_of
from echelons.history import Head
from echelons.lineage import FORWARDED_KEY, Identity, message_id
from echelons.names import CALL_SUBORDINATE, PATH_SEPARATOR
from echelons.nodes.asking import Asked, Terms, aask, ask
from echelons.nodes.call import Failure
from echelons.nodes.forwarding import passed_of
from echelons.nodes.identity import identity_of
from echelons.nodes.orders import Desk, Order
from echelons.nodes.shell import Shell


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
        self._level = level
        self._confidence = confidence
        self._desk = desk

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Work off the first request of the queue."""
        order, own = _prepared(input, config)
        history, halt = self._desk.history, gate_of(own).enter(Step.SUBORDINATE, own)
        if halt and (barred := _barred(halt, history.head(own))):
            asked = Asked(barred)
        else:
            start, terms = brief(order, order.end(input)), self._terms(order, own)
            asked = ask(self._level, start, own, terms)
        head = history.head(own)
        return self._settled(input, order, asked, head, config or {})

    async def ainvoke(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Any:
        """Work off the first request of the queue."""
        order, own = _prepared(input, config)
        history, halt = self._desk.history, await gate_of(own).aenter(Step.SUBORDINATE, own)
        if halt and (barred := _barred(halt, await history.ahead(own))):
            asked = Asked(barred)
        else:
            start, terms = brief(order, order.end(input)), self._terms(order, own)
            asked = await aask(self._level, start, own, terms)
        head = await history.ahead(own)
        return self._settled(input, order, asked, head, config or {})

    def _terms(self, order: Order, own: RunnableConfig) -> Terms:
        path = identity_of(own).path
        return Terms(order.request.current, PATH_SEPARATOR.join(path[:-1]), self._desk.timeout)

    def _settled(
        self,
        state: Mapping[str, Any],
        order: Order,
        asked: Asked,
        head: Head,
        config: RunnableConfig,
    ) -> Command[Any]:
        answer = respond(order.request, asked.outcome, self._confidence)
        # A failed segment is part of the thread too; one without rows leaves the old end.
        end = Head(**{**head, "agent": order.request.current}) if head else order.end(state)
        if asked.too_much:
            escalated = answer.model_copy(update={"reason": f"{answer.reason}; {asked.too_much}"})
            return self._desk.advance(state, escalated, end, config, tries_on=False)
        return self._desk.advance(state, answer, end, config)


def _barred(verdict: Halt | Pause, begun: Head) -> Failure | None:
    """Return why a subordinate does not run, or ``None`` if it does all the same.

    One that had begun before its process died, or before it asked, ends by itself where a
    limit is reached, with what it has. A pause is for those who think.
    """
    if isinstance(verdict, Pause) or (begun and verdict.kind == "limit"):
        return None
    return Failure(verdict.reason if begun else f"not run: {verdict.reason}")


def brief(order: Order, head: Head | None) -> dict[str, Any]:
    """Return the state that a subordinate's segment starts with."""
    task = HumanMessage(order.request.task, id=message_id(order.thread_id, order.request.id))
    start: dict[str, Any] = {"messages": [task], "request": order.request.id}
    if head and "checkpoint_id" in head:
        start["previous"] = dict(head)
    if order.request.route:
        start["forward"] = Forward(order.request, order.reset).stored()
    return start


def respond(
    request: DelegationRequest, outcome: Mapping[str, Any] | Failure, confidence: float
) -> DelegationResponse:
    """Return the response that a segment's end makes.

    A plain answer is fulfilled with the declared confidence; a report says anything else;
    a failure is unable.
    """
    base = DelegationResponse(
        request_id=request.id,
        agent=request.current,
        status=Status.UNABLE,
        path=request.path,
    )
    if isinstance(outcome, Failure):
        return base.model_copy(update={"reason": outcome.reason})
    messages: list[BaseMessage] = outcome["messages"]
    below = tuple(_responses(messages))
    said: Mapping[str, Any] = outcome.get("response") or {
        "status": Status.FULFILLED,
        "result": _text(messages),
    }
    passed = passed_of(said)
    if passed:
        # Of who answers it is, with the way to there.
        return passed.model_copy(update={"request_id": request.id})
    status = Status(said["status"])
    return base.model_copy(
        update={
            "status": status,
            "result": said.get("result", ""),
            "confidence": said.get("confidence", _default(status, confidence)),
            "reason": said.get("reason", ""),
            "usage": _usage(messages, below),
            # Their results are in the subordinate's own thread; up here the outcome does.
            "subordinate_responses": tuple(
                each.model_copy(update={"result": "", "usage": Usage()}) for each in below
            ),
        }
    )


def _prepared(
    state: Mapping[str, Any], config: RunnableConfig | None
) -> tuple[Order, RunnableConfig]:
    order = Order.load(state["queue"][0])
    superior = identity_of(config)
    own = replace(
        superior,
        agent=order.request.current,
        path=(*superior.path, order.request.current),
        thread_id=order.thread_id,
        superior_thread_id=superior.thread_id,
        request_id=order.request.id,
    )
    return order, with_identity(config or {}, own)


def with_identity(config: RunnableConfig, identity: Identity) -> RunnableConfig:
    """Return the config with an identity that no caller's metadata overrides."""
    return {**config, "metadata": {**(config.get("metadata") or {}), **identity.metadata()}}


def _responses(messages: list[BaseMessage]) -> list[DelegationResponse]:
    return [
        DelegationResponse.load(message.artifact)
        for message in messages
        if isinstance(message, ToolMessage)
        and message.name == CALL_SUBORDINATE
        and message.artifact is not None
    ]


def _usage(messages: list[BaseMessage], below: tuple[DelegationResponse, ...]) -> Usage:
    total = Usage()
    for message in messages:
        # The last word of an agent that was halted is no model's, nor what is passed on.
        if isinstance(message, AIMessage) and not _UNTHOUGHT & message.response_metadata.keys():
            tokens = message.usage_metadata
            total += Usage(
                input_tokens=tokens["input_tokens"] if tokens else 0,
                output_tokens=tokens["output_tokens"] if tokens else 0,
                model_calls=1,
            )
    return sum((each.usage for each in below), total)


_UNTHOUGHT = frozenset({HALT_KEY, FORWARDED_KEY})


def _text(messages: list[BaseMessage]) -> str:
    last = messages[-1] if messages else None
    return str(last.text) if isinstance(last, AIMessage) else ""


def _default(status: Status, declared: float) -> float:
    return 0.0 if status is Status.UNABLE else declared
