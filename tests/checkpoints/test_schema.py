"""Threads, delegations and events are read with plain SQL, by any tool that knows SQLite."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlite_utils

from echelons import Agent, Session, SqliteCheckpointer
from echelons.testing import ScriptedModel, delegate


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


def test_a_delegation_is_a_row_that_leads_from_thread_to_thread(file: Path) -> None:
    delegations = read(file, "SELECT * FROM delegations ORDER BY at")

    assert [(each["subordinate"], each["task"]) for each in delegations] == [("eat", "dinner")] * 2
    [thread] = read(file, "SELECT agent_thread_id FROM threads WHERE agent = 'eat'")
    assert {each["sub_agent_thread_id"] for each in delegations} == {thread["agent_thread_id"]}
    assert {each["superior_path"] for each in delegations} == {"head"}


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
