"""What a superior is told beside a result: read, and removed for tests of other things."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage

from echelons.delegation.spawned_agents import read_whole_roster
from echelons.identity.lineage import ASIDE_KEY, NOTICES_KEY, USER_ANSWERS_KEY


def without_told(text: object) -> str:
    """Return a result without the lines beneath it about the questions of others."""
    lines = str(text).split("\n")
    return "\n".join(each for each in lines if not _NOTICE.match(each))


def read_results(messages: Sequence[BaseMessage]) -> str:
    """Return all that stands after the last reply: the results, and the notices in them."""
    texts: list[str] = []
    for message in reversed(messages):
        if message.type == "ai":
            break
        texts.insert(0, str(message.text))
    return "\n".join(texts)


_NOTICE = re.compile(r"\[told to you\] |~\d{12} |.* asked the user: .* The answer was: ")
"""A notice: under the mark, as it was written once, or as a reply repeats it."""


def list_notices(messages: Sequence[BaseMessage]) -> list[list[str]]:
    """Return for each result what the library says beside it to the agent that reads it."""
    return [_get_beside(each) for each in messages if isinstance(each, ToolMessage)]


def _get_beside(message: BaseMessage) -> list[str]:
    beside = message.response_metadata.get(NOTICES_KEY)
    return beside if isinstance(beside, list) else []


def read_whole(message: BaseMessage) -> str:
    """Return a result and what the library says beside it, a line each."""
    return "\n".join([str(message.text), *_get_beside(message)])


def get_last(messages: Sequence[BaseMessage]) -> Any:
    """Return the last message that a model reads, without the notices after it and in it."""
    return without_notices(next(each for each in reversed(messages) if not is_own_notice(each)))


def without_notices(message: BaseMessage) -> Any:
    """Return a message as a model is shown it, without the block of notices of a result."""
    if message.type != "tool" or not isinstance(message.content, list):
        return message
    blocks = [each for each in message.content if not _is_notice_block(each)]
    texts = [each["text"] for each in blocks if isinstance(each, dict) and "text" in each]
    content: Any = "".join(texts) if len(texts) == len(blocks) else blocks
    return message.model_copy(update={"content": content})


def _is_notice_block(block: Any) -> bool:
    return isinstance(block, dict) and str(block.get("text", "")).startswith("\n~")


def is_said(message: BaseMessage) -> bool:
    """Return whether a message is a person's or a superior's, and no notice."""
    return message.type == "human" and not is_own_notice(message)


def is_own_notice(message: BaseMessage) -> bool:
    """Return whether a message of its own is a notice, and no mail."""
    mail = message.response_metadata.get(ASIDE_KEY) if message.type == "human" else None
    return bool(mail and mail["kind"] == "notice")


def without_marks(text: object) -> str:
    """Return what a model reads without the marks of its notices."""
    return re.sub(r"~\d{12} ", "", str(text))


def list_spawned(messages: Sequence[BaseMessage]) -> list[str]:
    """Return the names of the spawned agents that are there, as far as a model is told."""
    tasks = [place for place, each in enumerate(messages) if is_said(each)]
    task = tasks[-1] if tasks else 0
    earlier = read_whole_roster(messages[:task])
    kept = {name: each for name, each in earlier.items() if not each.until}
    roster = read_whole_roster(messages[task:], kept)
    return [name for name, each in roster.items() if each.role]


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
