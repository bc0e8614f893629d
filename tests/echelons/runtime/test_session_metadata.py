"""What a session notes on its thread, and what the list of threads makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from echelons import Agent, Session, SqliteCheckpointer, ThreadStore
from echelons.testing import ScriptedModel, delegate
from tests.error_codes import raises_code


def team() -> Agent:
    model = ScriptedModel({"head": [delegate("leaf", "look"), "Seen."], "leaf": ["There."]})
    return Agent("head", model=model, subordinates=[Agent("leaf", "Looks")])


def test_what_a_session_notes_is_read_back_from_its_root_thread(tmp_path: Path) -> None:
    database = tmp_path / "threads.sqlite"
    with Session(team(), database, thread="trip", metadata={"team": "mine:team"}) as session:
        session.send("Go").result()

    with SqliteCheckpointer(database) as saver:
        (root,) = ThreadStore(saver).roots()

    assert root.metadata["team"] == "mine:team"
    assert root.name == "trip"


@pytest.mark.parametrize(
    "key",
    [
        *("counters_since_delta_snapshot", "source", "step", "parents", "run_id", "thread_id"),
        *("langgraph_step", "agent", "thread_name", "turn_id", "stored_keys", "earlier_turns"),
        "__own",
    ],
)
def test_a_note_under_a_name_of_langgraph_or_of_ours_is_refused(key: str) -> None:
    with raises_code("invalid_note", match=f"metadata '{key}' cannot be noted: checkpoints have"):
        Session(team(), ":memory:", metadata={key: "x"})


@pytest.mark.parametrize("key", ["counters_since_delta_snapshot", "earlier_turns"])
@pytest.mark.parametrize("way", ["given", "bound"])
async def test_metadata_of_a_config_that_would_spoil_its_thread_are_not_stored(
    any_saver: Any, key: str, way: str
) -> None:
    graph: Any = team().compile(any_saver)
    config: Any = {"configurable": {"thread_id": "t"}, "metadata": {key: "x", "mine": "y"}}
    bound = graph.with_config({"metadata": config.pop("metadata")}) if way == "bound" else graph

    bound.invoke({"messages": "go"}, config)
    await bound.ainvoke({"messages": "again"}, config)
    bound.update_state(config, {"messages": "more"})
    await bound.aupdate_state(config, {"messages": "more"})

    [root] = ThreadStore(any_saver).roots()
    assert (root.damage, root.metadata) == ("", {"mine": "y"})
    assert root.turns == 2


def test_a_thread_that_such_metadata_have_spoiled_is_read_and_goes_on() -> None:
    config: Any = {"configurable": {"thread_id": "t"}}
    with SqliteCheckpointer(":memory:") as saver:
        graph = team().compile(saver)
        graph.invoke({"messages": "go"}, config)
        with saver.conn as connection:
            connection.execute(
                "UPDATE checkpoints SET metadata = json_set(CAST(metadata AS TEXT),"
                " '$.counters_since_delta_snapshot', 'x', '$.earlier_turns', 'x')"
            )

        assert graph.invoke({"messages": "again"}, config)["messages"][-1].text == "Seen."
        assert [root.turns for root in ThreadStore(saver).roots()] == [2]


def test_a_turn_is_counted_once_however_many_delegations_it_makes(tmp_path: Path) -> None:
    with Session(team(), tmp_path / "t.sqlite") as session:
        session.send("Go").result()
        session.send("Again").result()
        (root,) = session.threads()

    assert root.turns == 2


def test_a_reply_names_the_model_that_it_is_from() -> None:
    with Session(team(), ":memory:") as session:
        models = {event.data["model"] for event in session.send("Go") if event.kind == "message"}

    assert models == {"scripted"}
