"""A fork of the past has the files and notes of its past, three levels down."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from echelons import Agent, Session, SqliteCheckpointer
from echelons.errors import ForeignSaverWarning
from echelons.testing import Call, ScriptedModel, delegate
from echelons.workspace_tools import file_tools, note_tools
from tests.scenarios.conftest import World

LEAF = "head/mid/leaf"


def write(text: str) -> list[Call]:
    """Return the calls that write a text into a file, and into a note."""
    return [
        Call("write_file", {"path": "plan.md", "text": f"{text}\n"}),
        Call("note_write", {"name": f"about {text}", "text": text}),
    ]


def build_team(told: list[str]) -> Agent:
    """Return three levels, of which the last tells what there is, and then writes its task."""

    def work(messages: Any) -> Any:
        if messages[-1].type == "human":
            return [Call("read_file", {"path": "plan.md"}), Call("note_list")]
        if messages[-1].name == "note_write":
            return "done"
        told.extend(re.sub(r" \[.*|\n$", "", each.text) for each in messages[-2:])
        task = [each.text for each in messages if each.type == "human"][-1]
        return write(task)

    def pass_to(name: str) -> Any:
        def lead(messages: Any) -> Any:
            last = messages[-1]
            return delegate(name, last.text) if last.type == "human" else "done"

        return lead

    model = ScriptedModel({"head": pass_to("mid"), "mid": pass_to("leaf"), "leaf": work})
    leaf = Agent("leaf", tools=[*file_tools(), *note_tools()])
    return Agent("head", model=model, subordinates=[Agent("mid", subordinates=[leaf])])


def fork(world: World, session: Session, turn: int) -> None:
    """Let the thread go on from the end of a turn, counted from 0."""
    history = session.graph.get_state_history(session.config)
    end = [each for each in history if not each.next][::-1][turn]
    world.do(session.graph, "update_state", end.config, {"messages": []}, as_node="reason")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a folder with a file."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "plan.md").write_text("old\n")
    return folder


def list_texts(session: Session) -> list[str]:
    """Return what the files are to be, by the added lines of the changes."""
    diffs = (each.diff.splitlines() for each in session.changes())
    return [line[1:] for diff in diffs for line in diff if line.startswith("+") and line[1] != "+"]


def test_a_fork_of_the_past_has_the_files_and_notes_of_then(
    world: World, saver: SqliteCheckpointer, root: Path
) -> None:
    told: list[str] = []
    session = Session(build_team(told), saver, workspace=root)
    world.send(session, "Rome")
    world.send(session, "Bari")
    assert list_texts(session) == ["Bari"]

    fork(world, session, 0)
    assert list_texts(session) == ["Rome"]
    world.send(session, "Turin")
    assert list_texts(session) == ["Turin"]
    # The fork does not have what the second turn wrote.
    first = ["old", "no notes", "Rome", "about Rome"]
    assert told == [*first, "Rome", "about Rome"]

    fork(world, session, 1)
    world.send(session, "Siena")
    assert told[6:] == ["Bari", "about Bari\nabout Rome"]


def test_what_was_merged_or_discarded_on_a_branch_is_still_there_on_another(
    world: World, saver: SqliteCheckpointer, root: Path
) -> None:
    session = Session(build_team([]), saver, workspace=root)
    world.send(session, "Rome")
    world.send(session, "Bari")
    assert world.do(session, "discard", LEAF) == ["plan.md"]
    fork(world, session, 0)
    world.send(session, "Turin")
    assert world.do(session, "merge", LEAF) == (("plan.md",), ())
    assert (root / "plan.md").read_text() == "Turin\n"
    assert session.changes() == []

    # What the folder was when it was changed there, it is no more.
    fork(world, session, 0)
    assert list_texts(session) == ["Rome"]
    [(file, why)] = world.do(session, "merge", LEAF).left
    assert (file, "changed since" in why) == ("plan.md", True)
    fork(world, session, 1)
    assert session.changes() == []


@pytest.mark.parametrize("prune", [False, True])
def test_a_copy_and_a_pruned_thread_have_the_changes_of_their_branch(
    world: World, saver: SqliteCheckpointer, root: Path, prune: bool
) -> None:
    told: list[str] = []
    team = build_team(told)
    session = Session(team, saver, workspace=root)
    world.send(session, "Rome")
    world.send(session, "Bari")
    fork(world, session, 0)
    if prune:
        saver.prune([session.thread_id])

    saver.copy_thread(session.thread_id, "copied")
    for each in (session, Session(team, saver, thread="copied", workspace=root)):
        del told[:]
        assert list_texts(each) == ["Rome"]
        world.send(each, "Turin")
        assert told == ["Rome", "about Rome"]
        assert list_texts(each) == ["Turin"]


def test_other_savers_have_branches_of_their_own(world: World, root: Path) -> None:
    told: list[str] = []
    with pytest.warns(ForeignSaverWarning):
        session = Session(build_team(told), InMemorySaver(), workspace=root)
    world.send(session, "Rome")
    world.send(session, "Bari")
    fork(world, session, 0)
    world.send(session, "Turin")
    assert told[4:] == ["Rome", "about Rome"]
