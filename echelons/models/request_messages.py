"""`build_request`: a conversation as a provider accepts it, whatever its models and tools wrote.

Providers refuse a whole request for one odd name or id in its history, and so would refuse every
later turn of the thread. The stored conversation stays as it was received; what is sent is mended
here, in one place, after all middleware. The result for a conversation begins with the result for
its beginning, so that providers find the prefixes of their caches.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from operator import is_
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    ToolCall,
    ToolMessage,
)

from echelons.models.hidden_messages import HIDDEN_RESULT
from echelons.models.request_content import (
    CALL_BLOCKS,
    CALL_ID,
    ILLEGAL_IN_NAME,
    NAME,
    PLAIN,
    RAW_ARGUMENTS,
    UNKNOWN_TOOL,
    Sent,
    add_text,
    build_text,
    complete_content,
    drop_open_uses,
    find_refusal,
    fit_args,
    fit_call_block,
    fit_message,
    fit_person_name,
    fit_result_content,
    has_no_text,
    is_plain,
    match_results,
    read_text,
    takes_block,
)
from echelons.models.resolution import ClientRules

if TYPE_CHECKING:
    from echelons.models.notices import View

NOT_RUN: Final = "not run"
"""The answer to a call that has none."""
GO_ON: Final = "Go on."
"""The message after a reply with which no request may end."""
BEGIN: Final = "(The conversation begins here.)"
"""The message before a reply with which no request may begin."""

_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]+")
_STEM_LENGTH = 30
_FROM_RESULTS = "From the results above:"


_REPLY = frozenset({"ai", "AIMessageChunk"})
_RESULT = frozenset({"tool", "ToolMessageChunk"})
_NOTHING: Final[frozenset[str]] = frozenset()


_Cached: TypeAlias = tuple[
    "_Writer | None", "_Writer | None", Sequence[BaseMessage] | None, Sequence[BaseMessage]
]
"""What is remembered of a conversation: what has written the beginnings of its latest request and
of that of its latest task, its instructions, and what is shown of them."""
_NOTHING_CACHED: Final[_Cached] = (None, None, None, ())


class RequestBuilder:
    """Builds the requests of a model, and remembers what it has checked of each conversation.

    A thread may have thousands of messages: a request does not look again at those that an earlier
    one began with, the same objects. Two requests of a conversation are remembered, the latest and
    that of a task: the messages since the task are other objects once they were read from storage.
    """

    KEPT: Final = 32
    """Most conversations that are remembered; the least recently used goes first."""

    def __init__(self, rules: ClientRules) -> None:
        self.rules = rules
        self._needs_user_turns = rules.needs_user_turns
        self._cache: dict[Any, _Cached] = {}

    def build(
        self,
        messages: Sequence[BaseMessage],
        hidden: frozenset[str] = _NOTHING,
        view: View | None = None,
    ) -> list[BaseMessage]:
        """Return the messages to send, see `build_request`."""
        # Types are known by their names: to ask whether a message is of a class takes three calls.
        count, first = len(messages), 0
        while first < count and messages[first].type == "system":
            first += 1
        system, conversation, count = [*messages[:first]], [*messages[first:]], count - first
        begin = (conversation[0].id or id(conversation[0])) if conversation else None
        key = (begin, hidden, view and view.mark)
        latest, base, instructions, shown_system = self._cache.pop(key, _NOTHING_CACHED)
        if instructions != system:
            shown_system = view.introduce(system) if view else system
        for before in (latest, base):
            # By identity: a message that was changed is another object.
            if before and before.count <= count and all(map(is_, before.read, conversation)):
                begun = before.count
                break
        else:
            before, begun = None, 0
        whole, new = _find_whole(conversation, begun, count), conversation[begun:]
        # One message is shown for each.
        shown = view.show(new) if view else new
        latest = _Writer(self.rules, hidden, before, conversation[:whole], whole)
        if whole > begun:
            latest.write(shown[: whole - begun])
        if conversation and conversation[-1].type == "human":
            base = latest
        self._cache[key] = latest, base, system, shown_system
        if instructions is None and len(self._cache) > self.KEPT:
            # Listed at once, as another thread may build a request meanwhile.
            self._cache.pop([*self._cache][0], None)  # noqa: RUF015
        end = _Writer(self.rules, hidden, latest)
        end.write(shown[whole - begun :])
        if self._needs_user_turns:
            _add_user_turns(end.messages)
        return [*shown_system, *end.messages]


def build_request(
    messages: Sequence[BaseMessage],
    rules: ClientRules,
    hidden: Collection[str] = _NOTHING,
) -> list[BaseMessage]:
    """Return a conversation as the client of a model can send it."""
    return RequestBuilder(rules).build(messages, frozenset(hidden))


def has_calls(messages: Sequence[BaseMessage]) -> bool:
    """Return whether a request has calls of tools, so that some providers want tools declared."""
    # A list: each step of a generator would be a call.
    return bool([1 for m in messages if type(m) is AIMessage and m.tool_calls])


def _find_whole(messages: Sequence[BaseMessage], begun: int, place: int) -> int:
    """Return the place from which on messages may look different with those to come."""
    while place > begun and messages[place - 1].type not in _REPLY:
        place -= 1
    # A paused reply is answered by its continuation.
    while place > begun and messages[place - 1].type in _REPLY:
        place -= 1
    return place


def _add_user_turns(messages: list[BaseMessage]) -> None:
    """Add what a conversation of some providers begins and ends with."""
    if not messages or messages[0].type in _REPLY:
        messages.insert(0, HumanMessage(BEGIN))
    last = messages[-1]
    if last.type in _REPLY and last.response_metadata.get("stop_reason") != "pause_turn":
        messages.append(HumanMessage(GO_ON))


class _Writer:
    """Writes messages to a request."""

    def __init__(
        self,
        rules: ClientRules,
        hidden: frozenset[str],
        before: _Writer | None = None,
        read: Sequence[BaseMessage] = (),
        count: int = 0,
    ) -> None:
        self.read = read
        self.count = count
        self.messages: list[BaseMessage] = [*before.messages] if before else []
        self.used: set[str] = {*before.used} if before else set()
        self.number: int = before.number if before else 0
        self._rules = rules
        self._hidden = hidden

    def write(self, messages: Sequence[BaseMessage]) -> None:
        """Write messages that begin with no result of an earlier call."""
        place, count = 0, len(messages)
        while place < count:
            message: Any = messages[place]
            place += 1
            is_reply = message.type in _REPLY
            if is_reply and (message.tool_calls or message.invalid_tool_calls):
                end = place
                while end < count and messages[end].type not in _REPLY:
                    end += 1
                following, place = messages[place:end], end
                if not self._write_plain_calls(message, following):
                    self._write_calls(message, following)
            elif self._hidden and message.id in self._hidden:
                continue
            elif is_plain(message) and (is_reply or message.type == "human"):
                self.messages.append(message)
            elif is_reply:
                reply = self._fit_reply(message)
                if type(reply.content) is list and place < count:
                    reply = drop_open_uses(reply, messages[place:])
                self.messages.append(reply)
            else:
                self._write_message(message)

    def _write_message(self, message: BaseMessage) -> None:
        """Write a message that is no reply, and answers no call of one that is shown."""
        if message.type in _RESULT:
            # Its call was cut out of the conversation.
            text = f"[a result of {message.name or 'a tool'}] {read_text(message.content)}"
            self.messages.append(HumanMessage(text, id=message.id))
        elif message.type == "system" and self._rules.wire_format != "openai":
            self.messages.append(HumanMessage(message.content, id=message.id))
        else:
            self.messages.append(fit_message(message, self._rules))

    def _write_plain_calls(self, message: AIMessage, following: Sequence[BaseMessage]) -> bool:
        """Write a reply with calls as it is, with what follows it, if any client takes both."""
        calls = message.tool_calls
        ids: list[Any] = [call["id"] for call in calls]
        count = len(ids)
        results: Any = following[:count]
        more = following[count:]
        if (
            self._hidden
            or message.invalid_tool_calls
            or not (message.content == "" or is_plain(message))
            or (message.name and ILLEGAL_IN_NAME.search(message.name))
            or [
                result.tool_call_id
                for result in results
                if result.type in _RESULT
                and type(text := result.content) is str
                and (not text or "!" <= text[:1] <= "~")
                and not result.additional_kwargs
            ]
            != ids
            or (more and [later for later in more if later.type in _RESULT])
            or [
                call
                for call in calls
                if not (CALL_ID.fullmatch(call["id"] or "") and NAME.fullmatch(call["name"]))
                or fit_args(args := call["args"]) is not args
            ]
            or len(used := {*self.used, *ids}) < len(self.used) + count
        ):
            return False
        self.used = used
        self.messages += [message, *results]
        if more:
            self.write(more)
        return True

    def _write_calls(self, message: AIMessage, following: Sequence[BaseMessage]) -> None:
        """Write a reply with calls, all their results, and what else follows it."""
        calls, renamed = self._name_calls(message)
        results, others = match_results(following, calls, renamed)
        if message.id not in self._hidden:
            self.messages.append(self._fit_reply(message, calls, renamed))
            shown: list[Any] = []
            for result, sent in results:
                self._write_result(result, sent, shown)
            if shown:
                blocks = [build_text(_FROM_RESULTS), *shown]
                self.messages.append(HumanMessage(blocks))
        self.write(others)

    def _name_calls(self, message: AIMessage) -> tuple[list[ToolCall], list[tuple[str, str, str]]]:
        """Return the calls of a reply as they are sent, and the old and new id and name of each."""
        calls: list[ToolCall] = []
        renamed: list[tuple[str, str, str]] = []
        written: list[Mapping[str, Any]] = [*message.tool_calls, *message.invalid_tool_calls]
        for call in written:
            old, name, args = call["id"] or "", call["name"] or "", call["args"]
            new = self._make_id(old)
            legal = name if NAME.fullmatch(name) else UNKNOWN_TOOL
            if not isinstance(args, dict):
                args = {RAW_ARGUMENTS: "" if args is None else str(args)}
            calls.append(ToolCall(name=legal, args=fit_args(args), id=new, type="tool_call"))
            renamed.append((old, new, name))
        return calls, renamed

    def _make_id(self, old: str) -> str:
        """Return the id of a call: its own, unless it was used before or is not legal."""
        new = old
        if not CALL_ID.fullmatch(old) or old in self.used:
            stem = _ILLEGAL.sub("_", old)[:_STEM_LENGTH] or "call"
            while new == old or new in self.used:
                self.number += 1
                new = f"{stem}-{self.number}"
        self.used.add(new)
        return new

    def _write_result(self, result: ToolMessage | None, sent: Sent, shown: list[Any]) -> None:
        """Write the result of a call; pictures that must stand elsewhere are added to `shown`."""
        new, name, call = sent
        if result is None or (self._hidden and result.id in self._hidden):
            text = NOT_RUN if result is None else HIDDEN_RESULT
            result = ToolMessage(text, tool_call_id=new, name=call["name"], status="error")
        content: Any = result.content
        if type(content) is not str:
            content = fit_result_content(content, self._rules, shown)
        elif content.isspace():
            content = ""
        if call["name"] != name:
            content = add_text(content, f"[the call of {name[:200]!r}] ")
        if (
            content is result.content
            and result.tool_call_id == new
            and not result.additional_kwargs
        ):
            self.messages.append(result)
            return
        update = {"content": content, "tool_call_id": new, "name": call["name"]}
        self.messages.append(result.model_copy(update=update))

    def _fit_reply(
        self,
        message: AIMessage,
        calls: Sequence[ToolCall] = (),
        renamed: Sequence[tuple[str, str, str]] = (),
    ) -> AIMessage:
        """Return a reply as the client takes it, with its calls as they are sent."""
        content: Any = message.content
        if type(content) is not str:
            content = self._fit_reply_blocks(message, calls, renamed)
        if not calls and has_no_text(content):
            content = complete_content(content, find_refusal(message))
        elif calls and type(content) is str and content and not content.strip():
            content = ""
        update = fit_person_name(message)
        if content is not message.content:
            update["content"] = content
        if message.invalid_tool_calls or [*calls] != message.tool_calls:
            update |= {"tool_calls": [*calls], "invalid_tool_calls": []}
        if message.additional_kwargs and (update or not calls):
            # Some clients send what stands there in place of the calls.
            kept = {
                key: value
                for key, value in message.additional_kwargs.items()
                if key not in ("tool_calls", "function_call")
            }
            if kept != message.additional_kwargs:
                update["additional_kwargs"] = kept
        return message.model_copy(update=update) if update else message

    def _fit_reply_blocks(
        self,
        message: AIMessage,
        calls: Sequence[ToolCall],
        renamed: Sequence[tuple[str, str, str]],
    ) -> Any:
        """Return the content blocks of a reply that the client takes, with the ids of its calls."""
        wire_format = self._rules.wire_format
        provider = message.response_metadata.get("model_provider")
        is_own = bool(provider) and provider == self._rules.provider
        blocks: list[Any] = []
        open_calls = list(zip(renamed, calls, strict=True))
        for block in message.content:
            if isinstance(block, str):
                if block.strip():
                    blocks.append(build_text(block))
                continue
            kind = block.get("type")
            if kind in CALL_BLOCKS:
                if fit := fit_call_block(block, open_calls, wire_format):
                    blocks.append(fit)
            elif kind == "text":
                if str(block.get("text") or "").strip():
                    blocks.append(block)
            elif takes_block(block, wire_format, is_own):
                blocks.append(block)
        if wire_format == "responses":
            blocks = self._fit_items(blocks)
        return message.content if blocks == message.content else blocks

    def _fit_items(self, blocks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return blocks without the ids of items that were used before, as servers may repeat.

        The provider refuses a second item of an id, and the client adds a text to the first.
        """
        before, items = frozenset(self.used), list[dict[str, Any]]()
        for block in blocks:
            # No call has such an id.
            place = f"item {block.get('id')}"
            is_text = block["type"] in PLAIN
            if not block.get("id") or place not in (before if is_text else self.used):
                items.append(block)
            elif is_text or block["type"] in CALL_BLOCKS:
                items.append({key: value for key, value in block.items() if key != "id"})
            self.used.add(place)
        return items
