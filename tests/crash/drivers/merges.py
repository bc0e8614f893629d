"""Kills merges of a workspace, and has another process finish them.

``python -m tests.crash.drivers.merges FOLDER STEP`` prints, as JSON, a report of a merge that
nothing happens to, and of one for each place to be killed: before each access to a file, and on
both sides of each STEPth statement. In half of the trials the agent changes a file again before the
merge goes on. Each process is a fork of this one.
"""

from __future__ import annotations

import gc
import json
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from echelons import SqliteCheckpointer
from echelons.errors import FileRefused
from echelons.features.workspace.changes import Changeset, merge_changes
from echelons.features.workspace.feature import LedgerChanges
from echelons.features.workspace.files import Workspace
from echelons.testing.crash import Count, Death, Watch, die, fork, watched

FILE_EVENTS = frozenset({"open", "os.rename", "os.remove", "os.mkdir", "os.listdir", "os.scandir"})
AGENT = "head/writer"


def propose(folder: Path) -> None:
    """Make a folder of files, and let an agent change them, one of which others change, too."""
    root = folder / "work"
    (root / "docs").mkdir(parents=True)
    for name in ("a.md", "b.md", "c.md", "docs/taken.md"):
        (root / name).write_text(f"{name}, old\n")
    with SqliteCheckpointer(folder / "data.db") as saver:
        files = Changeset(Workspace(root), AGENT, LedgerChanges(saver.ledger, "trip", AGENT))
        files.write("a.md", "a.md, new\n")
        files.edit("b.md", "old", "new")
        files.delete("c.md")
        files.write("docs/deep/new.md", "new.md, new\n")
        files.write("docs/taken.md", "mine\n")
    (root / "docs" / "taken.md").write_text("theirs\n")


def merge(folder: Path) -> Any:
    """Merge what the agent has changed."""
    with SqliteCheckpointer(folder / "data.db") as saver:
        store = LedgerChanges(saver.ledger, "trip", AGENT)
        return merge_changes(Workspace(folder / "work"), store)


def change_again(folder: Path) -> None:
    """Let the agent change a file again, whether it is merged already or not."""
    with SqliteCheckpointer(folder / "data.db") as saver:
        store = LedgerChanges(saver.ledger, "trip", AGENT)
        Changeset(Workspace(folder / "work"), AGENT, store).write("a.md", "a.md, newer\n")


def look(folder: Path) -> Any:
    """Return what there is after a merge."""
    root = folder / "work"
    with SqliteCheckpointer(folder / "data.db") as saver:
        return {
            "files": {
                str(each.relative_to(root)): each.read_text()
                for each in sorted(root.rglob("*"))
                if each.is_file()
            },
            "open": [*LedgerChanges(saver.ledger, "trip", AGENT).load()],
            "integrity": [str(each) for each in saver.check().faults],
        }


def die_at_file(at: int) -> Callable[[], None]:
    """Return what lets this process die before one of its accesses to files."""

    def begin() -> None:
        done = 0

        def count(event: str, _: Any) -> None:
            nonlocal done
            if event in FILE_EVENTS:
                done += 1
                if done == at:
                    die()

        sys.addaudithook(count)

    return begin


def attempt(
    folder: Path, name: str, begin: Callable[[], None], watch: Watch, *, again: bool
) -> Any:
    """Kill a merge, have another process finish it, and report what came of it."""
    place = folder / name.replace(" ", "-")
    shutil.copytree(folder / "proposed", place)

    def killed() -> None:
        with watched(watch):
            begin()
            merge(place)

    def finish() -> Any:
        if again:
            with suppress(FileRefused):
                change_again(place)
        left_before = merge(place).left
        return {**look(place), "left": left_before, "again": merge(place)}

    code = fork(killed).wait()
    assert code in (0, -signal.SIGKILL), (name, code)
    end = fork(finish).result()
    shutil.rmtree(place)
    return {"name": name, "code": code, "was_changed_again": again, **end}


def main(given: str, step: str) -> None:
    """Make the trials, and print what came of them; nothing happens to the first one."""
    folder, count, reports = Path(given), Count(), []
    fork(lambda: propose(folder / "proposed")).result()
    shutil.copytree(folder / "proposed", folder / "whole")

    def whole() -> int:
        with watched(count):
            merge(folder / "whole")
        return len(count.statements)

    statements = fork(whole).result()
    gc.freeze()
    stride = 1 if step == "1" else 5
    for again in (False, True):
        # Each access of a file, or each fifth one where only some statements are tried.
        code, at = -signal.SIGKILL, 1 - stride
        while code:
            at += stride
            trial = attempt(folder, f"file {at} {again}", die_at_file(at), Watch(), again=again)
            code = trial["code"]
            reports.append(trial)
        for at in range(1, statements + 1, int(step)):
            for side in ("before", "after"):
                watch = Death(at, side)
                name = f"{side} {at} {again}"
                reports.append(attempt(folder, name, lambda: None, watch, again=again))
    print(json.dumps(reports))


if __name__ == "__main__":
    main(*sys.argv[1:])
