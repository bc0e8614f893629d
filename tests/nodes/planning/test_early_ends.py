"""An agent that ends early answers all calls, and sends its superior a response."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from echelons.guards.gate import Halt
from echelons.identity.lineage import Identity
from echelons.nodes.planning.relay import (
    build_halt_update,
    build_late_reply_update,
    build_not_run_message,
)

LIMIT = Halt("limit", "2 of 2 steps")
STOP = Halt("stopped", "head was told to stop")
ROOT = Identity(agent="head", path=("head",), thread_id="t", tree="x")
BELOW = replace(ROOT, superior_thread_id="s", request_id="r")


def calling(*ids: str, text: str = "") -> AIMessage:
    calls: list[Any] = [{"name": "dig", "args": {}, "id": each} for each in ids]
    return AIMessage(text, tool_calls=calls, id="m")


def test_calls_without_an_answer_are_answered_with_not_run() -> None:
    before = [HumanMessage("go"), calling("1", "2"), ToolMessage("dug", tool_call_id="1")]

    first, last = build_halt_update(LIMIT, before, ROOT)["messages"]

    assert (first.tool_call_id, first.text, first.status) == (
        "2",
        "not run: limit: 2 of 2 steps",
        "error",
    )
    assert last.text == "Not finished (limit: 2 of 2 steps)."
    assert last.response_metadata == {"halt": {"kind": "limit", "reason": "limit: 2 of 2 steps"}}


def test_only_agent_with_superior_responds() -> None:
    said = [HumanMessage("go"), AIMessage("half of it")]

    assert "response" not in build_halt_update(LIMIT, said, ROOT)
    assert build_halt_update(LIMIT, said, BELOW)["response"] == {
        "status": "partial",
        "result": "half of it",
        "reason": "limit: 2 of 2 steps",
        "halt": "limit",
    }
    assert build_halt_update(STOP, said, BELOW)["response"] == {
        "status": "unable",
        "result": "",
        "reason": "stopped: head was told to stop",
        "halt": "stopped",
    }


def test_a_late_reply_is_kept_and_nothing_of_it_is_done() -> None:
    reply = calling("1", "2", text="I will dig.")
    reply = reply.model_copy(
        update={"invalid_tool_calls": [{"name": None, "args": "{", "id": "3", "error": "broken"}]}
    )

    kept, *answers, last = build_late_reply_update(STOP, [HumanMessage("go")], reply, BELOW)[
        "messages"
    ]

    assert kept is reply
    assert [each.tool_call_id for each in answers] == ["1", "2", "3"]
    assert {str(each.text) for each in answers} == {"not run: stopped: head was told to stop"}
    assert isinstance(last, AIMessage)


def test_the_last_word_has_the_same_id_however_often_the_node_runs() -> None:
    said = [HumanMessage("go")]

    ids = {build_halt_update(LIMIT, said, BELOW)["messages"][-1].id for _ in range(2)}

    assert len(ids) == 1


def test_a_call_that_had_begun_is_not_called_not_run() -> None:
    answer = build_not_run_message({"name": "dig", "id": "1"}, STOP, was_begun=True)

    assert "what came of it is not known" in str(answer.text)
