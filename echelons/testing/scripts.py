"""Scripts: which step comes next, read off the conversation and nothing else.

``ScriptedModel`` asks here. No counter is kept anywhere: a process that resumes from disk
finds the conversation as it was, and so goes on with the right step.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from echelons.errors import InvalidScript, ScriptExhausted, ScriptMissing
from echelons.testing.steps import Call, Reply, as_reply

ANY_AGENT = "*"
"""The name under which the script for every agent without one of its own stands."""

STEP_KINDS = "a str, Reply, Call, list of Calls, AIMessage, or an exception"

Step: TypeAlias = (
    str | Reply | Call | Sequence[Call] | AIMessage | BaseException | type[BaseException]
)
Outcome: TypeAlias = Reply | AIMessage | BaseException | type[BaseException]
Position: TypeAlias = Callable[[Sequence[BaseMessage]], int]


def turn_position(messages: Sequence[BaseMessage]) -> int:
    """How many answers stand after the last human message: each one begins a new turn.

    A delegation hands its message to the subordinate as a human message, so a script per
    turn is a script per delegation.
    """
    answers = 0
    for message in reversed(messages):
        if isinstance(message, HumanMessage):
            break
        answers += isinstance(message, AIMessage)
    return answers


def conversation_position(messages: Sequence[BaseMessage]) -> int:
    """How many answers stand in the whole conversation."""
    return sum(isinstance(message, AIMessage) for message in messages)


def as_outcome(step: object) -> Outcome:
    """What a step makes the model do.

    Raises:
        InvalidScript: It is no step.
    """
    if isinstance(step, AIMessage | BaseException):
        return step
    if isinstance(step, type) and issubclass(step, BaseException):
        return step
    reply = as_reply(step)
    if reply is None:
        raise InvalidScript(f"the step {step!r}", STEP_KINDS)
    return reply


@dataclass(frozen=True)
class Steps:
    """A script that is a list; where it stands is counted in the conversation.

    Attributes:
        steps: The steps, in order.
        position: Counts the steps that a conversation has behind it.
    """

    steps: tuple[Outcome, ...]
    position: Position = turn_position

    def next(self, agent: str | None, messages: Sequence[BaseMessage]) -> Outcome:
        """The step for a conversation that stands at ``messages``.

        Raises:
            ScriptExhausted: The conversation has all steps behind it.
        """
        index = self.position(messages)
        if index >= len(self.steps):
            raise ScriptExhausted(agent, index, len(self.steps))
        return self.steps[index]


StepFunction: TypeAlias = Callable[[Sequence[BaseMessage]], Step | Awaitable[Step]]
Script: TypeAlias = Steps | Sequence[Step] | StepFunction


@dataclass(frozen=True)
class Computed:
    """A script that is a function of the messages, async or not."""

    function: StepFunction

    def next(self, agent: str | None, messages: Sequence[BaseMessage]) -> Step | Awaitable[Step]:
        """The step for a conversation that stands at ``messages``, perhaps to be awaited."""
        return self.function(messages)


def per_conversation(steps: Sequence[Step]) -> Steps:
    """A script that is played once per conversation, over all its turns.

    Examples:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> script = per_conversation(["first", "second"])
        >>> turn = [HumanMessage("a"), AIMessage("first"), HumanMessage("b")]
        >>> script.next("head", turn).content
        'second'
    """
    return Steps(tuple(as_outcome(step) for step in steps), conversation_position)


def as_script(script: object) -> Steps | Computed:
    """A list becomes a script per turn; a function is asked each time.

    Raises:
        InvalidScript: It is none of these, or one of its steps is no step.
    """
    if isinstance(script, Steps):
        return script
    if isinstance(script, list | tuple):
        return Steps(tuple(as_outcome(step) for step in script))
    if callable(script) and not isinstance(script, type):
        return Computed(cast("StepFunction", script))
    raise InvalidScript(f"the script {script!r}", "a list of steps or a function of the messages")


class Scripts:
    """The scripts of all agents of one model."""

    def __init__(self, scripts: Mapping[str, Script] | Script) -> None:
        named = scripts if isinstance(scripts, Mapping) else {ANY_AGENT: scripts}
        self._scripts = {agent: as_script(script) for agent, script in named.items()}

    def of(self, agent: str | None) -> Steps | Computed:
        """The script of this agent, else the one for any agent.

        Raises:
            ScriptMissing: There is neither.
        """
        script = self._scripts.get(ANY_AGENT if agent is None else agent)
        script = script or self._scripts.get(ANY_AGENT)
        if script is None:
            raise ScriptMissing(agent, sorted(self._scripts))
        return script
