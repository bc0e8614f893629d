"""Random replies of models, as servers write them, and random results of tools.

Written from the rules of the providers, in `echelons.testing.provider_rules`: what a model writes
here would break each of them if it were sent back as it came.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from langchain_core.messages import AIMessage, InvalidToolCall, ToolCall

from echelons.testing.openai_server import Blocks, ChatRequest, ResponseWriter

Json: TypeAlias = dict[str, Any]

HALF = "\ud83d"
"""Half of a character."""
NAMES: list[Any] = [
    *["look", "look", "look", "save", "save", "boom"],
    # No provider takes these, or no agent has a tool of that name.
    *["", "$READ.file", "look up", "größe", "a.b", "a/b", "x" * 65, "x" * 300, "LOOK", " look "],
    *["functions.look", "gone", "unknown_tool", "past_tool", "look\n", "a\x00b", f"a{HALF}"],
    # Tools of the library, under present and old names, whether the agent has them or not.
    *["report", "ask", "ask_superior", "ask_user", "ask_later", "send_message", "read_result"],
    *["call_subordinate", "delegate_many", "write_todos"],
]
IDS: list[Any] = ["1", "1", "call_1", "call_1", "toolu_01", "fc_1"]
ODD_IDS: list[Any] = [None, "", "call:1", "x" * 41, "x" * 200, "a b", "ü", "fc_1|fc_2", " 1", HALF]
ARGS: list[Any] = [
    *[{}, {}, {"what": "x"}, {"what": None}, {"what": {"a": [None]}}, {"what": 1, "more": 2}],
    *[
        {"what": f"a{HALF}b"},
        {f"k{HALF}": 1},
        {"what": "\x00"},
        {"what": 2**70},
        {"what": "ü" * 99},
    ],
    *[
        {"data": {"a": 1}},
        {"data": '{"a": 1}'},
        {"data": "[1"},
        {"data": [1]},
        {"what": float("nan")},
    ],
    *[
        {"status": "fulfilled", "result": "all"},
        {"status": None, "result": None},
        {"status": "odd"},
    ],
    *[{"question": "What?"}, {"question": None}, {"to": None, "message": None}, {"id": 1}],
    *[{"subordinate": "leaf", "message": "go"}, {"requests": [{"message": None}]}, {"": {"": ""}}],
    *[{"what": "long" * 2_000}],
]
RAW_ARGS: list[Any] = [
    *["[1]", "null", '"x"', "3", "true", "[]", '"{\\"what\\": \\"a\\"}"'],
    *["{", "", " ", '{"what": ', '{"what": "a', "{'what': 1}", "what=1", '{"what": 1} and', "\x00"],
    *['{"a": 1, "a": 2}', '{"what": NaN}', "[" * 300, "ü", f'{{"what": "{HALF}"}}', "{}{}"],
]
ORDINARY = [("look", "{}"), ("look", '{"what": "x"}'), ("save", '{"data": {}}'), ("boom", "{}")]
NO_OBJECTS = ["[1]", "null", "3", "true", '"{\\"what\\": \\"a\\"}"']
TEXTS: list[Any] = ["", " ", "\n\t", "done", "ü", "see\u2028", f"a{HALF}b", "a\x00b", "x" * 3_000]
PNG = "iVBORw0KGgo="


class Stranger:
    """An object that no JSON has."""

    def __repr__(self) -> str:
        return f"a stranger {HALF}"


def nest(depth: int) -> Any:
    """Return lists in lists."""
    inner: Any = "deep"
    for _ in range(depth):
        inner = [inner]
    return inner


def image(data: Any = PNG, kind: str = "image/png") -> Json:
    """Return a picture, as tools return it."""
    return {"type": "image", "base64": data, "mime_type": kind}


PICTURES: list[Any] = [
    *[image(), image("no base64!"), image(kind="text/html"), image(""), image(None)],
    {"type": "image", "url": "https://a.example/b.png"},
    {"type": "image", "url": "file:///etc/passwd"},
    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
    {"type": "image_url", "image_url": {"url": "no url"}},
    {"type": "image_url", "image_url": None},
    {"type": "file", "base64": "aGk=", "mime_type": "application/pdf", "filename": "a.pdf"},
    {"type": "file", "base64": "aGk=", "mime_type": "text/plain"},
    {"type": "text", "text": "x", "share": float("nan")},
    {"type": "json", "json": {"share": float("inf"), "set": {1}}},
]
"""Blocks that LangChain takes from tools; a list with any other becomes a text."""
RESULT_BLOCKS: list[Any] = [
    *PICTURES,
    *["a text", "", {"type": "text", "text": "x"}, {"type": "text", "text": " "}],
    *[{"type": "text", "text": f"a{HALF}"}, {"type": "text"}, {"type": "text", "text": None}],
    {"type": "image", "data": PNG, "mimeType": "image/png"},
    {"type": "file", "file_id": "file-1"},
    {"type": "audio", "base64": "aGk=", "mime_type": "audio/wav"},
    {"type": "video", "base64": "aGk=", "mime_type": "video/mp4"},
    {"type": "resource", "resource": {"uri": "a:b", "text": "x"}},
    {"type": "resource_link", "uri": "https://a.example", "name": "a"},
    {"type": "tool_use", "id": "1", "name": "look", "input": {}},
    {"type": "tool_result", "tool_use_id": "1", "content": "x"},
    {"type": "thinking", "thinking": "hm"},
    {"type": "weird", 1: float("nan"), "x": HALF},
    {"no": "type"},
    {},
]
RESULTS: list[Any] = [
    *["seen", "", " ", None, 3, float("inf"), True, b"\xff\xfe", [], {}, f"a{HALF}b", "a\x00b"],
    *[{1: "a", (2, 3): "b", None: HALF}, [1, [2]], [[{"type": "text"}]], {"type": "text"}],
    *[Stranger(), {"x": Stranger()}, {1, 2}, nest(100), 2**70, "ü" * 9_000],
    *[ValueError("no"), ValueError(f"a{HALF}\x00"), ValueError(), KeyError("k"), TimeoutError()],
    *[RecursionError("deep"), AssertionError(), asyncio.CancelledError(), StopIteration()],
]
LONG = ["long " * 30_000, [{"type": "text", "text": "long " * 30_000}, image()], "x" * 200_000]


@dataclass(frozen=True)
class SentCall:
    """A call as a server has sent it; its arguments are a text, which should be a JSON object."""

    name: str
    id: str | None
    args: str


@dataclass(frozen=True)
class SentReply:
    """What a server has sent.

    Attributes:
        step: The step of its script.
        text: Its text.
        calls: Its calls, in order.
        refusal: The words with which it refuses, where they stand apart.
    """

    step: Any
    text: str = ""
    calls: Sequence[SentCall] = ()
    refusal: str = ""


@dataclass(frozen=True)
class RawReply:
    """A reply of OpenAI's protocols that the server sends as it is.

    Attributes:
        whole: The body of a whole reply.
        events: The events of a streamed one.
        latency: As that of any step.
    """

    whole: Json
    events: Sequence[Json]
    latency: float = field(default=0.0, repr=False)

    def respond(self, request: ChatRequest, writer: ResponseWriter) -> None:
        """Send it."""
        if not request.streams:
            writer.send_json({**self.whole, "model": request.model})
            return
        writer.open_stream()
        writer.send_events([{**each, "model": request.model} for each in self.events])
        writer.close_stream()


def make_calls(dice: random.Random, odd_args: Sequence[str]) -> list[SentCall]:
    """Return the calls of a reply: none, one, several, or ten."""
    calls: list[SentCall] = []
    for _ in range(dice.choice([0, 1, 1, 1, 2, 3, 10])):
        name = dice.choice(NAMES[:6] if roll(dice, 0.5) else NAMES)
        call_id = dice.choice(ODD_IDS if roll(dice, 0.4) else IDS)
        args = dice.choice(odd_args) if roll(dice, 0.3) else json.dumps(dice.choice(ARGS))
        if roll(dice, 0.4):
            # So that tools run, and return something odd.
            name, args = dice.choice(ORDINARY)
        calls.append(SentCall(name, call_id, args))
        if roll(dice):
            calls.append(calls[-1])
    return calls


def roll(dice: random.Random, chance: float = 0.1) -> bool:
    """Return whether something happens."""
    return dice.random() < chance


def make_chat_reply(dice: random.Random) -> SentReply:
    """Return a reply of Chat Completions."""
    calls, text = make_calls(dice, RAW_ARGS), dice.choice([None, *TEXTS])
    content: Any = text
    if roll(dice):
        kinds: list[Any] = [
            {"type": "text", "text": text or ""},
            {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
            {"type": "refusal", "refusal": "I may not."},
            {"type": "weird", "x": 1},
        ]
        content = [kinds[0], *dice.choices(kinds[1:], k=dice.randrange(3))]
    message: Json = {"role": "assistant", "content": content}
    listed = [
        {"id": each.id, "type": "function", "function": {"name": each.name, "arguments": each.args}}
        for each in calls
    ]
    if listed or roll(dice):
        message["tool_calls"] = listed
    if roll(dice):
        message["refusal"] = dice.choice(["I may not.", "", None])
    if roll(dice):
        message["reasoning_content"] = dice.choice(["hm", "", None])
    if roll(dice, 0.05):
        message["function_call"] = {"name": "look", "arguments": "{}"}
    ends = ["stop", "tool_calls", "length", "content_filter", "weird", "", "function_call"]
    end = dice.choice(["tool_calls" if calls else "stop", dice.choice(ends)])
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    frame = {"id": f"chatcmpl-{dice.randrange(9)}", "created": 0}
    whole = {**frame, "object": "chat.completion"}
    whole["choices"] = [{"index": 0, "message": message, "finish_reason": end}]
    if not roll(dice):
        whole["usage"] = usage
    deltas: list[Json] = [{key: message[key] for key in message if key != "tool_calls"}]
    deltas += [{"tool_calls": [{"index": n, **each}]} for n, each in enumerate(listed)]
    choices: list[Json] = [{"index": 0, "delta": each, "finish_reason": None} for each in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": end})
    events = [{**frame, "object": "chat.completion.chunk", "choices": [each]} for each in choices]
    return SentReply(RawReply(whole, events), text or "", calls, message.get("refusal") or "")


def make_responses_reply(dice: random.Random) -> SentReply:
    """Return a reply of the Responses API."""
    calls, number = make_calls(dice, RAW_ARGS), dice.randrange(4)
    items: list[Json] = []
    text = ""
    if roll(dice, 0.3):
        thought = {"id": f"rs_{number}", "type": "reasoning", "summary": []}
        items.append({**thought, "encrypted_content": dice.choice(["secret", None])})
    if roll(dice, 0.5) or not calls:
        text = dice.choice(TEXTS)
        part: Json = {"type": "output_text", "text": text, "annotations": []}
        if roll(dice, 0.15):
            part, text = {"type": "refusal", "refusal": "I may not."}, ""
        content = [] if roll(dice, 0.05) else [part]
        text = text if content else ""
        message = {"id": f"msg_{number}", "type": "message", "role": "assistant"}
        items.append({**message, "status": "completed", "content": content})
    if roll(dice, 0.15):
        action = {"type": "search", "query": "x"}
        search = {"id": f"ws_{number}", "type": "web_search_call", "status": "completed"}
        items.append({**search, "action": action} if roll(dice, 0.5) else {"type": "weird", "x": 1})
    for place, each in enumerate(calls):
        item = {"id": f"fc_{number}_{place}", "type": "function_call", "status": "completed"}
        items.append({**item, "call_id": each.id, "name": each.name, "arguments": each.args})
    reason = dice.choice(["max_output_tokens", "content_filter"]) if roll(dice, 0.15) else ""
    status = "incomplete" if reason else "completed"
    head: Json = {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 0,
        "status": status,
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "incomplete_details": {"reason": reason} if reason else None,
    }
    usage = {
        "input_tokens": 3,
        "output_tokens": 4,
        "total_tokens": 7,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    whole = {**head, "output": items, "usage": usage}
    events: list[Json] = [{"type": "response.created", "response": head}]
    for at, item in enumerate(items):
        events += _stream_item(at, item)
    events.append({"type": f"response.{status}", "response": whole})
    numbered = [{**each, "sequence_number": place} for place, each in enumerate(events)]
    return SentReply(RawReply(whole, numbered), text, calls)


def _stream_item(at: int, item: Json) -> list[Json]:
    where = {"output_index": at, "item_id": item.get("id")}
    begun, inner = item, list[Json]()
    if item["type"] == "function_call":
        begun = {**item, "arguments": ""}
        kind = "response.function_call_arguments"
        inner = [{"type": f"{kind}.delta", **where, "delta": item["arguments"]}]
        inner.append({"type": f"{kind}.done", **where, "arguments": item["arguments"]})
    elif item["type"] == "message":
        begun, where = {**item, "content": []}, {**where, "content_index": 0}
        for part in item["content"]:
            kind = f"response.{part['type']}"
            field_name = "text" if part["type"] == "output_text" else "refusal"
            said: Json = {**where, "logprobs": []}
            inner.append({"type": f"{kind}.delta", **said, "delta": part[field_name]})
            inner.append({"type": f"{kind}.done", **said, field_name: part[field_name]})
    return [
        {"type": "response.output_item.added", "output_index": at, "item": begun},
        *inner,
        {"type": "response.output_item.done", "output_index": at, "item": item},
    ]


def make_anthropic_reply(dice: random.Random) -> SentReply:
    """Return a reply of Anthropic's Messages API."""
    calls = make_calls(dice, NO_OBJECTS)
    content: list[Json] = []
    if roll(dice, 0.3):
        thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
        content.append(dice.choice([thinking, {"type": "redacted_thinking", "data": "x"}]))
    if roll(dice, 0.05):
        content.append({"type": "thinking", "thinking": "hm", "signature": ""})
    text = ""
    if roll(dice, 0.6):
        text = dice.choice(TEXTS)
        content.append({"type": "text", "text": text})
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    searched: Json = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    if roll(dice, 0.15):
        content += [use, searched] if roll(dice, 0.7) else [use]
    if roll(dice, 0.05):
        content.append({"type": "compaction", "content": "shorter"})
    content += [
        {"type": "tool_use", "id": each.id, "name": each.name, "input": json.loads(each.args)}
        for each in calls
    ]
    ends = ["end_turn", "tool_use", "max_tokens", "refusal", "pause_turn", "stop_sequence", "weird"]
    end = dice.choice([*ends, "model_context_window_exceeded"]) if roll(dice, 0.4) else ""
    if end == "pause_turn" and not any(each["type"] == "server_tool_use" for each in content):
        # It pauses only while it uses a tool of its own.
        content.append(use)
    return SentReply(Blocks(content, end, (3, 4)), text, calls)


def make_message(dice: random.Random) -> SentReply:
    """Return a reply of a model that is no provider's client, which may write any Python value."""
    calls: list[ToolCall] = []
    broken: list[InvalidToolCall] = []
    sent = sorted(make_calls(dice, RAW_ARGS), key=lambda each: _read(each.args) is None)
    for each in sent:
        args = _read(each.args)
        if args is not None:
            if roll(dice):
                args = {**args, "data": {1: "a", 2: float("inf"), 2.5: {3: []}}}
            calls.append(ToolCall(name=each.name, args=args, id=each.id, type="tool_call"))
        else:
            kind: Any = "invalid_tool_call"
            broken.append(
                InvalidToolCall(name=each.name, args=each.args, id=each.id, error=None, type=kind)
            )
    # With keys that are no texts, as a model of one's own may write them.
    valid = [SentCall(each["name"], each["id"], json.dumps(each["args"])) for each in calls]
    sent = [*valid, *sent[len(valid) :]]
    text = dice.choice(TEXTS)
    end = dice.choice(["stop", "tool_calls", "length", "content_filter", "refusal", "weird"])
    message = AIMessage(
        [{"type": "text", "text": text}, {"type": "weird", "x": HALF}] if roll(dice) else text,
        tool_calls=calls,
        invalid_tool_calls=broken,
        response_metadata={"finish_reason": end} if roll(dice, 0.3) else {},
        additional_kwargs=dice.choice([{}, {HALF: HALF}]),
    )
    return SentReply(message, text, sent)


def _read(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def make_result(dice: random.Random) -> Any:
    """Return what a tool returns, or an exception that it raises."""
    if roll(dice, 0.02):
        return dice.choice(LONG)
    if roll(dice, 0.5):
        blocks = dice.choice([PICTURES, RESULT_BLOCKS])
        return dice.choices(blocks, k=dice.randrange(1, 4))
    return dice.choice(RESULTS)


MAKERS: Mapping[str, Any] = {
    "chat": make_chat_reply,
    "responses": make_responses_reply,
    "anthropic": make_anthropic_reply,
    "any": make_message,
}
