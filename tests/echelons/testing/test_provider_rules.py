"""What scripted models and strict servers refuse: each rule has a request that only it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    InvalidToolCall,
    SystemMessage,
    ToolMessage,
)

from echelons import Agent, Session
from echelons.testing import ScriptedModel
from echelons.testing.provider_rules import (
    ANTHROPIC_RULES,
    CHAT_RULES,
    MESSAGE_RULES,
    RESPONSES_RULES,
    ModelRequest,
    Rules,
    find_fault,
)
from tests.error_codes import raises_code

TASK = HumanMessage("go")
TEXT_FILE = {"type": "image", "base64": "aGk=", "mime_type": "text/html"}
TOOLS = [{"type": "function", "function": {"name": "look"}}]


def call(name: str = "look", call_id: str = "1", **args: Any) -> Any:
    return {"name": name, "args": args, "id": call_id, "type": "tool_call"}


def turn(*calls: Any, content: Any = "", results: int = 1) -> list[BaseMessage]:
    said: list[BaseMessage] = [AIMessage(content, tool_calls=list(calls))]
    said += [ToolMessage("seen", tool_call_id=each["id"]) for each in calls] * results
    return [TASK, *said]


INVALID = InvalidToolCall(name="look", args="[1", id="1", error=None, type="invalid_tool_call")
MESSAGES: dict[str, list[BaseMessage]] = {
    "messages": [SystemMessage("be brief")],
    "first": [AIMessage("hello"), TASK],
    "last": [TASK, AIMessage("done")],
    "system": [TASK, SystemMessage("be brief"), TASK],
    "json": turn(call(at=float("nan"))),
    "person_names": [HumanMessage("go", name="a b")],
    "contents": [TASK, AIMessage(""), TASK],
    "texts": [HumanMessage([{"type": "text", "text": " "}])],
    "reply_blocks": [*turn(content=[{"type": "thinking", "thinking": "hm"}]), TASK],
    "result_blocks": [
        *turn(call())[:2],
        ToolMessage([{**TEXT_FILE, "mime_type": "image/png"}], tool_call_id="1"),
    ],
    "pictures": [HumanMessage([TEXT_FILE])],
    "invalid_calls": [TASK, AIMessage("see", invalid_tool_calls=[INVALID]), TASK],
    "extra_calls": [TASK, AIMessage("see", additional_kwargs={"tool_calls": [{}]}), TASK],
    "call_names": turn(call("look up")),
    "call_ids": turn(call(call_id="call:1")),
    "unique_ids": [*turn(call()), *turn(call())],
    "results": turn(call(), results=2),
    "open_calls": [*turn(call(), results=0), TASK],
}
CALLED = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
USER = {"role": "user", "content": "go"}


def chat(*said: Any, **more: Any) -> dict[str, Any]:
    return {"messages": [USER, *said], **more}


def chat_call(**changes: Any) -> dict[str, Any]:
    function = {**CALLED["function"], **changes.pop("function", {})}  # type: ignore[dict-item]
    made = {**CALLED, "function": function, **changes}
    answer = {"role": "tool", "tool_call_id": made["id"], "content": "seen"}
    return chat({"role": "assistant", "content": None, "tool_calls": [made]}, answer)


def shown(**part: Any) -> dict[str, Any]:
    return chat({"role": "user", "content": [part]})


PAIR = chat_call()["messages"][1:]
CHAT: dict[str, dict[str, Any]] = {
    "roles": chat({"role": "function", "content": "x"}),
    "json": chat({"role": "user", "content": "\ud800"}),
    "person_names": chat({"role": "user", "content": "x", "name": "a b"}),
    "contents": chat({"role": "user", "content": None}),
    "parts": shown(type="thinking"),
    "pictures": shown(type="image_url", image_url={"url": "data:text/html;base64,aGk="}),
    "files": shown(type="file", file={"file_data": "data:text/html;base64,aGk="}),
    "empty_reply": chat({"role": "assistant", "content": ""}, USER),
    "call_lists": chat({"role": "assistant", "content": "x", "tool_calls": []}),
    "call_names": chat_call(function={"name": "look up"}),
    "arguments": chat_call(function={"arguments": "[1]"}),
    "call_ids": chat_call(id="call:1"),
    "unique_ids": chat(*PAIR, *PAIR),
    "results": chat(PAIR[0]),
    "tools": chat(tools=[{"type": "function", "function": {"name": "a b"}}]),
    "strict_schemas": chat(tools=[{"function": {"name": "a", "strict": True}}]),
}
ITEM = {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "1", "output": "seen"}


def items(*said: Any, **more: Any) -> dict[str, Any]:
    return {"input": [USER, *said], **more}


RESPONSES: dict[str, dict[str, Any]] = {
    "items": items({"type": "thinking"}),
    "json": items({"role": "user", "content": "\ud800"}),
    "item_ids": items({**ITEM, "id": "run-1"}, OUTPUT),
    "contents": items({"role": "user", "content": []}),
    "parts": items({"role": "user", "content": [{"type": "text", "text": "x"}]}),
    "pictures": items({"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}),
    "files": items({"role": "user", "content": [{"type": "input_file", "file_data": "x"}]}),
    "empty_reply": items({"role": "assistant", "content": ""}),
    "call_names": items({**ITEM, "name": "look up"}, OUTPUT),
    "arguments": items({**ITEM, "arguments": "[1]"}, OUTPUT),
    "call_ids": items({**ITEM, "call_id": "a:1"}, {**OUTPUT, "call_id": "a:1"}),
    "unique_ids": items(ITEM, OUTPUT, ITEM, OUTPUT),
    "results": items(ITEM),
    "tools": items(tools=[{"type": "function", "name": "a b"}]),
}
USE = {"type": "tool_use", "id": "1", "name": "look", "input": {}}
SEEN = {"type": "tool_result", "tool_use_id": "1", "content": "seen"}
LOOK = [{"name": "look", "input_schema": {}}]


def blocks(*said: Any, **more: Any) -> dict[str, Any]:
    roles = ["assistant", "user"] * len(said)
    messages = [{"role": role, "content": each} for role, each in zip(roles, said, strict=False)]
    return {"messages": [USER, *messages], "tools": LOOK, **more}


PICTURE = {"type": "base64", "media_type": "text/html", "data": "aGk="}
ANTHROPIC: dict[str, dict[str, Any]] = {
    "json": blocks("x", "\ud800"),
    "roles": {"messages": [USER, {"role": "system", "content": "x"}]},
    "first": {"messages": [{"role": "assistant", "content": "x"}, USER]},
    "last": blocks("done"),
    "contents": blocks([], "x"),
    "texts": blocks(" ", "x"),
    "block_types": blocks([{"type": "reasoning"}], "x"),
    "block_keys": blocks([{"type": "text", "text": "x", "index": 0}], "x"),
    "signatures": blocks([{"type": "thinking", "thinking": "x"}], "x"),
    "thinking_first": blocks([USE], [SEEN], thinking={"type": "enabled"}),
    "pictures": blocks("x", [{"type": "image", "source": PICTURE}]),
    "call_names": blocks([{**USE, "name": "look up"}], [SEEN]),
    "inputs": blocks([{**USE, "input": [1]}], [SEEN]),
    "call_ids": blocks([{**USE, "id": "a:1"}], [{**SEEN, "tool_use_id": "a:1"}]),
    "unique_ids": blocks([USE], [SEEN], [USE], [SEEN]),
    "results": blocks([USE], "x"),
    "tools_declared": blocks([USE], [SEEN], tools=[]),
    "tools": blocks("x", "y", tools=[{"name": "a b"}]),
}
TABLES: list[tuple[Rules, dict[str, Any]]] = [
    (CHAT_RULES, CHAT),
    (RESPONSES_RULES, RESPONSES),
    (ANTHROPIC_RULES, ANTHROPIC),
    (
        MESSAGE_RULES,
        {name: ModelRequest(messages, TOOLS) for name, messages in MESSAGES.items()}
        | {
            "tools_declared": ModelRequest(turn(call())),
            "tools": ModelRequest([TASK], TOOLS * 2),
        },
    ),
]


@pytest.mark.parametrize(("rules", "requests"), TABLES)
def test_each_rule_refuses_what_no_other_rule_does(rules: Rules, requests: dict[str, Any]) -> None:
    assert {*requests} == {*rules}
    for name, request in requests.items():
        assert find_fault(rules, request).startswith(f"{name}: "), name
        others = {each: rule for each, rule in rules.items() if each != name}
        assert find_fault(others, request) == "", name


def test_ordinary_requests_break_no_rule() -> None:
    assert find_fault(CHAT_RULES, chat(*PAIR)) == ""
    assert find_fault(RESPONSES_RULES, items(ITEM, OUTPUT)) == ""
    assert find_fault(ANTHROPIC_RULES, blocks([USE], [SEEN])) == ""
    assert find_fault(MESSAGE_RULES, ModelRequest(turn(call()), TOOLS)) == ""


def test_scripted_model_refuses_what_a_provider_would() -> None:
    said = [TASK, AIMessage(""), TASK]

    with raises_code("request_refused", match="contents: messages"):
        ScriptedModel(["x"]).invoke(said)

    assert ScriptedModel(["x"], strict=False).invoke(said).text == "x"


def test_agent_sends_scripted_model_nothing_that_it_refuses() -> None:
    odd = AIMessage("", tool_calls=[call("look up", "call:1"), call("look up", "call:1")])
    with Session(Agent("head", model=ScriptedModel([odd, "done"])), ":memory:") as session:
        assert session.send("go").result().text == "done"
