"""Fits messages into a model's context: what they count, and what is left out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately

from echelons.delegation.mail import Mail, render_mail
from echelons.delegation.spawned_agents import (
    Changes,
    RosterEntry,
    describe_changes,
    read_whole_roster,
)
from echelons.identity.lineage import ASIDE_KEY, ROSTER_KEY

TOKENS_PER_MESSAGE: Final = 4
"""Tokens of a message beside its text, as OpenAI's cookbook counts them."""
BYTES_PER_TOKEN: Final = 3
"""Bytes of a token of what no model has reported yet: in most scripts a token has more."""


def count_cautiously(messages: Sequence[BaseMessage]) -> int:
    """Return the tokens of messages by their characters, but at least one for each three bytes."""
    return max(count_tokens_approximately(messages), count_bytes(messages))


def count_bytes(messages: Sequence[BaseMessage]) -> int:
    """Return the tokens of messages at one for each three bytes."""
    total = TOKENS_PER_MESSAGE * len(messages)
    for message in messages:
        text: Any = message.content
        # By its class, without a call: the content of most messages is a text.
        if text.__class__ is not str:
            total += count_media(message)
            text = message.text
        if message.type == "ai" and (calls := getattr(message, "tool_calls", None)):
            text = f"{text}{calls}"
        total += len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN
    return total


def count_media(message: BaseMessage) -> int:
    """Return about how many tokens the pictures and other blocks of a message have."""
    content = message.content
    if isinstance(content, str):
        return 0
    kinds = ("text", "tool_use")
    others = [
        block for block in content if isinstance(block, dict) and block.get("type") not in kinds
    ]
    whole = message.model_copy(update={"content": others})
    return count_tokens_approximately([whole]) if others else 0


def build_roster_notice(changes: Changes, id: str = "") -> BaseMessage:
    """Return a notice for an agent of subordinates which have come or gone."""
    noted = Mail(0, "", "", "", "notice").to_metadata()
    stored = {name: entry and entry.stored() for name, entry in changes.items()}
    return HumanMessage(
        render_mail("", describe_changes(changes), "notice"),
        id=id or None,
        response_metadata={ASIDE_KEY: noted, ROSTER_KEY: stored},
    )


def list_lost_notices(
    messages: Sequence[BaseMessage], shown: Sequence[BaseMessage]
) -> list[BaseMessage]:
    """Return a notice of what some messages tell and those that are shown of them do not."""
    if not (roster := read_whole_roster(messages)):
        return []
    left = read_whole_roster(shown)
    lost = {name: entry for name, entry in roster.items() if left.get(name) != entry}
    return [recall_roster((*lost.items(),))] if lost else []


@lru_cache(maxsize=64)
def recall_roster(roster: tuple[tuple[str, RosterEntry], ...]) -> BaseMessage:
    """Return a notice of the content of earlier messages, the same message for the same roster."""
    return build_roster_notice(dict(roster))


TokenCount = Callable[[Sequence[BaseMessage]], int]
"""Returns the tokens of some messages."""

OLD_SHARE: Final = 10
"""Of an older result, or of the arguments of an older call, a tenth of all is shown at most."""
MEDIA_CHARACTERS: Final = 340
"""Characters that a picture counts as: LangChain takes 85 tokens for one."""
CHARACTERS_PER_TOKEN: Final = 4
_MARK = " […{:,} characters left out…] "
_MEDIA = frozenset({"image", "image_url"})
_TEXTS = frozenset({"text", "output_text", "input_text"})
_CALLS = frozenset({"tool_use", "tool_call", "function_call"})
_PLAIN_BLOCKS = _TEXTS | _CALLS | {"refusal", "input_json_delta", "tool_call_chunk"}
_SEALS = ("signature", "encrypted", "thought")
"""What the keys of blocks begin with that a provider has signed or encrypted."""
_SEALED_FIELDS = frozenset(
    {"reasoning", "tool_outputs", "__gemini_function_call_thought_signatures__"}
)
"""Keys of a reply's `additional_kwargs` that hold what its provider wants back as it was."""


def fit_messages(
    messages: Sequence[BaseMessage], limit: int, count: TokenCount
) -> list[BaseMessage]:
    """Return as much of a conversation as fits into a number of tokens, see `_fit_rest`.

    What is left out may have told of subordinates that are there: then a notice after the
    instructions does.
    """
    if count(messages) <= limit:
        return [*messages]
    if not (lost := list_lost_notices(messages, ())):
        return _fit_rest(messages, limit, count)
    shown = _fit_rest(messages, limit - count(lost), count)
    begin = _find_begin(shown)
    return [*shown[:begin], *list_lost_notices(messages, shown), *shown[begin:]]


def _fit_rest(messages: Sequence[BaseMessage], limit: int, count: TokenCount) -> list[BaseMessage]:
    """Return as much of a conversation as fits into a number of tokens.

    The instructions stay. These are shortened, in this order, and only as far as needed: the
    oldest results and arguments of calls; the oldest turns, which go as a whole; the oldest steps
    of the present turn; the latest step; the task. If the instructions alone have more tokens, so
    has what is returned.
    """
    begin = _find_begin(messages)
    system, rest = [*messages[:begin]], [*messages[begin:]]
    left = limit - count(system)
    latest = find_latest_step(rest)
    sizes = [count([item]) for item in rest]
    total, cap = sum(sizes), max(0, limit) * CHARACTERS_PER_TOKEN // OLD_SHARE
    for place in range(latest):
        if total <= left:
            return [*system, *rest]
        rest[place] = shorten_call(rest[place], cap)
        total += (size := count([rest[place]])) - sizes[place]
        sizes[place] = size
    task = find_task(rest)
    turns = [place for place in range(1, task) if is_task(rest[place])] if task > 0 else []
    first = 0
    for place in [*turns, max(0, task)]:
        if total <= left:
            return [*system, *rest[first:]]
        total -= sum(sizes[first:place])
        first = place
    head = rest[task : task + 1] if task >= 0 else []
    steps = [place for place in range(task + 1, latest) if isinstance(rest[place], AIMessage)]
    first = task + 1
    for place in [*steps[1:], max(latest, task + 1)]:
        if total <= left:
            return [*system, *head, *rest[first:]]
        total -= sum(sizes[first:place])
        first = place
    step = rest[first:]
    if head and count(head) > max(left - count(step), left // 2):
        head = _cut_parts(head, max(0, left - min(count(step), left // 2)), count) or [
            shorten_message(head[0], 0)
        ]
    return [*system, *head, *fit_step(step, left - count(head), count)]


def _find_begin(messages: Sequence[BaseMessage]) -> int:
    """Return the place of the first message that is no instruction."""
    places = (n for n, item in enumerate(messages) if not isinstance(item, SystemMessage))
    return next(places, len(messages))


def fit_step(step: Sequence[BaseMessage], limit: int, count: TokenCount) -> list[BaseMessage]:
    """Return a reply with the results of its calls within a number of tokens.

    Each part is cut by its middle, the longest first. A reply that cannot be cut becomes a note,
    and without room for that there is nothing.
    """
    if count(step) <= limit:
        return [*step]
    if shorter := _cut_parts(step, limit, count):
        return shorter
    cap = _find_cap(step, lambda size: count([_build_note(step, size)]) <= limit)
    return [] if cap is None else [_build_note(step, cap)]


def is_task(message: BaseMessage) -> bool:
    """Return whether a message is a task, and not of the mailbox."""
    return isinstance(message, HumanMessage) and ASIDE_KEY not in message.response_metadata


def find_task(messages: Sequence[BaseMessage]) -> int:
    """Return the place of the latest task; -1 if there is none."""
    places = range(len(messages) - 1, -1, -1)
    return next((place for place in places if is_task(messages[place])), -1)


def find_latest_step(messages: Sequence[BaseMessage]) -> int:
    """Return the place at which the latest step begins, which the model has not answered yet.

    It is the latest reply with the results of its calls, or the task, if there is no reply yet.
    """
    for place in range(len(messages) - 1, -1, -1):
        if isinstance(messages[place], AIMessage) or is_task(messages[place]):
            return place
    return 0


def is_sealed(message: BaseMessage) -> bool:
    """Return whether a reply has blocks that its provider has signed or encrypted.

    A block of a kind that is not known here counts as one.
    """
    if not isinstance(message, AIMessage):
        return False
    if _SEALED_FIELDS & message.additional_kwargs.keys():
        return True
    if isinstance(message.content, str):
        return False
    return any(
        isinstance(block, dict) and (block.get("type") not in _PLAIN_BLOCKS or _has_seal(block))
        for block in message.content
    )


def cut_middle(text: str, limit: int) -> str:
    """Return a text with its middle left out, if it has more characters than a limit."""
    if len(text) <= limit:
        return text
    half = max(0, limit - 40) // 2
    if not half:
        return "…"
    return f"{text[:half]}{_MARK.format(len(text) - 2 * half)}{text[len(text) - half :]}"


def shorten_call(message: BaseMessage, limit: int) -> BaseMessage:
    """Return the result of a call, or a reply with calls, with no part of more than a limit.

    Any other message, and the text of a reply, stays as it is.
    """
    if isinstance(message, ToolMessage):
        return _shorten_result(message, limit)
    if isinstance(message, AIMessage) and not is_sealed(message):
        return _shorten_arguments_of(message, limit)
    return message


def shorten_message(message: BaseMessage, limit: int) -> BaseMessage:
    """Return a message with no part of more characters than a limit, if it can be changed."""
    if isinstance(message, ToolMessage):
        return _shorten_result(message, limit)
    if is_sealed(message):
        return message
    if isinstance(message, AIMessage):
        message = _shorten_arguments_of(message, limit)
    content = _shorten_content(message.content, limit)
    return (
        message if content is message.content else message.model_copy(update={"content": content})
    )


def shorten_arguments(arguments: Mapping[str, Any], limit: int) -> dict[str, Any]:
    """Return the arguments of a call with at most some characters, as a JSON object still.

    A long list or object becomes the begin and the end of its JSON.
    """
    texts = {
        key: item if isinstance(item, str) else json.dumps(item, ensure_ascii=False, default=str)
        for key, item in arguments.items()
    }
    if sum(map(len, texts.values())) + sum(map(len, texts)) + 6 * len(texts) <= limit:
        return dict(arguments)
    cap = limit
    while cap:
        shorter = {
            key: arguments[key] if len(item) <= cap else cut_middle(item, cap)
            for key, item in texts.items()
        }
        if len(json.dumps(shorter, ensure_ascii=False, default=str)) <= limit:
            return shorter
        cap //= 2
    return {}


def _has_seal(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(str(key).startswith(_SEALS) or _has_seal(item) for key, item in value.items())
    return isinstance(value, list) and any(map(_has_seal, value))


def _shorten_result(message: ToolMessage, limit: int) -> BaseMessage:
    content = message.content
    if isinstance(content, str):
        if len(content) <= limit:
            return message
        return message.model_copy(update={"content": cut_middle(content, limit), "artifact": None})
    # Of several blocks the texts are shown, and what else there was.
    text = str(message.text)
    others = [
        str(block.get("type"))
        for block in content
        if isinstance(block, dict) and block.get("type") not in _TEXTS
    ]
    if not others and len(text) <= limit:
        return message
    text = " ".join((cut_middle(text, limit), *(f"[{other} left out]" for other in others)))
    return message.model_copy(
        update={
            "content": text if len(text) <= limit else cut_middle(text, limit),
            "artifact": None,
        }
    )


def _shorten_arguments_of(message: AIMessage, limit: int) -> AIMessage:
    calls = message.tool_calls
    shorter = [shorten_arguments(call["args"], limit) for call in calls]
    invalid = [
        {**call, "args": cut_middle(call.get("args") or "", limit)}
        for call in message.invalid_tool_calls
    ]
    same = all(new == call["args"] for new, call in zip(shorter, calls, strict=True))
    if same and invalid == message.invalid_tool_calls:
        return message
    update: dict[str, Any] = {
        "tool_calls": [{**call, "args": new} for call, new in zip(calls, shorter, strict=True)],
        "invalid_tool_calls": invalid,
        # What a client has kept of the calls has the whole arguments.
        "additional_kwargs": {
            key: item
            for key, item in message.additional_kwargs.items()
            if key not in ("tool_calls", "function_call")
        },
    }
    if not isinstance(message.content, str):
        update["content"] = [_shorten_block(block, limit) for block in message.content]
    return message.model_copy(update=update)


def _shorten_block(block: Any, limit: int) -> Any:
    """Return a block of a call with shorter arguments, any other block as it is."""
    if not isinstance(block, dict) or block.get("type") not in _CALLS:
        return block
    new = {key: item for key, item in block.items() if key != "partial_json"}
    for key in ("input", "args", "arguments"):
        value = new.get(key)
        if isinstance(value, Mapping):
            new[key] = shorten_arguments(value, limit)
        elif isinstance(value, str) and len(value) > limit:
            new[key] = _shorten_json(value, limit)
    return new


def _shorten_json(text: str, limit: int) -> str:
    try:
        arguments = json.loads(text)
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        return "{}"
    return json.dumps(shorten_arguments(arguments, limit), ensure_ascii=False)


def _shorten_content(content: Any, limit: int) -> Any:
    if isinstance(content, str):
        return cut_middle(content, limit)
    blocks = [_cut_block(block, limit) for block in content]
    return content if blocks == content else blocks


def _cut_block(block: Any, limit: int) -> Any:
    if isinstance(block, str):
        return cut_middle(block, limit)
    kind = block.get("type")
    if kind in _TEXTS and isinstance(block.get("text"), str):
        return {**block, "text": cut_middle(block["text"], limit)}
    if (
        kind in _PLAIN_BLOCKS
        or (MEDIA_CHARACTERS if block.get("type") in _MEDIA else len(repr(block))) <= limit
    ):
        return block
    return {"type": "text", "text": f"[{kind} left out]"}


def _cut_parts(
    messages: Sequence[BaseMessage], limit: int, count: TokenCount
) -> list[BaseMessage] | None:
    """Return messages whose parts have no more characters than fit; `None` if none do."""

    def cut(cap: int) -> list[BaseMessage]:
        return [shorten_message(message, cap) for message in messages]

    cap = _find_cap(messages, lambda size: count(cut(size)) <= limit)
    return None if cap is None else cut(cap)


def _find_cap(messages: Sequence[BaseMessage], fits: Callable[[int], bool]) -> int | None:
    """Return the most characters of a part with which messages fit; `None` if none do."""
    if not fits(0):
        return None
    low, high = (
        0,
        max(
            (
                len(repr(message.content))
                + (len(repr(message.tool_calls)) if isinstance(message, AIMessage) else 0)
                for message in messages
            ),
            default=0,
        ),
    )
    while high - low > max(1, low // 50):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _build_note(step: Sequence[BaseMessage], limit: int) -> BaseMessage:
    """Return what a step was, as a message that can stand in its place."""
    parts: list[str] = []
    for message in step:
        parts.append(cut_middle(str(message.text), limit))
        if isinstance(message, AIMessage):
            parts += [
                f"{call['name']}({json.dumps(shorten_arguments(call['args'], limit), default=str)})"
                for call in message.tool_calls
            ]
    text = json.dumps(" | ".join(filter(None, parts)), ensure_ascii=False)
    noted = Mail(0, "", "", "", "notice").to_metadata()
    note = f"A step of yours, shortened: {text}"
    return HumanMessage(note, response_metadata={ASIDE_KEY: noted})
