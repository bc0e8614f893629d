"""A conversation as a provider accepts it, whatever its models and tools wrote."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
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

from echelons.models.request_content import NO_TEXT, RAW_ARGUMENTS, UNKNOWN_TOOL
from echelons.models.request_messages import (
    BEGIN,
    GO_ON,
    NOT_RUN,
    RequestBuilder,
    build_request,
)
from echelons.models.resolution import STRICTEST, ClientRules, describe_client
from echelons.testing import ScriptedModel

OPENAI = ClientRules("openai", "openai")
RESPONSES = ClientRules("responses", "openai")
ANTHROPIC = ClientRules("anthropic", "anthropic")
ALL = pytest.mark.parametrize("rules", [OPENAI, RESPONSES, ANTHROPIC, STRICTEST])
PICTURE = {"type": "image", "base64": "iVBORw0KGgo=", "mime_type": "image/png"}
TASK = HumanMessage("go", id="task")


def call(name: str = "look", call_id: str = "1", **args: Any) -> dict[str, Any]:
    return {"name": name, "args": args, "id": call_id, "type": "tool_call"}


def reply(*calls: dict[str, Any], content: Any = "", **more: Any) -> AIMessage:
    return AIMessage(content, tool_calls=list(calls), **more)


def result(content: Any = "seen", call_id: str = "1", **more: Any) -> ToolMessage:
    return ToolMessage(content, tool_call_id=call_id, name="look", **more)


def send(*messages: BaseMessage, rules: ClientRules = STRICTEST) -> list[Any]:
    return build_request([TASK, *messages], rules)[1:]


@ALL
def test_ordinary_conversation_is_sent_as_it_is(rules: ClientRules) -> None:
    messages = [SystemMessage("s"), TASK, reply(call()), result(), AIMessage("done"), TASK]

    sent = build_request(messages, rules)

    assert len(sent) == len(messages)
    assert all(one is other for one, other in zip(sent, messages, strict=True))


@ALL
@pytest.mark.parametrize("name", ["$READ.file", "", "x" * 65, "look up", "größe", "a.b"])
def test_illegal_name_is_sent_under_placeholder(name: str, rules: ClientRules) -> None:
    said, answer = send(reply(call(name)), result("no such tool"), rules=rules)

    assert said.tool_calls[0]["name"] == UNKNOWN_TOOL
    assert repr(name) in answer.text and "no such tool" in answer.text


@ALL
@pytest.mark.parametrize("call_id", ["", "call:1", "x" * 41, "a b", "ü"])
def test_illegal_id_is_replaced_in_call_and_result(call_id: str, rules: ClientRules) -> None:
    said, answer = send(reply(call(call_id=call_id)), result(call_id=call_id), rules=rules)

    assert re.fullmatch(r"[A-Za-z0-9_-]{1,40}", said.tool_calls[0]["id"])
    assert answer.tool_call_id == said.tool_calls[0]["id"]
    assert answer.text == "seen"


@ALL
def test_id_that_comes_again_is_replaced(rules: ClientRules) -> None:
    sent = send(reply(call()), result("a"), reply(call()), result("b"), rules=rules)

    first, second = sent[0].tool_calls[0]["id"], sent[2].tool_calls[0]["id"]
    assert first == "1" and second != "1"
    assert (sent[1].tool_call_id, sent[3].tool_call_id) == (first, second)


def test_hidden_call_keeps_the_ids_of_later_calls() -> None:
    messages = [TASK, reply(call(), id="a"), result(), reply(call(), id="b"), result()]

    whole = build_request(messages, STRICTEST)
    less = build_request(messages, STRICTEST, {"a"})

    assert [one.id for one in less] == ["task", "b", None]
    assert less[1] == whole[3]


def test_made_id_is_no_id_of_an_earlier_call() -> None:
    said = [
        message
        for call_id in ("a-1", "a", "a")
        for message in (reply(call(call_id=call_id)), result(call_id=call_id))
    ]
    sent = send(*said)

    ids = [one.tool_calls[0]["id"] for one in sent if isinstance(one, AIMessage)]
    assert len(set(ids)) == 3


@pytest.mark.parametrize(("rules", "kind"), [(ANTHROPIC, "tool_use"), (RESPONSES, "function_call")])
def test_block_of_a_call_has_the_id_and_name_of_the_call(rules: ClientRules, kind: str) -> None:
    key = "id" if kind == "tool_use" else "call_id"
    blocks = [
        {"type": kind, key: "a", "name": "$x", "input": {}, "arguments": "{}"},
        {"type": kind, key: "a", "name": "look", "input": {}, "arguments": "{}"},
    ]
    calls = [call("$x", "a"), call("look", "a-2")]

    said = send(reply(*calls, content=blocks), rules=rules)[0]

    assert [block[key] for block in said.content] == [one["id"] for one in said.tool_calls]
    assert [block["name"] for block in said.content] == [UNKNOWN_TOOL, "look"]


@ALL
def test_invalid_arguments_are_sent_as_object(rules: ClientRules) -> None:
    broken = InvalidToolCall(
        type="invalid_tool_call", name="look", args="[1", id="1", error="no JSON"
    )
    said, answer = send(AIMessage("", invalid_tool_calls=[broken]), result("Error"), rules=rules)

    assert said.tool_calls[0]["args"] == {RAW_ARGUMENTS: "[1"}
    assert not said.invalid_tool_calls
    assert answer.text == "Error"


def test_arguments_are_json() -> None:
    said = send(reply(call(what=float("nan"), deep={1: [float("inf")], "set": {1}})))[0]

    assert said.tool_calls[0]["args"] == {"what": "nan", "deep": {"1": ["inf"], "set": [1]}}


@pytest.mark.parametrize(
    ("rules", "kind"),
    [
        (ANTHROPIC, "function_call"),
        (RESPONSES, "tool_use"),
        # Its own, whose result would have to be of another kind, too.
        (RESPONSES, "custom_tool_call"),
    ],
)
def test_block_of_a_call_of_another_client_is_left_out(rules: ClientRules, kind: str) -> None:
    block = {"type": kind, "id": "1", "call_id": "1", "name": "look", "arguments": "{}"}

    said = send(reply(call(), content=[block]), result(), rules=rules)[0]

    assert (said.content, said.tool_calls) == ([], [call()])


def test_item_ids_that_come_again_are_left_out() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": []}
    said = {"type": "text", "text": "x", "id": "msg_1"}
    block = {"type": "function_call", "id": "fc_1", "name": "look", "arguments": "{}"}
    replies = [
        reply(
            call(call_id=each),
            content=[thought, said, {**said, "text": "y"}, {**block, "call_id": each}],
            response_metadata={"model_provider": "openai"},
        )
        for each in "ab"
    ]
    first, _, second, _ = send(
        replies[0], result(call_id="a"), replies[1], result(call_id="b"), rules=RESPONSES
    )

    assert first is replies[0]
    assert [(each["type"], each.get("id")) for each in second.content] == [
        ("text", None),
        ("text", None),
        ("function_call", None),
    ]


def test_arguments_in_blocks_are_json() -> None:
    block = {"type": "function_call", "call_id": "1", "name": "look", "arguments": '{"a": NaN}'}

    said = send(reply(call(a=float("nan")), content=[block]), rules=RESPONSES)[0]

    assert said.content[0]["arguments"] == '{"a": "nan"}'


@ALL
@pytest.mark.parametrize("content", ["", " \n", [], [{"type": "text", "text": " "}], [""]])
def test_empty_reply_gets_a_text(content: Any, rules: ClientRules) -> None:
    sent = send(AIMessage(content), TASK, rules=rules)

    assert sent[0].text == NO_TEXT


def test_refusal_is_the_text_of_an_empty_reply() -> None:
    sent = send(AIMessage("", additional_kwargs={"refusal": "I may not."}), TASK)

    assert sent[0].text == "I may not."


@ALL
def test_every_call_is_answered_once_directly_after_it(rules: ClientRules) -> None:
    calls = [call(call_id=str(n)) for n in range(3)]
    between = HumanMessage("mail")

    sent = send(
        reply(*calls),
        result("b", "1"),
        between,
        result("a", "0"),
        result("again", "1"),
        rules=rules,
    )

    assert [one.type for one in sent] == ["ai", "tool", "tool", "tool", "human"]
    assert [(one.tool_call_id, one.text) for one in sent[1:4]] == [
        ("1", "b"),
        ("0", "a"),
        ("2", NOT_RUN),
    ]


@ALL
def test_result_without_a_call_is_sent_as_text(rules: ClientRules) -> None:
    sent = send(result("orphan"), rules=rules)

    assert [one.type for one in sent] == ["human"]
    assert "orphan" in sent[0].text


@pytest.mark.parametrize("rules", [OPENAI, STRICTEST])
def test_picture_of_a_result_stands_after_the_results(rules: ClientRules) -> None:
    sent = send(reply(call(), call(call_id="2")), result([PICTURE]), result("b", "2"), rules=rules)

    assert [one.type for one in sent] == ["ai", "tool", "tool", "human"]
    assert "image" in sent[1].text
    assert sent[3].content[1] == PICTURE


@pytest.mark.parametrize("rules", [RESPONSES, ANTHROPIC])
def test_picture_stays_in_the_result_where_the_client_takes_it(rules: ClientRules) -> None:
    answer = result([PICTURE])

    assert send(reply(call()), answer, rules=rules)[1] is answer


def test_file_that_the_client_cannot_send_becomes_a_text() -> None:
    movie = {"type": "video", "base64": "AAAA", "mime_type": "video/mp4"}

    for rules in (OPENAI, ANTHROPIC):
        sent = send(HumanMessage([{"type": "text", "text": "See"}, movie]), rules=rules)
        assert "cannot be shown" in str(sent[0].content[1])


@ALL
def test_blocks_of_another_provider_are_left_out(rules: ClientRules) -> None:
    blocks: list[Any] = [{"type": "strange", "x": 1}, {"type": "text", "text": "done"}]
    said = AIMessage(blocks, response_metadata={"model_provider": "another"})

    assert send(said, TASK, rules=rules)[0].content == [{"type": "text", "text": "done"}]


def test_signed_blocks_are_never_changed() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    said = reply(
        call("$x"),
        content=[thinking, {"type": "tool_use", "id": "1", "name": "$x", "input": {}}],
        response_metadata={"model_provider": "anthropic"},
    )

    sent = send(said, rules=ANTHROPIC)[0]

    assert sent.content[0] == thinking
    alone = send(AIMessage([thinking]), TASK, rules=ANTHROPIC)[0]
    assert alone.content == [thinking, {"type": "text", "text": NO_TEXT}]


@pytest.mark.parametrize("provider", ["", "anthropic"])
@pytest.mark.parametrize("signed", [{}, {"signature": ""}])
def test_unsigned_thinking_is_not_sent_back(provider: str, signed: dict[str, Any]) -> None:
    blocks: list[Any] = [
        {"type": "thinking", "thinking": "hm", **signed},
        {"type": "text", "text": "done"},
    ]
    said = AIMessage(blocks, response_metadata={"model_provider": provider})

    assert send(said, TASK, rules=ANTHROPIC)[0].content == [{"type": "text", "text": "done"}]


@pytest.mark.parametrize("rules", [ANTHROPIC, STRICTEST])
def test_conversation_begins_and_ends_with_a_user_message(rules: ClientRules) -> None:
    sent = build_request([SystemMessage("s"), AIMessage("a")], rules)

    assert [(one.type, one.text) for one in sent][1:] == [
        ("human", BEGIN),
        ("ai", "a"),
        ("human", GO_ON),
    ]


def test_conversation_without_messages_begins_with_a_user_message() -> None:
    # A middleware, or a command of a tool, may remove them all.
    sent = build_request([SystemMessage("s")], ANTHROPIC)

    assert [(one.type, one.text) for one in sent][1:] == [("human", BEGIN)]


def test_paused_reply_may_stand_last() -> None:
    paused = AIMessage("a", response_metadata={"stop_reason": "pause_turn"})

    assert send(paused, rules=ANTHROPIC) == [paused]


SEARCH = {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {}}
SEARCHED = {"type": "web_search_tool_result", "tool_use_id": "srv", "content": []}
TEXT = {"type": "text", "text": "I search."}


def test_open_call_of_a_server_is_left_out_unless_its_reply_goes_on() -> None:
    paused = AIMessage([TEXT, SEARCH], response_metadata={"stop_reason": "pause_turn"})
    continued = AIMessage([SEARCHED, TEXT])

    assert send(paused, continued, TASK, rules=ANTHROPIC) == [paused, continued, TASK]
    assert send(paused, TASK, rules=ANTHROPIC)[0].content == [TEXT]
    builder = RequestBuilder(ANTHROPIC)
    assert builder.build([TASK, paused]) == [TASK, paused]
    assert builder.build([TASK, paused, continued, TASK])[1:3] == [paused, continued]


def test_calls_in_additional_kwargs_are_not_sent_twice() -> None:
    kwargs = {"tool_calls": [{"id": "1"}], "refusal": None}

    assert send(AIMessage("cut", additional_kwargs=kwargs), TASK)[0].additional_kwargs == {
        "refusal": None
    }


def test_name_of_a_message_is_legal() -> None:
    assert send(HumanMessage("hi", name="Ann <x>"))[0].name == "Ann_x_"


def grow() -> list[BaseMessage]:
    odd = reply(call("$x", "a"), call("look", "a"), content="", id="r1")
    return [
        TASK,
        odd,
        result("1", "a"),
        AIMessage("", id="e"),
        HumanMessage("more", id="h"),
        reply(call(call_id="a"), id="r2"),
        result([PICTURE], "a"),
        AIMessage("done", id="d"),
        HumanMessage("last", id="l"),
    ]


@ALL
def test_request_begins_with_the_request_before(rules: ClientRules) -> None:
    messages, builder = grow(), RequestBuilder(rules)
    before: Sequence[BaseMessage] = ()
    for end, message in enumerate(messages, start=1):
        if isinstance(message, AIMessage):
            continue
        sent = builder.build(messages[:end])
        assert sent[: len(before)] == [*before]
        assert sent == build_request(messages[:end], rules)
        before = sent


def test_builder_looks_again_at_messages_that_were_changed() -> None:
    builder, messages = RequestBuilder(STRICTEST), grow()
    builder.build(messages)
    messages[3] = AIMessage("changed", id="e")

    assert builder.build(messages) == build_request(messages, STRICTEST)


def test_client_is_known_by_its_class_and_settings() -> None:
    from langchain_anthropic import ChatAnthropic
    from langchain_openai import ChatOpenAI

    chat: Any = {"model": "gpt-5", "api_key": "k"}
    assert describe_client(ChatOpenAI(**chat)).wire_format == "openai"
    assert describe_client(ChatOpenAI(use_responses_api=True, **chat)).wire_format == "responses"
    anthropic: Any = {"model": "claude", "api_key": "k"}
    assert describe_client(ChatAnthropic(**anthropic)).wire_format == "anthropic"
    assert describe_client(ScriptedModel(["x"])).wire_format == "unknown"


def test_threads_may_build_requests_of_many_conversations_at_once() -> None:
    builder, before = RequestBuilder(STRICTEST), sys.getswitchinterval()

    def build(thread: int) -> list[list[BaseMessage]]:
        tasks = [
            HumanMessage(f"{thread}-{number}", id=f"{thread}-{number}") for number in range(500)
        ]
        return [builder.build([task]) for task in tasks]

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as executor:
            built = [*executor.map(build, range(8))]
    finally:
        sys.setswitchinterval(before)
    assert [requests[-1][0].text for requests in built] == [f"{thread}-499" for thread in range(8)]
