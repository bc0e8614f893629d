"""The messages with which a level passes on a task, without a call of its model."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from echelons.delegation.request import DelegationRequest
from echelons.identity.lineage import ADDRESSEE_KEY, REQUEST_CONTEXT_KEY, Identity
from echelons.identity.thread_history import Past
from echelons.nodes.messages import read_message_usage
from echelons.nodes.planning.relay import build_addressed_call
from echelons.nodes.planning.reply_handler import ReplyHandler
from echelons.nodes.request_queue import QueuedRequest
from echelons.nodes.subordinate import build_level_input
from tests.callable_tools import build_callable_tools

HEAD = Identity(agent="head", path=("head",), thread_id="t", tree="x")


def addressed(*names: str, **more: Any) -> HumanMessage:
    """Return a task for an agent below."""
    return HumanMessage("Look", id="m", response_metadata={ADDRESSEE_KEY: [*names], **more})


def test_the_call_names_the_next_agent_and_no_model_wrote_it() -> None:
    message = build_addressed_call([addressed("north", "scout")], HEAD)

    assert message is not None
    [call] = message.tool_calls
    assert call["args"] == {"message": "Look", "subordinate": "north"}
    assert message.response_metadata["requests"] == {message.id: {"addressee": ["scout"]}}
    assert read_message_usage(message).model_calls == 0
    # A process that is killed builds the same once more.
    assert build_addressed_call([addressed("north", "scout")], HEAD) == message


def test_the_context_goes_with_it() -> None:
    facts = {REQUEST_CONTEXT_KEY: {"from": "Ann"}}

    message = build_addressed_call([addressed("north", **facts)], HEAD)

    assert message is not None
    assert message.tool_calls[0]["args"]["context"] == {"from": "Ann"}
    assert "requests" not in message.response_metadata


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [HumanMessage("Look")],
        [addressed("north"), AIMessage(""), ToolMessage("seen", tool_call_id="1")],
    ],
)
def test_there_is_none_without_an_addressee_or_after_the_answer(messages: Any) -> None:
    assert build_addressed_call(messages, HEAD) is None


@pytest.mark.parametrize("subordinates", [("south",), ()])
def test_model_reads_that_the_tree_lost_an_agent(
    subordinates: tuple[str, ...],
) -> None:
    state = {"messages": [addressed("north")]}
    replies = ReplyHandler(build_callable_tools(*subordinates))
    message = build_addressed_call(state["messages"], HEAD)
    assert message is not None

    context = replies.parse_message(Past(), state, message, HEAD, {})
    call, answer = replies.build_update(context, {})["messages"]

    assert answer.tool_call_id == call.tool_calls[0]["id"]
    assert answer.status == "error"


@pytest.mark.parametrize(("below", "passed_on"), [(("scout",), ["scout"]), ((), None)])
def test_a_level_gets_the_rest_of_the_way_with_its_task(below: Any, passed_on: Any) -> None:
    request = DelegationRequest(
        id="r", origin="head", current="north", task="Look", addressee=below, context={"a": 1}
    )

    given = build_level_input(QueuedRequest(request, "c", "t", continues=False), None)

    assert given["messages"][-1].response_metadata.get(ADDRESSEE_KEY) == passed_on
