"""A trace shows every call with what came of it, and tells the links that do not hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.types import interrupt

from echelons import Agent, DelegationResponse, SqliteCheckpointer, Status, ThreadStore
from echelons.checkpoints.queries import OneCheckpoint
from echelons.checkpoints.threads.trace import (
    CUT_SHORT,
    LinkState,
    Thread,
    Trace,
    build_trace,
    list_links,
)
from echelons.identity.lineage import THREADS_KEY
from echelons.testing import Call, ScriptedModel, delegate
from echelons.tree.agent_path import AgentPath

CONFIG: Any = {"configurable": {"thread_id": "t"}}


@tool
def ask(question: str) -> str:
    """Ask a human."""
    return f"they said {interrupt(question)}"


def calling(message: str, **threads: str) -> AIMessage:
    """Return a message whose calls start the given threads, by call id."""
    calls: list[Any] = [
        {
            "name": "call_subordinate",
            "args": {"message": f"task {call}", "subordinate": "eat"},
            "id": call,
            "type": "tool_call",
        }
        for call in threads
    ]
    return AIMessage("", id=message, tool_calls=calls, response_metadata={THREADS_KEY: threads})


def answer(call: str, status: Status = Status.FULFILLED, reason: str = "") -> ToolMessage:
    response = DelegationResponse(request_id="r", agent="eat", status=status, reason=reason)
    return ToolMessage("x", tool_call_id=call, artifact=response.stored())


def thread(id: str, *messages: BaseMessage, superior: str = "", agent: str = "head") -> Thread:
    return Thread(
        id=id,
        agent=agent,
        path=AgentPath(agent),
        root_thread_id="t",
        superior_thread_id=superior,
        name="",
        segments=1,
        begun_at="",
        messages=messages,
        latest=OneCheckpoint("t"),
    )


def traced(*threads: Thread) -> Trace:
    """Return the trace under the first of some threads."""
    return build_trace(threads[0].id, {each.id: each for each in threads})


def states(trace: Trace) -> list[tuple[str, LinkState]]:
    return [(each.sub_agent_thread_id, each.state) for each in list_links(trace)]


# Links


def test_a_thread_that_knows_its_superior_is_a_link_that_holds() -> None:
    trace = traced(
        thread("t", calling("m", one="a"), answer("one")),
        thread("a", superior="t", agent="eat"),
    )

    [link] = list_links(trace)
    assert (link.superior_thread_id, link.sub_agent_thread_id) == ("t", "a")
    assert (link.agent, link.state, link.holds) == ("eat", LinkState.OK, True)


@pytest.mark.parametrize(
    ("answers", "state", "holds"),
    [
        ([], LinkState.NOT_STARTED, True),
        ([answer("one", Status.UNABLE, "no_checkpointer")], LinkState.REFUSED, True),
        ([answer("one", Status.FULFILLED)], LinkState.BROKEN, False),
        ([answer("one", Status.PARTIAL)], LinkState.BROKEN, False),
    ],
)
def test_a_thread_without_rows_is_judged_by_the_answer(
    answers: list[ToolMessage], state: LinkState, holds: bool
) -> None:
    [link] = list_links(traced(thread("t", calling("m", one="a"), *answers)))

    assert (link.state, link.holds) == (state, holds)


def cut(*threads: Thread) -> list[tuple[str, str]]:
    """Return the status of each agent of a trace, and why."""
    below = [each for each in traced(*threads).walk() if each.requests]
    return [(each.status, each.requests[-1].reason) for each in below]


def test_what_an_agent_has_asked_for_ends_with_it_all_the_way_down() -> None:
    below = [
        thread("a", calling("n", two="b"), superior="t", agent="days"),
        thread("b", calling("o", three="c"), superior="a", agent="eat"),
    ]
    stopped = answer("one", Status.UNABLE, "stopped")

    assert cut(thread("t", calling("m", one="a")), *below) == [("open", "")] * 3
    assert cut(thread("t", calling("m", one="a"), stopped), *below) == [
        ("unable", "stopped"),
        ("unable", CUT_SHORT),
        ("unable", CUT_SHORT),
    ]


def test_a_call_of_an_earlier_task_is_not_open_any_more() -> None:
    again = [HumanMessage("again"), calling("o", three="c")]
    head = thread("t", HumanMessage("go"), calling("m", one="a", two="b"), answer("two"), *again)

    assert cut(head) == [("unable", CUT_SHORT), ("fulfilled", ""), ("open", "")]


def test_a_refusal_beside_an_open_call_is_still_a_refusal() -> None:
    refused = answer("one", Status.UNABLE)

    assert states(traced(thread("t", calling("m", one="a", two="a"), refused))) == [
        ("a", LinkState.REFUSED)
    ]


def test_a_thread_that_names_another_superior_is_a_broken_link_and_not_followed() -> None:
    trace = traced(
        thread("t", calling("m", one="a"), answer("one")),
        thread("a", calling("n", two="b"), superior="elsewhere", agent="sly"),
        thread("b", superior="a"),
    )

    assert states(trace) == [("a", LinkState.BROKEN)]
    assert trace.subordinates[0].agent == "eat"


def test_a_thread_that_leads_back_up_is_broken_and_ends_there() -> None:
    trace = traced(
        thread("t", calling("m", one="a"), answer("one")),
        thread("a", calling("n", two="t"), answer("two"), superior="t", agent="eat"),
    )

    assert states(trace) == [("a", LinkState.OK), ("t", LinkState.BROKEN)]


# Requests


def test_several_requests_of_one_thread_are_reported_in_order() -> None:
    trace = traced(
        thread(
            "t",
            calling("m", one="a", two="a"),
            answer("one"),
            answer("two", Status.PARTIAL, "late"),
            calling("n", three="a"),
        ),
        thread("a", superior="t", agent="eat"),
    )

    [below] = trace.subordinates
    assert [(each.call_id, each.task, each.status, each.reason) for each in below.requests] == [
        ("one", "task one", Status.FULFILLED, ""),
        ("two", "task two", Status.PARTIAL, "late"),
        ("three", "task three", None, ""),
    ]


def test_a_call_id_that_a_model_repeats_has_an_answer_in_each_message() -> None:
    trace = traced(
        thread(
            "t",
            calling("m", one="a"),
            answer("one", Status.FULFILLED),
            HumanMessage("again"),
            calling("n", one="a"),
            answer("one", Status.UNABLE, "closed"),
            calling("o", one="a"),
        ),
        thread("a", superior="t", agent="eat"),
    )

    statuses = [each.status for each in trace.subordinates[0].requests]
    assert statuses == [Status.FULFILLED, Status.UNABLE, None]


def test_an_answer_that_cannot_be_read_is_unable_and_says_so() -> None:
    damaged = ToolMessage("x", tool_call_id="one", artifact={"model": "Other"})

    trace = traced(thread("t", calling("m", one="a"), damaged), thread("a", superior="t"))

    [request] = trace.subordinates[0].requests
    assert request.status is Status.UNABLE
    assert "cannot be read" in request.reason


def test_the_status_is_that_of_the_latest_request() -> None:
    below = thread("a", superior="t", agent="eat")
    done = thread("t", calling("m", one="a"), answer("one", Status.PARTIAL))
    open_ = replace(done, messages=(*done.messages, calling("n", two="a")))

    assert traced(done, below).status == "root"
    assert traced(done, below).subordinates[0].status == "partial"
    assert traced(open_, below).subordinates[0].status == "open"


def test_an_agents_own_tools_are_listed_and_built_in_ones_are_not() -> None:
    calls: list[Any] = [
        {"name": name, "args": {}, "id": name, "type": "tool_call"}
        for name in ("search", "report", "call_subordinate", "search")
    ]

    assert traced(thread("t", AIMessage("", id="m", tool_calls=calls))).tools == ("search",) * 2


# As text


def test_the_text_is_a_tree_of_agents_statuses_and_threads() -> None:
    search: Any = {"name": "search", "args": {}, "id": "s", "type": "tool_call"}
    trace = traced(
        thread("t", calling("m", one="a", two="b"), answer("one")),
        thread(
            "a",
            AIMessage("", tool_calls=[search]),
            calling("n", three="c"),
            superior="t",
            agent="days",
        ),
    )

    assert str(trace).split("\n") == [
        "head  root  t",
        "├── days  fulfilled  a  [search]",
        "│   └── eat  not_started  c  cut short: its superior has ended",
        "└── eat  not_started  b",
    ]


def test_a_trace_is_walked_superiors_first() -> None:
    trace = traced(
        thread("t", calling("m", one="a", two="b")),
        thread("a", calling("n", three="c"), superior="t"),
        thread("b", superior="t"),
        thread("c", superior="a"),
    )

    assert [each.thread_id for each in trace.walk()] == ["t", "a", "c", "b"]


# In a database


def stored(saver: SqliteCheckpointer, *steps: Any) -> ThreadStore:
    """Run a tree whose subordinate follows some steps, and return its threads."""
    model = ScriptedModel({"head": [delegate("eat", "dinner"), "end"], "eat": [*steps]})
    head = Agent("head", model=model, subordinates=[Agent("eat", tools=[ask])])
    head.compile(saver).invoke({"messages": "plan"}, CONFIG)
    return ThreadStore(saver)


@pytest.fixture
def saver() -> Any:
    with SqliteCheckpointer(":memory:") as opened:
        yield opened


def test_every_link_of_a_run_holds(saver: SqliteCheckpointer) -> None:
    assert [link.state for link in stored(saver, "pizza").verify("t")] == [LinkState.OK]


def test_a_run_that_waits_is_an_open_request_of_a_thread_that_is_there(
    saver: SqliteCheckpointer,
) -> None:
    trace = stored(saver, Call("ask", {"question": "Sure?"})).trace("t")

    [below] = trace.subordinates
    assert (below.state, below.status, below.tools) == (LinkState.OK, "open", ("ask",))


def test_a_thread_whose_rows_were_deleted_is_a_broken_link(saver: SqliteCheckpointer) -> None:
    store = stored(saver, "pizza")

    saver.conn.execute("DELETE FROM checkpoints WHERE checkpoint_ns LIKE '%|eat:%'")

    assert [link.state for link in store.verify("t")] == [LinkState.BROKEN]
    assert not store.verify("t")[0].holds


def test_a_thread_whose_superior_was_forged_is_a_broken_link(saver: SqliteCheckpointer) -> None:
    store = stored(saver, "pizza")

    saver.conn.execute(
        "UPDATE checkpoints SET metadata = CAST(json_set(CAST(metadata AS TEXT),"
        " '$.superior_thread_id', 'elsewhere') AS BLOB) WHERE checkpoint_ns LIKE '%|eat:%'"
    )

    assert [link.state for link in store.verify("t")] == [LinkState.BROKEN]
