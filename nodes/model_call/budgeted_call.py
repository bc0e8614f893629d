"""Calls of models within a budget: reserved before they begin, charged when they have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage

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


class ModelDescription(NamedTuple):
    """What is known of a model before it is called.

    Attributes:
        name: Its name, as its provider knows it, else that of its class.
        reply_tokens: How many tokens its reply may have.
    """

    name: str
    reply_tokens: int = DEFAULT_REPLY_TOKENS

    @classmethod
    def describe(cls, model: Any) -> ModelDescription:
        """Return the description of a model."""
        limit: Any = getattr(model, "max_tokens", None)
        is_given = isinstance(limit, int) and limit > 0
        return cls(get_model_name(model), limit if is_given else DEFAULT_REPLY_TOKENS)


UNKNOWN_MODEL: Final = ModelDescription("")


def call_within(
    allowance: Allowance,
    model: ModelDescription,
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
    model: ModelDescription,
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
    model: ModelDescription,
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
    left: float | None = None
    if "seconds" in allowance.grants:
        left = await gate.arun(partial(budgets.get_seconds_left, allowance))
    used: CallUsage | None = None
    timer = asyncio.timeout(left)
    try:
        async with timer:
            reply = await call()
        used = read_usage(model, messages, reply, allowance)
    except TimeoutError:
        if timer.expired():
            raise CallRefused(Halt("budget", "the seconds of work are over")) from None
        raise
    except asyncio.CancelledError:
        await gate.arun(partial(budgets.charge_cancelled, reserved))
        reserved = ""
        raise
    finally:
        budgets.charge(reserved, used, config)
    return reply


def estimate_call(
    model: ModelDescription, messages: Sequence[BaseMessage], allowance: Allowance
) -> CallEstimate:
    """Return what a call may use at most, as far as its budget needs to know.

    What an earlier call has read and written is known; only the messages after it are counted.
    """
    if "tokens" not in allowance.grants and "money" not in allowance.grants:
        return CallEstimate(model.name)
    known, begin = 0, 0
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        # By its type: most are none.
        if message.type != "ai" or not isinstance(message, AIMessage):
            continue
        if usage := get_whole_usage(message):
            known = usage["input_tokens"] + usage["output_tokens"]
            begin = place + 1
            break
    more = 0
    for message in messages[begin:]:
        # One token for four characters, and three more, as LangChain's `count_tokens_approximately`
        # counts, with a hundred calls for each message.
        calls = message.tool_calls if type(message) is AIMessage else ()
        more += len(f"{message.content}{calls or ''}") // 4 + 3
    return CallEstimate(model.name, known + more, model.reply_tokens)


def read_usage(
    model: ModelDescription, messages: Sequence[BaseMessage], reply: Any, allowance: Allowance
) -> CallUsage:
    """Return what a reply reports to have used, or what an estimator says if it reports nothing."""
    name = model.name
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
