"""Scripts of `ScriptedModel`: the next step follows from the conversation alone.

No counter is kept: a process that resumes from disk finds the same conversation, and so
continues at the right step.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import invalid_tool_call, tool_call, tool_call_chunk

from echelons.errors import ScriptError, invalid_script, script_exhausted
from echelons.identity.lineage import ASIDE_KEY
from echelons.testing.steps import (
    Call,
    Reply,
    as_reply,
    get_finish_reason,
    make_call_id,
    split_arguments,
    split_words,
)

ANY_AGENT = "*"
"""The name for the script of every agent without a script of its own."""

STEP_KINDS = "a str, Reply, Call, list of Calls, AIMessage, or an exception"

Step: TypeAlias = (
    str | Reply | Call | Sequence[Call] | AIMessage | BaseException | type[BaseException]
)
StepOutcome: TypeAlias = Reply | AIMessage | BaseException | type[BaseException]
PositionCounter: TypeAlias = Callable[[Sequence[BaseMessage]], int]


def count_turn_answers(messages: Sequence[BaseMessage]) -> int:
    """Return the number of answers after the last task, which begins a turn.

    A delegation passes its message to the subordinate as a human message, so a script per
    turn is a script per delegation.
    """
    answers = 0
    for message in reversed(messages):
        if isinstance(message, HumanMessage) and ASIDE_KEY not in message.response_metadata:
            break
        answers += isinstance(message, AIMessage)
    return answers


def count_answers(messages: Sequence[BaseMessage]) -> int:
    """Return the number of answers in the whole conversation."""
    return sum(isinstance(message, AIMessage) for message in messages)


def as_outcome(step: object) -> StepOutcome:
    """Return the outcome of a step: a reply, a message or an exception."""
    if isinstance(step, AIMessage | BaseException):
        return step
    if isinstance(step, type) and issubclass(step, BaseException):
        return step
    reply = as_reply(step)
    if reply is None:
        raise invalid_script(f"the step {step!r}", STEP_KINDS)
    return reply


@dataclass(frozen=True)
class ListScript:
    """A script that is a list; `position` counts the steps that a conversation has played."""

    steps: tuple[StepOutcome, ...]
    position: PositionCounter = count_turn_answers

    def next(self, agent: str | None, messages: Sequence[BaseMessage]) -> StepOutcome:
        """Return the next step of a conversation."""
        index = self.position(messages)
        if index >= len(self.steps):
            raise script_exhausted(agent, index, len(self.steps))
        return self.steps[index]


StepFunction: TypeAlias = Callable[[Sequence[BaseMessage]], Step | Awaitable[Step]]
Script: TypeAlias = ListScript | Sequence[Step] | StepFunction


@dataclass(frozen=True)
class FunctionScript:
    """A script that is a function of the messages, async or not."""

    function: StepFunction

    def next(self, agent: str | None, messages: Sequence[BaseMessage]) -> Step | Awaitable[Step]:
        """Return the next step of a conversation, or an awaitable of it."""
        return self.function(messages)


def per_conversation(steps: Sequence[Step]) -> ListScript:
    """Return a script that is played once per conversation, across all its turns.

    Examples:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> script = per_conversation(["first", "second"])
        >>> turn = [HumanMessage("a"), AIMessage("first"), HumanMessage("b")]
        >>> script.next("head", turn).content
        'second'
    """
    return ListScript(tuple(as_outcome(step) for step in steps), count_answers)


def as_script(script: object) -> ListScript | FunctionScript:
    """Return a list as a script per turn, or a function as a script that calls it."""
    if isinstance(script, ListScript):
        return script
    if isinstance(script, list | tuple):
        return ListScript(tuple(as_outcome(step) for step in script))
    if callable(script) and not isinstance(script, type):
        return FunctionScript(cast("StepFunction", script))
    raise invalid_script(f"the script {script!r}", "a list of steps or a function of the messages")


class AgentScripts:
    """The scripts of all agents of one model."""

    def __init__(self, scripts: Mapping[str, Script] | Script) -> None:
        named = scripts if isinstance(scripts, Mapping) else {ANY_AGENT: scripts}
        self._scripts = {agent: as_script(script) for agent, script in named.items()}

    def find_script(self, agent: str | None) -> ListScript | FunctionScript:
        """Return the script of an agent, else the one for any agent."""
        name = ANY_AGENT if agent is None else agent
        # Spawned agents are numbered: `scout-2` follows the script of `scout`.
        stem = name.rpartition("-")[0]
        script = self._scripts.get(name) or self._scripts.get(stem) or self._scripts.get(ANY_AGENT)
        if script is None:
            caller = "a caller without a name" if agent is None else "agent {agent!r}"
            raise ScriptError(
                f"no script for {caller}; scripts exist for {{known}}; add one under its name, or "
                'one for any agent under "*"',
                code="script_missing",
                agent=agent,
                known=tuple(sorted(self._scripts)),
            )
        return script


MODEL_NAME = "scripted"


def as_message(reply: Reply, length: int) -> AIMessage:
    """Return a reply as a message; `length`, the messages before it, makes its calls' ids."""
    numbered = [(call, make_call_id(call, length, i)) for i, call in enumerate(reply.calls)]
    message = AIMessage(
        content=reply.content,
        # Copied, because a tool that changes its arguments must not change the script.
        tool_calls=[
            tool_call(name=call.name, args=copy.deepcopy(dict(call.args)), id=id_)
            for call, id_ in numbered
            if not isinstance(call.args, str)
        ],
        invalid_tool_calls=[
            invalid_tool_call(
                name=call.name,
                args=call.args,
                id=id_,
                error=f"the arguments of {call.name} are not a JSON object",
            )
            for call, id_ in numbered
            if isinstance(call.args, str)
        ],
        response_metadata={
            "finish_reason": get_finish_reason(reply),
            "model_name": MODEL_NAME,
        },
    )
    if reply.reasoning is not None:
        message.additional_kwargs["reasoning_content"] = reply.reasoning
    if reply.usage is not None:
        read, written = reply.usage
        message.usage_metadata = UsageMetadata(
            input_tokens=read, output_tokens=written, total_tokens=read + written
        )
    return message


def as_chunks(message: AIMessage) -> list[AIMessageChunk]:
    """Return a message as a provider streams it: words, fragments of calls, then the usage."""
    last: dict[str, Any] = {
        "content": "",
        "response_metadata": message.response_metadata,
        "chunk_position": "last",
    }
    if message.usage_metadata is not None:
        last["usage_metadata"] = message.usage_metadata
    parts = [*_split_parts(message), last]
    return [AIMessageChunk(id=message.id, **{"content": "", **part}) for part in parts]


def _split_parts(message: AIMessage) -> Iterator[dict[str, Any]]:
    others = dict(message.additional_kwargs)
    for word in split_words(others.pop("reasoning_content", "")):
        yield {"additional_kwargs": {"reasoning_content": word}}
    if others:
        yield {"additional_kwargs": others}
    if isinstance(message.content, str):
        for word in split_words(message.content):
            yield {"content": word}
    else:  # blocks of content cannot be cut without knowing their kind
        yield {"content": message.content}
    written = [(call["name"], json.dumps(call["args"]), call["id"]) for call in message.tool_calls]
    written += [
        (call["name"] or "", call["args"] or "", call["id"]) for call in message.invalid_tool_calls
    ]
    for index, (name, args, id_) in enumerate(written):
        yield {"tool_call_chunks": [tool_call_chunk(name=name, args="", id=id_, index=index)]}
        for fragment in split_arguments(args):
            yield {"tool_call_chunks": [tool_call_chunk(args=fragment, index=index)]}
