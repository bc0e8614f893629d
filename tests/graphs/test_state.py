"""The states keep what they must, and show a user nothing but messages."""

from __future__ import annotations

from typing import Any

from langgraph.channels import DeltaChannel

from echelons import Agent
from echelons.graphs.state import PartsChannel
from echelons.testing import ScriptedModel, delegate

CONFIG: Any = {"configurable": {"thread_id": "t"}}


def graph(saver: Any = None) -> Any:
    model = ScriptedModel({"head": [delegate("eat", "x"), "end"], "eat": ["pizza"]})
    return Agent("head", model=model, subordinates=[Agent("eat")]).compile(saver)


def test_a_tree_takes_messages_and_returns_messages() -> None:
    compiled = graph()

    assert set(compiled.get_input_jsonschema()["properties"]) == {"messages"}
    assert set(compiled.get_output_jsonschema()["properties"]) == {"messages"}
    assert set(compiled.invoke({"messages": [("user", "go")]})) == {"messages"}


def test_another_key_of_the_input_is_not_taken_over() -> None:
    compiled = graph(":memory:")

    compiled.invoke({"messages": [("user", "go")], "heads": {"x": {"agent": "sly"}}}, CONFIG)

    assert "x" not in compiled.get_state(CONFIG).values["heads"]


def test_a_root_has_no_channels_for_the_segments_of_a_subordinate() -> None:
    compiled = graph()
    level: Any = dict(compiled.get_subgraphs(recurse=True))["delegate|eat"]

    own = {"messages", "heads", "parts"}
    segment = {"previous", "request", "response", "forward"}
    assert not segment & compiled.channels.keys() and own <= compiled.channels.keys()
    assert own | segment <= level.channels.keys()


def test_a_copy_of_parts_shares_nothing_with_them() -> None:
    parts = PartsChannel(key="parts")
    parts.update([{"one": {}}])
    copied = parts.copy()

    copied.update([{"two": {}}])

    assert (copied.key, copied.value) == ("parts", {"one": {}, "two": {}})
    assert parts.value == {"one": {}}
    assert not PartsChannel().copy().is_available()


def test_a_level_keeps_the_ends_of_the_threads_below_it() -> None:
    compiled = graph(":memory:")
    compiled.invoke({"messages": [("user", "go")]}, CONFIG)

    [head] = compiled.get_state(CONFIG).values["heads"].values()

    assert head["agent"] == "eat"
    assert set(head) == {"agent", "notice_mark", "checkpoint_ns", "checkpoint_id"}


def test_conversations_are_stored_as_what_was_added_to_them() -> None:
    channels = graph().channels

    assert isinstance(channels["messages"], DeltaChannel)
    assert isinstance(channels["heads"], DeltaChannel)


def test_nothing_of_a_subordinates_conversation_is_in_the_state_of_its_superior() -> None:
    result = graph().invoke({"messages": [("user", "go")]})

    assert [each.type for each in result["messages"]] == ["human", "ai", "tool", "ai"]
