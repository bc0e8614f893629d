"""Calls of models within a budget: reserved before they begin, charged when they have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.utils import count_tokens_approximately

from echelons.guards.budget import (
    DEFAULT_REPLY_TOKENS,
    Allowance,
    Budgets,
    CallEstimate,
    CallUsage,
)
from echelons.guards.gate import Halt, Pause, get_gate
from echelons.nodes.messages import get_whole_usage
from echelons.text.error_lines import describe_error
from echelons.text.input_limits import shorten_repr


class CallRefused(BaseException):
    """Ends a call of a model that must not begin, with those that a middleware wraps around it.

    No `Exception`: a retry or a fallback would catch that.
    """

    def __init__(self, verdict: Halt | Pause) -> None:
        super().__init__(verdict)
        self.verdict = verdict


def call_within(
    allowance: Allowance,
    model: Any,
    messages: Sequence[BaseMessage],
    config: Mapping[str, Any],
    call: Callable[[], Any],
) -> Any:
    """Return the reply of a model call that is charged to an agent's budget.

    Args:
        allowance: What the agent may spend.
        model: The model.
        messages: What it reads.
        config: The config of the node.
        call: Makes the call.

    Raises:
        CallRefused: Nothing is left of the budget.
    """
    return charge_call(get_gate(config).budgets, allowance, model, messages, config, call)


def charge_call(
    budgets: Budgets,
    allowance: Allowance,
    model: Any,
    messages: Sequence[BaseMessage],
    config: Mapping[str, Any],
    call: Callable[[], Any],
) -> Any:
    """Return the reply of a model call that some budgets are charged with, see `call_within`."""
    reserved = budgets.reserve(estimate_call(model, messages, allowance), allowance, config)
    if isinstance(reserved, Halt):
        raise CallRefused(reserved)
    used: CallUsage | None = None
    try:
        reply = call()
        used = read_usage(model, messages, reply, allowance)
    finally:
        budgets.charge(reserved, used, config)
    return reply


async def acall_within(
    allowance: Allowance,
    model: Any,
    messages: Sequence[BaseMessage],
    config: Mapping[str, Any],
    call: Callable[[], Awaitable[Any]],
) -> Any:
    """Async version of `call_within`, which also cuts the call off when its seconds are over."""
    gate = get_gate(config)
    budgets, estimate = gate.budgets, estimate_call(model, messages, allowance)
    reserved = await gate.arun(partial(budgets.reserve, estimate, allowance, config))
    if isinstance(reserved, Halt):
        raise CallRefused(reserved)
    left = await gate.arun(partial(budgets.get_seconds_left, allowance))
    used: CallUsage | None = None
    try:
        async with asyncio.timeout(left) as timer:
            reply = await call()
        used = read_usage(model, messages, reply, allowance)
    except TimeoutError:
        if timer.expired():
            raise CallRefused(Halt("budget", "the seconds of work are over")) from None
        raise
    finally:
        # At once: a task that is cancelled can wait for nothing.
        budgets.charge(reserved, used, config)
    return reply


def estimate_call(
    model: Any, messages: Sequence[BaseMessage], allowance: Allowance
) -> CallEstimate:
    """Return what a call may use at most, as far as its budget needs to know.

    What an earlier call has read and written is known; only the messages after it are counted.
    """
    name = get_model_name(model)
    if not allowance.grants.keys() & {"tokens", "money"}:
        return CallEstimate(name)
    known, begin = 0, 0
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if isinstance(message, AIMessage) and (usage := get_whole_usage(message)):
            known = usage["input_tokens"] + usage["output_tokens"]
            begin = place + 1
            break
    more = count_tokens_approximately(messages[begin:]) if begin < len(messages) else 0
    limit = getattr(model, "max_tokens", None)
    most = limit if isinstance(limit, int) and limit > 0 else DEFAULT_REPLY_TOKENS
    return CallEstimate(name, known + more, most)


def read_usage(
    model: Any, messages: Sequence[BaseMessage], reply: Any, allowance: Allowance
) -> CallUsage:
    """Return what a reply reports to have used, or what an estimator says if it reports nothing."""
    name = get_model_name(model)
    if not isinstance(reply, AIMessage):
        return CallUsage(name, None, fault=f"usage unknown: {name} returned no message")
    name = str(reply.response_metadata.get("model_name") or name)
    if usage := get_whole_usage(reply):
        return CallUsage(name, dict(usage))
    if allowance.estimator is None:
        return CallUsage(name, None, fault=f"usage unknown: {name} reports none")
    fault = f"usage unknown: {name} reports none, and the estimator of its budget"
    try:
        given = allowance.estimator(list(messages), reply)
    except Exception as error:  # noqa: BLE001  code of others
        return CallUsage(name, None, fault=f"{fault} has failed: {describe_error(error)}")
    match given:
        case (int(read), int(written)) if read >= 0 and written >= 0:
            counted = {"input_tokens": read, "output_tokens": written}
            return CallUsage(name, counted, is_estimated=True)
    return CallUsage(name, None, fault=f"{fault} returned {shorten_repr(given)}")


def get_model_name(model: Any) -> str:
    """Return the name of a model, as its provider knows it, else that of its class."""
    for key in ("model_name", "model"):
        name = getattr(model, key, None)
        if isinstance(name, str) and name:
            return name
    return type(model).__name__
