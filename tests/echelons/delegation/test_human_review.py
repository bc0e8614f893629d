"""Reviews of tool calls are recognised, and answered only by decisions that they allow."""

from __future__ import annotations

import re
from typing import Any

import pytest
from langgraph.prebuilt.interrupt import ActionRequest, HumanInterrupt, HumanInterruptConfig

from echelons import Decision
from echelons.delegation.approvals import ReviewedCall, ToolReview, find_review
from echelons.errors import InvalidSetting

ALL = ("approve", "edit", "reject", "respond")
MAIL = {"name": "mail", "args": {"to": "bob"}, "description": "Send it?"}
DROP = {"name": "drop", "args": {"path": "/x"}}


def request(**allowed: list[str]) -> dict[str, Any]:
    """Return the value that LangChain asks for the calls of one message."""
    calls = [each for each in (MAIL, DROP) if each["name"] in allowed]
    configs = [{"action_name": tool, "allowed_decisions": types} for tool, types in allowed.items()]
    return {"action_requests": calls, "review_configs": configs}


def approval() -> dict[str, Any]:
    """Return the value that LangChain asks for one call."""
    return {"type": "tool_approval", "tool_call_id": "1", **MAIL}


def older(**config: bool) -> dict[str, Any]:
    """Return a ``HumanInterrupt`` of LangGraph."""
    return {
        "action_request": {"action": "mail", "args": {"to": "bob"}},
        "config": {f"allow_{name}": value for name, value in config.items()},
        "description": None,
    }


def review(value: Any) -> ToolReview:
    found = find_review(value)
    assert found is not None
    return found


def choice(*types: str) -> dict[str, Any]:
    """Return a schema as pydantic makes it of a union."""
    mapping = {each: f"#/$defs/{each}" for each in types}
    return {"discriminator": {"mapping": mapping, "propertyName": "type"}, "oneOf": []}


@pytest.mark.parametrize(
    ("value", "schema", "allowed"),
    [
        (request(mail=["approve"]), None, ("approve",)),
        ({"action_requests": [MAIL], "review_configs": []}, None, ALL),
        (approval(), choice("approve", "edit"), ("approve", "edit")),
        (approval(), {"properties": {"type": {"const": "reject"}}}, ("reject",)),
        (approval(), None, ALL),
    ],
    ids=["request", "request without its rules", "choice", "only one", "no schema"],
)
def test_a_call_has_its_tool_arguments_and_decisions(
    value: Any, schema: Any, allowed: tuple[str, ...]
) -> None:
    found = find_review(value, schema)

    assert found is not None
    assert found.calls == (ReviewedCall("mail", {"to": "bob"}, allowed, "Send it?"),)


def test_the_older_form_allows_by_switches() -> None:
    [call] = review(older(accept=True, ignore=False, respond=True)).calls

    assert call == ReviewedCall("mail", {"to": "bob"}, ("approve", "respond"))
    assert len(review([older(), older()]).calls) == 2


def test_the_older_form_is_the_one_of_langgraph() -> None:
    assert older().keys() == HumanInterrupt.__annotations__.keys()
    assert ActionRequest.__annotations__.keys() == {"action", "args"}
    switches = {f"allow_{each}" for each in ("accept", "edit", "ignore", "respond")}
    assert HumanInterruptConfig.__annotations__.keys() == switches


@pytest.mark.parametrize(
    "value",
    [
        None,
        "Sure?",
        {"question": "Sure?"},
        [],
        ["Sure?"],
        {"action_requests": [], "review_configs": []},
        {"action_requests": "all", "review_configs": "none"},
        {"action_requests": [MAIL]},
        {"action_request": {"action": "mail"}, "config": {}},
        {"type": "tool_approval"},
        {"type": "approval", **MAIL},
        [older(), "Sure?"],
    ],
    ids=str,
)
def test_any_other_question_is_no_review(value: Any) -> None:
    assert find_review(value) is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("yes", "'yes' is no decision for drop; give approve or reject"),
        ("edit", "'edit' is no decision for drop; give approve or reject"),
        (None, "None is no decision for drop; give approve or reject"),
        (7, "7 is no decision for drop; give approve or reject"),
        ({"message": "no"}, "None is no decision for drop; give approve or reject"),
        ({"type": ["approve"]}, "['approve'] is no decision for drop"),
        ({"type": "approve", "why": "so"}, "why='so'): there is no such field, but type, message"),
        ({"type": "approve", "message": "so"}, "message='so'): 'approve' has no such field"),
        ({"type": "reject", "message": 7}, "message=7): give the reason as a text, or leave it"),
        ([], "a decision for each call (drop): 1, not 0"),
        (["approve", "approve"], "a decision for each call (drop): 1, not 2"),
        (["yes"], "'yes' is no decision for drop; give approve or reject"),
        ({"decisions": "approve", "why": "so"}, "there is no field 'why' beside 'decisions'"),
    ],
    ids=str,
)
def test_what_is_no_decision_is_refused_with_what_is_allowed(given: Any, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        review(request(drop=["approve", "reject"])).build_resume_value(given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("edit", 'give {"name": the tool, "args": its arguments}'),
        ({"type": "edit", "edited_action": {"args": {}}}, "edited_action={'args': {}}"),
        ({"type": "edit", "edited_action": {"name": "mail", "args": "eve"}}, "edited_action={"),
        ({"type": "edit", "edited_action": {"name": "mail", "args": {}, "id": 1}}, "'id': 1"),
        ({"type": "edit", "edited_action": {"name": "drop", "args": {}}}, "cannot call 'drop'"),
        ({"type": "edit", "edited_action": None, "message": "so"}, "'edit' has no such field"),
        ("respond", "message=None): give the answer as a text"),
        ({"type": "respond", "message": 7}, "message=7): give the answer as a text"),
    ],
    ids=str,
)
def test_a_decision_that_lacks_something_is_refused_with_what_it_needs(
    given: Any, said: str
) -> None:
    for value in (request(mail=[*ALL]), approval(), older(accept=True, edit=True, respond=True)):
        with pytest.raises(ValueError, match=re.escape(said)):
            review(value).build_resume_value(given)


@pytest.mark.parametrize("kind", ["edit", "respond"])
def test_what_is_for_one_call_does_not_stand_for_all(kind: str) -> None:
    said = f"'{kind}' is for one call; give a list of 2 (mail, drop)"
    with pytest.raises(ValueError, match=re.escape(said)):
        review(request(mail=[*ALL], drop=[*ALL])).build_resume_value(kind)


def test_a_word_for_all_must_be_allowed_for_each() -> None:
    with pytest.raises(ValueError, match="'approve' is no decision for drop; give reject"):
        review(request(mail=[*ALL], drop=["reject"])).build_resume_value("approve")


def test_the_older_form_takes_no_reason() -> None:
    value = older(ignore=True, respond=True)

    assert review(value).build_resume_value("reject") == [{"type": "ignore", "args": None}]
    with pytest.raises(ValueError, match="takes no message; leave it out, or give 'respond'"):
        review(value).build_resume_value(Decision("reject", "too late"))
    with pytest.raises(ValueError, match=r"takes no message; leave it out$"):
        review(older(ignore=True)).build_resume_value(Decision("reject", "too late"))


def test_the_older_form_takes_no_words_of_its_own() -> None:
    with pytest.raises(ValueError, match="'accept' is no decision for mail; give approve"):
        review(older(accept=True)).build_resume_value([{"type": "accept", "args": None}])


def test_a_decision_for_all_is_given_to_each() -> None:
    both = review(request(mail=[*ALL], drop=[*ALL]))
    no = {"type": "reject", "message": "not today"}

    assert both.build_resume_value(no) == {"decisions": [no, no]}
    assert both.build_resume_value({"decisions": ["approve", no]}) == {
        "decisions": [{"type": "approve"}, no]
    }


@pytest.mark.parametrize("kind", ["approval", None, 7, []])
def test_a_decision_of_an_unknown_type_is_refused(kind: Any) -> None:
    with pytest.raises(InvalidSetting, match="give approve, edit, reject or respond"):
        Decision(kind)


def test_a_decision_is_its_own_json() -> None:
    edit = Decision("edit", edited_action={"name": "mail", "args": {"to": "eve"}})

    assert Decision.from_json(edit.to_json()) == edit
    assert Decision.from_json(edit) is edit
    assert Decision.from_json("approve") == Decision("approve")
