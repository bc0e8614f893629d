"""Kills turns in which an agent edits files and writes notes, and has another process finish them.

``python -m tests.crash.drivers.edits FOLDER STEP`` prints, as JSON, a report of a turn that nothing
happens to, and of one for each side of each STEPth statement. Each process is a fork of this one.
"""

from __future__ import annotations

import gc
import json
import shutil
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

from echelons import Agent, Session
from echelons.testing import Call, ScriptedModel
from echelons.testing.crash import Count, Death, fork, watched
from echelons.workspace_tools import file_tools, note_tools

CALLS = [
    Call("edit_file", {"path": "plan.md", "old": "Rome", "new": "Rome, Rome"}),
    Call("edit_file", {"path": "plan.md", "old": "Rome, Rome", "new": "Rome, Rome, Rome"}),
    Call("write_file", {"path": "new.md", "text": "new\n"}),
    Call("delete_file", {"path": "old.md"}),
    Call("note_write", {"name": "hotels", "text": "Bella Roma"}),
]


def live(folder: Path) -> Any:
    """Submit the turn, which begins or goes on; return what there is in the end."""

    def think(messages: Any) -> Any:
        done = sum(each.type == "tool" for each in messages)
        return CALLS[done] if done < len(CALLS) else "done"

    tools = [*file_tools(), *note_tools()]
    agent = Agent("head", model=ScriptedModel(think), tools=tools)
    with Session(agent, folder / "data.db", workspace=folder / "work") as session:
        result = session.send("go", turn_id="1").result()
        return {
            "finished": result.finished,
            "inbox": [str(each.value) for each in session.inbox()],
            "changes": [(each.path, each.kind, each.diff) for each in session.changes()],
        }


def attempt(folder: Path, at: int, side: Any) -> Any:
    """Kill a turn, have another process finish it, and report what came of it."""
    place = make_place(folder, f"{at}-{side}")

    def killed() -> None:
        with watched(Death(at, side)):
            live(place)

    code = fork(killed).wait()
    assert code in (0, -signal.SIGKILL), (at, side, code)
    end = fork(partial(live, place)).result()
    shutil.rmtree(place)
    return {"name": f"{side} {at}", "code": code, "end": end}


def make_place(folder: Path, name: str) -> Path:
    """Make a folder with a workspace."""
    place = folder / name
    (place / "work").mkdir(parents=True)
    (place / "work" / "plan.md").write_text("Rome\n")
    (place / "work" / "old.md").write_text("old\n")
    return place


def main(given: str, step: str) -> None:
    """Make the trials, and print what came of them; nothing happens to the first one."""
    folder, count = Path(given), Count()

    def whole() -> Any:
        with watched(count):
            end = live(make_place(folder, "whole"))
        return [end, len(count.statements)]

    end, statements = fork(whole).result()
    gc.freeze()
    trials = [(at, side) for at in range(1, statements, int(step)) for side in ("before", "after")]
    reports = [attempt(folder, at, side) for at, side in trials]
    print(json.dumps([{"name": "whole", "code": 0, "end": end}, *reports]))


if __name__ == "__main__":
    main(*sys.argv[1:])
