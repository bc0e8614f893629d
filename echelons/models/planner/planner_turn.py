"""The current turn: the human's last message, and the results of its calls so far.

It is read from the messages at every call, as the planner keeps no state. Results of tools are
data for `answer_text`; no rule ever reads a request out of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from pydantic import BaseModel

from echelons.identity.lineage import DELEGATED_KEY, MAIL_KEY
from echelons.language.tokens import TokenizedText
from echelons.messaging.mail import load_mail
from echelons.messaging.user_answer import USER_ANSWER_PREFIX
from echelons.models.planner.task_context import TaskBrief, TaskContext
from echelons.models.planner.toolbox import DELEGATE_TOOL
from echelons.text.content_blocks import read_block_texts

NO_ANSWER = "no answer"


@dataclass(frozen=True)
class CallAnswer:
    """The answer to one call.

    Attributes:
        source: The name of the subordinate or tool.
        asked: The message to the subordinate, which groups answers to the same question.
        text: The answer, verbatim.
        status: "fulfilled", "partial", "unable" or "needs_input".
        confidence: The source's confidence, 0 to 1; None if it gives none.
        reason: Why it is not fulfilled.
        delegated: Whether it is from a subordinate.
    """

    source: str
    asked: str
    text: str
    status: str = "fulfilled"
    confidence: float | None = None
    reason: str = ""
    delegated: bool = False


@dataclass(frozen=True)
class PlannerTurn:
    """One turn of a conversation.

    Attributes:
        context: The task, in its conversation.
        called_tools: Names of the tools called in this turn.
        answers: The answers to the calls, in the order of the calls.
    """

    context: TaskContext
    called_tools: tuple[str, ...] = ()
    answers: tuple[CallAnswer, ...] = ()

    @classmethod
    def from_messages(cls, messages: Sequence[BaseMessage]) -> PlannerTurn:
        """Return the last turn of `messages`; without a human message its task is empty."""
        humans = [
            i
            for i, message in enumerate(messages)
            if isinstance(message, HumanMessage) and not _is_message(message)
        ]
        if not humans:
            return cls(TaskContext(TaskBrief("")))
        texts = (_read_task(messages[i]) for i in reversed(humans))
        brief, *before = map(TaskBrief.from_text, texts)
        thread = [text for one in before for text in (one.task, one.earlier)]
        said = TaskContext(brief, tuple(TokenizedText(text) for text in thread if text.strip()))
        since = messages[humans[-1] + 1 :]
        calls = [call for m in since if isinstance(m, AIMessage) for call in m.tool_calls]
        given = {m.tool_call_id: m for m in since if isinstance(m, ToolMessage)}
        answers = tuple(_read_answer(call, given.get(call["id"] or "")) for call in calls)
        return cls(said, tuple(call["name"] for call in calls), answers)


def _is_message(message: HumanMessage) -> bool:
    """Return whether a message from outside is no task; an intervention is one."""
    return message.response_metadata.get(MAIL_KEY, {}).get("kind") in ("message", "notice")


def _read_task(message: BaseMessage) -> str:
    text = read_block_texts(message.content)
    mail = message.response_metadata.get(MAIL_KEY)
    return load_mail(text, mail).text if mail else text


def _read_answer(call: Mapping[str, Any], message: ToolMessage | None) -> CallAnswer:
    arguments = call["args"]
    artifact = message.artifact if message is not None else None
    if isinstance(artifact, BaseModel):
        artifact = artifact.model_dump()
    facts: Mapping[str, Any] = artifact if isinstance(artifact, Mapping) else {}
    is_typed = message is not None and DELEGATED_KEY in message.response_metadata
    delegated = call["name"] == DELEGATE_TOOL or is_typed
    named = arguments.get("subordinate") or facts.get("agent")
    source = str(named) if delegated and named else str(call["name"])
    asked = str(arguments.get("message", "")) if delegated else ""
    if message is None:
        return CallAnswer(source, asked, "", "unable", reason=NO_ANSWER, delegated=delegated)
    text = str(message.text)
    if facts.get("user_answers"):
        # An earlier version put them beneath the answer.
        text = text.partition(f"\n{USER_ANSWER_PREFIX}")[0]
    result = facts.get("result")
    if delegated and isinstance(result, str) and result:
        text = result
    status = str(facts.get("status") or "")
    if message.status == "error":
        status = "unable"
    reason = str(facts.get("reason") or "")
    if status == "unable" and not reason:
        reason = text
    if status not in ("partial", "unable", "needs_input"):
        status = "fulfilled"
    sure: Any = facts.get("confidence")
    rated = isinstance(sure, int | float) and not isinstance(sure, bool)
    confidence = float(sure) if rated and 0 <= sure <= 1 else None
    return CallAnswer(source, asked, text, status, confidence, reason, delegated)
