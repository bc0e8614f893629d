"""An agent's changes lie over the files of a workspace, and are merged file by file."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from echelons import SqliteCheckpointer
from echelons.checkpoints.ledger import Ledger, MemoryLedger, build_key
from echelons.errors import LedgerDamaged
from echelons.features.workspace import changes, feature
from echelons.features.workspace.changes import Changeset, format_diff, merge_changes
from echelons.features.workspace.feature import LedgerChanges
from echelons.features.workspace.files import Workspace
from tests.error_codes import raises_code


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a folder with two files."""
    folder = tmp_path / "work"
    (folder / "docs").mkdir(parents=True)
    (folder / "docs" / "plan.md").write_text("Rome\nTurin\n")
    (folder / "notes.txt").write_text("bring a map\n")
    return folder


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    """Yield a ledger of each kind."""
    if request.param == "memory":
        yield MemoryLedger()
        return
    with SqliteCheckpointer(tmp_path / "data.db") as saver:
        yield saver.ledger


def store_of(ledger: Ledger, agent: str = "head") -> LedgerChanges:
    return LedgerChanges(ledger, "trip", agent)


def files_of(root: Path, ledger: Ledger, agent: str = "head") -> Changeset:
    return Changeset(Workspace(root), agent, store_of(ledger, agent))


def everything(root: Path) -> dict[str, str]:
    return {
        str(each.relative_to(root)): each.read_text() for each in root.rglob("*") if each.is_file()
    }


def test_agent_alone_sees_its_changes(root: Path, ledger: Ledger) -> None:
    mine, other, before = files_of(root, ledger), files_of(root, ledger, "guest"), everything(root)

    mine.write("docs/new.md", "Bari\n")
    mine.edit("docs/plan.md", "Rome", "Siena")
    mine.delete("notes.txt")

    assert mine.read("docs/new.md") == "Bari\n"
    assert mine.read("docs/plan.md") == "Siena\nTurin\n"
    assert mine.read("notes.txt") is None
    assert mine.list_files() == ["docs/new.md", "docs/plan.md"]
    assert mine.list_files("docs/") == ["docs/new.md", "docs/plan.md"]
    assert other.list_files() == ["docs/plan.md", "notes.txt"]
    assert other.read("docs/plan.md") == "Rome\nTurin\n"
    assert everything(root) == before
    kinds = [(each.path, each.kind, each.conflict) for each in mine.list_changes()]
    assert kinds == [
        ("docs/new.md", "added", ""),
        ("docs/plan.md", "changed", ""),
        ("notes.txt", "deleted", ""),
    ]


def test_a_merge_puts_all_into_the_folder_and_leaves_nothing(root: Path, ledger: Ledger) -> None:
    mine = files_of(root, ledger)
    mine.write("docs/new.md", "Bari\n")
    mine.edit("docs/plan.md", "Rome", "Siena")
    mine.delete("notes.txt")

    result = merge_changes(Workspace(root), store_of(ledger))

    assert result == (("docs/new.md", "docs/plan.md", "notes.txt"), ())
    assert everything(root) == {"docs/new.md": "Bari\n", "docs/plan.md": "Siena\nTurin\n"}
    assert ledger.list_keys(build_key("trip", "workspace")) == []
    assert merge_changes(Workspace(root), store_of(ledger)) == ((), ())


def test_a_file_that_others_have_changed_is_left_and_the_others_are_merged(
    root: Path, ledger: Ledger
) -> None:
    mine = files_of(root, ledger)
    for path in ("docs/plan.md", "notes.txt", "docs/new.md", "link.md", "docs"):
        with_folder = path != "docs"
        if with_folder:
            mine.write(path, "mine")
    (root / "notes.txt").write_text("theirs")
    (root / "docs" / "new.md").write_text("theirs, too")
    (root / "link.md").symlink_to("notes.txt")

    shown = {each.path: each.conflict for each in mine.list_changes() if each.conflict}
    result = merge_changes(Workspace(root), store_of(ledger))

    assert result.merged == ("docs/plan.md",)
    assert dict(result.left) == shown
    assert [*shown] == ["docs/new.md", "link.md", "notes.txt"]
    assert "changed since" in shown["notes.txt"]
    assert "link" in shown["link.md"]
    assert (root / "docs" / "plan.md").read_text() == "mine"
    assert (root / "notes.txt").read_text() == "theirs"
    assert mine.read("notes.txt") == "mine"
    assert mine.discard(["notes.txt"]) == ["notes.txt"]
    assert mine.read("notes.txt") == "theirs"


def test_of_two_merges_at_once_one_wins_each_file(root: Path, tmp_path: Path) -> None:
    agents, paths = ("head/north", "head/east"), [f"{number}.md" for number in range(20)]
    with SqliteCheckpointer(tmp_path / "both.db") as saver, ThreadPoolExecutor() as pool:
        for agent in agents:
            for path in paths:
                files_of(root, saver.ledger, agent).write(path, agent)
        merges = [
            pool.submit(merge_changes, Workspace(root), store_of(saver.ledger, agent))
            for agent in agents
        ]
        one, other = (each.result() for each in merges)

    assert {*one.merged} | {*other.merged} == {*paths}
    assert {*one.merged} == {path for path, _ in other.left}
    assert {*other.merged} == {path for path, _ in one.left}


def test_a_file_in_the_way_of_a_folder_is_left(root: Path, ledger: Ledger) -> None:
    mine = files_of(root, ledger)
    mine.write("docs/deep/new.md", "x")
    (root / "docs" / "deep").write_text("a file")

    result = merge_changes(Workspace(root), store_of(ledger))

    assert [path for path, _ in result.left] == ["docs/deep/new.md"]
    assert (root / "docs" / "deep").read_text() == "a file"


def test_an_edit_needs_the_text_exactly_once(root: Path, ledger: Ledger) -> None:
    mine = files_of(root, ledger)

    for old, found in (("i", 1), ("m", 1), ("Paris", 0), ("\n", 2), ("", 0)):
        if found != 1:
            with raises_code("file_refused", match=f"in it {found} times"):
                mine.edit("docs/plan.md", old, "x")
    with raises_code("file_refused", match="no such file"):
        mine.edit("docs/none.md", "a", "b")
    with raises_code("file_refused", match="no such file"):
        mine.delete("docs/none.md")
    assert mine.list_changes() == []


def test_a_call_that_is_repeated_changes_nothing_twice(root: Path, ledger: Ledger) -> None:
    mine = files_of(root, ledger)

    for _ in range(3):
        mine.edit("docs/plan.md", "Rome", "Rome, Rome", "call-1")
    mine.delete("notes.txt", "call-2")
    mine.delete("notes.txt", "call-2")

    assert mine.read("docs/plan.md") == "Rome, Rome\nTurin\n"


def test_each_agent_has_a_folder_that_only_it_and_its_superiors_see(
    root: Path, ledger: Ledger
) -> None:
    head, north, east = (
        files_of(root, ledger, each) for each in ("head", "head/north", "head/east")
    )
    north.write("subagents/head/north/draft.md", "mine")
    merge_changes(Workspace(root), store_of(ledger, "head/north"))

    assert head.read("subagents/head/north/draft.md") == "mine"
    assert "subagents/head/north/draft.md" in north.list_files()
    assert "subagents/head/north/draft.md" not in east.list_files()
    for path in ("subagents/head/north/draft.md", "Subagents/head/north/draft.md", "subagents/x"):
        for use in (
            east.read,
            east.delete,
            lambda path: east.write(path, "x"),
            lambda path: east.edit(path, "a", "b"),
        ):
            with raises_code("file_refused", match="other agents"):
                use(path)


def test_an_agent_cannot_change_more_than_a_limit(
    root: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, part = files_of(root, ledger), "x" * 1024 * 1024
    for number in range(16):
        mine.write(f"{number}.txt", part)
    with raises_code("file_too_large", match=str(16 * 1024 * 1024)):
        mine.write("one-more.txt", "x")
    mine.write("0.txt", part[1:])
    mine.write("one-more.txt", "x")


def test_an_agent_cannot_change_more_files_than_a_limit(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert changes.MAX_CHANGES == 1000
    monkeypatch.setattr(feature, "MAX_CHANGES", 100)
    mine = files_of(root, MemoryLedger())
    for number in range(100):
        mine.write(f"{number}.txt", "")
    with raises_code("file_too_large", match="101 instead of 100"):
        mine.write("one-more.txt", "")


def test_a_copy_of_the_thread_has_the_changes_and_a_deletion_takes_them(
    root: Path, tmp_path: Path
) -> None:
    with SqliteCheckpointer(tmp_path / "copied.db") as saver:
        files_of(root, saver.ledger).write("docs/new.md", "Bari\n")

        saver.copy_thread("trip", "copy")
        copied = Changeset(Workspace(root), "head", LedgerChanges(saver.ledger, "copy", "head"))
        saver.delete_thread("trip")

        assert copied.read("docs/new.md") == "Bari\n"
        assert files_of(root, saver.ledger).list_changes() == []


@pytest.mark.parametrize("value", [{}, {"file": 5}, []])
def test_a_damaged_change_is_named(value: dict[str, object], root: Path, ledger: Ledger) -> None:
    mine = files_of(root, ledger)
    mine.write("docs/new.md", "Bari\n")
    [key] = ledger.list_keys(build_key("trip", "workspace"))
    ledger.compare_and_set(key, ledger.get(key).version, value)  # type: ignore[union-attr]

    uses: list[Callable[[], object]] = [
        lambda: mine.read("docs/new.md"),
        lambda: mine.write("docs/new.md", "x"),
        mine.list_files,
        lambda: merge_changes(Workspace(root), store_of(ledger)),
    ]
    for use in uses:
        with pytest.raises(LedgerDamaged, match="the workspace that the ledger holds"):
            use()


def test_a_change_of_a_path_that_leads_out_is_never_merged(root: Path, ledger: Ledger) -> None:
    mine, path = files_of(root, ledger), "../outside.txt"
    store_of(ledger).replace(path, None, changes.FileChange("x", (None,)))

    assert [each.conflict for each in mine.list_changes()] == ["'..' is no name of a file"]
    result = merge_changes(Workspace(root), store_of(ledger))

    assert result.merged == ()
    assert [each for each, _ in result.left] == [path]
    assert not (root.parent / "outside.txt").exists()


TEXTS = ("", "a", "a\n", "a\nb", "a\nb\n", "b\r\na\x0c\u2028\n", "\n\n", "x\n" * 40, "-- a\n++ b\n")


def test_git_applies_every_diff(tmp_path: Path) -> None:
    chance = random.Random(7)
    pairs = [(one, other) for one in (None, *TEXTS) for other in (None, *TEXTS) if one != other]
    for _ in range(20):
        one = [chance.choice("abc\n") for _ in range(60)]
        other = [chance.choice(f"{each}x") for each in one]
        pairs.append(("".join(one), "".join(other)))
    pairs.append(("".join(f"{n}\n" for n in range(6000)), "".join(f"{n}\n" for n in range(5999))))
    patch = []
    for number, (before, after) in enumerate(pairs):
        path = f"a folder/file {number}.md"
        if before is not None:
            (tmp_path / path).parent.mkdir(exist_ok=True)
            (tmp_path / path).write_bytes(before.encode())
        patch.append(format_diff(path, before, after))
    given = "".join(patch).encode()

    subprocess.run(
        ["git", "apply", "--whitespace=nowarn", "--unidiff-zero", "-"],
        input=given,
        cwd=tmp_path,
        check=True,
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)},
    )

    for number, (_, after) in enumerate(pairs):
        file = tmp_path / f"a folder/file {number}.md"
        assert (file.read_bytes().decode() if file.exists() else None) == after
