"""Replies as messages, whole and in chunks."""

from __future__ import annotations

from functools import reduce

from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AIMessageChunk

from echelons.testing import Call, Reply
from echelons.testing.scripts import as_chunks, as_message

names = st.text("abcdefghij_", min_size=1, max_size=8)
arguments = st.dictionaries(names, st.integers() | st.text() | st.lists(st.booleans()), max_size=3)
usages = st.tuples(st.integers(0, 10**6), st.integers(0, 10**6))
replies = st.builds(
    Reply,
    content=st.text(max_size=60),
    calls=st.lists(st.builds(Call, names, arguments), max_size=3),
    reasoning=st.none() | st.text(min_size=1, max_size=30),
    usage=st.none() | usages,
)


def summed(message: AIMessage) -> AIMessageChunk:
    return reduce(lambda total, chunk: total + chunk, as_chunks(message))


@given(replies, st.integers(0, 50))
def test_the_chunks_of_a_stream_add_up_to_the_whole_message(reply: Reply, length: int) -> None:
    whole = as_message(reply, length)
    streamed = summed(whole)
    assert streamed.content == whole.content
    assert streamed.tool_calls == whole.tool_calls
    assert streamed.usage_metadata == whole.usage_metadata
    assert streamed.additional_kwargs == whole.additional_kwargs
    assert streamed.response_metadata == whole.response_metadata


def test_a_text_streams_word_by_word_and_a_call_in_fragments() -> None:
    chunks = as_chunks(as_message(Reply("to Rome now", [Call("find", {"a": 1})]), 1))
    assert [chunk.content for chunk in chunks if chunk.content] == ["to ", "Rome ", "now"]
    fragments = [part["args"] for chunk in chunks for part in chunk.tool_call_chunks]
    assert fragments == ["", '{"a"', ": 1}"]


def test_the_usage_comes_with_the_last_chunk_alone() -> None:
    chunks = as_chunks(as_message(Reply("a b", usage=(3, 4)), 1))
    assert [chunk.usage_metadata is not None for chunk in chunks] == [False, False, True]
    assert chunks[-1].chunk_position == "last"


def test_arguments_that_are_no_object_become_an_invalid_call_whole_and_streamed() -> None:
    whole = as_message(Reply(calls=[Call("find", '{"city": Rome}'), Call("ok", {})]), 1)
    for message in (whole, summed(whole)):
        assert [call["name"] for call in message.tool_calls] == ["ok"]
        assert [call["args"] for call in message.invalid_tool_calls] == ['{"city": Rome}']


def test_a_tool_that_changes_its_arguments_does_not_change_the_script() -> None:
    reply = Reply(calls=[Call("find", {"cities": ["Rome"]})])
    as_message(reply, 1).tool_calls[0]["args"]["cities"].append("Milan")
    assert as_message(reply, 1).tool_calls[0]["args"] == {"cities": ["Rome"]}


def test_call_ids_tell_the_place_in_the_conversation_unless_one_is_given() -> None:
    message = as_message(Reply(calls=[Call("a"), Call("b", id="mine"), Call("c")]), 7)
    assert [call["id"] for call in message.tool_calls] == ["call_7_0", "mine", "call_7_2"]


def test_reasoning_reads_as_a_block_of_its_own() -> None:
    message = as_message(Reply("42", reasoning="counted twice"), 1)
    assert message.content_blocks == [
        {"type": "reasoning", "reasoning": "counted twice"},
        {"type": "text", "text": "42"},
    ]


def test_blocks_of_content_stream_as_they_are() -> None:
    blocks: list[str | dict[str, object]] = [{"type": "text", "text": "a b"}]
    message = AIMessage(content=blocks, id="m1")
    streamed = summed(message)
    assert streamed.content == blocks
    assert streamed.id == "m1"
