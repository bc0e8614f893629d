"""What a human is asked has an end, and what it answers is a report."""

from __future__ import annotations

from echelons.delegation.questions import (
    EARLIER_LENGTH,
    MAX_EARLIER,
    build_human_question,
    is_human_request,
    parse_human_answer,
    read_question_value,
)


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
