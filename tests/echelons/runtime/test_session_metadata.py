"""What a session notes on its thread, and what the list of threads makes of it."""

from __future__ import annotations

from pathlib import Path

from echelons import Agent, Session, SqliteCheckpointer, ThreadStore
from echelons.testing import ScriptedModel, delegate


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


def test_a_note_cannot_pose_as_the_identity_of_a_run(tmp_path: Path) -> None:
    notes = {"agent": "somebody", "thread_name": "else", "superior_thread_id": "x"}
    with Session(team(), tmp_path / "t.sqlite", thread="trip", metadata=notes) as session:
        session.send("Go").result()
        (root,) = session.threads()

    assert (root.agent, root.name) == ("head", "trip")
    assert "agent" not in root.metadata


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
