"""A session shows, merges and discards what its agents would change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from echelons import Agent, Session, SqliteCheckpointer
from echelons.errors import ForeignSaverWarning, UnknownPath
from echelons.testing import Call, ScriptedModel, delegate
from echelons.workspace_tools import file_tools
from tests.error_codes import raises_code


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a folder with a file."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "plan.md").write_text("Rome\n")
    return folder


def team() -> Agent:
    """Return a head whose subordinate changes two files."""
    writes: Any = [
        Call("write_file", {"path": "plan.md", "text": "Bari\n"}),
        Call("write_file", {"path": "new.md", "text": "new\n"}),
        "done",
    ]
    model = ScriptedModel({"head": [delegate("north", "go"), "done"], "north": writes})
    return Agent("head", model=model, subordinates=[Agent("north", tools=file_tools())])


def test_changes_are_shown_and_merged_by_their_agent(root: Path, tmp_path: Path) -> None:
    with Session(team(), tmp_path / "data.db", workspace=root) as session:
        assert session.send("go").result().finished

    with Session(team(), tmp_path / "data.db", workspace=str(root)) as session:
        shown = session.changes()
        assert [(each.agent, each.path, each.kind) for each in shown] == [
            ("head/north", "new.md", "added"),
            ("head/north", "plan.md", "changed"),
        ]
        assert session.changes("head") == []
        assert session.discard("head/north", "new.md") == ["new.md"]
        (root / "plan.md").write_text("Siena\n")
        [(path, why)] = session.merge("head/north").left
        assert (path, "changed since" in why) == ("plan.md", True)
        (root / "plan.md").write_text("Rome\n")
        assert session.merge("head/north").merged == ("plan.md",)
        assert session.changes() == []
    assert (root / "plan.md").read_text() == "Bari\n"
    assert not (root / "new.md").exists()


async def test_each_has_an_async_version(root: Path, tmp_path: Path) -> None:
    async with Session(team(), tmp_path / "data.db", workspace=root) as session:
        assert (await (await session.asend("go")).result()).finished
        assert len(await session.achanges("head/north")) == 2
        assert await session.adiscard("head/north", ["new.md"]) == ["new.md"]
        assert (await session.amerge("head/north")).merged == ("plan.md",)


def test_another_saver_keeps_the_changes_in_memory(root: Path) -> None:
    with (
        pytest.warns(ForeignSaverWarning),
        Session(team(), InMemorySaver(), workspace=root) as session,
    ):
        assert session.send("go").result().finished
        assert session.merge("head/north").merged == ("new.md", "plan.md")


def test_a_copied_thread_has_the_changes(root: Path, tmp_path: Path) -> None:
    with SqliteCheckpointer(tmp_path / "data.db") as saver:
        session = Session(team(), saver, workspace=root)
        assert session.send("go").result().finished
        saver.copy_thread(session.thread_id, "copied")

        copy = Session(team(), saver, thread="copied", workspace=root)
        assert copy.merge("head/north").merged == ("new.md", "plan.md")
        # The same texts are in the folder now.
        assert session.changes() == []


def test_what_is_not_there_is_refused_by_name(root: Path) -> None:
    with Session(team(), ":memory:") as session:
        for use in (session.changes, lambda: session.merge("head"), lambda: session.discard("x")):
            with raises_code("no_workspace"):
                use()
    with Session(team(), ":memory:", workspace=root) as session:
        paths: tuple[Any, ...] = ("nobody", "", 5)
        for path in paths:
            with pytest.raises(UnknownPath, match="head/north"):
                session.merge(path)
        with raises_code("invalid_path"):
            session.discard("head/north", ["../x"])
