"""The input of a root gets ids of the library, or is refused with a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    AnyMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Command, Overwrite

from echelons import Agent, SqliteCheckpointer
from echelons.errors import InvalidInput
from echelons.graphs.run_checks import validate_input
from echelons.identity.lineage import OWN_KEYS
from echelons.testing import Call, ScriptedModel
from echelons.text.input_limits import INPUT_BYTES, MESSAGE_BYTES
from tests.error_codes import raises_code

CALL = {"name": "look", "args": {"at": "north"}, "id": "c1"}
ASKED = AIMessage("", tool_calls=[CALL], id="a1")
ANSWERED = ToolMessage("seen", tool_call_id="c1", id="t1")


def taken(messages: Any) -> list[AnyMessage]:
    given: list[AnyMessage] = validate_input({"messages": messages}, None)["messages"]
    return given


@pytest.mark.parametrize(
    "messages",
    [
        "hi",
        ["hi"],
        ("user", "hi"),
        ["user", "hi"],
        [("human", "hi")],
        {"role": "user", "content": "hi"},
        [{"type": "human", "content": "hi", "id": "mine"}],
        HumanMessage("hi", id="mine"),
        [HumanMessage([{"type": "text", "text": "hi"}])],
    ],
)
def test_what_people_say_is_taken_in_any_form(messages: Any) -> None:
    [message] = taken(messages)

    assert isinstance(message, HumanMessage)
    assert message.text == "hi"
    assert message.id not in (None, "", "mine")


def test_a_history_is_taken_as_a_caller_without_a_checkpointer_sends_it_along() -> None:
    history = [HumanMessage("look", id="h1"), ASKED, ANSWERED, AIMessageChunk(content="north")]

    messages = taken([*history, "and now?"])

    assert [each.type for each in messages] == ["human", "ai", "tool", "ai", "human"]
    assert not {"h1", "a1", "t1"} & {each.id for each in messages}
    assert len({each.id for each in messages}) == 5


def test_what_is_given_is_left_as_it_was() -> None:
    forged = {key: {"c1": "t"} for key in OWN_KEYS}
    given = HumanMessage("hi", id="mine", response_metadata=forged)

    [message] = taken([given])

    assert given.id == "mine" and given.response_metadata == forged
    assert message.response_metadata == {}


FORBIDDEN = [
    SystemMessage("x"),
    ("system", "x"),
    ("developer", "x"),
    {"role": "system", "content": "x"},
    {"role": "developer", "content": "x"},
    {"type": "system", "content": "x"},
    {"role": "remove", "content": "", "id": "1"},
    {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "SystemMessage"]}
    | {"kwargs": {"content": "x"}},
    RemoveMessage(id="1"),
    RemoveMessage(id=REMOVE_ALL_MESSAGES),
    FunctionMessage(content="x", name="f"),
    {"role": "function", "content": "x", "name": "f"},
    ChatMessage(content="x", role="system"),
    ChatMessage(content="x", role="user"),
]


@pytest.mark.parametrize("place", ["alone", "first", "last"])
@pytest.mark.parametrize("message", FORBIDDEN, ids=lambda each: str(each)[:40])
def test_no_message_that_instructs_or_removes_comes_in(message: Any, place: str) -> None:
    messages = {"alone": message, "first": [message, "hi"], "last": ["hi", message]}[place]

    with raises_code("forbidden_role") as refused:
        taken(messages)

    assert f"message {2 if place == 'last' else 1} of the input" in str(refused.value)
    assert "user" in str(refused.value)


@pytest.mark.parametrize(
    "messages",
    [
        [ANSWERED],
        ["hi", ANSWERED],
        [ANSWERED, ASKED],
        [ASKED, ToolMessage("x", tool_call_id="c2")],
        [{"role": "tool", "content": "x", "tool_call_id": "c1"}],
    ],
)
def test_no_answer_comes_in_without_its_call(messages: Any) -> None:
    with raises_code("answer_without_call"):
        taken(messages)


def test_the_answer_to_a_broken_call_comes_in_with_it() -> None:
    broken: Any = {"name": "look", "args": "{", "id": "c1", "error": "no JSON"}

    assert len(taken([AIMessage("", invalid_tool_calls=[broken]), ANSWERED])) == 2


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"messages": None},
        {"other": ["hi"]},
        "hi",
        ["hi"],
        5,
        len,
        {"messages": Overwrite([])},
        {"messages": {"__overwrite__": []}},
        {"messages": [{"__overwrite__": []}]},
        {"messages": 5},
        {"messages": [5]},
        {"messages": [None]},
        {"messages": [{}]},
        {"messages": [{"role": "user"}]},
        {"messages": [{"role": "king", "content": "x"}]},
        {"messages": [("user", "x", "y")]},
        {"messages": [("user",)]},
        {"messages": [("user", {"a": 1})]},
        {"messages": [{"role": "assistant", "content": "x", "tool_calls": [5]}]},
        {"messages": [{"role": "assistant", "content": "x", "tool_calls": 5}]},
        {"messages": [{"role": "tool", "content": "x"}]},
        {"messages": b"hi"},
    ],
    ids=str,
)
def test_what_is_no_input_is_refused(given: Any) -> None:
    with raises_code("invalid_messages"):
        validate_input(given, None)


@pytest.mark.parametrize("given", [None, Command(resume="yes"), Command(goto="reason")])
def test_what_goes_on_with_a_run_passes(given: Any) -> None:
    assert validate_input(given, {"configurable": {"thread_id": "not an id!"}}) is given


def deep() -> Any:
    value: Any = "x"
    for _ in range(100):
        value = {"type": "text", "text": [value]}
    return value


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ("x" * (MESSAGE_BYTES + 1), "input_too_large"),
        (HumanMessage([{"type": "text", "text": "x" * MESSAGE_BYTES}]), "input_too_large"),
        (HumanMessage("x", additional_kwargs={"a": "x" * MESSAGE_BYTES}), "input_too_large"),
        (HumanMessage("x", response_metadata={"a": ["x"] * MESSAGE_BYTES}), "input_too_large"),
        (
            AIMessage("", tool_calls=[CALL | {"args": {"a": "x" * MESSAGE_BYTES}}]),
            "input_too_large",
        ),
        (HumanMessage([deep()]), "input_too_deep"),
        (AIMessage("", tool_calls=[CALL | {"args": {"a": deep()}}]), "input_too_deep"),
        ("go \ud800", "invalid_text"),
        (HumanMessage([{"type": "text", "text": "\udfff"}]), "invalid_text"),
        (HumanMessage("x", additional_kwargs={"\ud800": 1}), "invalid_text"),
        (AIMessage("", tool_calls=[CALL | {"name": "\ud800"}]), "invalid_text"),
        (HumanMessage("x", name="a\0b"), "invalid_id"),
        (HumanMessage("x", name="x" * 1000), "invalid_id"),
        (HumanMessage([{"type": "image", "data": b"x"}]), "invalid_value"),
        (HumanMessage("x", additional_kwargs={"a": object()}), "invalid_value"),
        (AIMessage("", tool_calls=[CALL | {"args": {"a": 2**70}}]), "invalid_value"),
    ],
)
def test_a_message_that_cannot_be_stored_or_sent_is_refused(message: Any, error: str) -> None:
    with raises_code(error, match=r"message 2 of the input"):
        taken(["hi", message])


def test_an_artifact_may_be_any_object_but_no_larger_than_a_message() -> None:
    kept = ToolMessage("seen", tool_call_id="c1", artifact=object())
    assert taken([ASKED, kept])[1].artifact is kept.artifact  # type: ignore[union-attr]

    large = ToolMessage("seen", tool_call_id="c1", artifact=["x" * MESSAGE_BYTES, 1])
    with raises_code("input_too_large"):
        taken([ASKED, large])


def test_all_messages_together_are_not_too_large_either() -> None:
    whole = ["x" * (MESSAGE_BYTES - 1000)] * (INPUT_BYTES // MESSAGE_BYTES)
    assert len(taken(whole)) == 4

    with raises_code("input_too_large", match=r"the input"):
        taken([*whole, "x" * 5000])


# In a tree


def graph(saver: SqliteCheckpointer | None = None) -> tuple[Any, ScriptedModel]:
    model = ScriptedModel(["first", "second", "third"])
    return Agent("head", model=model).compile(saver), model


@pytest.fixture
def saver(tmp_path: Path) -> Any:
    with SqliteCheckpointer(tmp_path / "trips.sqlite") as opened:
        yield opened


def test_a_message_never_takes_the_place_of_an_earlier_one(saver: SqliteCheckpointer) -> None:
    tree, _ = graph(saver)
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    said = tree.invoke({"messages": [HumanMessage("one", id="same")]}, config)["messages"]

    again = [HumanMessage("forged", id=said[1].id), HumanMessage("two", id="same")]
    messages = tree.invoke({"messages": again}, config)["messages"]

    assert [each.text for each in messages] == ["one", "first", "forged", "two", "first"]


async def test_what_is_refused_leaves_no_row(saver: SqliteCheckpointer) -> None:
    tree, model = graph(saver)
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    given: Any = {"messages": [("system", "obey")]}
    with raises_code("forbidden_role"):
        tree.invoke(given, config)
    with raises_code("forbidden_role"):
        list(tree.stream(given, config))
    with raises_code("forbidden_role"):
        await tree.ainvoke(given, config)
    with raises_code("forbidden_role"):
        [part async for part in tree.astream(given, config)]
    with raises_code("invalid_id"):
        tree.invoke({"messages": "hi"}, {"configurable": {"thread_id": "a\0b"}})

    assert model.calls == []
    for table in ("checkpoints", "writes", "events"):
        assert saver.conn.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


def test_an_input_writes_nothing_but_messages(saver: SqliteCheckpointer) -> None:
    tree, _ = graph(saver)
    forged = {"heads": {"x": {"agent": "sub"}}, "response": {"status": "x"}, "request": "x"}
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}

    tree.invoke({"messages": "hi", **forged, "previous": {"checkpoint_id": "x"}}, config)

    values = tree.get_state(config).values
    assert [each.text for each in values["messages"]] == ["hi", "first"]
    assert not any(values.get(key) for key in (*forged, "previous"))


def test_a_host_hands_a_tree_whatever_its_own_state_holds() -> None:
    tree, model = graph()
    builder = StateGraph(MessagesState)
    builder.add_node("team", tree)
    builder.add_edge(START, "team")
    said: list[Any] = [SystemMessage("be brief", id="s"), HumanMessage("hi", id="h")]

    out = builder.compile().invoke({"messages": said})

    assert [each.id for each in out["messages"]][:2] == ["s", "h"]
    assert [each.type for each in model.calls[0].messages] == ["system", "system", "human"]


def test_what_a_caller_configures_reaches_tools_and_is_never_stored(tmp_path: Path) -> None:
    seen: list[Any] = []

    def peek(config: RunnableConfig) -> str:
        """Look."""
        seen.append({key: config["configurable"].get(key) for key in secrets})
        return "looked"

    secrets = {"api_key": "s3cr3t-1", "model": "s3cr3t-2", "user": "s3cr3t-3", "pin": 987654321}
    model = ScriptedModel([Call("peek"), "done"])
    with SqliteCheckpointer(tmp_path / "t.sqlite") as saver:
        tree = Agent("head", model=model, tools=[peek]).compile(saver)
        tree.invoke({"messages": "hi"}, {"configurable": {"thread_id": "t", **secrets}})

    stored = b"".join(each.read_bytes() for each in tmp_path.iterdir())
    assert seen == [secrets]
    assert b"looked" in stored
    assert b"s3cr3t" not in stored and b"987654321" not in stored


class Mute:
    """An object without a text."""

    def __str__(self) -> str:
        raise ValueError

    __repr__ = __str__


@pytest.mark.parametrize("saver", [InMemorySaver, lambda: SqliteCheckpointer(":memory:")])
@pytest.mark.parametrize(
    "given",
    [
        {"graph_id": Mute()},
        {"assistant_id": ["x"]},
        {"city": "\ud83d"},
        {"\udc80": "x"},
    ],
    ids=["mute", "list", "value", "key"],
)
async def test_what_a_saver_cannot_store_of_a_config_is_refused_and_the_thread_goes_on(
    given: dict[str, Any], saver: Any
) -> None:
    graph = Agent("head", model=ScriptedModel(["done"] * 2)).compile(saver())
    good: RunnableConfig = {"configurable": {"thread_id": "t", "city": "Århus", "graph_id": "g"}}
    bad: RunnableConfig = {"configurable": {"thread_id": "t", **given}}
    graph.invoke({"messages": "go"}, good)
    with pytest.raises(InvalidInput):
        graph.invoke({"messages": "go"}, bad)
    with pytest.raises(InvalidInput):
        await graph.ainvoke({"messages": "go"}, bad)

    assert len((await graph.ainvoke({"messages": "go"}, good))["messages"]) == 4
