"""``echelons changes``, ``merge`` and ``discard``, and a run in a workspace."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import Result

from tests.fork_server import Ended

Call = Callable[..., Result]
OFFICE = """
from langgraph.types import interrupt

from echelons import Agent
from echelons.testing import Call, ScriptedModel, delegate
from echelons.workspace_tools import file_tools


def confirm(what: str) -> str:
    '''Ask a human.'''
    return str(interrupt({"question": what}))


def write(path, text):
    return Call("write_file", {"path": path, "text": text})


model = ScriptedModel(
    {
        "head": [delegate("north", "go"), delegate("east", "go"), "Done."],
        "north": [
            write("plan.md", "Bari\\n"),
            Call("confirm", {"what": "Go on?"}),
            write("new.md", "new\\n"),
            "Done.",
        ],
        "east": [write("east.md", "east\\n"), "Done."],
    }
)
agent = Agent(
    "head",
    model=model,
    subordinates=[Agent(name, tools=[*file_tools(), confirm]) for name in ("north", "east")],
)
"""


@pytest.fixture
def work(folder: Path) -> Iterator[Path]:
    """Return a workspace beside the module ``office``."""
    (folder / "office.py").write_text(OFFICE, encoding="utf-8")
    (folder / "work").mkdir()
    (folder / "work" / "plan.md").write_text("Rome\n")
    yield folder / "work"
    sys.modules.pop("office", None)


def run(echelons: Call) -> None:
    """Run a turn that is resumed with an answer, which does not name the workspace again."""
    asked = echelons("run", "office:agent", "go", "--thread", "o", "--workspace", "work")
    assert asked.exit_code == 4, asked.stderr
    assert echelons("answer", "yes").exit_code == 0


def test_the_changes_of_a_run_are_shown_merged_and_discarded(echelons: Call, work: Path) -> None:
    run(echelons)

    shown = echelons("changes", "o")
    assert shown.exit_code == 0
    assert "-Rome\n+Bari\n" in shown.stdout
    assert "head/east: east.md added" in shown.stderr
    told = json.loads(echelons("changes", "o", "head/north", "--json").stdout)
    assert told["workspace"] == str(work)
    assert [(each["agent"], each["path"], each["kind"]) for each in told["changes"]] == [
        ("head/north", "new.md", "added"),
        ("head/north", "plan.md", "changed"),
    ]

    unnamed = echelons("merge", "o")
    assert unnamed.exit_code == 2
    assert "head/east, head/north of thread o" in unnamed.stderr
    (work / "new.md").write_text("theirs\n")
    merged = echelons("merge", "o", "head/north")
    assert merged.exit_code == 3
    assert merged.stdout.splitlines()[0] == "merged plan.md"
    assert merged.stdout.splitlines()[1].startswith("left new.md: the file has been changed since")
    assert (work / "plan.md").read_text() == "Bari\n"

    gone = echelons("discard", "o", "head/north", "--yes", "--json")
    assert json.loads(gone.stdout)["discarded"] == ["new.md"]
    assert echelons("merge", "o", "--json").exit_code == 0
    assert (work / "east.md").read_text() == "east\n"
    assert echelons("changes", "o").stdout == ""


def test_what_cannot_be_done_is_refused(echelons: Call, work: Path, folder: Path) -> None:
    lost = echelons("run", "office:agent", "go", "--workspace", "none")
    assert lost.exit_code == 3
    assert "no workspace" in lost.stderr
    assert not (folder / "trips.sqlite").exists()

    run(echelons)
    assert echelons("changes", "other").exit_code == 3
    assert echelons("changes", "o", "head/nobody").exit_code == 3
    assert echelons("changes", "o", "--workspace", "none").exit_code == 3
    assert echelons("discard", "o", "head/north").exit_code == 2
    echelons("run", "trips:plain", "Hello", "--thread", "p")
    bare = echelons("changes", "p")
    assert bare.exit_code == 3
    assert "echelons run --workspace" in bare.stderr


def test_an_agent_outlives_the_name_of_its_team(
    process: Callable[..., Ended], echelons: Call, work: Path, folder: Path
) -> None:
    run(echelons)
    (folder / "office.py").unlink()

    assert process("merge", "o", "head/east").returncode == 0
    assert (work / "east.md").read_text() == "east\n"
