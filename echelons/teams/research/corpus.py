"""A folder of documents: its files as text, and the names of the agents made of them."""

from __future__ import annotations

import codecs
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Final, Protocol, TypeVar

from echelons.errors import TeamError, escape_braces
from echelons.text.stemming import remove_accents
from echelons.tree.names import NAME_PATTERN, RESERVED_NAMES

_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    # The mark of UTF-32 begins with that of UTF-16, so UTF-32 is tried first.
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_TEXTLIKE_FORMATS: Final = ((b"%PDF-", "a PDF"), (b"{\\rtf", "an RTF file"))
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x9f]")
_BLANK_CONTROL: Final = "\x0b\x0c\x85"
_CONTROL_SHARE: Final = 0.01
"""Most control characters in text; compiled and compressed data has about a tenth."""
_WESTERN_SHARE: Final = 0.3
"""Above this share of non-ASCII bytes, the bytes are not Western single-byte text."""


def decode_text(data: bytes) -> str:
    r"""Return `data` as text with `\n` at the line ends and no control characters.

    A byte order mark decides; without one it is UTF-8, else Windows-1252 (the superset of
    Latin-1) if the result looks like text. Control characters other than tab become
    U+FFFD, because quotations are shown in terminals.

    Raises:
        ValueError: It is binary, a format that only looks like text, or in an unknown encoding.
    """
    for start, kind in _TEXTLIKE_FORMATS:
        if data.startswith(start):
            raise ValueError(f"{kind}, not text; convert it to text first")
    text = _decode_bytes(data)
    if "\0" in text or len(_CONTROL.findall(text)) > len(text) * _CONTROL_SHARE:
        raise ValueError("binary")
    lined = text.replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub(lambda c: " " if c[0] in _BLANK_CONTROL else "\ufffd", lined)


def _decode_bytes(data: bytes) -> str:
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return _decode_strictly(data[len(mark) :], encoding)
    if b"\0" in data:
        raise ValueError("binary")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        western = sum(byte >= 0x80 for byte in data) <= len(data) * _WESTERN_SHARE
        if not western:
            raise ValueError("binary, or in an unknown encoding; save it as UTF-8") from None
        return _decode_strictly(data, "cp1252")


def _decode_strictly(data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        raise ValueError("binary, or in an unknown encoding; save it as UTF-8") from None


ROOT_NAME: Final = "research"
"""Name of the root agent."""
LONGEST_AGENT_NAME: Final = 64

_SUFFIXES: Final = ("md", "markdown", "mdx", "rst", "txt", "text")
_SUFFIX: Final = re.compile(rf"_({'|'.join(_SUFFIXES)})$")
_LETTERLESS_PREFIX: Final = "n_"
_HASHED: Final = re.compile(r"-[0-9a-f]{8}$")


def build_agent_name(path: str) -> str:
    """Return the name of the agent for a path; different paths have different names.

    Slashes become `__`, and characters that a name must not contain become `_`. If the path
    cannot be read back from the name, eight hexadecimal digits of its SHA-256 follow.
    """
    parts = (
        re.sub(r"[^A-Za-z0-9-]+", "_", remove_accents(part)).strip("_-") for part in path.split("/")
    )
    plain = "__".join(part for part in parts if part) or "document"
    name = plain if plain[0].isalpha() else _LETTERLESS_PREFIX + plain
    taken = name == ROOT_NAME or name in RESERVED_NAMES or _HASHED.search(name)
    if _read_path(name) == path and not taken and NAME_PATTERN.fullmatch(name):
        return name
    digest = hashlib.sha256(path.encode()).hexdigest()[:8]
    return f"{name[: LONGEST_AGENT_NAME - 9]}-{digest}"


def _read_path(name: str) -> str:
    """Return the path that a name without a digest stands for."""
    lettered = name.removeprefix(_LETTERLESS_PREFIX)
    plain = name if lettered[:1].isalpha() else lettered
    return _SUFFIX.sub(r".\1", plain).replace("__", "/")


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
    """One readable file, as it was when the folder was read."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file or folder that was not read."""

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
    results = sorted(walked, key=lambda entry: entry.path.split("/"))
    documents = [item for item in results if isinstance(item, Document)]
    skipped = [item for item in results if isinstance(item, SkippedFile)]
    if not documents:
        raise _nothing_to_read(root, [(file.path, file.reason) for file in skipped])
    return documents, skipped


def _walk_files(root: Path) -> Iterator[Document | SkippedFile]:
    folders: list[tuple[str, str]] = [(os.fspath(root), "")]
    while folders:
        place, path = folders.pop()
        try:
            with os.scandir(place) as entries:
                visible = [entry for entry in entries if not entry.name.startswith(".")]
        except OSError as error:
            yield SkippedFile(path or ".", _format_read_error(error))
            continue
        for entry in visible:
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
    return _build_folder(
        [(tuple(document.path.split("/")), document) for document in documents], levels
    )


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
    except ValueError as error:
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
