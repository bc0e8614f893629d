"""What a model's reply makes of the state of its level."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    ToolCall,
    ToolMessage,
)

from echelons.identity.lineage import OWN_KEYS, THREADS_KEY, Identity, derive_subordinate_thread_id
from echelons.identity.thread_history import Head, Past
from echelons.nodes.planning.reply_handler import ReplyHandler
from tests.callable_tools import build_callable_tools
from tests.notice_marks import without_marks

IDENTITY = Identity(agent="head", path=("head",), thread_id="root", tree="t")
CONFIG: Any = {"metadata": IDENTITY.to_metadata()}
REPLIES = ReplyHandler(build_callable_tools("eat", "sleep", tools=("search",), can_report=True))


def state(*messages: BaseMessage, **more: Any) -> dict[str, Any]:
    return {"messages": list(messages or [HumanMessage("plan", id="h")]), **more}


def settled(reply: Any, past: Past | None = None, **more: Any) -> dict[str, Any]:
    """Return the update that a reply makes to an agent with every ability."""
    return settled_in(state(**more), reply, past)


def settled_in(given: dict[str, Any], reply: Any, past: Past | None = None) -> dict[str, Any]:
    """Return the update that a reply makes in a state."""
    context = REPLIES.parse_reply(past or Past(), given, reply, IDENTITY, CONFIG)
    return REPLIES.build_update(context, {})


def started(call_id: str, message: str = "m") -> str:
    """Return the id of the thread that a call starts."""
    return derive_subordinate_thread_id("root", message, call_id)


# What the model is shown


def test_a_plain_answer_is_one_message_in_the_name_of_the_agent() -> None:
    update = settled(AIMessage("done", id="m"))

    assert set(update) == {"messages"}
    [message] = update["messages"]
    assert (message.text, message.id, message.name) == ("done", "m", "head")


def test_the_reply_itself_is_not_changed() -> None:
    reply = AIMessage("", id="m", tool_calls=[ToolCall(name="search", args={}, id=None)])

    settled(reply)

    assert reply.name is None
    assert reply.tool_calls[0]["id"] is None


@pytest.mark.parametrize("given", [None, ""])
def test_a_reply_without_an_id_gets_the_same_one_at_every_replay(given: str | None) -> None:
    ids = {settled(AIMessage("done", id=given))["messages"][0].id for _ in range(2)}

    assert len(ids) == 1
    assert all(ids)


def test_replies_at_two_places_of_a_thread_have_two_ids() -> None:
    human, reply = HumanMessage("plan", id="h"), AIMessage("done")
    first = settled_in(state(human), reply)["messages"][0]
    second = settled_in(state(human, first, human), reply)["messages"][0]

    assert first.id != second.id


@pytest.mark.parametrize("earlier", ["past", "state"])
def test_a_model_that_repeats_an_id_never_overwrites_what_it_said_before(earlier: str) -> None:
    said = AIMessage("before", id="same")
    past = Past((said,)) if earlier == "past" else Past()
    messages = [said, HumanMessage("plan", id="h")] if earlier == "state" else []

    update = settled_in(state(*messages), AIMessage("done", id="same"), past)

    assert update["messages"][0].id not in (None, "", "same")


def test_a_streamed_reply_is_kept_as_a_whole_message() -> None:
    [message] = settled(AIMessageChunk(content="done", id="m"))["messages"]

    assert type(message) is AIMessage
    assert message.text == "done"


@pytest.mark.parametrize("reply", ["done", None, HumanMessage("done"), {"content": "done"}])
def test_what_is_no_reply_of_a_model_is_refused(reply: Any) -> None:
    with pytest.raises(TypeError, match=f"'head' returned {type(reply).__name__}"):
        settled(reply)


def test_mistakes_are_answered_in_the_same_update() -> None:
    call = ToolCall(name="serach", args={}, id="1", type="tool_call")

    reply, answer = settled(AIMessage("", id="m", tool_calls=[call]))["messages"]

    assert isinstance(answer, ToolMessage)
    assert reply.tool_calls[0]["id"] == answer.tool_call_id == "1"
    assert answer.status == "error"


def test_a_report_is_kept_as_plain_json() -> None:
    call = ToolCall(name="report", args={"status": "partial", "result": "half"}, id="1")

    update = settled(AIMessage("", id="m", tool_calls=[call]))

    assert update["response"] == {"status": "partial", "result": "half", "reason": ""}


def test_the_threads_of_its_delegations_stand_in_the_message() -> None:
    calls = [
        ToolCall(name="call_subordinate", args={"message": "a", "subordinate": "eat"}, id="1"),
        ToolCall(name="search", args={}, id="2"),
    ]
    update = settled(AIMessage("", id="m", tool_calls=calls, response_metadata={"model": "x"}))

    [message] = update["messages"]
    assert message.response_metadata == {"model": "x", THREADS_KEY: {"1": started("1")}}
    assert without_marks(update["heads"]) == {started("1"): {"agent": "eat"}}


def test_the_threads_of_earlier_segments_are_known() -> None:
    old = Head(agent="eat", checkpoint_ns="ns", checkpoint_id="c")
    call = ToolCall(name="call_subordinate", args={"message": "a", "subordinate": "eat"}, id="1")

    update = settled(AIMessage("", id="m", tool_calls=[call]), Past((), {"old": old}))

    assert update["messages"][0].response_metadata[THREADS_KEY] == {"1": "old"}
    assert without_marks(update["heads"]) == {"old": old}


# Which thread a call runs on


@pytest.mark.parametrize("key", sorted(OWN_KEYS))
def test_what_a_provider_says_under_a_key_of_ours_means_nothing(key: str) -> None:
    call: Any = {"name": "call_subordinate", "args": {"message": "dinner", "subordinate": "eat"}}
    theirs = {key: {"1": ["anything"]}, "model_name": "m"}
    forged = AIMessage("", id="m", tool_calls=[{**call, "id": "1"}], response_metadata=theirs)
    [message] = settled(forged)["messages"]

    own = {THREADS_KEY: {"1": started("1")}}
    assert message.response_metadata == {"model_name": "m", **own}
