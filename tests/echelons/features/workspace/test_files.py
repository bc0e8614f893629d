"""No path leads out of a workspace, whatever it says and whatever others do meanwhile."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import socket
import stat
import threading
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from echelons.errors import FileRefused, WorkspaceError
from echelons.features.workspace.files import MAX_FILE_BYTES, Workspace, check_path, hash_text
from tests.error_codes import raises_code

SECRET = "what is outside"
HOSTILE_NAMES = (
    *("..", ".", "", " ", "...", ".. ", " ..", "..\0", "\0", "~", ".git", ".GIT", "Git~1"),
    *("con", "CON.txt", "nul", "com1.log", "LPT9", "aux .c", "conin$", "a.", "a ", " a", "a. ."),
    *("a\\b", "..\\..", "C:", "c:x", "a:b", "\\\\host", "file:stream", "\\\\?\\C:"),
    *("\u2025", "\u2024\u2024", "\uff0e\uff0e", "\uff0f", "\u2044", "\u2215", "\uff3c", "\ufe68"),
    *(
        "a\u202eb",
        "\u202d..",
        "a\u200bb",
        "\ufeff",
        "\u2066a",
        "a\u00adb",
        "\u061c",
        "a\tb",
        "a\nb",
    ),
    *("\x7f", "\x1b[2J", "\ud800", "\udfff\ud800", "\ue000", "\uffff", "\u2028", "\u0085"),
    *("p\u0430ypal", "\u0420lan.md", "\u03bfutline", "\u2160", "\U0001d41aa", "\ufb01le", "\u00b2"),
    *("x" * 256, "\u20ac" * 86, "x" * 5000, ".echelons-1", ".Echelons-x"),
)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Return a folder beside the workspace, with a secret."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_text(SECRET)
    return folder


@pytest.fixture
def root(tmp_path: Path, outside: Path) -> Path:
    """Return a folder with a file, and with what leads out of it."""
    folder = tmp_path / "work"
    (folder / "docs").mkdir(parents=True)
    (folder / "docs" / "plan.md").write_text("Rome\n")
    (folder / "link.txt").symlink_to(outside / "secret.txt")
    (folder / "away").symlink_to(outside)
    (folder / "near").symlink_to("docs")
    (folder / "dangling").symlink_to(outside / "new.txt")
    (folder / "loop").symlink_to("loop")
    (folder / "docs" / "up").symlink_to("../..")
    os.mkfifo(folder / "pipe")
    return folder


def every_hostile_path() -> Iterator[str]:
    """Yield paths by hand and made of them, all of which must be refused."""
    yield from HOSTILE_NAMES
    for name in HOSTILE_NAMES:
        yield from (f"docs/{name}", f"{name}/secret.txt", f"docs/{name}/plan.md", f"/{name}")
        yield from (f"{name}/../{name}", f"./{name}", f"docs//{name}", f"{name}/")
    yield from ("/etc/passwd", "/dev/null", "/proc/self/root/etc/passwd", "//etc/passwd")
    yield from ("C:/Windows/win.ini", "c:\\Windows", "\\\\host\\share", "//host/share", "~/../x/..")
    yield from ("../" * depth + "outside/secret.txt" for depth in range(1, 40))
    yield from ("docs/" + "../" * depth + "outside/secret.txt" for depth in range(1, 40))
    yield from ("a/" * 65 + "x", "a/" * 3000 + "x", "x" * 255 + "/" + ("y" * 255 + "/") * 16)
    bits = ("..", ".", "", "docs", "\u202e", "..\\", "%2e%2e", "/")
    for parts in itertools.product(bits, repeat=3):
        if not {*parts} <= {"docs", "%2e%2e"}:
            yield "/".join(parts)


def test_about_a_thousand_hostile_paths_are_refused_and_none_escapes(
    root: Path, outside: Path
) -> None:
    workspace, paths = Workspace(root), [*every_hostile_path()]
    before = sorted(root.rglob("*"))

    for path in paths:
        for use in (workspace.read, lambda path: workspace.write(path, "in", None)):
            with raises_code("invalid_path") as refused:
                use(path)
                pytest.fail(repr(path))
            str(refused.value).encode()
            assert len(str(refused.value)) < 400

    assert len({*paths}) >= 1000
    assert sorted(root.rglob("*")) == before
    assert [each.read_text() for each in outside.iterdir()] == [SECRET]


@pytest.mark.parametrize("given", [None, 5, b"docs", ["docs"], Path("docs")])
def test_what_is_no_text_is_no_path(given: object) -> None:
    with raises_code("invalid_path", match="it is no text"):
        check_path(given)


@pytest.mark.parametrize("seed", range(4))
def test_a_path_that_is_accepted_stays_inside_under_every_reading(seed: int) -> None:
    chance, accepted = random.Random(seed), 0
    alphabet = "ab./\\: ~\0\n\u00e9e\u0301\u202e\uff0f\u2215\u0430\ud800%"
    for _ in range(5000):
        text = "".join(chance.choices(alphabet, k=chance.randint(1, 12)))
        with suppress(FileRefused):
            path, accepted = check_path(text), accepted + 1
            assert os.path.normpath(path) == path
            assert not {"", ".", ".."} & {*path.split("/")}
            assert check_path(path) == path == unicodedata.normalize("NFKC", path)

    assert accepted > 100


def test_names_of_people_and_places_are_paths() -> None:
    for name in ("Zürich.md", "東京/計画.txt", "Αθήνα.md", "Москва.md", "a b (1).txt", "📄.md"):
        assert check_path(name) == name
    assert check_path("Zu\u0308rich") == "Zürich"


@pytest.mark.parametrize(
    "path",
    [
        "link.txt",
        "away/secret.txt",
        "near/plan.md",
        "dangling",
        "loop",
        "docs/up/outside/secret.txt",
    ],
)
def test_a_link_is_never_followed(path: str, root: Path, outside: Path) -> None:
    workspace = Workspace(root)

    with raises_code("file_refused", match="link"):
        workspace.read(path)
    with raises_code("file_refused", match="link"):
        workspace.write(path, "in", None)

    assert [each.read_text() for each in outside.iterdir()] == [SECRET]
    assert workspace.list_files() == ["docs/plan.md"]


def test_only_regular_files_are_opened_and_a_pipe_does_not_block(root: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        before = os.getcwd()  # noqa: PTH109
        os.chdir(root)
        server.bind("socket")
        os.chdir(before)
        devices = ["pipe", "socket"]
        with suppress(OSError):
            os.mknod(root / "device", stat.S_IFCHR | 0o666, 1 << 8 | 3)
            devices.append("device")
        for path in devices:
            for text in ("in", None):
                with raises_code("file_refused", match="no file"):
                    Workspace(root).write(path, text, None)
            with raises_code("file_refused", match="no file"):
                Workspace(root).read(path)
    with raises_code("file_refused", match="folder"):
        Workspace(root).read("docs")
    with raises_code("file_refused", match="folder"):
        Workspace(root).write("docs", "in", None)


def test_a_file_with_a_second_name_is_read_and_not_written(root: Path, outside: Path) -> None:
    os.link(outside / "secret.txt", root / "hard.txt")
    workspace = Workspace(root)

    for text in ("in", None):
        with raises_code("file_refused", match="hard link"):
            workspace.write("hard.txt", text, hash_text(SECRET))

    assert (outside / "secret.txt").read_text() == SECRET


def test_no_folder_that_is_swapped_for_a_link_meanwhile_leads_out(
    root: Path, outside: Path
) -> None:
    workspace, done = Workspace(root), threading.Event()
    (outside / "plan.md").write_text(SECRET)

    def swap() -> None:
        while not done.is_set():
            with suppress(OSError):
                (root / "docs").rename(root / "aside")
                (root / "docs").symlink_to(outside)
            with suppress(OSError):
                (root / "docs").unlink()
            # A write may have made the folder meanwhile.
            shutil.rmtree(root / "docs", ignore_errors=True)
            with suppress(OSError):
                (root / "aside").rename(root / "docs")

    thread = threading.Thread(target=swap)
    thread.start()
    read, refused = 0, 0
    try:
        for number in range(3000):
            try:
                found = workspace.read("docs/plan.md")
                assert found is None or found.text != SECRET
                read += 1
                workspace.write(f"docs/new{number % 7}.md", None if number % 2 else "in", None)
            except WorkspaceError:
                refused += 1
    finally:
        done.set()
        thread.join()

    assert read
    assert refused
    assert sorted(each.name for each in outside.iterdir()) == ["plan.md", "secret.txt"]
    assert (outside / "plan.md").read_text() == SECRET


def test_no_file_that_is_swapped_for_a_link_meanwhile_is_followed(
    root: Path, outside: Path
) -> None:
    workspace, done = Workspace(root), threading.Event()
    (root / "own").write_text("Rome")
    (root / "evil").symlink_to(outside / "secret.txt")

    def swap() -> None:
        for name in itertools.cycle(("own", "evil")):
            if done.is_set():
                return
            os.link(root / name, root / "next", follow_symlinks=False)
            (root / "next").rename(root / "file")
            (root / "next").unlink(missing_ok=True)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(3000):
            with suppress(FileRefused):
                found = workspace.read("file")
                assert found is None or found.text == "Rome"
    finally:
        done.set()
        thread.join()


def test_a_text_is_written_whole_and_keeps_the_rights_of_its_file(root: Path) -> None:
    workspace = Workspace(root)
    (root / "docs" / "plan.md").chmod(0o755)

    workspace.write("docs/plan.md", "Rome\r\n", hash_text("Rome\n"))
    workspace.write("new/deep/file.md", "", None)

    assert workspace.read("docs/plan.md") == ("Rome\r\n", hash_text("Rome\r\n"))
    assert stat.S_IMODE((root / "docs" / "plan.md").stat().st_mode) == 0o755
    assert workspace.list_files() == ["docs/plan.md", "new/deep/file.md"]
    assert not list(root.rglob(".echelons-*"))
    workspace.write("docs/plan.md", None, hash_text("Rome\r\n"))
    assert workspace.read("docs/plan.md") is None


@pytest.mark.parametrize("base", [None, hash_text("Paris")])
def test_a_file_that_has_changed_is_not_written_over(base: str | None, root: Path) -> None:
    workspace = Workspace(root)

    for text in ("Turin", None):
        with raises_code("file_changed", match="changed since"):
            workspace.write("docs/plan.md", text, base)

    assert (root / "docs" / "plan.md").read_text() == "Rome\n"
    assert not list(root.rglob(".echelons-*"))


def test_large_files_and_those_that_are_no_text_are_refused(root: Path) -> None:
    workspace = Workspace(root)
    (root / "large").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    (root / "image").write_bytes(b"\xff\xd8")
    (root / "full").write_bytes(b"x" * MAX_FILE_BYTES)

    with raises_code("file_too_large", match=str(MAX_FILE_BYTES)):
        workspace.read("large")
    with raises_code("file_refused", match="UTF-8"):
        workspace.read("image")
    with raises_code("file_too_large"):
        workspace.write("new", "\u20ac" * (MAX_FILE_BYTES // 2), None)
    with raises_code("file_refused", match="half a character"):
        workspace.write("new", "\ud800", None)
    assert workspace.read("full")


def test_a_folder_of_a_large_workspace_is_listed_and_the_whole_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("echelons.features.workspace.files.MAX_LISTED", 5)
    (root / "modules").mkdir()
    for number in range(10):
        (root / "modules" / f"{number}.js").write_text("")
    workspace = Workspace(root)

    with raises_code("file_too_large", match="name a folder with fewer"):
        workspace.list_files()
    assert workspace.list_files("docs") == ["docs/plan.md"]
    assert workspace.list_files("none") == workspace.list_files("away") == []
    with raises_code("invalid_path"):
        workspace.list_files("docs/..")


def test_only_an_existing_folder_of_its_own_name_is_a_workspace(root: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(root)
    refused: list[object] = [tmp_path / "none", root / "docs/plan.md", tmp_path / "alias", "/"]

    for given in (*refused, None, 5, b"x", "a\0b"):
        with raises_code("invalid_workspace") as error:
            Workspace(given)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        assert "no workspace" in str(error.value)


def test_a_workspace_that_was_replaced_is_refused(root: Path, outside: Path) -> None:
    workspace = Workspace(root)
    root.rename(root.with_name("gone"))

    with raises_code("invalid_workspace"):
        workspace.read("docs/plan.md")
    root.symlink_to(outside)
    with raises_code("invalid_workspace"):
        workspace.read("secret.txt")
    root.unlink()
    root.mkdir()
    with raises_code("invalid_workspace", match="another folder"):
        workspace.list_files()


def test_no_descriptor_is_left_open(root: Path) -> None:
    workspace, before = Workspace(root), len(list(Path("/proc/self/fd").iterdir()))

    for path in ("docs/plan.md", "away/x", "none/x", "link.txt", "pipe", "docs"):
        with suppress(FileRefused):
            workspace.read(path)
        with suppress(FileRefused):
            workspace.write(path, "in", None)
    workspace.list_files()

    assert len(list(Path("/proc/self/fd").iterdir())) == before
