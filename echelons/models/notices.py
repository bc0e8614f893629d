"""Shows a thread's notices to its model under the thread's mark, and keeps the mark there.

It stands at the one way to a model, which all that a model reads passes: answers, files, errors,
roles, and what middleware adds. Nothing that is stored or shown elsewhere has the mark, but the
state and the head of the thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableConfig

from echelons.delegation.mail import Mail, MailKind, render_mail
from echelons.delegation.notice import (
    SIGNED_BLOCKS,
    format_notice,
    has_mark,
    may_have_mark,
    remove_mark,
    remove_mark_across,
    remove_mark_deep,
)
from echelons.identity.lineage import ASIDE_KEY, NOTICES_KEY
from echelons.prompts import build_notice_guidance
from echelons.run_context import get_context, with_context

Shorten: TypeAlias = Callable[[list[BaseMessage]], list[BaseMessage]]
"""Returns messages with a part of each long result; the same list if none is long."""


class View(NamedTuple):
    """The notices that the model of a thread is shown. Pure."""

    mark: str
    # Whether the instructions name the mark: those of an agent that is alone are its user's.
    is_announced: bool = True
    # Shows a part of each long result.
    shorten: Shorten | None = None

    def show(self, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        """Return what is shown of whole steps: each notice under the mark, nothing else with it.

        The notices beside a result are a block of it: a message of their own after the results
        would look like another task.
        """
        shown = [*messages]
        if self.shorten:
            shown = self.shorten(shown)
        # One look at all of it, as hardly any message has something to show or to leave out.
        contents = [(message.name, message.content) for message in shown]
        text = "\n".join(
            [f"{name} {text if type(text) is str else _join(text)}" for name, text in contents]
        )
        noted = [1 for message in shown if message.response_metadata and message.type not in _REPLY]
        if noted or may_have_mark(text):
            shown = [_show(message, self.mark) for message in shown]
        return shown

    def show_new(
        self, messages: Sequence[BaseMessage], shown: Sequence[BaseMessage]
    ) -> list[BaseMessage]:
        """Return messages that are shown already, but for notices that fitting has added."""
        old = {id(message) for message in shown}
        return [
            _show(message, self.mark)
            if id(message) not in old
            and is_notice(message)
            and not str(message.text).startswith(self.mark)
            else message
            for message in messages
        ]

    def introduce(self, system: Sequence[BaseMessage]) -> list[BaseMessage]:
        """Return the instructions, with what the mark is at the end of the first."""
        # What others say stands there, too: roles, summaries, what a prompt's function reads.
        shown = [_clean(message, self.mark) for message in system]
        if not self.is_announced:
            return shown
        text = build_notice_guidance(self.mark)
        return [_add_text(shown[0], text), *shown[1:]] if shown else [SystemMessage(text)]

    def show_all(self, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        """Return what is shown of a whole conversation, with its instructions first."""
        first = 0
        while first < len(messages) and messages[first].type == "system":
            first += 1
        return [*self.introduce(messages[:first]), *self.show(messages[first:])]


def with_view(config: RunnableConfig, view: View) -> RunnableConfig:
    """Return the config of the model calls of a thread."""
    return with_context(config, replace(get_context(config), view=view))


def get_view(config: Mapping[str, Any]) -> View | None:
    """Return the view of the thread that a model call is for; `None` for any other call."""
    return get_context(config).view


def clean_reply(reply: Any, mark: str) -> Any:
    """Return a model's reply without its thread's mark, which is for no other reader."""
    if type(reply) is not AIMessage and not isinstance(reply, AIMessage):
        return reply
    calls = f"{reply.tool_calls}{reply.invalid_tool_calls}{reply.additional_kwargs}"
    content: Any = reply.content
    text = content if type(content) is str else _join(content)
    if not may_have_mark(f"{reply.name} {text} {calls}"):
        return reply
    clean: AIMessage = _clean(reply, mark)
    held = {key: getattr(clean, key) for key in _CALL_FIELDS}
    update = {
        key: cleaned
        for key, value in held.items()
        if (cleaned := remove_mark_deep(value, mark)) != value
    }
    return clean.model_copy(update=update) if update else clean


_CALL_FIELDS = ("tool_calls", "invalid_tool_calls", "additional_kwargs")
_REPLY = frozenset({"ai", "AIMessageChunk"})


_SENDERS: Mapping[MailKind, str] = {
    "correction": "your contract",
    "budget": "your budget",
    "length": "the length limit",
    "repeated": "your limits",
    "notice": "",
}
"""As whose messages an agent reads those of the library, by their kind."""


def build_aside(kind: MailKind, text: str, id: str = "") -> HumanMessage:
    """Return a message of the library to an agent, which is no task, to be stored under an id."""
    sender = _SENDERS[kind]
    noted = Mail(0, sender, "", "", kind).to_metadata()
    text = render_mail(sender, text, kind)
    return HumanMessage(text, id=id or None, response_metadata={ASIDE_KEY: noted})


def build_notice(text: str, id: str = "") -> HumanMessage:
    """Return a notice as a message of its own, on one line, to be stored under an id."""
    return build_aside("notice", text, id)


def mark_notice(message: ToolMessage) -> ToolMessage:
    """Return the answer to a call, all of which the library says itself."""
    metadata = {**message.response_metadata, NOTICES_KEY: True}
    return message.model_copy(update={"response_metadata": metadata})


def list_notices(message: BaseMessage) -> list[str]:
    """Return the notices that stand beside a message, a line each."""
    beside = message.response_metadata.get(NOTICES_KEY)
    return [" ".join(str(line).split()) for line in beside] if isinstance(beside, list) else []


def is_notice(message: BaseMessage) -> bool:
    """Return whether the library says the whole of a message itself."""
    metadata = message.response_metadata
    if not metadata or isinstance(message, AIMessage):
        return False
    return ASIDE_KEY in metadata or metadata.get(NOTICES_KEY) is True


def _show(message: BaseMessage, mark: str) -> BaseMessage:
    """Return what is shown of a message."""
    shown: BaseMessage = _clean(message, mark)
    if message.response_metadata and (lines := list_notices(message)):
        # In a block of their own beside the result.
        text = "".join(f"\n{format_notice(mark, remove_mark(line, mark))}" for line in lines)
        held: Any = shown.content
        content = [*([_build_text(held)] if isinstance(held, str) else held), _build_text(text)]
        shown = shown.model_copy(update={"content": content})
    return _introduce(shown, mark) if is_notice(message) else shown


def _introduce(message: BaseMessage, mark: str) -> BaseMessage:
    """Return a notice under the mark."""
    held: Any = message.content
    start = format_notice(mark, "")
    content = f"{start}{held}" if isinstance(held, str) else [_build_text(start), *held]
    return message.model_copy(update={"content": content})


def _add_text(message: BaseMessage, text: str) -> BaseMessage:
    held: Any = message.content
    content = f"{held}\n\n{text}" if isinstance(held, str) else [*held, _build_text(text)]
    return message.model_copy(update={"content": content})


def _clean(message: Any, mark: str) -> Any:
    """Return a message without a mark in its text, the same object if it has none."""
    update: dict[str, Any] = {}
    held = message.content
    clean = remove_mark(held, mark) if type(held) is str else _clean_blocks(held, mark)
    if clean is not held:
        update["content"] = clean
    if message.name and (name := remove_mark(message.name, mark)) != message.name:
        update["name"] = name or None
    return message.model_copy(update=update) if update else message


def _clean_blocks(blocks: Any, mark: str) -> Any:
    """Return content blocks without a mark, be it in one or over several."""
    clean = remove_mark_deep(blocks, mark)
    texts = [*map(_read_text, clean)]
    if sum(map(bool, texts)) < 2 or not has_mark("".join(texts), mark):
        return clean
    left = remove_mark_across(texts, mark)
    return [
        block if text == new else new if isinstance(block, str) else {**block, "text": new}
        for block, text, new in zip(clean, texts, left, strict=True)
    ]


def _join(blocks: Any) -> str:
    """Return all that content blocks hold, and their texts as they are read."""
    return f"{blocks}\n{''.join(map(_read_text, blocks))}"


def _read_text(block: Any) -> str:
    if isinstance(block, Mapping):
        block = block.get("text") if block.get("type") not in SIGNED_BLOCKS else ""
    return block if isinstance(block, str) else ""


def _build_text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
