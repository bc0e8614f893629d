"""The ``messages`` channel folds whatever it is given, and folds it alike at every replay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Overwrite

from echelons import Agent
from echelons.checkpoints.delta_channels import (
    Entries,
    Messages,
    normalize_messages,
    rebuild_channel,
    reduce_entries,
    reduce_messages,
)
from echelons.checkpoints.storage.serde import AllowlistSerializer
from echelons.testing import ScriptedModel
from tests.error_codes import raises_code

ids = st.none() | st.sampled_from(["", "a", "b", "c", "d"])
texts = st.sampled_from(["", "one", "two", "é\0"])
messages = st.one_of(
    st.builds(HumanMessage, texts, id=ids),
    st.builds(AIMessage, texts, id=ids),
    st.builds(lambda text, id_: AIMessageChunk(content=text, id=id_), texts, ids),
    st.builds(lambda text, id_: ToolMessage(text, tool_call_id="1", id=id_), texts, ids),
    st.builds(lambda id_: RemoveMessage(id=id_), st.sampled_from(["a", "b", "z"])),
    st.just(RemoveMessage(id=REMOVE_ALL_MESSAGES)),
    st.tuples(st.sampled_from(["user", "ai", "system"]), texts),
    st.builds(lambda text: {"role": "user", "content": text}, texts),
    texts,
)
writes = st.lists(messages | st.lists(messages, max_size=3), max_size=6)


def said(folded: Sequence[BaseMessage]) -> list[tuple[str, str]]:
    return [(each.type, str(each.text)) for each in folded]


def fold(*given: Any, held: Sequence[BaseMessage] = ()) -> list[BaseMessage]:
    return reduce_messages(held, given)


def stored(value: Any) -> Any:
    """Return a value as it comes back from the database."""
    serde = AllowlistSerializer()
    return serde.loads_typed(serde.dumps_typed(value))


# Laws of a delta channel


@given(writes, writes)
def test_folding_twice_is_folding_the_whole_at_once(first: list[Any], then: list[Any]) -> None:
    once = reduce_messages([], [*first, *then])

    assert reduce_messages(reduce_messages([], first), then) == once


@given(writes)
def test_each_replay_gives_the_same_ids(given_: list[Any]) -> None:
    assert [each.id for each in fold(*given_)] == [each.id for each in fold(*given_)]


@given(writes)
def test_every_message_has_an_id_and_no_two_have_the_same(given_: list[Any]) -> None:
    found = [each.id for each in fold(*given_)]

    assert all(found)
    assert len(set(found)) == len(found)


@given(writes)
def test_what_was_stored_and_read_back_folds_to_the_same(given_: list[Any]) -> None:
    assert reduce_messages([], stored(given_)) == reduce_messages([], given_)


@given(writes)
def test_what_is_held_and_what_is_written_are_left_as_they_were(given_: list[Any]) -> None:
    held = fold("before", HumanMessage("a", id="a"))
    kept, written = list(held), [repr(each) for each in given_]

    reduce_messages(held, given_)

    assert held == kept
    assert [repr(each) for each in given_] == written


# What is taken for a message


@pytest.mark.parametrize(
    ("write", "folded"),
    [
        ("hello", [("human", "hello")]),
        (["hello", "there"], [("human", "hello"), ("human", "there")]),
        (("user", "hello"), [("human", "hello")]),
        (["user", "hello"], [("human", "hello")]),
        ([("user", "hello"), ("ai", "hi")], [("human", "hello"), ("ai", "hi")]),
        ([["user", "hello"], ["assistant", "hi"]], [("human", "hello"), ("ai", "hi")]),
        (("system", "be brief"), [("system", "be brief")]),
        ({"role": "user", "content": "hello"}, [("human", "hello")]),
        ([{"type": "ai", "content": "hi"}], [("ai", "hi")]),
        (AIMessageChunk(content="hi"), [("ai", "hi")]),
        ([], []),
    ],
)
def test_any_form_that_langchain_understands_is_a_message(
    write: Any, folded: list[tuple[str, str]]
) -> None:
    assert said(fold(write)) == folded


def test_a_chunk_is_kept_as_a_whole_message() -> None:
    [message] = fold(AIMessageChunk(content="hi", id="a"))

    assert type(message) is AIMessage


@pytest.mark.parametrize("write", [5, None, object(), [5], {"content": "no role"}, b"bytes"])
def test_what_is_no_message_is_refused(write: Any) -> None:
    with pytest.raises((NotImplementedError, ValueError)):
        fold(write)


# Replacing and removing


def test_a_message_with_an_id_that_is_held_takes_its_place() -> None:
    held = fold(HumanMessage("one", id="a"), AIMessage("two", id="b"))

    folded = fold(HumanMessage("other", id="a"), held=held)

    assert said(folded) == [("human", "other"), ("ai", "two")]


def test_two_messages_of_one_id_in_one_write_are_one() -> None:
    assert said(fold([HumanMessage("one", id="a"), HumanMessage("two", id="a")])) == [
        ("human", "two")
    ]


def test_messages_without_an_id_never_take_each_others_place() -> None:
    assert said(fold("same", "same", ["same"])) == [("human", "same")] * 3


def test_a_message_is_removed_by_its_id() -> None:
    held = fold(*(HumanMessage(each, id=each) for each in "abc"))

    assert said(fold(RemoveMessage(id="b"), held=held)) == [("human", "a"), ("human", "c")]


def test_what_is_not_there_may_be_removed() -> None:
    held = fold(HumanMessage("one", id="a"))
    twice = [RemoveMessage(id="z"), RemoveMessage(id="a"), RemoveMessage(id="a")]

    assert fold(*twice, held=held) == []


def test_everything_before_can_be_removed_at_once() -> None:
    folded = fold("one", "two", RemoveMessage(id=REMOVE_ALL_MESSAGES), "three")

    assert said(folded) == [("human", "three")]


def test_a_removed_message_may_come_back_at_the_end() -> None:
    held = fold(*(HumanMessage(each, id=each) for each in "ab"))

    folded = fold(RemoveMessage(id="a"), HumanMessage("again", id="a"), held=held)

    assert said(folded) == [("human", "b"), ("human", "again")]


def test_a_message_after_a_removal_takes_the_place_that_its_id_has_then() -> None:
    held = fold(*(HumanMessage(each, id=each) for each in "abc"))

    folded = fold([RemoveMessage(id="a"), HumanMessage("new", id="c")], held=held)

    assert said(folded) == [("human", "b"), ("human", "new")]


# Cost


class Counted(HumanMessage):
    """Counts how often the id of any message is read."""

    reads: ClassVar[int] = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "id":
            Counted.reads += 1
        return super().__getattribute__(name)


def cost(held: int, writes: Sequence[Sequence[BaseMessage]]) -> int:
    """Return how many ids are read when some writes are folded into so many messages."""
    folded: list[BaseMessage] = [Counted(content="x", id=f"h{n}") for n in range(held)]
    Counted.reads = 0
    for write in writes:
        folded = reduce_messages(folded, [write])
    return Counted.reads


def some(count: int) -> list[BaseMessage]:
    return [Counted(content="y", id=f"n{n}") for n in range(count)]


def test_an_append_costs_no_more_than_the_length_of_the_list() -> None:
    one_by_one = [[each] for each in some(20)]

    # Each message is looked at once, and the new one a few times.
    assert 20 * 2_000 <= cost(2_000, one_by_one) < 20 * 2_200


def test_a_batch_of_appends_costs_no_more_than_one_append() -> None:
    # No held message is looked at twice, however many are new.
    assert 2_000 <= cost(2_000, [some(200)]) < 2_000 + 10 * 200


# Rebuilding


def test_a_value_is_rebuilt_from_nothing_a_snapshot_or_a_plain_list() -> None:
    then = [("task", "messages", [HumanMessage("two", id="b")])]
    one = HumanMessage("one", id="a")

    assert said(rebuild_channel(Messages, None, then)) == [("human", "two")]
    for held in (_DeltaSnapshot([one]), [one]):
        assert said(rebuild_channel(Messages, held, then)) == [("human", "one"), ("human", "two")]
    assert rebuild_channel(Messages, None, []) == []


def test_a_value_that_was_overwritten_is_rebuilt_from_there() -> None:
    then = [("1", "messages", ["lost"]), ("2", "messages", Overwrite([HumanMessage("kept")]))]

    assert said(rebuild_channel(Messages, None, then)) == [("human", "kept")]


# Entries

fields = st.dictionaries(st.sampled_from("xyz"), st.integers(0, 9), max_size=2)
entries = st.lists(st.dictionaries(st.sampled_from("abc"), fields, max_size=2), max_size=4)


@given(entries, entries)
def test_folding_entries_twice_is_folding_them_at_once(first: list[Any], then: list[Any]) -> None:
    once = reduce_entries({}, [*first, *then])
    twice = reduce_entries(reduce_entries({}, first), then)

    assert list(twice.items()) == list(once.items())


def test_later_fields_win_and_entries_keep_their_first_place() -> None:
    held = {"a": {"x": 1, "y": 2}, "b": {"x": 3}}

    folded = reduce_entries(held, [{"c": {"x": 4}, "a": {"y": 5}}])

    assert list(folded.items()) == [("a", {"x": 1, "y": 5}), ("b", {"x": 3}), ("c", {"x": 4})]
    assert held == {"a": {"x": 1, "y": 2}, "b": {"x": 3}}


def test_entries_are_rebuilt_like_messages() -> None:
    then = [("task", "heads", {"a": {"y": 2}})]

    assert rebuild_channel(Entries, {"a": {"x": 1}}, then) == {"a": {"x": 1, "y": 2}}


# What a caller gives


@pytest.mark.parametrize(
    "given_", ["hi", ("user", "hi"), [("user", "hi")], {"role": "user", "content": "hi"}]
)
def test_what_a_caller_gives_is_whole_before_it_is_stored(given_: Any) -> None:
    [message] = normalize_messages({"messages": given_, "other": 1})["messages"]

    assert isinstance(message, HumanMessage)
    assert message.id


def test_an_id_that_a_caller_gives_is_kept() -> None:
    assert normalize_messages({"messages": HumanMessage("hi", id="a")})["messages"][0].id == "a"


@pytest.mark.parametrize("given_", [None, {}, {"other": 1}, 5, "text", {"messages": Overwrite([])}])
def test_what_holds_no_messages_is_left_alone(given_: Any) -> None:
    assert normalize_messages(given_) is given_


@pytest.mark.parametrize("given_", [5, [5], object(), [("user",)], {"content": "no role"}])
async def test_a_run_whose_messages_are_none_is_refused_and_stores_nothing(given_: Any) -> None:
    graph = Agent("head", model=ScriptedModel(["done"])).compile(":memory:")
    config: Any = {"configurable": {"thread_id": "t"}}

    with raises_code("invalid_messages") as refused:
        graph.invoke({"messages": given_}, config)
    with raises_code("invalid_messages"):
        await graph.ainvoke({"messages": given_}, config)
    with raises_code("invalid_messages"):
        graph.update_state(config, {"messages": given_}, as_node="reason")

    assert refused.value.given is given_
    assert repr(given_) in str(refused.value)
    assert "Nothing was stored" in str(refused.value)
    assert graph.get_state(config).values == {}
    assert graph.invoke({"messages": "hi"}, config)["messages"][-1].text == "done"


def test_a_system_message_of_a_history_is_a_message_like_any_other() -> None:
    model = ScriptedModel(["done"])
    graph = Agent("head", guidance="", model=model).compile(":memory:")
    config: Any = {"configurable": {"thread_id": "t"}}

    graph.update_state(config, {"messages": [SystemMessage("be brief")]}, as_node="__start__")
    graph.invoke({"messages": "hi"}, config)

    assert [each.type for each in model.calls[0].messages] == ["system", "human"]


@pytest.mark.parametrize(
    ("annotated", "stored", "write"),
    [
        (Messages, [HumanMessage("one", id="a")], [HumanMessage("two", id="b")]),
        (Entries, {}, {"t": {}}),
    ],
)
def test_a_copy_of_a_channel_is_langgraphs_own(annotated: Any, stored: Any, write: Any) -> None:
    [spec] = annotated.__metadata__
    for channel in (spec, spec.from_checkpoint(stored)):
        channel.key = "channel"
        copied, theirs = channel.copy(), DeltaChannel.copy(channel)

        # Whatever LangGraph gives its channels in another version, too.
        slots = {name for kind in type(spec).__mro__ for name in getattr(kind, "__slots__", ())}
        assert {name: getattr(copied, name) for name in slots if hasattr(theirs, name)} == {
            name: getattr(theirs, name) for name in slots if hasattr(theirs, name)
        }
        copied.update([write])
        assert channel.value == theirs.value != copied.value
