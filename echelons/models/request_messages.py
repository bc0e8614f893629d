"""`build_request`: a conversation as a provider accepts it, whatever its models and tools wrote.

Providers refuse a whole request for one odd name or id in its history, and so would refuse every
later turn of the thread. The stored conversation stays as it was received; what is sent is mended
here, in one place, after all middleware. The result for a conversation begins with the result for
its beginning, so that providers find the prefixes of their caches.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from math import isfinite
from operator import is_
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    ToolCall,
    ToolMessage,
    convert_to_openai_data_block,
    is_data_content_block,
)

from echelons.models.client_rules import ClientRules
from echelons.models.hidden_messages import HIDDEN_RESULT

if TYPE_CHECKING:
    from echelons.models.door.notices import View

UNKNOWN_TOOL: Final = "unknown_tool"
"""The name under which a call is sent whose own name no provider accepts."""
NO_TEXT: Final = "…"
"""The text of a reply that has none: many providers refuse an empty message."""
RAW_ARGUMENTS: Final = "invalid_arguments"
"""The argument that holds what a model wrote in place of a JSON object."""
NOT_RUN: Final = "not run"
"""The answer to a call that has none."""
GO_ON: Final = "Go on."
"""The message after a reply with which no request may end."""
BEGIN: Final = "(The conversation begins here.)"
"""The message before a reply with which no request may begin."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]+")
_STEM_LENGTH = 30
_ILLEGAL_IN_NAME = re.compile(r"[\s<|\\/>]+")
_CALL_BLOCKS = {
    "tool_use": "id",
    "tool_call": "id",
    "function_call": "call_id",
    "custom_tool_call": "call_id",
}
"""Types of content blocks that repeat a call, with the key of its id."""
_REPEATED_CALLS = {
    "anthropic": ("tool_use", "tool_call"),
    "responses": ("function_call", "tool_call"),
}
"""Those that clients send; another client's, of an earlier model, they would pass on."""
_PLAIN = frozenset({"text", "refusal"})
_ANTHROPIC_BLOCKS = frozenset(
    {"text", "thinking", "redacted_thinking", "server_tool_use", "mcp_tool_use", "compaction"}
)
_SERVER_USES = frozenset({"server_tool_use", "mcp_tool_use"})
_SHOWN_AFTER = "[{kind}: in the message after the results]"
_NOT_SHOWN = "[{kind}: it cannot be shown to this model]"
_FROM_RESULTS = "From the results above:"


_REPLY = frozenset({"ai", "AIMessageChunk"})
_RESULT = frozenset({"tool", "ToolMessageChunk"})
_PLAIN_VALUES = frozenset({str, int, bool, type(None)})
_TEXT = frozenset({str})
_NOTHING: Final[frozenset[str]] = frozenset()

_Sent: TypeAlias = tuple[str, str, ToolCall]
"""A call: the id under which it is sent, the name that the model wrote, and what is sent."""


_Known: TypeAlias = tuple[
    "_Writer | None", "_Writer | None", Sequence[BaseMessage] | None, Sequence[BaseMessage]
]
"""What is remembered of a conversation: what has written the beginnings of its latest request and
of that of its latest task, its instructions, and what is shown of them."""
_NOTHING_KNOWN: Final[_Known] = (None, None, None, ())


class RequestBuilder:
    """Builds the requests of a model, and remembers what it has checked of each conversation.

    A thread may have thousands of messages: a request does not look again at those that an earlier
    one began with, the same objects. Two requests of a conversation are remembered, the latest and
    that of a task: the messages since the task are other objects once they were read from storage.

    Args:
        rules: What the model's client accepts.
    """

    KEPT: Final = 32
    """Most conversations that are remembered; the least recently used goes first."""

    def __init__(self, rules: ClientRules) -> None:
        self.rules = rules
        self._needs_user_turns = rules.needs_user_turns
        self._known: dict[Any, _Known] = {}

    def build(
        self,
        messages: Sequence[BaseMessage],
        hidden: frozenset[str] = _NOTHING,
        view: View | None = None,
    ) -> list[BaseMessage]:
        """Return the messages to send, see `build_request`."""
        # Types are told by their names: to ask whether a message is of a class takes three calls.
        count, first = len(messages), 0
        while first < count and messages[first].type == "system":
            first += 1
        system, given, count = [*messages[:first]], [*messages[first:]], count - first
        key = (given[0].id or id(given[0]) if given else None, hidden, view and view.mark)
        latest, base, known, shown_system = self._known.pop(key, _NOTHING_KNOWN)
        if known != system:
            shown_system = view.introduce(system) if view else system
        for before in (latest, base):
            # By identity: a message that was changed is another object.
            if before and before.count <= count and all(map(is_, before.read, given)):
                begun = before.count
                break
        else:
            before, begun = None, 0
        whole, new = _find_whole(given, begun, count), given[begun:]
        # One message is shown for each.
        shown = view.show(new) if view else new
        latest = _Writer(self.rules, hidden, before, given[:whole], whole)
        if whole > begun:
            latest.write(shown[: whole - begun])
        if given and given[-1].type == "human":
            base = latest
        self._known[key] = latest, base, system, shown_system
        if known is None and len(self._known) > self.KEPT:
            # Listed at once, as another thread may build a request meanwhile.
            self._known.pop([*self._known][0], None)  # noqa: RUF015
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
    r"""Return a conversation as the client of a model can send it.

    Args:
        messages: The conversation, with the system message first if there is one.
        rules: What the client accepts.
        hidden: Ids of messages that are left out, with the results of their calls.

    Examples:
        >>> call = {"name": "$READ.file", "args": {}, "id": "1"}
        >>> said = [HumanMessage("Read"), AIMessage("", tool_calls=[call])]
        >>> [reply, answer] = build_request(said, ClientRules())[1:]
        >>> reply.tool_calls[0]["name"], answer.text
        ('unknown_tool', "[the call of '$READ.file'] not run")
    """
    return RequestBuilder(rules).build(messages, frozenset(hidden))


def has_calls(messages: Sequence[BaseMessage]) -> bool:
    """Return whether a request has calls of tools, so that some providers want tools declared."""
    # A list: each step of a generator would be a call.
    return bool([1 for each in messages if type(each) is AIMessage and each.tool_calls])


def _find_whole(messages: Sequence[BaseMessage], begun: int, place: int) -> int:
    """Return the place from which on messages may look different with those to come.

    Args:
        messages: The conversation.
        begun: The place before which they do not.
        place: Where it ends.
    """
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
    """Writes messages to a request.

    Args:
        rules: What the client accepts.
        hidden: Ids of messages that are left out.
        before: The writer that has written the beginning of the request; it is not changed.
        read: The messages that will have been written, as they came.
        count: How many these are.

    Attributes:
        messages: The messages of the request.
        used: The ids of all calls so far, those of hidden messages too.
        number: How many ids were made.
    """

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
            elif _is_plain(message) and (is_reply or message.type == "human"):
                self.messages.append(message)
            elif is_reply:
                reply = self._fit_reply(message)
                if type(reply.content) is list and place < count:
                    reply = _drop_open_uses(reply, messages[place:])
                self.messages.append(reply)
            else:
                self._write_message(message)

    def _write_message(self, message: BaseMessage) -> None:
        """Write a message that is no reply, and answers no call of one that is shown."""
        if message.type in _RESULT:
            # Its call was cut out of the conversation.
            text = f"[a result of {message.name or 'a tool'}] {_read_text(message.content)}"
            self.messages.append(HumanMessage(text, id=message.id))
        elif message.type == "system" and self._rules.wire_format != "openai":
            self.messages.append(HumanMessage(message.content, id=message.id))
        else:
            self.messages.append(self._fit_message(message))

    def _write_plain_calls(self, message: AIMessage, following: Sequence[BaseMessage]) -> bool:
        """Write a reply with calls as it is, with what follows it, if any client takes both.

        Returns:
            Whether it was written; otherwise something is to be mended.
        """
        calls = message.tool_calls
        ids: list[Any] = [call["id"] for call in calls]
        count = len(ids)
        results: Any = following[:count]
        more = following[count:]
        if (
            self._hidden
            or message.invalid_tool_calls
            or not (message.content == "" or _is_plain(message))
            or (message.name and _ILLEGAL_IN_NAME.search(message.name))
            or [
                result.tool_call_id
                for result in results
                if result.type in _RESULT
                and type(text := result.content) is str
                and (not text or "!" <= text[:1] <= "~")
                and not result.additional_kwargs
            ]
            != ids
            or (more and [each for each in more if each.type in _RESULT])
            or [
                call
                for call in calls
                if not (_CALL_ID.fullmatch(call["id"] or "") and _NAME.fullmatch(call["name"]))
                or _fit_args(args := call["args"]) is not args
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
        results, others = _match_results(following, calls, renamed)
        if message.id not in self._hidden:
            self.messages.append(self._fit_reply(message, calls, renamed))
            shown: list[Any] = []
            for result, sent in results:
                self._write_result(result, sent, shown)
            if shown:
                blocks = [_build_text(_FROM_RESULTS), *shown]
                self.messages.append(HumanMessage(blocks))
        self.write(others)

    def _name_calls(self, message: AIMessage) -> tuple[list[ToolCall], list[tuple[str, str, str]]]:
        """Return the calls of a reply as they are sent, and the old and new id and name of each."""
        calls: list[ToolCall] = []
        renamed: list[tuple[str, str, str]] = []
        whole: list[Mapping[str, Any]] = [*message.tool_calls, *message.invalid_tool_calls]
        for call in whole:
            old, name, args = call["id"] or "", call["name"] or "", call["args"]
            new = self._make_id(old)
            legal = name if _NAME.fullmatch(name) else UNKNOWN_TOOL
            if not isinstance(args, dict):
                args = {RAW_ARGUMENTS: "" if args is None else str(args)}
            calls.append(ToolCall(name=legal, args=_fit_args(args), id=new, type="tool_call"))
            renamed.append((old, new, name))
        return calls, renamed

    def _make_id(self, old: str) -> str:
        """Return the id of a call: its own, unless it was used before or is not legal."""
        new = old
        if not _CALL_ID.fullmatch(old) or old in self.used:
            stem = _ILLEGAL.sub("_", old)[:_STEM_LENGTH] or "call"
            while new == old or new in self.used:
                self.number += 1
                new = f"{stem}-{self.number}"
        self.used.add(new)
        return new

    def _write_result(self, result: ToolMessage | None, sent: _Sent, shown: list[Any]) -> None:
        """Write the result of a call; pictures that must stand elsewhere are added to `shown`."""
        new, name, call = sent
        if result is None or (self._hidden and result.id in self._hidden):
            text = NOT_RUN if result is None else HIDDEN_RESULT
            result = ToolMessage(text, tool_call_id=new, name=call["name"], status="error")
        content: Any = result.content
        if type(content) is not str:
            content = self._fit_result_content(content, shown)
        elif content.isspace():
            content = ""
        if call["name"] != name:
            content = _add_text(content, f"[the call of {name[:200]!r}] ")
        if (
            content is result.content
            and result.tool_call_id == new
            and not result.additional_kwargs
        ):
            self.messages.append(result)
            return
        update = {"content": content, "tool_call_id": new, "name": call["name"]}
        self.messages.append(result.model_copy(update=update))

    def _fit_result_content(self, content: Any, shown: list[Any]) -> Any:
        """Return the content of a result as the client takes it."""
        blocks: list[Any] = []
        for block in content:
            if isinstance(block, str) or block.get("type") == "text":
                text = block if isinstance(block, str) else str(block.get("text", ""))
                if text.strip():
                    blocks.append(block if isinstance(block, dict) else _build_text(text))
            elif not _is_data(block):
                blocks.append(_build_text(_dump(block)))
            elif not _can_send(block, self._rules):
                blocks.append(_build_text(_NOT_SHOWN.format(kind=block["type"])))
            elif self._rules.takes_data_in_results:
                blocks.append(block)
            else:
                shown.append(block)
                blocks.append(_build_text(_SHOWN_AFTER.format(kind=block["type"])))
        if not blocks:
            return ""
        return content if blocks == content else blocks

    def _fit_message(self, message: BaseMessage) -> BaseMessage:
        """Return a message of a user as the client takes it."""
        update = _fit_person_name(message)
        content = message.content
        if type(content) is str:
            if not content.strip():
                update["content"] = NO_TEXT
        else:
            blocks = [self._fit_block(each) for each in content]
            blocks = [each for each in blocks if not _is_blank(each)] or [_build_text(NO_TEXT)]
            if blocks != content:
                update["content"] = blocks
        return message.model_copy(update=update) if update else message

    def _fit_block(self, block: Any) -> Any:
        if isinstance(block, str):
            return _build_text(block)
        if _is_data(block) and not _can_send(block, self._rules):
            return _build_text(_NOT_SHOWN.format(kind=block["type"]))
        return block

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
        if not calls and _has_no_text(content):
            content = _complete_content(content, _find_refusal(message))
        elif calls and type(content) is str and content and not content.strip():
            content = ""
        update = _fit_person_name(message)
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
        provider = message.response_metadata.get("model_provider")
        is_own = bool(provider) and provider == self._rules.provider
        blocks: list[Any] = []
        open_calls = list(zip(renamed, calls, strict=True))
        for block in message.content:
            if isinstance(block, str):
                if block.strip():
                    blocks.append(_build_text(block))
                continue
            kind = block.get("type")
            if kind in _CALL_BLOCKS:
                if fit := self._fit_call_block(block, open_calls):
                    blocks.append(fit)
            elif kind == "text":
                if str(block.get("text") or "").strip():
                    blocks.append(block)
            elif self._takes_block(block, is_own):
                blocks.append(block)
        if self._rules.wire_format == "responses":
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
            is_text = block["type"] in _PLAIN
            if not block.get("id") or place not in (before if is_text else self.used):
                items.append(block)
            elif is_text or block["type"] in _CALL_BLOCKS:
                items.append({key: value for key, value in block.items() if key != "id"})
            self.used.add(place)
        return items

    def _takes_block(self, block: Mapping[str, Any], is_own: bool) -> bool:
        """Return whether a block of a reply, which is no text and no call, is sent back."""
        kind, wire_format = str(block.get("type")), self._rules.wire_format
        if wire_format == "openai":
            return kind in _PLAIN
        if kind == "thinking" and wire_format == "anthropic" and not block.get("signature"):
            # Servers that speak its protocol may not sign; it takes only signed ones.
            return False
        if is_own:
            return True
        if wire_format == "anthropic":
            return kind in _ANTHROPIC_BLOCKS or kind.endswith("_tool_result")
        return False

    def _fit_call_block(
        self,
        block: Mapping[str, Any],
        open_calls: list[tuple[tuple[str, str, str], ToolCall]],
    ) -> Mapping[str, Any] | None:
        """Return a block that repeats a call, with the call's id and name; `None` without one.

        The calls are taken in their order: ids that were doubled are other ones by now.
        """
        kind = str(block["type"])
        if kind not in _REPEATED_CALLS.get(self._rules.wire_format, ()):
            # The client sends the calls themselves.
            return None
        key = _CALL_BLOCKS[kind]
        same_id = [one for one in open_calls if one[0][0] == block.get(key)]
        same_name = [one for one in open_calls if one[0][2] == block.get("name")]
        if not (found := (same_id or same_name)):
            return None
        open_calls.remove(found[0])
        call = found[0][1]
        fit: dict[str, Any] = {**block, key: call["id"], "name": call["name"]}
        if kind == "function_call":
            if fit != block or not _is_json_object(block.get("arguments")):
                fit["arguments"] = json.dumps(call["args"], ensure_ascii=False)
                # The server's own item of that id says something else.
                fit.pop("id", None)
        else:
            fit["input" if kind == "tool_use" else "args"] = call["args"]
        return block if fit == block else fit


def _drop_open_uses(reply: AIMessage, following: Sequence[BaseMessage]) -> AIMessage:
    """Return a reply without the server's tool calls that no result came for.

    A paused reply may end with one. It is sent back as it is until something else follows.
    """
    content: list[Any] = list(reply.content)
    open_uses = {block["id"] for block in content if _is_server_use(block)}
    if not open_uses:
        return reply
    for message in (reply, *following):
        if not isinstance(message, AIMessage):
            break
        if type(message.content) is list:
            blocks: list[Any] = [block for block in message.content if isinstance(block, dict)]
            open_uses -= {block.get("tool_use_id") for block in blocks}
    if not open_uses:
        return reply
    kept = [each for each in content if not (_is_server_use(each) and each["id"] in open_uses)]
    fit = _complete_content(kept, NO_TEXT) if _has_no_text(kept) else kept
    return reply.model_copy(update={"content": fit})


def _is_server_use(block: Any) -> bool:
    is_use = isinstance(block, dict) and block.get("type") in _SERVER_USES
    return is_use and bool(block.get("id"))


def _match_results(
    messages: Sequence[BaseMessage],
    calls: Sequence[ToolCall],
    renamed: Sequence[tuple[str, str, str]],
) -> tuple[list[tuple[ToolMessage | None, _Sent]], list[BaseMessage]]:
    """Return one result for each call, as they came, and the messages that are none.

    A call without a result comes last, and a second result of a call is left out.
    """
    open_calls: dict[str, list[_Sent]] = {}
    for (old, new, name), call in zip(renamed, calls, strict=True):
        # Calls of one id, which an update of the state may bring, are answered in their order.
        open_calls.setdefault(old, []).append((new, name, call))
    results: list[tuple[ToolMessage | None, _Sent]] = []
    others: list[BaseMessage] = []
    for message in messages:
        if not isinstance(message, ToolMessage) or message.tool_call_id not in open_calls:
            others.append(message)
        elif unanswered := open_calls[message.tool_call_id]:
            results.append((message, unanswered.pop(0)))
    rest = [sent for unanswered in open_calls.values() for sent in unanswered]
    return [*results, *((None, sent) for sent in rest)], others


def _is_plain(message: BaseMessage) -> bool:
    """Return whether a message without calls is one that any client takes, as nearly all are.

    Hardly anything is called, for it is asked of each message. One that begins with a space or a
    character beyond ASCII is looked at closely.
    """
    text, name, kwargs = message.content, message.name, message.additional_kwargs
    is_text = type(text) is str and "!" <= text[:1] <= "~"
    has_calls = "tool_calls" in kwargs or "function_call" in kwargs
    return is_text and not has_calls and not (name and _ILLEGAL_IN_NAME.search(name))


def _fit_person_name(message: BaseMessage) -> dict[str, Any]:
    """Return the update that makes the name of a message's author legal."""
    if message.name and _ILLEGAL_IN_NAME.search(message.name):
        return {"name": _ILLEGAL_IN_NAME.sub("_", message.name)}
    return {}


def _fit_args(args: dict[str, Any]) -> dict[str, Any]:
    """Return arguments that are JSON, the same object if they are."""
    if {*map(type, args.values())} <= _PLAIN_VALUES and {*map(type, args)} <= _TEXT:
        return args
    try:
        json.dumps(args, allow_nan=False)
    except (TypeError, ValueError):
        return {str(key): _fit_json(value) for key, value in args.items()}
    return args


def _fit_json(value: Any) -> Any:
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): _fit_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_fit_json(each) for each in value]
    return value if value is None or isinstance(value, str | int) else str(value)


def _is_json_object(text: Any) -> bool:
    try:
        return isinstance(json.loads(text, parse_constant=_refuse_constant), dict)
    except (TypeError, ValueError, RecursionError):
        return False


def _refuse_constant(word: str) -> None:
    # Python reads `NaN` and `Infinity`, which no JSON has.
    raise ValueError(word)


def _is_data(block: Mapping[str, Any]) -> bool:
    return block.get("type") == "image_url" or is_data_content_block(dict(block))


def _can_send(block: Mapping[str, Any], rules: ClientRules) -> bool:
    """Return whether the client can send a picture or a file."""
    kind = block["type"]
    if kind == "image_url":
        return True
    if rules.wire_format == "anthropic":
        return kind == "image" or (kind == "file" and block.get("mime_type") == "application/pdf")
    if rules.wire_format in ("openai", "responses"):
        api: Any = "responses" if rules.wire_format == "responses" else "chat/completions"
        try:
            convert_to_openai_data_block(dict(block), api=api)
        except Exception:  # noqa: BLE001  whatever it raises would end every later turn
            return False
    return True


def _is_blank(block: Any) -> bool:
    return block.get("type") == "text" and not str(block.get("text") or "").strip()


def _has_no_text(content: Any) -> bool:
    """Return whether content has nothing that a provider takes for a whole message."""
    if type(content) is str:
        return not content.strip()
    hidden = ("thinking", "redacted_thinking", "reasoning")
    return all(block.get("type") in hidden for block in content)


def _complete_content(content: Any, text: str) -> Any:
    """Return content with a text; signed blocks stay as they are."""
    return [*content, _build_text(text)] if isinstance(content, list) and content else text


def _find_refusal(message: AIMessage) -> str:
    refusal = message.additional_kwargs.get("refusal")
    return refusal if isinstance(refusal, str) and refusal.strip() else NO_TEXT


def _add_text(content: Any, text: str) -> Any:
    return f"{text}{content}" if type(content) is str else [_build_text(text), *content]


def _build_text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _dump(block: Mapping[str, Any]) -> str:
    return json.dumps(_fit_json(block), ensure_ascii=False)


def _read_text(content: Any) -> str:
    if type(content) is str:
        return content
    texts = (block if isinstance(block, str) else block.get("text") for block in content)
    return "\n".join(str(text) for text in texts if text)
