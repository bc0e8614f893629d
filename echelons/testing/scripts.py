"""Scripts of `ScriptedModel`: the next step follows from the conversation alone.

No counter is kept: a process that resumes from disk finds the same conversation, and so
continues at the right step.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from echelons.errors import InvalidScript, ScriptExhausted, ScriptMissing
from echelons.identity.lineage import MAIL_KEY
from echelons.testing.steps import Call, Reply, as_reply

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
        if isinstance(message, HumanMessage) and MAIL_KEY not in message.response_metadata:
            break
        answers += isinstance(message, AIMessage)
    return answers


def count_answers(messages: Sequence[BaseMessage]) -> int:
    """Return the number of answers in the whole conversation."""
    return sum(isinstance(message, AIMessage) for message in messages)


def as_outcome(step: object) -> StepOutcome:
    """Return the outcome of a step: a reply, a message or an exception.

    Raises:
        InvalidScript: It is not a step.
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
class ListScript:
    """A script that is a list; its position is counted in the conversation.

    Attributes:
        steps: The steps, in order.
        position: Counts the steps that a conversation has already played.
    """

    steps: tuple[StepOutcome, ...]
    position: PositionCounter = count_turn_answers

    def next(self, agent: str | None, messages: Sequence[BaseMessage]) -> StepOutcome:
        """Return the next step of a conversation.

        Raises:
            ScriptExhausted: The conversation has played all steps.
        """
        index = self.position(messages)
        if index >= len(self.steps):
            raise ScriptExhausted(agent, index, len(self.steps))
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
    """Return a list as a script per turn, or a function as a script that calls it.

    Raises:
        InvalidScript: It is neither, or one of its steps is not a step.
    """
    if isinstance(script, ListScript):
        return script
    if isinstance(script, list | tuple):
        return ListScript(tuple(as_outcome(step) for step in script))
    if callable(script) and not isinstance(script, type):
        return FunctionScript(cast("StepFunction", script))
    raise InvalidScript(f"the script {script!r}", "a list of steps or a function of the messages")


class AgentScripts:
    """The scripts of all agents of one model."""

    def __init__(self, scripts: Mapping[str, Script] | Script) -> None:
        named = scripts if isinstance(scripts, Mapping) else {ANY_AGENT: scripts}
        self._scripts = {agent: as_script(script) for agent, script in named.items()}

    def find_script(self, agent: str | None) -> ListScript | FunctionScript:
        """Return the script of an agent, else the one for any agent.

        An agent that was made at run time has that of its name without the digits at its end.

        Raises:
            ScriptMissing: There is neither.
        """
        name = ANY_AGENT if agent is None else agent
        stem = name.rpartition("-")[0]
        script = self._scripts.get(name) or self._scripts.get(stem) or self._scripts.get(ANY_AGENT)
        if script is None:
            raise ScriptMissing(agent, sorted(self._scripts))
        return script
