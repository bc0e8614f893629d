"""Agents read a workspace and propose changes to it with tools."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from echelons import Agent, Session, SqliteCheckpointer
from echelons.features.workspace.tools import MAX_MATCHES
from echelons.testing import Call, ScriptedModel, delegate
from echelons.workspace_tools import file_tools, review_tools
from tests.error_codes import raises_code


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a folder with files."""
    folder = tmp_path / "work"
    (folder / "docs").mkdir(parents=True)
    (folder / "docs" / "plan.md").write_text("Rome\nTurin\n")
    (folder / "notes.txt").write_text("bring a map\nand a coat\n")
    (folder / "image.png").write_bytes(b"\xff\xd8")
    return folder


def run(root: Path | None, *calls: Call) -> tuple[Session, list[str]]:
    """Let an agent make calls one after another; return the session and the results."""
    told: list[str] = []

    def step(messages: Any) -> Any:
        if messages[-1].type == "tool":
            told.append(str(messages[-1].text))
        return calls[len(told)] if len(told) < len(calls) else "done"

    agent = Agent("head", model=ScriptedModel({"head": step}), tools=file_tools())
    session = Session(agent, ":memory:", workspace=root)
    assert session.send("go").result().finished
    return session, told


def test_an_agent_reads_writes_and_sees_its_own_changes(root: Path) -> None:
    before = {each: each.read_bytes() for each in root.rglob("*") if each.is_file()}

    session, told = run(
        root,
        Call("list_files", {}),
        Call("read_file", {"path": "docs/plan.md"}),
        Call("write_file", {"path": "docs/new.md", "text": "Bari\n"}),
        Call("edit_file", {"path": "docs/plan.md", "old": "Rome", "new": "Siena"}),
        Call("delete_file", {"path": "notes.txt"}),
        Call("list_files", {"folder": "docs"}),
        Call("search_files", {"pattern": "S.*a", "regex": True}),
        Call("search_files", {"pattern": "Bari"}),
        Call("search_files", {"pattern": "map"}),
        Call("diff_files", {"path": "docs/plan.md"}),
    )

    assert told[:9] == [
        "docs/plan.md\nimage.png\nnotes.txt",
        "Rome\nTurin\n",
        "wrote docs/new.md",
        "edited docs/plan.md",
        "removed notes.txt",
        "docs/new.md\ndocs/plan.md",
        "docs/plan.md:1: Siena",
        "docs/new.md:1: Bari",
        "nothing found",
    ]
    assert "-Rome\n+Siena\n" in told[9]
    assert {each: each.read_bytes() for each in root.rglob("*") if each.is_file()} == before
    session.close()


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (Call("read_file", {"path": "../secret"}), "is no path of a workspace"),
        (Call("read_file", {"path": "none.md"}), "there is no such file; list_files shows them"),
        (Call("read_file", {"path": "image.png"}), "it is no text in UTF-8"),
        (Call("edit_file", {"path": "notes.txt", "old": "a", "new": "b"}), "in it 5 times"),
        (Call("write_file", {"path": "subagents/other/x", "text": ""}), "belongs to other agents"),
        (Call("search_files", {"pattern": "(", "regex": True}), "no regular expression"),
        (Call("search_files", {"pattern": ""}), "1 to 1000 characters"),
        (Call("list_files", {"folder": "/etc"}), "it is absolute"),
    ],
)
def test_model_reads_refusals(call: Call, why: str, root: Path) -> None:
    session, [told] = run(root, call)

    assert told.startswith("Error: ")
    assert why in told
    session.close()


def test_without_a_workspace_every_file_tool_is_refused_by_name() -> None:
    calls = [
        Call(each.name, {name: "x" for name in each.args if name in ("path", "text", "old", "new")})
        for each in file_tools()
        if each.name != "search_files"
    ]
    session, told = run(None, *calls, Call("search_files", {"pattern": "x"}))

    assert len(told) == 7
    assert {*told} == {
        "Error: no workspace: Session(workspace=…) or `echelons run --workspace` names its folder"
    }
    session.close()


def test_a_long_file_is_read_in_parts(root: Path) -> None:
    (root / "long.txt").write_text("".join(f"line {number}\n" for number in range(1, 5001)))

    session, told = run(
        root,
        Call("read_file", {"path": "long.txt"}),
        Call("read_file", {"path": "long.txt", "first_line": 4001}),
        Call("read_file", {"path": "long.txt", "first_line": 9000}),
    )

    assert told[0].endswith("line 2000\n[of 5001 lines; read on with first_line=2001]")
    assert told[1].startswith("line 4001\n")
    assert told[1].endswith("line 5000\n")
    assert told[2] == "[the file has 5001 lines]"
    session.close()


def test_an_expression_that_takes_years_is_ended(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("echelons.features.workspace.tools.SEARCH_SECONDS", 0.5)
    (root / "evil.txt").write_text("a" * 60 + "!")
    (root / "many.txt").write_text("b\n" * (MAX_MATCHES + 5))

    session, told = run(
        root,
        Call("search_files", {"pattern": "(a+)+$", "regex": True}),
        Call("search_files", {"pattern": "b"}),
    )

    assert "it takes more than 0.5 seconds" in told[0]
    assert told[1].count("many.txt") == MAX_MATCHES
    assert told[1].endswith("[there may be more; search for less, or in a folder]")
    session.close()


def build_team(write: Callable[[str], Call]) -> Agent:
    """Return a head with two subordinates, each of which makes a call."""

    def step(agent: str) -> Any:
        return [write(agent), "done"]

    model = ScriptedModel(
        {
            "head": [delegate("north", "go"), delegate("east", "go"), "done"],
            "north": step("north"),
            "east": step("east"),
        }
    )
    below = [Agent(each, tools=file_tools()) for each in ("north", "east")]
    return Agent("head", model=model, subordinates=below, tools=file_tools())


async def test_agents_of_one_tree_do_not_see_the_changes_of_each_other(
    root: Path, tmp_path: Path
) -> None:
    team = build_team(lambda agent: Call("write_file", {"path": "docs/plan.md", "text": agent}))
    async with SqliteCheckpointer(tmp_path / "data.db") as saver:
        session = Session(team, saver, workspace=root)
        run = await session.asend("go")
        assert (await run.result()).finished

        changes = await session.achanges()

        assert [(each.agent, each.path) for each in changes] == [
            ("head/east", "docs/plan.md"),
            ("head/north", "docs/plan.md"),
        ]
        assert "+north" in session.changes("head/north")[0].diff


def test_a_folder_that_is_no_workspace_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with raises_code("invalid_workspace", match="no such file"):
        Session(Agent("head"), tmp_path / "data.db", workspace=tmp_path / "none")
    assert not [*tmp_path.iterdir()]


def test_a_superior_reviews_merges_and_discards_what_those_below_it_propose(root: Path) -> None:
    writes = [
        Call("edit_file", {"path": "docs/plan.md", "old": "Rome", "new": "Siena"}),
        Call("write_file", {"path": "new.md", "text": "new\n"}),
    ]
    reviews = [
        Call("review_changes", {"agent": "writer"}),
        Call("discard_changes", {"agent": "head/mid/writer", "paths": ["new.md"]}),
        Call("merge_changes", {"agent": "writer"}),
        Call("review_changes", {"agent": "writer"}),
        # Neither itself nor one beside or above it.
        Call("merge_changes", {"agent": "../other"}),
        Call("merge_changes", {"agent": "head/other"}),
        Call("merge_changes", {"agent": " "}),
    ]
    model = ScriptedModel(
        {
            "head": [[delegate("other", "go"), delegate("mid", "go")], "end"],
            "other": [Call("write_file", {"path": "other.md", "text": "x"}), "done"],
            "mid": [delegate("writer", "go"), *reviews, "done"],
            "writer": [*writes, "done"],
        }
    )
    writer = Agent("writer", tools=file_tools())
    mid = Agent("mid", tools=review_tools(), subordinates=[writer])
    head = Agent("head", model=model, subordinates=[Agent("other", tools=file_tools()), mid])
    with Session(head, ":memory:", workspace=root) as session:
        assert session.send("go").result().text == "end"
        left = [(each.agent, each.path) for each in session.changes()]
    told = [str(each.messages[-1].text) for each in model.calls if each.agent == "mid"][2:]
    assert "+Siena" in told[0]
    assert "+new" in told[0]
    assert told[1:4] == ["discarded: new.md", "merged: docs/plan.md", "no changes"]
    assert told[4:6] == ["merged: nothing"] * 2
    assert told[6].startswith("Error: name the agent")
    assert (root / "docs" / "plan.md").read_text() == "Siena\nTurin\n"
    assert not (root / "other.md").exists()
    assert left == [("head/other", "other.md")]
