"""A subordinate gets its task as a conversation of its own, and its end becomes a response."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool

from echelons import Agent, DelegationRequest, DelegationResponse, Status, Usage
from echelons.errors import UnreadableRecord
from echelons.identity.lineage import USER_ANSWERS_KEY, Identity, derive_request_id
from echelons.identity.thread_history import Head
from echelons.nodes.attempt import LevelFailure
from echelons.nodes.planning.final_answer import EMPTY_ANSWER_REASON
from echelons.nodes.request_queue import QueuedRequest
from echelons.nodes.subordinate import (
    build_level_input,
    build_response,
    with_identity,
)
from echelons.testing import Call, Reply, ScriptedModel, delegate, report
from echelons.tree.agent_path import AgentPath
from tests.failure_ids import without_ids

REQUEST = DelegationRequest(
    id="r1", origin="head", current="eat", task="Find dinner", path=AgentPath("head/eat")
)


def order(number: int = 1) -> QueuedRequest:
    return QueuedRequest(REQUEST.model_copy(update={"id": f"r{number}"}), "call", "thread", False)


def ended(*messages: BaseMessage, **more: Any) -> DelegationResponse:
    """Return the response that a segment with such an end makes, declared with 0.8."""
    return build_response(REQUEST, {"messages": list(messages), **more}, 0.8)


def spent(tokens_in: int, tokens_out: int) -> AIMessage:
    usage: Any = {
        "input_tokens": tokens_in,
        "output_tokens": tokens_out,
        "total_tokens": tokens_in + tokens_out,
    }
    return AIMessage("said", usage_metadata=usage)


def delivered(*steps: Any, **own: Any) -> ToolMessage:
    """Return the answer that a superior gets from a subordinate that follows a script."""
    model = ScriptedModel(
        {"head": [delegate("eat", "Find dinner", id="7"), "end"], "eat": [*steps]}
    )
    head = Agent("head", model=model, subordinates=[Agent("eat", **own)])
    messages = head.compile().invoke({"messages": [("user", "plan")]})["messages"]
    [answer] = [each for each in messages if isinstance(each, ToolMessage)]
    return answer


# What it starts with


def test_a_segment_starts_with_the_task_in_words() -> None:
    start = build_level_input(order(), None)

    [message] = start["messages"]
    assert isinstance(message, HumanMessage)
    assert message.text == "Find dinner"
    assert start["request"] == "r1"
    assert "previous" not in start


def test_the_task_of_one_request_has_one_id_and_of_two_requests_two() -> None:
    ids = [build_level_input(order(n), None)["messages"][0].id for n in (1, 1, 2)]

    assert ids[0] == ids[1] != ids[2]


def test_a_thread_that_has_run_goes_on_from_its_end() -> None:
    head = Head(agent="eat", checkpoint_ns="ns", checkpoint_id="c")

    assert build_level_input(order(), head)["previous"] == head


def test_a_thread_that_has_not_run_has_no_end() -> None:
    assert "previous" not in build_level_input(order(), Head(agent="eat"))


def test_an_identity_wins_over_a_callers_metadata() -> None:
    identity = Identity(agent="eat", path=("head", "eat"), thread_id="t", tree="x")
    config: Any = {"metadata": {"agent": "sly", "user": "ann"}, "tags": ["a"]}

    own = with_identity(config, identity)

    assert own["metadata"] == {"user": "ann", **identity.to_metadata()}
    assert own["tags"] == ["a"]
    assert config["metadata"] == {"agent": "sly", "user": "ann"}


# What it ends with


def test_a_plain_answer_is_fulfilled_with_the_declared_confidence() -> None:
    response = ended(HumanMessage("x"), AIMessage("pizza"))

    assert (response.status, response.result, response.confidence) == (
        *(Status.FULFILLED, "pizza"),
        0.8,
    )
    assert (response.request_id, response.agent) == ("r1", "eat")
    assert (response.path, response.reason) == ("head/eat", "")


def test_a_report_says_what_a_plain_answer_cannot() -> None:
    said = {"status": "partial", "result": "half", "reason": "late", "confidence": 0.3}

    response = ended(HumanMessage("x"), AIMessage("pizza"), response=said)

    assert (response.status, response.result, response.reason) == (Status.PARTIAL, "half", "late")
    assert response.confidence == 0.3


@pytest.mark.parametrize(
    ("status", "confidence"),
    [("fulfilled", 0.8), ("partial", 0.8), ("needs_input", 0.8), ("unable", 0.0)],
)
def test_a_report_without_a_confidence_has_the_declared_one_unless_it_is_unable(
    status: str, confidence: float
) -> None:
    assert ended(AIMessage("x"), response={"status": status}).confidence == confidence


def test_a_failure_is_unable_and_says_why() -> None:
    response = build_response(REQUEST, LevelFailure("ValueError: no line"), 0.8)

    assert (response.status, response.reason) == (Status.UNABLE, "ValueError: no line")
    assert (response.confidence, response.result) == (0.0, "")


@pytest.mark.parametrize(
    "messages", [[], [HumanMessage("x")], [ToolMessage("x", tool_call_id="1")]]
)
def test_a_segment_without_last_words_has_an_empty_result(messages: list[BaseMessage]) -> None:
    assert ended(*messages).result == ""


@pytest.mark.parametrize("result", ["", " \n"])
def test_agent_that_reports_no_fulfilment_is_unable(result: str) -> None:
    reported = {"status": "fulfilled", "result": result, "confidence": 0.9}

    response = build_response(REQUEST, {"messages": [], "response": reported}, 0.5)

    assert (response.status, response.reason) == (Status.UNABLE, EMPTY_ANSWER_REASON)
    assert (response.confidence, response.failed) == (0.0, True)


@pytest.mark.parametrize("stored", [5, {"question": "Which?"}, ["Which?"]], ids=repr)
def test_damaged_marks_of_what_the_user_was_asked_are_refused_by_name(stored: Any) -> None:
    marked = ToolMessage("x", tool_call_id="1", response_metadata={USER_ANSWERS_KEY: stored})

    with pytest.raises(UnreadableRecord, match="UserAnswer"):
        ended(marked, AIMessage("done"))


def test_usage_counts_calls_of_the_agent_and_its_subtree() -> None:
    below = DelegationResponse(
        request_id="r2",
        agent="wine",
        status=Status.FULFILLED,
        result="red",
        usage=Usage(input_tokens=100, output_tokens=200, model_calls=3),
    )
    heard = ToolMessage("red", tool_call_id="1", name="call_subordinate", artifact=below.stored())

    response = ended(spent(1, 2), heard, spent(10, 20), AIMessage("no usage"))

    assert response.usage == Usage(
        input_tokens=111, output_tokens=222, model_calls=6, unknown_calls=1
    )
    [kept] = response.subordinate_responses
    assert (kept.agent, kept.status) == ("wine", Status.FULFILLED)
    assert (kept.result, kept.usage) == ("red", below.usage)


def test_answers_of_tools_are_no_responses_of_subordinates() -> None:
    own = ToolMessage("x", tool_call_id="1", name="search", artifact={"any": "thing"})
    refused = ToolMessage("Error: x", tool_call_id="2", name="call_subordinate")

    assert ended(own, refused, AIMessage("done")).subordinate_responses == ()


# In a tree


def test_a_superior_hears_the_plain_answer_and_nothing_else_of_the_conversation() -> None:
    answer = delivered("pizza")

    assert (answer.text, answer.tool_call_id, answer.status) == ("pizza", "7", "success")
    assert answer.name == "call_subordinate"


def test_a_superior_hears_a_report_with_its_status() -> None:
    answer = delivered(report("needs_input", "For how many?", reason="no number"))

    assert answer.text == "[needs_input] no number\nFor how many?"


def test_a_superior_hears_in_one_line_why_a_subordinate_failed() -> None:
    answer = delivered(ConnectionError("no line\nTraceback"))

    assert without_ids(answer.text) == "[unable] ConnectionError: no line"
    assert answer.status == "error"
    assert answer.additional_kwargs == {"unavailable": True}


def test_the_best_declared_capability_is_the_confidence_of_a_plain_answer() -> None:
    answer = delivered("pizza", capabilities={"food": 0.3, "wine": 0.6})

    assert DelegationResponse.load(answer.artifact).confidence == 0.6
    assert DelegationResponse.load(delivered("pizza").artifact).confidence == 1.0


def test_a_report_beside_a_tool_call_waits_for_the_tool() -> None:
    runs: list[str] = []

    @tool
    def book(place: str) -> str:
        """Book a table."""
        runs.append(place)
        return "booked"

    answer = delivered(
        [report("fulfilled", "booked it"), Call("book", {"place": "x"})], tools=[book]
    )

    assert runs == ["x"]
    assert answer.text == "booked it"


def test_a_request_is_known_by_the_call_that_made_it() -> None:
    model = ScriptedModel({"head": [delegate("eat", "x", id="7"), "end"], "eat": [Reply("pizza")]})
    graph = Agent("head", model=model, subordinates=[Agent("eat")]).compile()

    messages = graph.invoke({"messages": [("user", "plan")]}, {"configurable": {"thread_id": "t"}})

    called, answer = messages["messages"][1:3]
    assert DelegationResponse.load(answer.artifact).request_id == derive_request_id(
        "t", called.id, "7"
    )
    assert DelegationResponse.load(answer.artifact).path == "head/eat"
