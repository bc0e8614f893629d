"""What a superior is told beside a result: read, and removed for tests of other things."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage

from echelons.identity.lineage import MAIL_KEY, NOTICES_KEY, USER_ANSWERS_KEY
from echelons.messaging.user_answer import USER_ANSWER_PREFIX


def without_told(text: object) -> str:
    """Return a result without the lines beneath it about the questions of others."""
    lines = str(text).split("\n")
    return "\n".join(each for each in lines if not each.startswith(USER_ANSWER_PREFIX))


def list_notices(messages: Sequence[BaseMessage]) -> list[list[str]]:
    """Return for each result what the library says beside it to the agent that reads it."""
    return [
        each.response_metadata.get(NOTICES_KEY, [])
        for each in messages
        if isinstance(each, ToolMessage)
    ]


def read_whole(message: BaseMessage) -> str:
    """Return a result and what the library says beside it, a line each."""
    return "\n".join([str(message.text), *message.response_metadata.get(NOTICES_KEY, ())])


def get_last(messages: Sequence[BaseMessage]) -> BaseMessage:
    """Return the last message that a model reads, but for notices after it."""
    return next(each for each in reversed(messages) if not _is_own_notice(each))


def is_said(message: BaseMessage) -> bool:
    """Return whether a message is a person's or a superior's, and no notice."""
    return message.type == "human" and not _is_own_notice(message)


def _is_own_notice(message: BaseMessage) -> bool:
    mail = message.response_metadata.get(MAIL_KEY) if message.type == "human" else None
    return bool(mail and mail["kind"] == "notice")


def without_outcomes(text: object) -> str:
    """Return a result without the lines about calls that death has cut short."""
    lines = str(text).split("\n")
    return "\n".join(each for each in lines if "then cut short. Did it happen?" not in each)


def without_user_answers(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message as JSON without anything of what the user was asked past a superior."""
    if message["type"] != "tool":
        return message
    hidden = (USER_ANSWERS_KEY, NOTICES_KEY)
    metadata = {k: v for k, v in message["response_metadata"].items() if k not in hidden}
    kept = {**message, "content": without_told(message["content"]), "response_metadata": metadata}
    if isinstance(kept.get("artifact"), dict):
        kept["artifact"] = {k: v for k, v in kept["artifact"].items() if k != "user_answers"}
    return kept
