"""A folder is read whole, and what cannot be read is listed."""

import os
import socket
import sys
from pathlib import Path

import pytest

from echelons.teams.research.documents import (
    LARGEST_FILE,
    Document,
    DocumentFolder,
    build_folder_tree,
    read_documents,
)
from tests.error_codes import raises_code

linux_only = pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX file system")


def write(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8", newline="")


def skipped(root: Path) -> dict[str, str]:
    return {each.path: each.reason for each in read_documents(root)[1]}


def paths(root: Path) -> list[str]:
    return [document.path for document in read_documents(root)[0]]


def test_documents_of_all_kinds_and_levels_are_found_in_order(tmp_path: Path) -> None:
    write(tmp_path, {"b.md": "b", "a/z.txt": "z", "a/b/c/d.rst": "d", "README": "r", "c.org": "c"})

    assert paths(tmp_path) == ["README", "a/b/c/d.rst", "a/z.txt", "b.md", "c.org"]


def test_names_with_spaces_and_letters_of_any_script_are_kept(tmp_path: Path) -> None:
    write(tmp_path, {"my notes.md": "n", "Überblick/東京.md": "t"})

    assert paths(tmp_path) == ["my notes.md", "Überblick/東京.md"]


@linux_only
def test_a_name_that_is_no_text_is_shown_on_one_printable_line(tmp_path: Path) -> None:
    (tmp_path / "two\nlines.md").write_text("x")
    (tmp_path / r"back\nslash.md").write_text("x")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff.md")).write_text("x")

    shown = paths(tmp_path)

    assert sorted(shown) == [r"back\\nslash.md", r"bad\udcff.md", r"two\nlines.md"]


def test_hidden_files_and_folders_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path, {"seen.md": "s", ".hidden.md": "h", ".git/config": "g"})

    assert paths(tmp_path) == ["seen.md"]
    assert skipped(tmp_path) == {}


def test_what_cannot_be_read_is_listed_with_its_reason(tmp_path: Path) -> None:
    write(tmp_path, {"good.md": "words", "empty.md": "", "blank.txt": " \n\t\n"})
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    (tmp_path / "log.txt").write_bytes(b"x" * (LARGEST_FILE + 1))

    assert paths(tmp_path) == ["good.md"]
    assert skipped(tmp_path) == {
        "blank.txt": "empty",
        "empty.md": "empty",
        "log.txt": "enormous: 2.0 MiB, the limit is 2 MiB; split it",
        "picture.png": "binary",
    }


def test_a_file_of_exactly_the_limit_is_read(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_bytes(b"x" * LARGEST_FILE)

    assert paths(tmp_path) == ["log.txt"]


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may read all")
def test_forbidden_files_and_folders_are_listed(tmp_path: Path) -> None:
    write(tmp_path, {"good.md": "words", "secret.md": "s", "vault/in.md": "i"})
    (tmp_path / "secret.md").chmod(0)
    (tmp_path / "vault").chmod(0)
    try:
        assert skipped(tmp_path) == {
            "secret.md": "unreadable: Permission denied",
            "vault": "unreadable: Permission denied",
        }
    finally:
        (tmp_path / "vault").chmod(0o700)


@linux_only
def test_links_are_not_followed_so_loops_end_and_nothing_outside_is_read(tmp_path: Path) -> None:
    write(tmp_path, {"docs/a.md": "a", "outside/secret.md": "s"})
    (tmp_path / "docs/loop").symlink_to(tmp_path / "docs")
    (tmp_path / "docs/out").symlink_to(tmp_path / "outside")
    (tmp_path / "docs/same.md").symlink_to(tmp_path / "docs/a.md")
    (tmp_path / "docs/broken.md").symlink_to(tmp_path / "nowhere")

    assert paths(tmp_path / "docs") == ["a.md"]
    assert set(skipped(tmp_path / "docs")) == {"loop", "out", "same.md", "broken.md"}
    assert all("link" in reason for reason in skipped(tmp_path / "docs").values())


@linux_only
def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    write(tmp_path, {"docs/a.md": "a"})
    (tmp_path / "link").symlink_to(tmp_path / "docs")

    assert paths(tmp_path / "link") == ["a.md"]


@linux_only
def test_a_pipe_or_socket_is_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"a.md": "a"})
    os.mkfifo(tmp_path / "pipe.md")
    monkeypatch.chdir(tmp_path)  # the path of a socket is limited to a hundred bytes
    with socket.socket(socket.AF_UNIX) as waiting:
        waiting.bind("socket.md")

        assert skipped(tmp_path) == {"pipe.md": "no ordinary file", "socket.md": "no ordinary file"}


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with raises_code("folder_missing", match="nowhere") as raised:
        read_documents(tmp_path / "nowhere")

    assert raised.value.folder == tmp_path / "nowhere"


@pytest.mark.parametrize("path", ["a.md/b", "nul\0nul"])
def test_a_path_that_cannot_exist_is_a_missing_folder(tmp_path: Path, path: str) -> None:
    write(tmp_path, {"a.md": "a"})

    with raises_code("folder_missing"):
        read_documents(tmp_path / path)


@linux_only
def test_a_folder_that_cannot_be_opened_says_why(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")

    with raises_code("nothing_to_read", match="unreadable: Too many levels of symbolic links"):
        read_documents(tmp_path / "loop")
    with raises_code("nothing_to_read", match="unreadable: File name too long"):
        read_documents(tmp_path / ("x" * 300))


def test_file_in_place_of_folder_is_refused_with_the_folder_to_pass(tmp_path: Path) -> None:
    write(tmp_path, {"a.md": "a"})

    with raises_code("not_a_folder", match="is a file") as raised:
        read_documents(tmp_path / "a.md")

    assert raised.value.folder == tmp_path


def test_a_folder_without_a_readable_document_says_what_it_found(tmp_path: Path) -> None:
    write(tmp_path, {"empty.md": "", "deep/er/empty.txt": ""})

    with raises_code("nothing_to_read", match=r"deep/er/empty.txt \(empty\)") as raised:
        read_documents(tmp_path)

    assert raised.value.skipped == (("deep/er/empty.txt", "empty"), ("empty.md", "empty"))


def test_an_empty_folder_has_nothing_to_read(tmp_path: Path) -> None:
    with raises_code("nothing_to_read", match=r"\(empty\); put text files"):
        read_documents(tmp_path)


def tree(*where: str, levels: int = 9) -> DocumentFolder:
    return build_folder_tree([Document(path, "text") for path in sorted(where)], levels)


def test_folders_hold_their_own_documents() -> None:
    root = tree("top.md", "a/x.md", "a/y.md", "b/c/z.md", "b/w.md")

    assert [folder.path for folder in root.folders] == ["a", "b"]
    assert [folder.path for folder in root.folders[1].folders] == ["b/c"]
    assert [document.path for document in root.folders[0].documents] == ["a/x.md", "a/y.md"]
    assert [document.path for document in root.iterate_documents()] == [
        "top.md",
        "a/x.md",
        "a/y.md",
        "b/w.md",
        "b/c/z.md",
    ]


def test_a_folder_of_nothing_but_one_folder_is_left_out() -> None:
    root = tree("top.md", "a/b/c/x.md", "a/b/c/y.md")

    assert [folder.path for folder in root.folders] == ["a/b/c"]
    assert tree("a/b/x.md", "a/b/c/y.md").path == "a/b"


def test_folders_below_the_last_level_give_their_documents_to_it() -> None:
    root = tree("1.md", "a/2.md", "a/b/3.md", "a/b/c/4.md", levels=2)

    assert [document.path for document in root.folders[0].documents] == [
        "a/2.md",
        "a/b/3.md",
        "a/b/c/4.md",
    ]
    assert root.folders[0].folders == ()


def test_a_folder_with_the_name_of_a_neighbour_as_its_beginning_is_its_own() -> None:
    root = tree("note/x.md", "notes/y.md")

    assert root.path == ""
    assert [folder.path for folder in root.folders] == ["note", "notes"]


@linux_only
def test_folders_nested_as_deep_as_a_file_system_allows_are_read(tmp_path: Path) -> None:
    deepest = tmp_path
    for _ in range(600):
        deepest /= "d"
    deepest.mkdir(parents=True)
    (deepest / "found.md").write_text("here")
    (tmp_path / "top.md").write_text("top")

    documents, _ = read_documents(tmp_path)

    assert [document.path for document in documents] == ["d/" * 600 + "found.md", "top.md"]
    assert build_folder_tree(documents, 3).folders[0].path == "d/" * 599 + "d"
