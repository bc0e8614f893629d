"""An approval request has LangChain's form, and accepts only arguments that fit its tool."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from echelons import Decision
from echelons.delegation.approvals import (
    ApprovalAnswer,
    GuardedCall,
    build_approval_request,
    build_approval_schema,
    find_review,
    parse_decision,
)

CALL = GuardedCall("1", "head/a", "tool", "mail", {"to": "bob"}, "c1")
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"to": {"$ref": "#/$defs/Name"}},
    "required": ["to"],
    "additionalProperties": False,
    "$defs": {"Name": {"type": "string", "minLength": 2}},
}
SCHEMA = build_approval_schema(CALL, PARAMETERS)


def edit(args: Any, **more: Any) -> dict[str, Any]:
    return {"type": "edit", "edited_action": {"name": "mail", "args": args}, **more}


def test_the_question_is_read_as_a_review_of_one_call() -> None:
    review = find_review(build_approval_request(CALL), SCHEMA)

    assert review
    [call] = review.calls
    assert (review.form, call.tool, call.arguments) == ("approval", "mail", {"to": "bob"})
    assert call.allowed == ("approve", "edit", "reject")
    assert call.can_be_standing


def test_a_task_of_a_subordinate_takes_no_edit() -> None:
    schema = build_approval_schema(CALL, None)
    review = find_review(build_approval_request(CALL), schema)

    assert review
    assert review.calls[0].allowed == ("approve", "reject")
    with pytest.raises(ValueError, match="give approve or reject"):
        parse_decision(CALL, schema, edit({"to": "eve"}))


def test_the_schema_is_one_and_has_the_parts_of_the_tools_own() -> None:
    Draft202012Validator.check_schema(SCHEMA)

    assert SCHEMA["$defs"] == PARAMETERS["$defs"]


@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        ("approve", Decision("approve")),
        ({"type": "approve", "scope": "thread"}, Decision("approve", scope="thread")),
        (Decision("reject", "no"), Decision("reject", "no")),
        (["reject"], Decision("reject")),
        (
            edit({"to": "eve"}, scope="thread"),
            Decision("edit", edited_action={"name": "mail", "args": {"to": "eve"}}, scope="thread"),
        ),
    ],
    ids=str,
)
def test_an_answer_is_a_decision(answer: Any, decision: Decision) -> None:
    assert parse_decision(CALL, SCHEMA, answer) == decision


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("yes", "'yes' is no decision"),
        ("respond", "'respond' is no decision"),
        (None, "None is no decision"),
        (edit({"to": "e"}), "'e' is too short"),
        (edit({"to": 7}), "7 is not of type 'string'"),
        (edit({}), "'to' is a required property"),
        (edit({"to": "eve", "cc": "ann"}), "'cc' was unexpected"),
        (edit("eve"), "give {"),
        ({"type": "approve", "scope": "ever"}, "give 'thread'"),
        ({"type": "approve", "message": "so"}, "has no such field"),
        ({"type": "edit", "edited_action": {"name": "drop", "args": {}}}, "it cannot call 'drop'"),
    ],
    ids=str,
)
def test_anything_else_is_refused(answer: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_decision(CALL, SCHEMA, answer)


def test_a_scope_is_for_our_own_questions() -> None:
    review = find_review(build_approval_request(CALL), None)

    assert review
    with pytest.raises(ValueError, match="leave out 'scope'"):
        review.build_resume_value(Decision("approve", scope="thread"))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (ApprovalAnswer("denied"), "denied: the permissions of this team forbid it"),
        (ApprovalAnswer("rejected", Decision("reject")), "rejected by a human"),
        (ApprovalAnswer("rejected", Decision("reject", "no")), "rejected by a human: no"),
    ],
)
def test_model_reads_why(answer: ApprovalAnswer, reason: str) -> None:
    assert answer.reason == reason
