"""Removes what a superior is told beneath a result, for tests of other things that echo results."""

from __future__ import annotations

from typing import Any

from echelons.identity.lineage import USER_ANSWERS_KEY
from echelons.messaging.user_answer import USER_ANSWER_PREFIX


def without_told(text: object) -> str:
    """Return a result without the lines beneath it about the questions of others."""
    lines = str(text).split("\n")
    return "\n".join(each for each in lines if not each.startswith(USER_ANSWER_PREFIX))


def without_outcomes(text: object) -> str:
    """Return a result without the lines about calls that death has cut short."""
    lines = str(text).split("\n")
    return "\n".join(each for each in lines if "then cut short. Did it happen?" not in each)


def without_user_answers(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message as JSON without anything of what the user was asked past a superior."""
    if message["type"] != "tool":
        return message
    metadata = {k: v for k, v in message["response_metadata"].items() if k != USER_ANSWERS_KEY}
    kept = {**message, "content": without_told(message["content"]), "response_metadata": metadata}
    if isinstance(kept.get("artifact"), dict):
        kept["artifact"] = {k: v for k, v in kept["artifact"].items() if k != "user_answers"}
    return kept
