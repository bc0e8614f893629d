"""The steps of a script: the answers of a test model, as plain data.

`ScriptedModel` and `OpenAIServer` play the same steps, so a test can move from one to
the other without rewriting its script. Both stream them in the same fragments.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from echelons.errors import invalid_script


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call.

    Attributes:
        name: The tool.
        args: Its arguments. A string is passed to the caller as it is, for a model that
            wrote something else than a JSON object: malformed arguments, for instance.
        id: The call's id; made from its place in the conversation if left out.
    """

    name: str
    args: Mapping[str, Any] | str = field(default_factory=dict)
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's whole answer.

    Attributes:
        content: The text.
        calls: The tool calls, in order.
        latency: Seconds that the answer takes; when it is streamed, spread over its parts.
        reasoning: The text of the model's reasoning, for models that show it.
        usage: Tokens in and tokens out, or None for a model that reports none.
        finish_reason: Why the model ended, such as `length` for an answer that was cut off;
            made from the calls if left out.

    Raises:
        ScriptError: The latency is negative or not finite, a call is no `Call`, or the
            usage is not two whole numbers from 0.
    """

    content: str = ""
    calls: Sequence[Call] = ()
    latency: float = 0.0
    reasoning: str | None = None
    usage: tuple[int, int] | None = None
    finish_reason: str = ""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.latency) and self.latency >= 0):
            raise invalid_script(f"a latency of {self.latency} s", "a finite number from 0")
        calls = (self.calls,) if isinstance(self.calls, Call) else tuple(self.calls)
        for call in calls:
            if not isinstance(call, Call):
                raise invalid_script(f"{call!r} among the calls of a reply", "Call(name, args)")
        usage: object = self.usage
        if usage is not None and not (
            isinstance(usage, tuple)
            and len(usage) == 2
            and all(isinstance(count, int) and count >= 0 for count in usage)
        ):
            raise invalid_script(f"the usage {usage!r}", "(tokens in, tokens out)")
        object.__setattr__(self, "calls", calls)


def delegate(
    subordinate: str | None,
    message: str,
    reset: bool = False,
    id: str | None = None,
    context: Mapping[str, Any] | None = None,
) -> Call:
    """Return the call that delegates a message to a subordinate.

    Args:
        subordinate: Its name, or None to leave the choice to routing.
        message: The message.
        reset: Whether to start a new thread instead of continuing the latest.
        id: The call's id; made from its place in the conversation if left out.
        context: The context of the request.

    Examples:
        >>> delegate("flights", "to Rome").args
        {'message': 'to Rome', 'reset': False, 'subordinate': 'flights'}
    """
    args: dict[str, Any] = {"message": message, "reset": reset}
    if subordinate is not None:
        args["subordinate"] = subordinate
    if context is not None:
        args["context"] = context
    return Call("call_subordinate", args, id)


def delegate_many(
    *requests: Call, join: str = "all", n: int | None = None, id: str | None = None
) -> Call:
    """Return the call that delegates several messages to subordinates at the same time.

    Args:
        *requests: The calls that `delegate` returns.
        join: `all`, `first`, `quorum` or `best`.
        n: How many a quorum needs.
        id: The call's id; made from its place in the conversation if left out.

    Examples:
        >>> delegate_many(delegate("flights", "to Rome"), join="first").args["join"]
        'first'
    """
    args: dict[str, Any] = {"requests": [request.args for request in requests], "join": join}
    if n is not None:
        args["n"] = n
    return Call("delegate_many", args, id)


def report(status: str, result: Any, id: str | None = None, **more: Any) -> Call:
    """Return the call that reports how a subordinate's work ended.

    Args:
        status: `fulfilled`, `partial`, `unable` or `needs_input`.
        result: The result of the work.
        id: The call's id; made from its place in the conversation if left out.
        **more: Further arguments of the tool, such as `confidence` and `reason`.
    """
    return Call("report", {"status": status, "result": result, **more}, id)


def make_call_id(call: Call, length: int, index: int) -> str:
    """Return the call's own id, or one from the messages before it and its index in its own."""
    return f"call_{length}_{index}" if call.id is None else call.id


def get_finish_reason(reply: Reply) -> str:
    """Return why the model ended: the reply's own reason, or one made from its calls."""
    return reply.finish_reason or ("tool_calls" if reply.calls else "stop")


def as_reply(step: object) -> Reply | None:
    """Return the reply for a step of plain data; None for any other step."""
    if isinstance(step, Reply):
        return step
    if isinstance(step, str):
        return Reply(step)
    if isinstance(step, Call):
        return Reply(calls=(step,))
    if isinstance(step, list | tuple) and step and all(isinstance(c, Call) for c in step):
        return Reply(calls=step)
    return None


def split_words(text: str) -> list[str]:
    """Return the text split before each word, with all whitespace kept.

    Examples:
        >>> split_words("To Rome,  now ")
        ['To ', 'Rome,  ', 'now ']
    """
    return re.split(r"(?<=\s)(?=\S)", text) if text else []


MAX_LAST_FRAGMENT: Final = 64
"""Characters of the second fragment of arguments at most."""


def split_arguments(text: str) -> list[str]:
    """Return the arguments of a call in two fragments, as they are streamed: halves, if short.

    Examples:
        >>> split_arguments('{"a": 1}')
        ['{"a"', ': 1}']
    """
    # LangChain tries to parse each fragment as JSON, which is quadratic for one that begins
    # within a string: the second one stays short.
    middle = max((len(text) + 1) // 2, len(text) - MAX_LAST_FRAGMENT)
    return [part for part in (text[:middle], text[middle:]) if part]
