"""A folder on disk as documents, and the list of files that could not be read.

`survey` calls `read_documents` for the files and `build_folder_tree` for the tree.
Nothing here depends on agents.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Final, Protocol, TypeVar

from echelons.errors import TeamError, escape_braces
from echelons.teams.research.file_decoding import NotText, decode_text

LARGEST_FILE: Final = 2 * 1024 * 1024
"""Size limit in bytes; a larger file is too long for one agent and is skipped."""

T = TypeVar("T")


class ProgressTracker(Protocol):
    """Yields items as they are worked on, and shows the progress; so does Rich's `track`."""

    def __call__(self, sequence: Iterable[T], *, description: str) -> Iterable[T]:
        """Yield the items of a sequence."""
        ...


def track_silently(sequence: Iterable[T], *, description: str) -> Iterable[T]:
    """Return the items, and show nothing."""
    return sequence


@dataclass(frozen=True, slots=True)
class Document:
    """One readable file, as it was when the folder was read.

    Attributes:
        path: Its path relative to the folder, parts joined with `/`; used in citations.
        text: Its text, with line feeds at the line ends.
    """

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file or folder that was not read.

    Attributes:
        path: Its path relative to the folder; `.` is the folder itself.
        reason: Why it was not read, with a remedy where there is one.
    """

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class DocumentFolder:
    """A folder with at least one document at any depth; the path of the root folder is empty."""

    path: str
    folders: tuple[DocumentFolder, ...]
    documents: tuple[Document, ...]

    def iterate_documents(self) -> Iterator[Document]:
        """Yield each document in this folder and below."""
        yield from self.documents
        for folder in self.folders:
            yield from folder.iterate_documents()


def read_documents(
    root: Path, track: ProgressTracker = track_silently
) -> tuple[list[Document], list[SkippedFile]]:
    """Return the documents under `root` and the skipped files, each sorted by path.

    Names that begin with a dot are ignored silently. Symbolic links are never followed, so
    there are no loops, no file is read twice and none outside `root` is read.

    Raises:
        TeamError: There is nothing at `root`; `root` is a file; it has no readable document.
    """
    try:
        mode = root.stat().st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        raise TeamError(
            "there is no folder {folder:quoted}; check the path of the documents",
            code="folder_missing",
            folder=root,
        ) from error
    except OSError as error:
        raise _nothing_to_read(root, [(".", _format_read_error(error))]) from error
    if not stat.S_ISDIR(mode):
        raise TeamError(
            "{path:quoted} is a file, not a folder; pass the folder that it lies in, "
            "{folder:quoted}, or put it into a folder of its own",
            code="not_a_folder",
            path=root,
            folder=root.parent,
        )
    walked = track(_walk_files(root), description="Reading files")
    found = sorted(walked, key=lambda each: each.path.split("/"))
    documents = [each for each in found if isinstance(each, Document)]
    skipped = [each for each in found if isinstance(each, SkippedFile)]
    if not documents:
        raise _nothing_to_read(root, [(each.path, each.reason) for each in skipped])
    return documents, skipped


def _walk_files(root: Path) -> Iterator[Document | SkippedFile]:
    folders: list[tuple[str, str]] = [(os.fspath(root), "")]
    while folders:
        place, path = folders.pop()
        try:
            with os.scandir(place) as entries:
                found = [entry for entry in entries if not entry.name.startswith(".")]
        except OSError as error:
            yield SkippedFile(path or ".", _format_read_error(error))
            continue
        for entry in found:
            below = f"{path}/{_escape_name(entry.name)}" if path else _escape_name(entry.name)
            folder = False
            with suppress(OSError):  # reading it fails as well, and gives the reason
                folder = entry.is_dir(follow_symlinks=False)
            if folder:
                folders.append((entry.path, below))
            else:
                yield _read_file(entry, below)


def build_folder_tree(documents: Sequence[Document], levels: int) -> DocumentFolder:
    """Return one or more documents as a tree of folders, at most `levels` (1 or more) deep.

    A folder with a single folder and no document is left out. A document that lies deeper
    than `levels` is put into its lowest folder in the tree.
    """
    return _build_folder([(tuple(each.path.split("/")), each) for each in documents], levels)


def _build_folder(
    placed: Sequence[tuple[tuple[str, ...], Document]], levels: int
) -> DocumentFolder:
    places = [place[:-1] for place, _ in placed]
    both = zip(min(places), max(places), strict=False)
    parts = tuple(one for one, other in takewhile(lambda pair: pair[0] == pair[1], both))
    here: list[Document] = []
    below: dict[str, list[tuple[tuple[str, ...], Document]]] = {}
    for place, document in placed:
        if levels == 1 or len(place) == len(parts) + 1:
            here.append(document)
        else:
            below.setdefault(place[len(parts)], []).append((place, document))
    folders = tuple(_build_folder(below[name], levels - 1) for name in sorted(below))
    return DocumentFolder("/".join(parts), folders, tuple(here))


def _read_file(entry: os.DirEntry[str], path: str) -> Document | SkippedFile:
    try:
        if entry.is_symlink():
            return SkippedFile(path, "a symbolic link; links are not followed")
        kept = entry.stat(follow_symlinks=False)
        # Opening a pipe or a device could block.
        if not stat.S_ISREG(kept.st_mode):
            return SkippedFile(path, "no ordinary file")
        if kept.st_size > LARGEST_FILE:
            size, limit = kept.st_size / 2**20, LARGEST_FILE / 2**20
            return SkippedFile(
                path, f"enormous: {size:.1f} MiB, the limit is {limit:g} MiB; split it"
            )
        text = decode_text(Path(entry.path).read_bytes())
    except OSError as error:
        return SkippedFile(path, _format_read_error(error))
    except NotText as error:
        return SkippedFile(path, str(error))
    return Document(path, text) if text.strip() else SkippedFile(path, "empty")


def _format_read_error(error: OSError) -> str:
    return f"unreadable: {error.strerror or error}"


def _escape_name(name: str) -> str:
    """Return a file name with backslashes and unprintable characters escaped."""
    if name.isprintable() and "\\" not in name:
        return name
    return "".join(
        char if char.isprintable() and char != "\\" else char.encode("unicode_escape").decode()
        for char in name
    )


def _nothing_to_read(folder: object, skipped: Sequence[tuple[str, str]]) -> TeamError:
    shown = "; ".join(f"{path} ({reason})" for path, reason in skipped[:5])
    rest = f" and {len(skipped) - 5} more" if len(skipped) > 5 else ""
    what = f"skipped: {shown}{rest}" if shown else "empty"
    return TeamError(
        f"no readable document in {{folder:quoted}} ({escape_braces(what)}); put text files into "
        "it, Markdown for example",
        code="nothing_to_read",
        folder=folder,
        skipped=tuple(skipped),
    )
