"""What is shown is shortened where it hurts least, and nothing else is changed."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from echelons.identity.lineage import ASIDE_KEY
from echelons.models.fitting import (
    count_cautiously,
    cut_middle,
    find_latest_step,
    fit_messages,
    is_sealed,
    shorten_arguments,
    shorten_call,
)

SYSTEM = SystemMessage("You help.")


def build_step(number: int, size: int = 300, **more: Any) -> list[BaseMessage]:
    call = {"name": "fetch", "args": {"page": "p" * size}, "id": f"c{number}", "type": "tool_call"}
    reply = AIMessage(**{"content": "", "id": f"a{number}", "tool_calls": [call], **more})
    return [reply, ToolMessage("r" * size, tool_call_id=f"c{number}", id=f"r{number}")]


def list_ids(messages: list[BaseMessage]) -> list[str]:
    return [str(each.id) for each in messages if each.id]


def test_the_oldest_results_and_arguments_are_cut_first() -> None:
    messages = [HumanMessage("go", id="t"), *build_step(1), *build_step(2), *build_step(3)]
    whole = count_cautiously([SYSTEM, *messages])
    shown = fit_messages([SYSTEM, *messages], whole - 8, count_cautiously)
    assert list_ids(shown) == list_ids(messages)
    assert shown[1] == messages[0]
    assert [each == other for each, other in zip(shown[2:], messages[1:], strict=True)] == [
        False,
        *[True] * 5,
    ]


def test_old_turns_go_before_steps_of_the_present_one() -> None:
    turns = [
        [HumanMessage(f"task {n}", id=f"t{n}"), *build_step(n, 9), AIMessage("ok", id=f"e{n}")]
        for n in range(3)
    ]
    steps = [*build_step(7, 9), *build_step(8, 9)]
    messages = [*turns[0], *turns[1], HumanMessage("now", id="now"), *steps]
    sizes = [count_cautiously([each]) for each in messages]
    limit = count_cautiously([SYSTEM]) + sum(sizes[8:])
    shown = fit_messages([SYSTEM, *messages], limit, count_cautiously)
    assert list_ids(shown) == ["now", "a7", "r7", "a8", "r8"]
    shown = fit_messages([SYSTEM, *messages], limit - sum(sizes[9:11]), count_cautiously)
    assert list_ids(shown) == ["now", "a8", "r8"]


def test_the_task_is_cut_last_and_by_its_middle() -> None:
    messages = [HumanMessage(f"begin {'x' * 9000} end", id="t"), *build_step(1, 9000)]
    shown = fit_messages([SYSTEM, *messages], 600, count_cautiously)
    assert list_ids(shown) == ["t", "a1", "r1"]
    assert shown[1].text.startswith("begin")
    assert shown[1].text.endswith("end")
    assert "characters left out" in shown[1].text
    assert 400 < count_cautiously(shown) <= 600


SEALED: list[dict[str, Any]] = [
    {"content": [{"type": "thinking", "thinking": "hm", "signature": "s"}]},
    {"content": [{"type": "redacted_thinking", "data": "x"}]},
    {"content": [{"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x"}]},
    {"content": [{"type": "text", "text": "a", "extras": {"signature": "x"}}]},
    {"content": [{"type": "web_search_tool_result", "content": [{"encrypted_content": "x"}]}]},
    {"content": "", "additional_kwargs": {"reasoning": {"id": "r"}}},
    {"content": "", "additional_kwargs": {"__gemini_function_call_thought_signatures__": {}}},
]


@pytest.mark.parametrize("fields", SEALED, ids=str)
def test_a_sealed_reply_stays_or_becomes_a_note(fields: dict[str, Any]) -> None:
    step = build_step(1, 9000, **fields)
    assert is_sealed(step[0])
    assert shorten_call(step[0], 10) is step[0]
    shown = fit_messages([SYSTEM, HumanMessage("go"), *step], 400, count_cautiously)
    note = shown[-1]
    assert isinstance(note, HumanMessage)
    assert note.text.startswith('A step of yours, shortened: "')
    assert "fetch(" in note.text


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("tool_use", "input", {"page": "p" * 900}),
        ("tool_call", "args", {"page": "p" * 900}),
        ("function_call", "arguments", '{"page": "' + "p" * 900 + '"}'),
    ],
)
def test_blocks_of_calls_are_cut_as_the_calls_are(kind: str, key: str, value: Any) -> None:
    kept = {"tool_calls": [{"function": {"arguments": "p" * 900}}]}
    content = [
        {"type": "text", "text": "I look."},
        {"type": kind, "id": "c1", "name": "fetch", key: value},
    ]
    reply = build_step(1, 900, content=content, additional_kwargs=kept)[0]
    shown = shorten_call(reply, 100)
    assert isinstance(shown, AIMessage)
    assert len(str(shown.tool_calls[0]["args"])) < 120
    assert len(str(shown.content[1])) < 200
    assert shown.content[0] == content[0]
    assert not shown.additional_kwargs
    assert reply.additional_kwargs == kept


def test_arguments_stay_a_json_object() -> None:
    given = {"path": "a.txt", "text": "x" * 500, "rows": list(range(500)), "many": True}
    shown = shorten_arguments(given, 200)
    assert (shown["path"], shown["many"]) == ("a.txt", True)
    assert "left out" in shown["text"]
    assert "left out" in shown["rows"]
    assert shorten_arguments({str(n): n for n in range(500)}, 100) == {}
    assert shorten_arguments(given, 10_000) == given


def test_a_middle_is_cut_to_the_limit() -> None:
    assert [len(cut_middle("x" * 500, limit)) <= max(1, limit) for limit in range(200)] == [
        True
    ] * 200


def test_the_latest_step_has_what_came_in_after_the_reply() -> None:
    mail = HumanMessage("news", response_metadata={ASIDE_KEY: {}})
    messages = [HumanMessage("go"), *build_step(1), *build_step(2), mail]
    assert find_latest_step(messages) == 3
    assert find_latest_step([*messages, HumanMessage("again"), mail]) == 6
    assert find_latest_step([]) == 0
