"""Random conversations, as odd models and tools write them, are sent as every provider takes them.

The generator is written from the rules of the providers: it breaks each of them. The payloads are
those of the real clients, which are never called.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    InvalidToolCall,
    SystemMessage,
    ToolMessage,
)
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from echelons.models.request_messages import RequestBuilder, build_request
from echelons.models.resolution import STRICTEST, describe_client
from echelons.testing.provider_rules import (
    ANTHROPIC_RULES,
    CHAT_RULES,
    MESSAGE_RULES,
    RESPONSES_RULES,
    ModelRequest,
    Rules,
    find_fault,
)
from tests.proof import sample
from tests.properties.switches import WAY_OUT

KEY = SecretStr("k")
CHAT = ChatOpenAI(model="gpt-test", api_key=KEY)
RESPONSES = ChatOpenAI(model="gpt-test", api_key=KEY, use_responses_api=True)
ANTHROPIC: Any = ChatAnthropic(model_name="claude-test", api_key=KEY)  # type: ignore[call-arg]
CLIENTS: list[tuple[str, Any, Rules]] = [
    ("chat", CHAT, CHAT_RULES),
    ("responses", RESPONSES, RESPONSES_RULES),
    ("anthropic", ANTHROPIC, ANTHROPIC_RULES),
    ("unknown", None, MESSAGE_RULES),
]
TRIALS = sample(300, 50_000)
"""For each client."""
LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
TOOL = {"name": "look", "input_schema": {"type": "object"}}
DECLARED: dict[str, Any] = {
    "chat": [LOOK],
    "responses": [{"type": "function", "name": "look", "parameters": {"type": "object"}}],
    "anthropic": [TOOL],
}

NAMES = ["look", "look", "pay_2", "$READ.file", "", "look up", "x" * 65, "größe", "a.b", "a/b"]
IDS = ["1", "call_1", "call_2", "", "call:1", "x" * 41, "a b", "ü", "fc_1|fc_2", "toolu_01"]
ARGS: list[Any] = [{}, {"a": 1}, {"a": {"b": [None, "x"]}}, {"a": float("nan")}, {"a": "ü"}]
RAW = ["[1]", "null", '"x"', "{", "", "{'a': 1}", "3"]
TEXTS = ["", " ", "\n", "done", "ü", "see\u2028", "x" * 500]
PICTURE = {"type": "image", "base64": "iVBORw0KGgo=", "mime_type": "image/png"}
FILE = {"type": "file", "base64": "aGk=", "mime_type": "application/pdf", "filename": "a.pdf"}
USER_BLOCKS: list[Any] = [
    {"type": "text", "text": "x"},
    {"type": "text", "text": " "},
    "a text",
    PICTURE,
    {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}},
    FILE,
    {"type": "file", "base64": "aGk=", "mime_type": "text/plain"},
]
FOREIGN_BLOCKS: list[Any] = [
    {"type": "thinking", "thinking": "hm"},
    {"type": "reasoning", "summary": []},
    {"type": "custom_block", "value": 1},
]
REPLY_BLOCKS: list[Any] = [
    {"type": "text", "text": "x"},
    {"type": "text", "text": ""},
    "a text",
    {"type": "thinking", "thinking": "hm", "signature": "s"},
    {"type": "redacted_thinking", "data": "x"},
    *FOREIGN_BLOCKS,
]
PROVIDERS = ["", "openai", "anthropic", "google_genai"]


def build_use(call: Any) -> dict[str, Any]:
    """Return the block that repeats a call, as Anthropic writes it."""
    return {"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["args"]}


def build_function_call(call: Any) -> dict[str, Any]:
    """Return it as OpenAI's Responses API writes it."""
    written = {"name": call["name"], "arguments": json.dumps(call["args"])}
    return {"type": "function_call", "call_id": call["id"], **written}


def make_reply(dice: random.Random) -> list[BaseMessage]:
    """Return a reply, and most results of its calls, in some order."""
    calls: list[Any] = []
    broken: list[InvalidToolCall] = []
    for _ in range(dice.choice([0, 0, 1, 1, 2, 3])):
        name, call_id = dice.choice(NAMES), dice.choice(IDS)
        if dice.random() < 0.2:
            raw = dice.choice(RAW)
            kind: Any = "invalid_tool_call"
            made = InvalidToolCall(name=name, args=raw, id=call_id, error=None, type=kind)
            broken.append(made)
        else:
            args = dice.choice(ARGS)
            calls.append({"name": name, "args": args, "id": call_id, "type": "tool_call"})
    content: Any = dice.choice(TEXTS)
    if dice.random() < 0.5:
        content = [dice.choice(REPLY_BLOCKS) for _ in range(dice.randrange(3))]
        for call in calls if dice.random() < 0.7 else []:
            content.append(dice.choice([build_use, build_function_call])(call))
    provider = dice.choice(PROVIDERS)
    if provider == "anthropic" and isinstance(content, list):
        # It writes none of the blocks that it does not take.
        content = [each for each in content if each not in FOREIGN_BLOCKS]
    more = dice.choice([{}, {}, {"tool_calls": [{}]}, {"refusal": None}])
    if "function_call" in str(content):
        # The Responses API puts nothing else there.
        more = {}
    end = dice.choice(["stop", "tool_calls", "length", "end_turn"])
    reply = AIMessage(
        content,
        tool_calls=calls,
        invalid_tool_calls=broken,
        additional_kwargs=more,
        name=dice.choice([None, "head", "the head"]),
        response_metadata={"model_provider": provider, "finish_reason": end},
    )
    answered = [each for each in [*calls, *broken] if dice.random() < 0.9]
    dice.shuffle(answered)
    return [reply, *(make_result(dice, each["id"] or "") for each in answered)]


def make_result(dice: random.Random, call_id: str) -> BaseMessage:
    content: Any = dice.choice(TEXTS)
    if dice.random() < 0.3:
        content = [dice.choice(USER_BLOCKS) for _ in range(dice.randrange(3))]
    return ToolMessage(content, tool_call_id=call_id, name=dice.choice(["look", "a b", None]))


def make_user(dice: random.Random) -> BaseMessage:
    content: Any = dice.choice(TEXTS)
    if dice.random() < 0.3:
        content = [dice.choice(USER_BLOCKS) for _ in range(dice.randrange(1, 3))]
    return HumanMessage(content, name=dice.choice([None, None, "Ann B.", "ann"]))


def make_conversation(seed: int) -> list[BaseMessage]:
    """Return a conversation of a random length."""
    dice = random.Random(seed)
    said: list[BaseMessage] = [SystemMessage("be brief")] if dice.random() < 0.7 else []
    if dice.random() < 0.9:
        said.append(make_user(dice))
    for _ in range(dice.randrange(1, 4)):
        said += make_reply(dice)
        if dice.random() < 0.5:
            said.append(make_user(dice))
        if dice.random() < 0.05:
            said.append(make_result(dice, "gone"))
    if not any(isinstance(each, HumanMessage) for each in said):
        # No agent runs without a task.
        said.append(make_user(dice))
    return said


def find_refusal(name: str, client: Any, rules: Rules, messages: Sequence[BaseMessage]) -> str:
    """Return why a provider refuses what its client sends of some messages."""
    if client is None:
        return find_fault(rules, ModelRequest(messages, [LOOK]))
    body = client._get_request_payload(list(messages))
    # As the HTTP client does it; then the server reads it.
    sent = json.loads(json.dumps({**body, "tools": DECLARED[name]}, allow_nan=False, default=str))
    return find_fault(rules, sent)


def find_faults(client: tuple[str, Any, Rules], seeds: Sequence[int]) -> list[str]:
    name, model, rules = client
    known = STRICTEST if model is None else describe_client(model)
    faults = []
    for seed in seeds:
        try:
            sent = build_request(make_conversation(seed), known)
            fault = find_refusal(name, model, rules, sent)
        except Exception as error:  # a client that cannot send it
            fault = f"{type(error).__name__}: {error}"
        if fault:
            faults.append(f"seed {seed}: {fault}")
    return faults


@pytest.mark.parametrize("client", CLIENTS, ids=[each[0] for each in CLIENTS])
def test_each_provider_accepts_what_is_sent(client: tuple[str, Any, Rules]) -> None:
    first = random.SystemRandom().randrange(10**9)
    print(f"{client[0]}: {TRIALS} conversations from seed {first}")
    assert find_faults(client, range(first, first + TRIALS))[:5] == []


@pytest.mark.parametrize("client", CLIENTS, ids=[each[0] for each in CLIENTS])
def test_request_begins_with_the_request_before(client: tuple[str, Any, Rules]) -> None:
    known = STRICTEST if client[1] is None else describe_client(client[1])
    for seed in range(sample(100, 5_000)):
        said = make_conversation(seed)
        ends = [at for at, each in enumerate(said) if isinstance(each, AIMessage) and at]
        builder = RequestBuilder(known)
        before: list[str] = []
        for end in [*ends, len(said)]:
            sent = [each.model_dump_json() for each in builder.build(said[:end])]
            assert sent[: len(before)] == before, seed
            assert sent == [each.model_dump_json() for each in build_request(said[:end], known)]
            before = sent if isinstance(said[end - 1], HumanMessage | ToolMessage) else []


def is_accepted() -> bool:
    """Return whether each provider accepts what is sent, up to the first that does not."""
    return not any(find_faults(client, [seed]) for seed in range(300) for client in CLIENTS)


def test_nothing_is_refused_while_all_is_mended() -> None:
    assert is_accepted()


@pytest.mark.parametrize("mending", WAY_OUT)
def test_each_mending_is_needed(mending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    WAY_OUT[mending].switch_off(monkeypatch)

    assert not is_accepted()
