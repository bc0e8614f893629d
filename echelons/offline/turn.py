"""The current turn: the task in its conversation, and the answers to the calls so far.

It is read from the messages at every call, as the planner keeps no state. Results of tools are
data for the answer; no rule ever reads a request out of them.

A superior passes a task on whole, so that the next level can split it by the same rules, and adds
which part is meant and what was said before. Both lines are plain language, so that a language
model at the next level understands them as well as a planner does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from pydantic import BaseModel

from echelons.delegation.mail import load_mail
from echelons.delegation.user_answers import USER_ANSWER_PREFIX
from echelons.identity.lineage import ASIDE_KEY, DELEGATED_KEY
from echelons.offline.values import PlaceRole, find_place_names
from echelons.offline.words import TokenizedText
from echelons.text.content_blocks import read_block_texts
from echelons.tree.names import CALL_SUBORDINATE

PART_PREFIX: Final = "Your part: "
EARLIER_PREFIX: Final = "Earlier: "
NO_ANSWER: Final = "no answer"

MAX_EARLIER_CHARACTERS: Final = 1_000
"""Characters of the earlier message that are passed on."""


@dataclass(frozen=True)
class TaskBrief:
    """The message to a subordinate: a task, with the lines that its superior's planner added."""

    task: str
    part: tuple[str, ...] = ()
    """The words of the task that are meant; empty if all of it is."""
    earlier: str = ""
    """The earlier statement that the task depends on."""

    @classmethod
    def from_text(cls, text: str) -> TaskBrief:
        r"""Parse `text`; a text without the added lines is only a task.

        >>> TaskBrief.from_text("Rome, with museums and food\nYour part: museums, food")
        TaskBrief(task='Rome, with museums and food', part=('museums', 'food'), earlier='')
        """
        task, earlier = _split_last_line(text, EARLIER_PREFIX)
        task, part = _split_last_line(task, PART_PREFIX)
        return cls(task, tuple(word for word in part.split(", ") if word), earlier)

    def __str__(self) -> str:
        lines = [self.task]
        if self.part:
            lines.append(PART_PREFIX + ", ".join(self.part))
        if self.earlier:
            earlier = " ".join(self.earlier.split())
            more = "…" if len(earlier) > MAX_EARLIER_CHARACTERS else ""
            lines.append(f"{EARLIER_PREFIX}{earlier[:MAX_EARLIER_CHARACTERS]}{more}")
        return "\n".join(lines)


def _split_last_line(text: str, mark: str) -> tuple[str, str]:
    before, newline, last = text.rpartition("\n")
    if newline and last.startswith(mark):
        return before, last.removeprefix(mark)
    return text, ""


@dataclass(frozen=True)
class TaskContext:
    """A task in its conversation: `thread` has the earlier messages, the latest first."""

    brief: TaskBrief
    thread: tuple[TokenizedText, ...] = ()

    @cached_property
    def earlier(self) -> tuple[TokenizedText, ...]:
        """The earlier statements, the latest first; that passed on by the superior comes first."""
        passed_on = (TokenizedText(self.brief.earlier),) if self.brief.earlier else ()
        return (*passed_on, *self.thread)

    @cached_property
    def task(self) -> TokenizedText:
        """The tokenised task."""
        return TokenizedText(self.brief.task)

    @property
    def texts(self) -> tuple[TokenizedText, ...]:
        """The task, then the earlier statements, the latest first."""
        return (self.task, *self.earlier)

    @property
    def part(self) -> tuple[str, ...]:
        """The words of the task that are meant; empty if all are."""
        return self.brief.part

    @cached_property
    def background(self) -> str:
        """The earlier statement that the task depends on: what places, if it names none."""
        places = find_place_names(self.task)
        if self.brief.earlier or any(
            place.certain or place.role is not PlaceRole.MENTION for place in places
        ):
            return self.brief.earlier
        placed = (t.text for t in self.earlier if any(p.certain for p in find_place_names(t)))
        return next(placed, "")


@dataclass(frozen=True)
class CallAnswer:
    """The answer to one call."""

    source: str
    """The name of the subordinate or tool."""
    request: str
    """The message to the subordinate, which groups answers to the same question."""
    text: str
    status: str = "fulfilled"
    confidence: float | None = None
    reason: str = ""
    """Why it is not fulfilled."""
    delegated: bool = False


@dataclass(frozen=True)
class PlannerTurn:
    """One turn of a conversation, with the answers in the order of the calls."""

    context: TaskContext
    called_tools: tuple[str, ...] = ()
    answers: tuple[CallAnswer, ...] = ()

    @classmethod
    def from_messages(cls, messages: Sequence[BaseMessage]) -> PlannerTurn:
        """Return the last turn of `messages`; without a human message its task is empty."""
        humans = [
            i
            for i, message in enumerate(messages)
            if isinstance(message, HumanMessage) and not _is_mail(message)
        ]
        if not humans:
            return cls(TaskContext(TaskBrief("")))
        tasks = (_read_task(messages[i]) for i in reversed(humans))
        brief, *before = map(TaskBrief.from_text, tasks)
        thread = [text for earlier in before for text in (earlier.task, earlier.earlier)]
        context = TaskContext(brief, tuple(TokenizedText(text) for text in thread if text.strip()))
        since = messages[humans[-1] + 1 :]
        calls = [call for m in since if isinstance(m, AIMessage) for call in m.tool_calls]
        results = {m.tool_call_id: m for m in since if isinstance(m, ToolMessage)}
        answers = tuple(_read_answer(call, results.get(call["id"] or "")) for call in calls)
        return cls(context, tuple(call["name"] for call in calls), answers)


def _is_mail(message: HumanMessage) -> bool:
    """Return whether a message from outside is no task; an intervention is one."""
    return message.response_metadata.get(ASIDE_KEY, {}).get("kind") in ("message", "notice")


def _read_task(message: BaseMessage) -> str:
    text = read_block_texts(message.content)
    mail = message.response_metadata.get(ASIDE_KEY)
    return load_mail(text, mail).text if mail else text


def _read_answer(call: Mapping[str, Any], message: ToolMessage | None) -> CallAnswer:
    arguments = call["args"]
    artifact = message.artifact if message is not None else None
    if isinstance(artifact, BaseModel):
        artifact = artifact.model_dump()
    facts: Mapping[str, Any] = artifact if isinstance(artifact, Mapping) else {}
    is_typed = message is not None and DELEGATED_KEY in message.response_metadata
    delegated = call["name"] == CALL_SUBORDINATE or is_typed
    agent = arguments.get("subordinate") or facts.get("agent")
    source = str(agent) if delegated and agent else str(call["name"])
    request = str(arguments.get("message", "")) if delegated else ""
    if message is None:
        return CallAnswer(source, request, "", "unable", reason=NO_ANSWER, delegated=delegated)
    text = str(message.text)
    if facts.get("user_answers"):
        # An earlier version put them beneath the answer.
        text = text.partition(f"\n{USER_ANSWER_PREFIX}")[0]
    result = facts.get("result")
    if delegated and isinstance(result, str) and result:
        text = result
    status = "unable" if message.status == "error" else str(facts.get("status") or "")
    reason = str(facts.get("reason") or "")
    if status == "unable" and not reason:
        reason = text
    if status not in ("partial", "unable", "needs_input"):
        status = "fulfilled"
    rating: Any = facts.get("confidence")
    rated = isinstance(rating, int | float) and not isinstance(rating, bool)
    confidence = float(rating) if rated and 0 <= rating <= 1 else None
    return CallAnswer(source, request, text, status, confidence, reason, delegated)
