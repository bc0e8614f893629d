"""A model's calls are numbered, sorted by who does them, and answered at once if wrong."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    InvalidToolCall,
    ToolCall,
    ToolMessage,
)

from echelons import Status
from echelons.delegation.calls import SubordinateCall
from echelons.nodes.planning.tool_calls import (
    CallableTools,
    ParsedReply,
    answer_open_calls,
    assign_call_ids,
    find_unanswered,
    parse_calls,
)
from tests.callable_tools import build_callable_tools

EVERYTHING = build_callable_tools(
    *("eat", "sleep"),
    tools=("search",),
    can_report=True,
    shown=("call_subordinate", "delegate_many", "report"),
)


def call(name: str, call_id: str | None = "1", **args: Any) -> ToolCall:
    return ToolCall(name=name, args=args, id=call_id, type="tool_call")


def broken(call_id: str | None = "1", name: str | None = "search", why: str | None = None) -> Any:
    return InvalidToolCall(name=name, args="{", id=call_id, error=why, type="invalid_tool_call")


def said(*calls: ToolCall, invalid: list[Any] | None = None, id: str = "m") -> AIMessage:
    return AIMessage("", id=id, tool_calls=list(calls), invalid_tool_calls=invalid or [])


def answer(call_id: str) -> ToolMessage:
    return ToolMessage("done", tool_call_id=call_id)


def sorted_out(*calls: ToolCall, abilities: CallableTools = EVERYTHING) -> ParsedReply:
    return parse_calls(said(*calls), abilities)


def refusal(*calls: ToolCall, abilities: CallableTools = EVERYTHING) -> str:
    """Return the text by which the last of some calls is refused."""
    found = sorted_out(*calls, abilities=abilities)
    message = found.answers[-1]
    assert message.status == "error"
    assert message.tool_call_id == calls[-1]["id"]
    assert message.name == calls[-1]["name"]
    return str(message.text)


def test_no_call_of_a_reply_that_was_cut_off_is_accepted() -> None:
    message = said(call("search"), call("report", "2", status="fulfilled"), invalid=[broken("3")])
    half = message.model_copy(update={"response_metadata": {"stop_reason": "max_tokens"}})

    parsed = parse_calls(half, EVERYTHING)

    assert (parsed.requests, parsed.refused, parsed.report) == ((), (), None)
    assert [each.tool_call_id for each in parsed.answers] == ["1", "2", "3"]
    assert {str(each.text) for each in parsed.answers} == {
        "Error: your reply was cut off (stop_reason: max_tokens), so none of its calls has been "
        "run; make them again, with shorter arguments or fewer in one message"
    }


# Numbering


def test_a_message_whose_calls_have_ids_is_left_alone() -> None:
    message = said(call("a", "1"), call("b", "2"))

    assert assign_call_ids(message) is message


@pytest.mark.parametrize(
    ("given_ids", "ids"),
    [
        ([None], ["call-1"]),
        ([""], ["call-1"]),
        ([None, None], ["call-1", "call-2"]),
        (["x", "x", "x"], ["x", "x-2", "x-3"]),
        (["x", None, "x"], ["x", "call-1", "x-2"]),
        ([None, "call-1"], ["call-2", "call-1"]),
        (["x", "x", "x-2"], ["x", "x-3", "x-2"]),
    ],
)
def test_calls_without_an_id_of_their_own_get_one(
    given_ids: list[str | None], ids: list[str]
) -> None:
    numbered = assign_call_ids(said(*(call("a", each) for each in given_ids)))

    assert [each["id"] for each in numbered.tool_calls] == ids


@given(st.lists(st.none() | st.sampled_from(["", "call", "call-1", "x", "x-2"]), max_size=6))
def test_no_two_calls_of_a_message_have_the_same_id(ids: list[str | None]) -> None:
    half = len(ids) // 2
    message = said(*(call("a", each) for each in ids[:half]), invalid=[*map(broken, ids[half:])])

    numbered = assign_call_ids(message)

    found = [each["id"] for each in (*numbered.tool_calls, *numbered.invalid_tool_calls)]
    assert all(found)
    assert len(set(found)) == len(ids)
    assert assign_call_ids(numbered) is numbered


def test_numbering_changes_nothing_but_the_ids() -> None:
    message = AIMessage("text", id="m", tool_calls=[call("a", None, x=1)])

    numbered = assign_call_ids(message)

    assert (numbered.text, numbered.id) == ("text", "m")
    assert numbered.tool_calls == [call("a", "call-1", x=1)]
    assert message.tool_calls == [call("a", None, x=1)]


# Sorting


def test_calls_are_sorted_by_agent() -> None:
    found = sorted_out(
        call("search", "1", q="x"),
        call("call_subordinate", "2", message="dinner", subordinate="eat"),
    )

    [delegation] = found.requests
    assert isinstance(delegation, SubordinateCall)
    assert (delegation.call_id, delegation.subordinate, delegation.message, delegation.reset) == (
        *("2", "eat", "dinner"),
        False,
    )


def test_report_by_itself_is_taken() -> None:
    found = sorted_out(
        call("report", "3", status="partial", result="half", confidence=0.5, reason="late")
    )

    assert found.report is not None
    assert (found.report.status, found.report.result) == (Status.PARTIAL, "half")
    assert (found.report.confidence, found.report.reason) == (0.5, "late")
    [reported] = found.answers
    assert (reported.tool_call_id, reported.name, reported.status) == ("3", "report", "success")


def test_delegations_keep_the_order_of_the_calls() -> None:
    found = sorted_out(
        *(call("call_subordinate", n, message=n, subordinate="eat", reset=True) for n in "321")
    )

    assert [
        (each.call_id, each.message, each.reset)
        for each in found.requests
        if isinstance(each, SubordinateCall)
    ] == [
        ("3", "3", True),
        ("2", "2", True),
        ("1", "1", True),
    ]


def test_an_only_subordinate_need_not_be_named() -> None:
    only = build_callable_tools("eat")

    [delegation] = sorted_out(call("call_subordinate", message="x"), abilities=only).requests
    assert isinstance(delegation, SubordinateCall)

    assert delegation.subordinate == "eat"


def test_call_may_name_no_one_of_several_subordinates() -> None:
    [delegation] = sorted_out(call("call_subordinate", message="x")).requests
    assert isinstance(delegation, SubordinateCall)

    assert delegation.subordinate == ""


def test_a_subordinate_that_does_not_exist_is_refused_with_those_that_do() -> None:
    assert refusal(call("call_subordinate", message="x", subordinate="fly")) == (
        "Error: no subordinate is called 'fly'; name one of: eat, sleep"
    )


def test_a_profile_is_refused_where_no_subordinate_can_be_made() -> None:
    unknown = call("call_subordinate", message="x", profile="writer")

    assert refusal(unknown) == "Error: profile: you may spawn no subordinates; leave it out"
    assert "it makes a new subordinate; leave it out" in refusal(
        call("delegate_many", requests=[{"message": "x", "profile": "poet"}])
    )
    assert sorted_out(call("call_subordinate", message="x", profile="")).requests


@pytest.mark.parametrize(
    "args",
    [{}, {"message": ""}, {"message": None}, {"message": 5}, {"message": "x", "reset": "perhaps"}],
)
def test_arguments_that_do_not_fit_are_refused_and_named(args: dict[str, Any]) -> None:
    text = refusal(call("call_subordinate", subordinate="eat", **args))

    assert text.startswith("Error: ")
    assert ("reset" if "reset" in args else "message") in text
    assert "\n" not in text
    assert "pydantic" not in text


@pytest.mark.parametrize(
    ("name", "abilities", "tools"),
    [
        ("serach", EVERYTHING, "search, call_subordinate, delegate_many, report"),
        ("call_subordinate", CallableTools(tools=("search",)), "search"),
        ("report", CallableTools(shown=("call_subordinate",)), "call_subordinate"),
        ("anything", CallableTools(), "none"),
    ],
)
def test_a_tool_that_the_agent_does_not_have_is_refused_with_those_it_has(
    name: str, abilities: CallableTools, tools: str
) -> None:
    assert refusal(call(name, message="x"), abilities=abilities) == (
        f"Error: there is no such tool; the tools are: {tools}"
    )


@pytest.mark.parametrize(
    ("args", "field"),
    [
        ({}, "status"),
        ({"status": "done"}, "status"),
        ({"status": "unable", "confidence": 2}, "confidence"),
    ],
)
def test_a_report_that_does_not_fit_is_no_report(args: dict[str, Any], field: str) -> None:
    assert field in refusal(call("report", **args))
    assert sorted_out(call("report", **args)).report is None


def test_only_the_first_report_of_a_message_counts() -> None:
    first = call("report", "1", status="fulfilled", result="one")
    second = call("report", "2", status="unable", result="two")

    found = sorted_out(first, second)

    assert found.report is not None
    assert found.report.result == "one"
    assert "reported already" in refusal(first, second)


def test_a_report_after_a_wrong_one_counts() -> None:
    wrong = call("report", "1", status="done")
    right = call("report", "2", status="unable")

    found = sorted_out(wrong, right)

    assert found.report is not None
    assert [each.status for each in found.answers] == ["error", "success"]


@pytest.mark.parametrize(
    ("why", "text"),
    [(None, "Error: the arguments are no valid JSON object"), ("no JSON", "Error: no JSON")],
)
def test_a_call_that_cannot_be_parsed_is_answered(why: str | None, text: str) -> None:
    [message] = parse_calls(said(invalid=[broken("7", "search", why)]), EVERYTHING).answers

    assert (message.text, message.tool_call_id, message.name) == (text, "7", "search")


def test_a_call_that_cannot_be_parsed_and_has_no_name_is_answered_too() -> None:
    [message] = parse_calls(said(invalid=[broken("7", None)]), EVERYTHING).answers

    assert message.name == "unknown"


def test_a_plain_answer_asks_for_nothing() -> None:
    assert parse_calls(AIMessage("done"), EVERYTHING) == ParsedReply()


# What is still open


def test_the_open_calls_are_those_of_the_last_message_without_an_answer() -> None:
    message = said(call("a", "1"), call("b", "2"), call("c", "3"))

    last, calls = find_unanswered([HumanMessage("x"), message, answer("2")])

    assert last is message
    assert [each["id"] for each in calls] == ["1", "3"]


def test_answers_to_an_earlier_message_are_not_answers_to_the_last() -> None:
    first, last = said(call("a", "1"), id="m1"), said(call("a", "1"), id="m2")

    found, calls = find_unanswered([first, answer("1"), last])

    assert found is last
    assert [each["id"] for each in calls] == ["1"]


def test_without_a_model_message_nothing_is_open() -> None:
    assert find_unanswered([]) == (None, [])
    assert find_unanswered([HumanMessage("x"), answer("1")]) == (None, [])


# Closing


def test_open_calls_are_closed_where_they_stand() -> None:
    closed = answer_open_calls(
        [said(call("a", "1"), call("b", "2")), answer("1"), HumanMessage("go on")]
    )

    assert [each.type for each in closed] == ["ai", "tool", "tool", "human"]
    added = closed[2]
    assert isinstance(added, ToolMessage)
    assert (added.tool_call_id, added.name, added.status) == ("2", "b", "error")
    assert added.text == "not run"


def test_open_calls_at_the_end_are_closed_too() -> None:
    closed = answer_open_calls([HumanMessage("x"), said(call("a", "1"))])

    assert [each.type for each in closed] == ["human", "ai", "tool"]


def test_a_whole_conversation_is_left_alone() -> None:
    messages = [HumanMessage("x"), said(call("a", "1")), answer("1"), AIMessage("done")]

    assert answer_open_calls(messages) == messages


def test_a_longer_conversation_takes_no_more_calls_of_functions() -> None:
    turn = [HumanMessage("x"), said(call("a", "1")), answer("1"), AIMessage("done")]
    counts = [count_calls(partial(answer_open_calls, turn * turns)) for turns in (1, 100)]

    assert counts[0] == counts[1]


def count_calls(work: Callable[[], Any]) -> int:
    """Return how many functions, of Python and of C, are called meanwhile."""
    found: list[str] = []
    before = sys.getprofile()
    gc.collect()
    gc.disable()  # the finalizers of other tests' garbage are calls, too
    sys.setprofile(lambda frame, event, arg: found.append(event))
    try:
        work()
    finally:
        sys.setprofile(before)
        gc.enable()
    return sum(event in ("call", "c_call") for event in found)


def test_a_message_of_a_class_of_ones_own_counts_as_what_it_is() -> None:
    class Reply(AIMessage):
        pass

    class Answer(ToolMessage):
        pass

    asked = Reply(content="", tool_calls=[call("a", "1"), call("b", "2")])
    messages = [asked, Answer(content="x", tool_call_id="1"), AIMessageChunk(content="")]
    closed = answer_open_calls(messages)

    assert [each.type for each in closed] == ["ai", "tool", "tool", "AIMessageChunk"]
    assert closed[2] == ToolMessage("not run", tool_call_id="2", name="b", status="error")


def test_an_edit_in_place_counts_at_once() -> None:
    messages = [HumanMessage("x"), said(call("a", "1")), answer("1"), AIMessage("done")]
    answer_open_calls(messages)
    messages[1].tool_calls = []  # type: ignore[attr-defined]

    assert answer_open_calls(messages) == messages

    messages[3].tool_calls = [call("b", "2")]  # type: ignore[attr-defined]

    assert [each.type for each in answer_open_calls(messages)] == [
        *("human", "ai", "tool", "ai", "tool")
    ]


conversations = st.lists(
    st.one_of(
        st.just(HumanMessage("x")),
        st.lists(st.sampled_from("123"), unique=True).map(
            lambda ids: said(*(call("a", each) for each in ids))
        ),
        st.sampled_from("1234").map(answer),
    ),
    max_size=8,
)


@given(conversations)
def test_a_closed_conversation_has_an_answer_to_every_call(messages: list[BaseMessage]) -> None:
    closed = answer_open_calls(messages)

    for place, message in enumerate(closed):
        if isinstance(message, AIMessage):
            following = []
            for each in closed[place + 1 :]:
                if not isinstance(each, ToolMessage):
                    break
                following.append(each.tool_call_id)
            assert {each["id"] for each in message.tool_calls} <= set(following)
    assert [each for each in closed if each in messages] == messages
    assert answer_open_calls(closed) == closed
