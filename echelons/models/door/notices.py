"""Shows a thread's notices to its model under the thread's mark, and keeps the mark there.

It stands at the one way to a model, which all that a model reads passes: answers, files, errors,
roles, and what middleware adds. Nothing that is stored or shown elsewhere has the mark, but the
state and the head of the thread.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from operator import is_
from typing import Any, Final, NamedTuple

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.runnables import RunnableConfig

from echelons.identity.lineage import MAIL_KEY, NOTICES_KEY
from echelons.messaging.mail import Mail, render_mail
from echelons.messaging.notice import (
    format_notice,
    has_mark,
    remove_mark,
    remove_mark_deep,
)
from echelons.prompts import build_notice_guidance

NOTICES_CONFIG_KEY = "__echelons_notices"
"""Key of a model call's config: the `Notices` of the thread that it is for."""


class Notices(NamedTuple):
    """The notices of the thread that a model call is for.

    Attributes:
        mark: The thread's mark.
        writer: Shows them.
    """

    mark: str
    writer: NoticeWriter

    def show(self, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        """Return what a model reads, see `NoticeWriter.show`."""
        return self.writer.show(messages, self.mark)


class _Shown(NamedTuple):
    """What is remembered of a thread's latest request.

    Attributes:
        given: The messages that it began with.
        messages: What is shown of them.
    """

    given: Sequence[BaseMessage]
    messages: Sequence[BaseMessage]


class NoticeWriter:
    """Shows the notices of the threads of one agent.

    Args:
        is_announced: Whether the instructions name the mark. Those of an agent that is alone do
            not: they are its user's alone.
    """

    MAX_THREADS: Final = 32
    """Threads whose latest request is remembered; the least recently used goes first."""

    def __init__(self, *, is_announced: bool = True) -> None:
        self._is_announced = is_announced
        self._known: OrderedDict[str, _Shown] = OrderedDict()

    def show(self, messages: Sequence[BaseMessage], mark: str) -> list[BaseMessage]:
        """Return what a model reads: each notice under the mark, and nothing else with it.

        The notices beside a result are a block of it: a message of their own after the results
        would look like another task. What is shown of earlier messages are the same objects as in
        the request before, and not looked at again.
        """
        given, system = [*messages], list[BaseMessage]()
        if given and isinstance(given[0], SystemMessage):
            system = [given.pop(0)]
        known = self._known.pop(mark, None) or _Shown((), ())
        # Each message is shown as one, so that what follows a message that is another object, as
        # those of the last turn are once they were read from storage, is looked at again alone.
        same = [*map(is_, known.given, given)]
        begun = same.index(False) if False in same else len(same)
        known = _Shown(known.given[:begun], known.messages[:begun])
        # What follows the last reply may still get results.
        places = range(len(given) - 1, begun - 1, -1)
        end = next((place for place in places if isinstance(given[place], AIMessage)), begun)
        self._known[mark] = known = _append(known, given[begun:end], mark)
        while len(self._known) > self.MAX_THREADS:
            self._known.popitem(last=False)
        if self._is_announced:
            system = [_announce(system, mark)]
        return [*system, *_append(known, given[end:], mark).messages]


def with_notices(config: RunnableConfig, notices: Notices) -> RunnableConfig:
    """Return the config of the model calls of a thread."""
    own = {**config.get("configurable", {}), NOTICES_CONFIG_KEY: notices}
    return {**config, "configurable": own}


def get_notices(config: Mapping[str, Any]) -> Notices | None:
    """Return the notices of the thread that a model call is for; `None` for any other call."""
    notices: Notices | None = (config.get("configurable") or {}).get(NOTICES_CONFIG_KEY)
    return notices


def clean_reply(reply: Any, mark: str) -> Any:
    """Return a model's reply without its thread's mark, which is for no other reader."""
    if not isinstance(reply, AIMessage):
        return reply
    clean: AIMessage = _clean(reply, mark)
    held = {key: getattr(clean, key) for key in _CALL_FIELDS}
    text = repr([*held.values()])
    # One look at all of it; what `repr` escapes may hide the mark.
    if not ("\\u" in text or "\\x" in text or has_mark(text, mark)):
        return clean
    update = {
        key: each for key, value in held.items() if (each := remove_mark_deep(value, mark)) != value
    }
    return clean.model_copy(update=update) if update else clean


_CALL_FIELDS = ("tool_calls", "invalid_tool_calls", "additional_kwargs")


def build_notice(text: str, id: str = "") -> HumanMessage:
    """Return a notice as a message of its own, on one line, to be stored under an id."""
    return _build_message(render_mail("", text, "notice"), id)


def mark_notice(message: ToolMessage) -> ToolMessage:
    """Return the answer to a call, all of which the library says itself."""
    metadata = {**message.response_metadata, NOTICES_KEY: True}
    return message.model_copy(update={"response_metadata": metadata})


def list_notices(message: BaseMessage) -> list[str]:
    """Return the notices that stand beside a message, a line each."""
    beside = message.response_metadata.get(NOTICES_KEY)
    return [_join_lines(str(each)) for each in beside] if isinstance(beside, list) else []


def is_notice(message: BaseMessage) -> bool:
    """Return whether the library says the whole of a message itself."""
    metadata = message.response_metadata
    if not metadata or isinstance(message, AIMessage):
        return False
    return MAIL_KEY in metadata or metadata.get(NOTICES_KEY) is True


def _append(shown: _Shown, messages: Sequence[BaseMessage], mark: str) -> _Shown:
    """Return what is shown with further messages, which begin with no result of an earlier call."""
    written = [*shown.messages]
    for message in messages:
        clean = _clean(message, mark)
        if message.response_metadata and (lines := list_notices(message)):
            clean = _add_lines(clean, lines, mark)
        written.append(_introduce(clean, mark) if is_notice(message) else clean)
    return _Shown([*shown.given, *messages], written)


def _add_lines(message: BaseMessage, lines: Sequence[str], mark: str) -> BaseMessage:
    """Return a result with notices in a block of their own."""
    text = "".join(f"\n{format_notice(mark, remove_mark(line, mark))}" for line in lines)
    held: Any = message.content
    content = [*([_build_text(held)] if isinstance(held, str) else held), _build_text(text)]
    return message.model_copy(update={"content": content})


def _build_message(text: str, id: str = "") -> HumanMessage:
    noted = Mail(0, "", "", "", "notice").to_metadata()
    return HumanMessage(text, id=id or None, response_metadata={MAIL_KEY: noted})


def _introduce(message: BaseMessage, mark: str) -> BaseMessage:
    """Return a notice under the mark."""
    held: Any = message.content
    start = format_notice(mark, "")
    content = f"{start}{held}" if isinstance(held, str) else [_build_text(start), *held]
    return message.model_copy(update={"content": content})


def _announce(system: Sequence[BaseMessage], mark: str) -> BaseMessage:
    """Return the instructions, with what the mark is at their end."""
    text = build_notice_guidance(mark)
    if not system:
        return SystemMessage(text)
    # What others say stands there, too: roles, summaries, what a prompt's function reads.
    message: BaseMessage = _clean(system[0], mark)
    held: Any = message.content
    content = f"{held}\n\n{text}" if isinstance(held, str) else [*held, _build_text(text)]
    return message.model_copy(update={"content": content})


def _clean(message: Any, mark: str) -> Any:
    """Return a message without a mark in its text, the same object if it has none."""
    update: dict[str, Any] = {}
    held = message.content
    clean = remove_mark(held, mark) if type(held) is str else remove_mark_deep(held, mark)
    if clean is not held:
        update["content"] = clean
    if message.name and (name := remove_mark(message.name, mark)) != message.name:
        update["name"] = name or None
    return message.model_copy(update=update) if update else message


def _join_lines(text: str) -> str:
    return " ".join(text.split())


def _build_text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
