"""The turn: read from the messages alone, whatever stands in them."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from pydantic import BaseModel

from echelons.offline.turn import NO_ANSWER, CallAnswer, PlannerTurn


def call(id_: str, name: str = "call_subordinate", **args: Any) -> dict[str, Any]:
    return {"id": id_, "name": name, "args": args, "type": "tool_call"}


def asked(*calls: dict[str, Any]) -> AIMessage:
    return AIMessage("", tool_calls=list(calls))


def answered(*messages: BaseMessage) -> CallAnswer:
    (answer,) = PlannerTurn.from_messages([HumanMessage("x"), *messages]).answers
    return answer


ASKED = asked(call("1", message="q", subordinate="hotels"))


def test_last_human_message_is_the_task() -> None:
    turn = PlannerTurn.from_messages(
        [
            SystemMessage("You plan."),
            HumanMessage("fly to Rome"),
            asked(call("1", "find")),
            ToolMessage("ok", tool_call_id="1"),
            AIMessage("done"),
            HumanMessage([{"type": "text", "text": "and hotels?"}]),
        ]
    )
    assert turn.context.task.text == "and hotels?"
    assert [reading.text for reading in turn.context.earlier] == ["fly to Rome"]
    assert turn.called_tools == ()


def test_without_a_human_there_is_no_task() -> None:
    assert PlannerTurn.from_messages([]).context.task.text == ""
    assert PlannerTurn.from_messages([SystemMessage("x"), AIMessage("y")]).answers == ()


def test_a_subordinates_answer_is_read_from_its_response() -> None:
    response = {"status": "partial", "result": "Inn", "confidence": 0.4, "reason": "one only"}
    answer = answered(ASKED, ToolMessage("noise", tool_call_id="1", artifact=response))
    assert answer == CallAnswer("hotels", "q", "Inn", "partial", 0.4, "one only", delegated=True)


def test_user_answers_are_not_repeated_to_the_user() -> None:
    told = {"question": "By day?", "answer": "yes", "path": ["a", "b"]}
    line = '[told to you] b asked the user: "By day?" The answer was: "yes"'
    artifact = {"status": "fulfilled", "result": "", "user_answers": [told]}
    message = ToolMessage(f"Inn\n{line}", tool_call_id="1", artifact=artifact)

    assert answered(ASKED, message).text == "Inn"
    assert answered(asked(call("1", "delegate_many")), message).text == "Inn"


def test_a_response_may_be_an_object() -> None:
    class Response(BaseModel):
        status: str = "unable"
        reason: str = "closed"

    answer = answered(ASKED, ToolMessage("noise", tool_call_id="1", artifact=Response()))
    assert (answer.status, answer.reason) == ("unable", "closed")


def test_an_error_of_a_tool_is_the_reason() -> None:
    failed = ToolMessage("broke down", tool_call_id="1", status="error")
    answer = answered(asked(call("1", "find")), failed)
    assert (answer.source, answer.status, answer.reason) == ("find", "unable", "broke down")


def test_a_call_without_an_answer_is_not_forgotten() -> None:
    assert answered(ASKED).reason == NO_ANSWER


@pytest.mark.parametrize("artifact", [None, "x", 3, [], {"confidence": 7}, {"confidence": True}])
def test_an_odd_artifact_says_nothing(artifact: object) -> None:
    answer = answered(ASKED, ToolMessage("Inn", tool_call_id="1", artifact=artifact))
    assert (answer.text, answer.status, answer.confidence) == ("Inn", "fulfilled", None)


def test_the_only_subordinate_need_not_be_named() -> None:
    unnamed = asked(call("1", message="q"))
    response = {"status": "fulfilled", "agent": "hotels", "result": "Inn"}
    answer = answered(unnamed, ToolMessage("Inn", tool_call_id="1", artifact=response))
    assert answer.source == "hotels"
