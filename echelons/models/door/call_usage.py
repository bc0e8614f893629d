"""The tokens that a call of a model may use, and has used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import UsageMetadata

from echelons.guards.budget import DEFAULT_REPLY_TOKENS, NO_ALLOWANCE, Allowance, CallEstimate
from echelons.guards.gate import CallUsage, NotedCall
from echelons.text.error_lines import describe_error
from echelons.text.input_limits import shorten_repr


class ModelDescription(NamedTuple):
    """The facts known of a model before it is called."""

    # As its provider knows it, else that of its class.
    name: str
    reply_tokens: int = DEFAULT_REPLY_TOKENS

    @classmethod
    def describe(cls, model: Any) -> ModelDescription:
        """Return the description of a model."""
        limit: Any = getattr(model, "max_tokens", None)
        is_given = isinstance(limit, int) and limit > 0
        return cls(get_model_name(model), limit if is_given else DEFAULT_REPLY_TOKENS)


UNKNOWN_MODEL: Final = ModelDescription("")


def estimate_call(
    model: ModelDescription, messages: Sequence[BaseMessage], allowance: Allowance
) -> CallEstimate:
    """Return what a call may use at most, as far as its budget needs to know.

    The tokens of an earlier call are known; only the messages after it are counted.
    """
    if "tokens" not in allowance.grants and "money" not in allowance.grants:
        return CallEstimate(model.name)
    counted, begin = 0, 0
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        # By its type: most are none.
        if message.type != "ai" or not isinstance(message, AIMessage):
            continue
        if usage := get_whole_usage(message):
            counted = usage["input_tokens"] + usage["output_tokens"]
            begin = place + 1
            break
    return CallEstimate(model.name, counted + estimate_tokens(messages[begin:]), model.reply_tokens)


def estimate_tokens(messages: Sequence[BaseMessage]) -> int:
    """Return about how many tokens some messages have.

    One token for four characters, and three more, as LangChain's `count_tokens_approximately`
    counts, with a hundred calls for each message.
    """
    total = 0
    for message in messages:
        calls = message.tool_calls if isinstance(message, AIMessage) else ()
        total += len(f"{message.content}{calls or ''}") // 4 + 3
    return total


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
        estimate = allowance.estimator(list(messages), reply)
    except Exception as error:  # noqa: BLE001  code of others
        return CallUsage(name, None, fault=f"{fault} has failed: {describe_error(error)}")
    match estimate:
        case (int(read), int(written)) if read >= 0 and written >= 0:
            counted = {"input_tokens": read, "output_tokens": written}
            return CallUsage(name, counted, is_estimated=True)
    return CallUsage(name, None, fault=f"{fault} returned {shorten_repr(estimate)}")


def build_noted_call(
    model: ModelDescription,
    messages: Sequence[BaseMessage],
    reply: Any,
    allowance: Allowance | None,
) -> NotedCall:
    """Return a call that has ended as it is recorded, with an estimate if it reports nothing."""
    used = read_usage(model, messages, reply, allowance or NO_ALLOWANCE)
    is_message = isinstance(reply, BaseMessage)
    estimate = 0
    if used.usage is None:
        estimate = estimate_tokens([*messages, reply] if is_message else messages)
    return NotedCall(used, estimate, reply_id=(reply.id or "") if is_message else "")


def get_model_name(model: Any) -> str:
    """Return the name of a model, as its provider knows it, else that of its class."""
    for key in ("model_name", "model"):
        name = getattr(model, key, None)
        if isinstance(name, str) and name:
            return name
    return type(model).__name__


def get_whole_usage(message: AIMessage) -> UsageMetadata | None:
    """Return the tokens of a reply as its model reports them; `None` if it reports none.

    LangChain's cache then gives it a cost alone, and no message is read back with that.
    """
    usage = message.usage_metadata
    return usage if usage and "input_tokens" in usage else None
