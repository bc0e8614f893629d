"""Questions of agents and of requests to people: stored, shown, and answered."""

from __future__ import annotations

from typing import Any

import pytest

from echelons.delegation import DelegationResponse, Status
from echelons.delegation.questions import (
    EARLIER_LENGTH,
    MAX_EARLIER,
    AgentQuestion,
    build_human_question,
    format_questions,
    is_human_request,
    parse_human_answer,
    read_question_value,
)
from echelons.errors import UnreadableRecord
from echelons.tree.agent_path import AgentPath

WHOLE = AgentQuestion(text="Which?", choices=("a", "b"), urgent=True, default="a", addressee="Ann")


def test_the_value_of_an_interrupt_gives_the_question_back() -> None:
    value = WHOLE.build_interrupt_value()

    assert value["kind"] == "agent_question"
    assert read_question_value(value) == WHOLE
    # Of a later release.
    assert read_question_value({**value, "colour": "red"}) == WHOLE


@pytest.mark.parametrize(
    "value",
    [
        "Which?",
        {"question": "Which?"},
        {"kind": "agent_question"},
        {"kind": "agent_question", "question": 3},
    ],
)
def test_the_question_of_a_tool_is_none_of_ours(value: Any) -> None:
    assert read_question_value(value) is None


def test_a_response_without_questions_is_stored_as_before() -> None:
    response = DelegationResponse(request_id="r", agent="eat", status=Status.FULFILLED)

    assert "questions" not in response.stored()
    assert DelegationResponse.load(response.stored()) == response


def test_a_response_with_questions_is_read_without_what_a_later_release_has_added() -> None:
    response = DelegationResponse(
        request_id="r", agent="eat", status=Status.NEEDS_INPUT, questions=(WHOLE,)
    )
    stored = response.stored()
    stored["questions"][0]["colour"] = "red"

    assert DelegationResponse.load(stored) == response


def test_a_damaged_question_is_named() -> None:
    with pytest.raises(UnreadableRecord, match="AgentQuestion"):
        AgentQuestion.load({"text": 3})


def test_a_superior_reads_the_schema_of_an_answer() -> None:
    asked = AgentQuestion(
        text="How many?",
        answer_schema={"type": "integer"},
        path=AgentPath("head/inn/eat"),
        thread_id="5eb1a2c3-4d",
    )

    assert format_questions([asked]) == [
        'inn/eat asks: "How many?" The answer is JSON of this schema: {"type": "integer"}. To '
        'answer, give call_subordinate your answer as the message and answers="5eb1a2c3".'
    ]


def test_the_urgent_questions_come_first_for_a_model() -> None:
    calm = AgentQuestion(text="When?", path=AgentPath("head/eat"), thread_id="1")
    urgent = AgentQuestion(text="Now?", urgent=True, path=AgentPath("head/eat"), thread_id="2")

    first, second = format_questions([calm, urgent])
    assert "Now?" in first
    assert "When?" in second


def test_only_the_last_messages_of_a_conversation_are_shown_and_each_in_part() -> None:
    earlier = [("head", f"{number} {'x' * 1000}") for number in range(20)]

    lines = build_human_question("anna", "Sign it", earlier=earlier).text.splitlines()

    assert lines[:3] == ["Sign it", "", "Earlier in this conversation:"]
    assert [each.split()[1] for each in lines[3:]] == [str(n) for n in range(20 - MAX_EARLIER, 20)]
    assert {len(each) for each in lines[3:]} == {EARLIER_LENGTH + len("head: ")}


def test_the_question_is_read_again_from_its_interrupt() -> None:
    question = build_human_question("anna", "Sign it", deadline="2026-05-01T12:00:00+00:00")

    read = read_question_value(question.build_interrupt_value())

    assert read is not None
    assert (read.text, read.addressee, read.deadline) == (
        "Sign it",
        "anna",
        "2026-05-01T12:00:00+00:00",
    )


def test_only_the_schema_of_a_human_is_that_of_a_human() -> None:
    assert is_human_request(build_human_question("anna", "Sign it").response_schema)
    assert not is_human_request(None)
    assert not is_human_request({"type": "string"})


def test_what_a_human_says_is_the_result_or_else_the_reason_or_the_status() -> None:
    assert parse_human_answer({"status": "partial", "result": "half", "reason": "ill"})[0] == "half"
    assert parse_human_answer({"status": "unable", "reason": "ill"})[0] == "ill"
    assert parse_human_answer({"status": "unable"})[0] == "unable."
