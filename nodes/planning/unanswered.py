"""Ends a segment with questions to the superior, or with some that the user left open. Pure.

`reason` calls it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage

from echelons.delegation.request import Status
from echelons.identity.lineage import UNANSWERED_KEY
from echelons.messaging.agent_question import AgentQuestion


def build_question_report(questions: Sequence[AgentQuestion]) -> dict[str, Any]:
    """Return the report of a segment that ends with questions to its superior."""
    return {
        "status": str(Status.NEEDS_INPUT),
        "result": "\n".join(each.text for each in questions),
        "questions": [each.stored() for each in questions],
    }


def build_unanswered_update(messages: Sequence[BaseMessage]) -> dict[str, Any] | None:
    """Return the update that ends a segment whose last calls the user has not answered in time.

    `None` if there is no such call: the superior is asked what the user was.
    """
    found: list[AgentQuestion] = []
    for message in reversed(messages):
        if not isinstance(message, ToolMessage):
            break
        if (asked := message.response_metadata.get(UNANSWERED_KEY)) is not None:
            found.insert(0, AgentQuestion.load(asked))
    return {"response": build_question_report(found)} if found else None
