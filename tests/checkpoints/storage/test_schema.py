"""Threads, delegations and events are read with plain SQL, by any tool that knows SQLite."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import sqlite_utils
from langchain_core.messages import ToolMessage
from langgraph.types import interrupt

from echelons import Agent, Session, SqliteCheckpointer, ThreadStore
from echelons.checkpoints.clock import utc_now
from echelons.checkpoints.storage.event_rows import insert_events
from echelons.checkpoints.thread_events import (
    EventKind,
    ThreadEvent,
    WriteLocation,
    build_thread_events,
)
from echelons.delegation.request import DelegationResponse
from echelons.testing import Call, Reply, ScriptedModel, delegate, report
from echelons.tree.names import BUILT_IN_TOOLS


def hungry() -> str:
    """Ask a human."""
    return f"a human said {interrupt('Are you hungry?')}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A database in which a named thread has run two turns."""
    model = ScriptedModel({"head": [delegate("eat", "dinner"), "planned"], "eat": ["pizza"]})
    head = Agent("head", model=model, subordinates=[Agent("eat")])
    path = tmp_path / "trip.sqlite"
    with Session(head, path, thread="Rome") as session:
        for task in ("Plan a trip", "And another"):
            session.send(task).result()
    return path


def read(path: Path, query: str) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(path)) as connection:
        return [*sqlite_utils.Database(connection).query(query)]


def test_a_thread_is_a_row_with_its_place_in_the_tree(file: Path) -> None:
    root, below = read(file, "SELECT * FROM threads ORDER BY agent_path")

    assert (root["agent"], root["agent_path"], root["thread_name"]) == ("head", "head", "Rome")
    assert (root["agent_thread_id"], root["superior_thread_id"]) == (root["thread_id"], "")
    assert (below["agent"], below["agent_path"]) == ("eat", "head/eat")
    assert below["superior_thread_id"] == root["agent_thread_id"]
    assert below["thread_id"] == root["thread_id"]
    assert root["checkpoints"] > below["checkpoints"] > 0


def test_an_agent_is_a_row_with_its_level_and_its_superior(file: Path) -> None:
    head, eat = read(file, "SELECT * FROM agents ORDER BY level")
    threads = {each["agent"]: each for each in read(file, "SELECT * FROM threads")}

    assert (head["agent_path"], head["level"], head["superior_path"]) == ("head", 0, "")
    assert (eat["agent_path"], eat["level"], eat["superior_path"]) == ("head/eat", 1, "head")
    for row, agent in ((head, "head"), (eat, "eat")):
        assert json.loads(row["thread_ids"]) == [threads[agent]["agent_thread_id"]]
        assert row["thread_id"] == threads[agent]["thread_id"]
    assert eat["since"] > head["since"]
    with SqliteCheckpointer(file) as saver:
        registry = ThreadStore(saver).registry(head["thread_id"])
    assert [(each.path, each.level, each.since) for each in registry.agents] == [
        (row["agent_path"], row["level"], row["since"]) for row in (head, eat)
    ]


def test_the_superior_of_an_agent_is_found_whatever_their_names(tmp_path: Path) -> None:
    path = tmp_path / "trip.sqlite"
    names = ["a", "a-a", "a_aa", "aaaa"]
    scripts: dict[str, Any] = {
        name: [delegate(below, "go"), "done"] for name, below in pairwise(names)
    }
    agent = Agent(names[-1])
    scripts[names[-1]] = ["done"]
    for name in reversed(names[:-1]):
        agent = Agent(name, subordinates=[agent], model=ScriptedModel(scripts))
    with Session(agent, path) as session:
        session.send("go").result()

    rows = read(path, "SELECT agent_path, superior_path, level FROM agents ORDER BY level")

    assert [row["agent_path"] for row in rows] == ["a", "a/a-a", "a/a-a/a_aa", "a/a-a/a_aa/aaaa"]
    assert [row["superior_path"] for row in rows] == ["", *(r["agent_path"] for r in rows[:-1])]
    assert [row["level"] for row in rows] == [0, 1, 2, 3]


def test_a_delegation_is_a_row_that_leads_from_thread_to_thread(file: Path) -> None:
    delegations = read(file, "SELECT * FROM delegations ORDER BY at")

    assert [(each["subordinate"], each["task"]) for each in delegations] == [("eat", "dinner")] * 2
    [thread] = read(file, "SELECT agent_thread_id FROM threads WHERE agent = 'eat'")
    assert {each["sub_agent_thread_id"] for each in delegations} == {thread["agent_thread_id"]}
    assert {each["superior_path"] for each in delegations} == {"head"}


def test_a_delegation_says_what_came_of_it(tmp_path: Path) -> None:
    model = ScriptedModel(
        {
            # Some providers begin their calls' ids anew in each message.
            "head": [delegate("eat", "dinner", id="c"), delegate("sleep", "bed", id="c"), "done"],
            "eat": [Reply("pizza", usage=(20, 4))],
            "sleep": [report("unable", "", reason="no bed is free")],
        }
    )
    below = [Agent("eat", capabilities={"dinner": 0.7}), Agent("sleep")]
    path = tmp_path / "trip.sqlite"
    with Session(Agent("head", model=model, subordinates=below), path) as session:
        session.send("Plan a trip").result()
        answers = [
            m
            for m in session.thread_store.get(session.thread_id).messages
            if isinstance(m, ToolMessage)
        ]

    rows = read(path, "SELECT * FROM delegations ORDER BY at")

    assert [
        (each["task"], each["status"], each["agent"], each["path"], each["reason"]) for each in rows
    ] == [
        ("dinner", "fulfilled", "eat", "head/eat", ""),
        ("bed", "unable", "sleep", "head/sleep", "no bed is free"),
    ]
    assert [each["confidence"] for each in rows] == [0.7, 0.0]
    tokens = ("input_tokens", "output_tokens", "model_calls")
    assert [rows[0][each] for each in tokens] == [20, 4, 1]
    assert [each["request_id"] for each in rows] == [m.artifact["request_id"] for m in answers]
    assert all(each["answered_at"] >= each["at"] for each in rows)
    with closing(sqlite3.connect(path)) as connection:
        # As events were before they named their calls.
        connection.execute("UPDATE events SET data = json_remove(data, '$.call_id')")
        connection.commit()
    assert read(path, "SELECT * FROM delegations ORDER BY at") == rows


def test_an_answer_stands_once_in_its_event_and_whole_in_the_view(tmp_path: Path) -> None:
    path = tmp_path / "trip.sqlite"
    model = ScriptedModel({"head": [delegate("eat", "dinner"), "done"], "eat": ["pizza, pasta"]})
    with SqliteCheckpointer(path) as saver:
        with Session(Agent("head", model=model, subordinates=[Agent("eat")]), saver) as session:
            session.send("Plan a trip").result()
            [answer] = [
                m
                for m in session.thread_store.get(session.thread_id).messages
                if isinstance(m, ToolMessage)
            ]
            thread = session.thread_id
        told = [
            each.event.data for each in saver.read_events(thread) if "artifact" in each.event.data
        ]

    assert [each["artifact"] for each in told] == [answer.artifact]
    assert DelegationResponse.load(answer.artifact).result == "pizza, pasta"
    [row] = read(path, "SELECT data FROM events WHERE data LIKE '%artifact%'")
    assert row["data"].count("pizza, pasta") == 1
    assert [each["result"] for each in read(path, "SELECT result FROM delegations")] == [
        "pizza, pasta"
    ]
    with closing(sqlite3.connect(path)) as connection:
        # As events were before.
        connection.execute(
            "UPDATE events SET data = json_set(data, '$.artifact.result', 'pizza, pasta')"
            " WHERE data LIKE '%artifact%'"
        )
        connection.commit()
    assert [each["result"] for each in read(path, "SELECT result FROM delegations")] == [
        "pizza, pasta"
    ]


def test_a_delegation_that_is_open_has_nothing_to_say_yet(tmp_path: Path) -> None:
    path = tmp_path / "trip.sqlite"
    model = ScriptedModel(
        {"head": [delegate("eat", "dinner"), "done"], "eat": [Call("hungry", {}), "pizza"]}
    )
    head = Agent("head", model=model, subordinates=[Agent("eat", tools=[hungry])])
    with Session(head, path) as session:
        session.send("Plan a trip").result()

    [row] = read(path, "SELECT * FROM delegations")

    assert (row["task"], row["sub_agent_thread_id"] is None) == ("dinner", False)
    assert (row["origin"], row["current"], row["hops"]) == ("head", "eat", 1)
    said = ("status", "agent", "confidence", "path", "reason", "input_tokens")
    assert {row[each] for each in (*said, "output_tokens", "model_calls", "answered_at")} == {None}


def test_each_part_of_a_call_has_the_response_to_its_own_request(tmp_path: Path) -> None:
    def response(name: str, **more: Any) -> DelegationResponse:
        status = more.pop("status", "fulfilled")
        return DelegationResponse(request_id=f"r/{name}", agent=name, status=status, **more)

    parts = (
        response("a", confidence=0.9, path=("head", "a")),
        # Another was asked in its place, on a thread that the call does not name.
        response("other", confidence=0.4, thread_id="t/another"),
        response("c", status="unable", reason="no time", thread_id="t/c"),
    )
    whole = response("head", status="partial", subordinate_responses=parts)
    intent, args = "delegate_many", {"subordinate": "x", "message": "do"}
    asked = [
        ThreadEvent(
            EventKind.DELEGATION,
            f"m/k/1/{place}",
            {"intent": intent, "arguments": args, "call_id": "k/1", "sub_agent_thread_id": thread},
        )
        for place, thread in enumerate(("t/a", "t/b", "t/c"), start=1)
    ]
    answers = [
        ToolMessage("no", id="0", tool_call_id="1"),
        ToolMessage("some", id="1", tool_call_id="k/1", artifact=whole.stored()),
    ]
    path = tmp_path / "t.sqlite"
    with SqliteCheckpointer(path) as saver, saver.cursor() as cursor:
        where = WriteLocation("t", "", "1", "t", "head")
        insert_events(
            cursor, where, [*asked, *build_thread_events(answers, "head", "root")], utc_now
        )

    rows = read(path, "SELECT * FROM delegations ORDER BY sub_agent_thread_id")

    assert [(each["agent"], each["status"], each["reason"]) for each in rows] == [
        ("a", "fulfilled", ""),
        ("other", "fulfilled", ""),
        ("c", "unable", "no time"),
    ]
    assert [each["confidence"] for each in rows] == [0.9, 0.4, 0.0]
    assert [each["request_id"] for each in rows] == ["r/a", "r/other", "r/c"]


def test_the_tree_of_threads_is_one_recursive_query(file: Path) -> None:
    found = read(
        file,
        """
        WITH RECURSIVE tree (id, path) AS (
            SELECT agent_thread_id, agent FROM threads WHERE superior_thread_id = ''
            UNION
            SELECT threads.agent_thread_id, path || '>' || threads.agent
            FROM threads JOIN tree ON threads.superior_thread_id = tree.id
        )
        SELECT path FROM tree
        """,
    )

    assert [each["path"] for each in found] == ["head", "head>eat"]


def test_an_event_is_a_row_with_its_fact_as_json(file: Path) -> None:
    [event] = read(file, "SELECT * FROM events WHERE kind = 'delegation' ORDER BY id LIMIT 1")

    assert json.loads(event["data"])["arguments"]["message"] == "dinner"
    assert event["agent_path"] == "head"
    assert event["at"].endswith("+00:00")


def test_a_tool_for_sqlite_lists_what_there_is(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        database = sqlite_utils.Database(connection)
        assert {"checkpoints", "writes", "events"} <= set(database.table_names())
        assert {"threads", "delegations"} <= set(database.view_names())


def test_looking_for_a_thread_takes_the_index(file: Path) -> None:
    query = (
        "EXPLAIN QUERY PLAN SELECT * FROM checkpoints"
        " WHERE json_extract(CAST(metadata AS TEXT), '$.agent_thread_id') = 'x'"
    )

    assert any("checkpoints_by_agent_thread" in each["detail"] for each in read(file, query))


def test_langgraphs_own_filter_takes_the_index(file: Path) -> None:
    plans: list[str] = []
    with SqliteCheckpointer(file) as saver:
        asked: list[str] = []
        saver.conn.set_trace_callback(asked.append)
        assert not list(saver.list(None, filter={"agent_thread_id": "x"}))
        saver.conn.set_trace_callback(None)
        for query in asked:
            if query.lstrip().startswith("SELECT thread_id, checkpoint_ns"):
                plans += [row[3] for row in saver.conn.execute(f"EXPLAIN QUERY PLAN {query}")]

    assert any("checkpoints_by_agent_thread" in each for each in plans)


def test_the_views_hold_whatever_a_model_wrote(tmp_path: Path) -> None:
    odd: dict[str, Any] = {"message": "x", "score": float("nan"), "who": "half \ud83d"}
    model = ScriptedModel({"head": [delegate("eat", "dinner"), "planned"], "eat": ["pizza \ud83d"]})
    head = Agent("head", model=model, subordinates=[Agent("eat")])
    path = tmp_path / "odd.sqlite"
    config: Any = {"configurable": {"thread_id": "t"}, "metadata": {"score": float("inf")}}
    with SqliteCheckpointer(path) as saver:
        graph = head.compile(saver)
        graph.invoke({"messages": "plan"}, config)
        written = {"name": "call_subordinate", "args": odd, "id": "9", "type": "tool_call"}
        graph.update_state(
            config, {"messages": [{"role": "ai", "content": "", "tool_calls": [written]}]}
        )

    assert len(read(path, "SELECT * FROM threads")) == 2
    assert len(read(path, "SELECT * FROM delegations")) == 1
    assert len(read(path, "SELECT json(data) FROM events")) == 9


def test_each_attempt_has_a_row_on_its_own_thread(tmp_path: Path) -> None:
    model = ScriptedModel(
        {
            "head": [Call("call_subordinate", {"message": "Repair the bicycle"}), "done"],
            "d": [report("unable", "", reason="no tools")],
            "e": [Reply("as new", usage=(20, 4))],
        }
    )
    a = Agent("a", subordinates=[Agent("d", capabilities={"repair bicycle": 0.9})])
    e = Agent("e", capabilities={"repair bicycle": 0.5})
    path = tmp_path / "trip.sqlite"
    with Session(Agent("head", model=model, subordinates=[a, e]), path) as session:
        session.send("go").result()
        trace = session.trace()

    rows = read(path, "SELECT * FROM delegations WHERE superior_path = 'head' ORDER BY attempt")

    assert [(each["attempt"], each["path"], each["status"], each["reason"]) for each in rows] == [
        (1, "head/a/d", "unable", "no tools"),
        (2, "head/e", "fulfilled", ""),
    ]
    threads = [each.thread_id for each in trace.subordinates]
    assert [each["sub_agent_thread_id"] for each in rows] == threads
    assert [each["model_calls"] for each in rows] == [1, 1], "each its own"
    assert len({each["request_id"] for each in rows}) == 1


def count_steps(agents: int) -> int:
    """Return the steps of SQLite for the view of so many agents, each with a kind and an alias."""
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    insert = (
        "INSERT INTO events (thread_id, checkpoint_ns, checkpoint_id, agent_thread_id, agent_path,"
        " at, kind, key, data) VALUES ('t', '', 'c', ?, ?, '2031', ?, ?, ?)"
    )
    with SqliteCheckpointer(":memory:") as saver:
        with saver.cursor() as cursor:
            for number in range(agents):
                path, own = f"head/a{number}", f"thread {number}"
                made = json.dumps({"sub_agent_thread_id": own, "kind": "drone"})
                named = json.dumps({"alias": f"A{number}", "root_thread": "t", "path": path})
                cursor.execute(insert, (own, path, "message", f"m{number}", "{}"))
                cursor.execute(insert, ("t", "head", "delegation", f"d{number}", made))
                cursor.execute(
                    "INSERT INTO ledger_values (key, version, at, value) VALUES (?, 1, '', ?)",
                    (f"thread/t/alias/{number}", named),
                )
        saver.conn.set_progress_handler(count, 100)
        query = "SELECT kind, alias FROM agents WHERE thread_id = 't' ORDER BY agent_path"
        rows = saver.conn.execute(query).fetchall()
        saver.conn.set_progress_handler(None, 0)
    assert {kind for kind, _ in rows} == {"drone"}
    assert sorted(alias for _, alias in rows) == sorted(f"A{number}" for number in range(agents))
    return steps


def test_the_view_of_agents_is_linear_in_their_number() -> None:
    few, many = count_steps(200), count_steps(800)

    assert many < 5 * few


def test_the_view_of_usage_leaves_out_each_call_that_delegates_or_asks(tmp_path: Path) -> None:
    with SqliteCheckpointer(tmp_path / "usage.sqlite") as saver:
        location = WriteLocation("thread", "", "checkpoint", "agent", "head")
        calls = [
            ThreadEvent(EventKind.TOOL_CALL, name, {"intent": name, "args": {}})
            for name in (*sorted(BUILT_IN_TOOLS), "look")
        ]
        with saver.cursor() as cursor:
            insert_events(cursor, location, calls, utc_now)
        counted = saver.conn.execute("SELECT name FROM usage").fetchall()

    assert counted == [("look",)]
