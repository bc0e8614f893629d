"""A conversation is a list of plain facts, the same in SQL and in Python."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.types import Command, interrupt

from echelons import Agent, SqliteCheckpointer, ThreadStore
from echelons.checkpoints.storage.event_rows import load_event_data
from echelons.checkpoints.thread_events import (
    EventKind,
    build_question_event,
    build_thread_events,
    pair_events,
)
from echelons.identity.lineage import THREADS_KEY, derive_request_id
from echelons.testing import Call, Reply, ScriptedModel, delegate

WANTED = {"message": "y", "subordinate": "eat"}
CONFIG: Any = {"configurable": {"thread_id": "t"}}


@tool
def ask(question: str) -> str:
    """Ask a human."""
    return f"they said {interrupt(question)}"


def team() -> Agent:
    """Return a tree in which everything happens that an event tells."""
    model = ScriptedModel(
        {
            "head": [delegate("eat", "dinner"), "planned"],
            "eat": [Reply(calls=[Call("ask", {"question": "Sure?"})], usage=(3, 4)), "pizza"],
        }
    )
    return Agent("head", model=model, subordinates=[Agent("eat", tools=[ask])])


@pytest.fixture
def saver() -> Any:
    with SqliteCheckpointer(":memory:") as opened:
        yield opened


def rows(saver: SqliteCheckpointer, columns: str) -> list[tuple[Any, ...]]:
    return saver.conn.execute(f"SELECT {columns} FROM events ORDER BY id").fetchall()


def call(name: str, call_id: str, **args: Any) -> Any:
    return {"name": name, "args": args, "id": call_id, "type": "tool_call"}


# Calls and their answers


def paired(*messages: Any) -> dict[str, str]:
    """Return the partner of each event of some messages that has one, by key."""
    events = pair_events(build_thread_events(messages, "head", "t"))
    return {each.key: each.paired_with for each in events if each.paired_with}


def test_a_call_and_its_answer_are_paired() -> None:
    asked = AIMessage("", id="m", tool_calls=[call("ask", "1"), call("ask", "2"), call("ask", "3")])
    answers = [ToolMessage("x", tool_call_id=each, id=f"a{each}") for each in ("2", "1")]

    assert paired(HumanMessage("go", id="h"), asked, *answers) == {
        "m/1": "a1",
        "m/2": "a2",
        "a2": "m/2",
        "a1": "m/1",
    }


def test_an_id_that_a_model_uses_again_pairs_no_other_call() -> None:
    first = AIMessage("", id="m1", tool_calls=[call("ask", "1"), call("ask", "2")])
    again = AIMessage("", id="m2", tool_calls=[call("ask", "1"), call("ask", "2")])
    one = ToolMessage("x", tool_call_id="1", id="a1")
    two = ToolMessage("y", tool_call_id="1", id="a2")

    assert paired(first, one, again, two) == {
        "m1/1": "a1",
        "a1": "m1/1",
        "m2/1": "a2",
        "a2": "m2/1",
    }


def test_an_answer_without_its_call_has_no_partner() -> None:
    assert paired(ToolMessage("x", tool_call_id="1", id="a1")) == {}


# Of messages


@pytest.mark.parametrize(
    ("message", "data"),
    [
        (HumanMessage("hi", id="m"), {"role": "human", "content": "hi"}),
        (SystemMessage("be brief", id="m"), {"role": "system", "content": "be brief"}),
        (
            AIMessage("done", id="m"),
            {"role": "ai", "content": "done", "usage": None, "model": ""},
        ),
        (
            ToolMessage("found", tool_call_id="1", id="m", artifact={"x": 1}, status="error"),
            {
                "role": "tool",
                "content": "found",
                "tool_call_id": "1",
                "status": "error",
                "artifact": {"x": 1},
            },
        ),
    ],
)
def test_message_is_shown_with_role_and_content(message: Any, data: dict[str, Any]) -> None:
    [event] = build_thread_events([message], "head", "root")

    assert (event.kind, event.key, event.data) == (EventKind.MESSAGE, "m", data)


@pytest.mark.parametrize("key", ["halt", "forwarded", "returned"])
def test_what_no_model_has_written_has_no_usage(key: str) -> None:
    usage: Any = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
    message = AIMessage("done", id="m", usage_metadata=usage, response_metadata={key: True})

    [event] = build_thread_events([message], "head", "root")

    assert event.data == {"role": "ai", "content": "done"}


def test_what_is_given_has_no_usage_here() -> None:
    usage: Any = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
    message = AIMessage("done", id="m", usage_metadata=usage)

    [event] = build_thread_events([message], "head", "root", is_input=True)

    assert event.data == {"role": "ai", "content": "done"}


def test_reply_has_its_usage() -> None:
    usage: Any = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}

    reply = AIMessage(
        "done", id="m", usage_metadata=usage, response_metadata={"model_name": "large"}
    )
    [event] = build_thread_events([reply], "head", "root")

    assert (event.data["usage"], event.data["model"]) == (usage, "large")


def test_calls_follow_the_message_that_makes_them() -> None:
    calls = [call("search", "1", q="x"), call("call_subordinate", "2", **WANTED)]
    metadata = {THREADS_KEY: {"2": "thread"}}

    message = AIMessage("", id="m", tool_calls=calls, response_metadata=metadata)
    events = list(build_thread_events([message], "head", "root"))

    assert [(each.kind, each.key) for each in events] == [
        (EventKind.MESSAGE, "m"),
        (EventKind.TOOL_CALL, "m/1"),
        (EventKind.DELEGATION, "m/2"),
    ]
    assert events[1].data == {"intent": "search", "arguments": {"q": "x"}, "call_id": "1"}
    assert events[2].data == {
        "intent": "call_subordinate",
        "arguments": WANTED,
        "call_id": "2",
        "sub_agent_thread_id": "thread",
        "request": {
            "id": derive_request_id("root", "m", "2"),
            "origin": "head",
            "current": "eat",
            "path": ["head", "eat"],
        },
    }


def test_what_is_no_message_is_passed_over() -> None:
    assert list(build_thread_events([5, None, "text", {"role": "user"}], "head", "root")) == []


def test_a_question_is_known_by_its_interrupt() -> None:
    event = build_question_event("i", {"ask": "Sure?"})

    assert (event.kind, event.key, event.data) == (
        *(EventKind.QUESTION, "i"),
        {"value": {"ask": "Sure?"}},
    )


# In the database


def test_all_that_happened_is_written_down_in_order(saver: SqliteCheckpointer) -> None:
    graph = team().compile(saver)
    graph.invoke({"messages": [("user", "plan")]}, CONFIG)
    graph.invoke(Command(resume="yes"), CONFIG)

    assert rows(saver, "agent_path, kind") == [
        ("head", "message"),
        ("head", "message"),
        ("head", "delegation"),
        ("head/eat", "message"),
        ("head/eat", "message"),
        ("head/eat", "tool_call"),
        ("head/eat", "question"),
        ("head/eat", "message"),
        ("head/eat", "message"),
        ("head", "message"),
        ("head", "message"),
    ]


def test_question_is_written_once_by_its_asker(saver: SqliteCheckpointer) -> None:
    team().compile(saver).invoke({"messages": [("user", "plan")]}, CONFIG)

    found = saver.conn.execute("SELECT agent_path, data FROM events WHERE kind = 'question'")

    assert found.fetchall() == [("head/eat", '{"value": "Sure?"}')]


@pytest.mark.parametrize(
    "given",
    [
        "plan",
        ("user", "plan"),
        [("user", "plan")],
        [{"role": "user", "content": "plan"}],
        [HumanMessage("plan")],
    ],
)
def test_every_turn_is_written_in_whatever_form_it_was_given(
    saver: SqliteCheckpointer, given: Any
) -> None:
    graph = Agent("head", model=ScriptedModel(["done"])).compile(saver)
    for _ in range(2):
        graph.invoke({"messages": given}, CONFIG)

    said = [json.loads(data) for (data,) in rows(saver, "data")]

    assert [(each["role"], each["content"]) for each in said] == [
        ("human", "plan"),
        ("ai", "done"),
    ] * 2


def test_what_is_changed_by_hand_is_written_too(saver: SqliteCheckpointer) -> None:
    graph = Agent("head", model=ScriptedModel(["done"])).compile(saver)
    graph.invoke({"messages": "plan"}, CONFIG)

    graph.update_state(CONFIG, {"messages": [("ai", "by hand")]}, as_node="reason")

    assert json.loads(rows(saver, "data")[-1][0])["content"] == "by hand"


def test_the_events_of_the_database_are_those_that_are_read_from_any_saver(
    saver: SqliteCheckpointer,
) -> None:
    graph = team().compile(saver)
    graph.invoke({"messages": [("user", "plan")]}, CONFIG)
    graph.invoke(Command(resume="yes"), CONFIG)
    store = ThreadStore(saver)

    for thread in ("t", *store.subordinates("t")):
        found = saver.conn.execute(
            "SELECT kind, key, data FROM events WHERE agent_thread_id = ? AND kind <> 'question'"
            " ORDER BY id",
            (thread,),
        )
        written = [(kind, key, load_event_data(data)) for kind, key, data in found]
        assert written == [
            (str(each.kind), each.key, json.loads(json.dumps(each.data)))
            for each in store.events(thread)
        ]


def test_repeated_task_reports_nothing_twice(saver: SqliteCheckpointer) -> None:
    graph = team().compile(saver)
    graph.invoke({"messages": [("user", "plan")]}, CONFIG)
    before = rows(saver, "id, kind, key")

    graph.invoke(None, CONFIG)

    assert rows(saver, "id, kind, key") == before


def test_a_graph_that_is_no_tree_of_ours_leaves_no_events(saver: SqliteCheckpointer) -> None:
    from langgraph.graph import START, MessagesState, StateGraph

    builder: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    builder.add_node("only", lambda state: {"messages": [AIMessage("done")]})
    builder.add_edge(START, "only")
    builder.compile(checkpointer=saver).invoke({"messages": "plan"}, CONFIG)

    assert rows(saver, "*") == []
