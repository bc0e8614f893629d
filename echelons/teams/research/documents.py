"""The documents of a folder: their texts, and their outlines of headings, sections and rows."""

from __future__ import annotations

import codecs
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple, Protocol, TypeVar

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


LONGEST_TITLE: Final = 120
"""Most characters of a title; a longer line is a sentence."""
MARKDOWN: Final = frozenset({".md", ".markdown", ".mdx", ".mkd", ".qmd", ".rmd"})
PROSE: Final = MARKDOWN | {".rst", ".txt", ".text", ""}
"""Suffixes of prose; other files are data and code."""

_ATX: Final = re.compile(r" {0,3}(#{1,6})[ \t]+(\S.*)")
_CLOSING: Final = re.compile(r"(?<=[ \t])#+$")
_UNDERLINE: Final = re.compile(r"([=\-~^\"'`#*+.:_])\1{2,}[ \t]*$")
_MARKS: Final = frozenset("=-~^\"'`#*+.:_")
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")
_IMAGE: Final = re.compile(r"!\[[^\[\]]*\]\([^()]*\)")
_MARKUP: Final = re.compile(r"\[([^\[\]]*)\]\([^()]*\)|<[^<>]*>|[*`]+|\\(?=[^\w\s])")
_NO_TITLE: Final = re.compile(r"[ \t]*(?:[-*+•>][ \t]|\|)")
_FRONT_ROWS: Final = 60


class TextRow(NamedTuple):
    """A line, numbered from 1, or a piece of a very long one."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading."""

    level: int
    text: str
    first: int
    end: int


def find_headings(rows: Sequence[TextRow], suffix: str) -> Iterator[Heading]:
    """Yield the headings in order; none inside fenced code.

    Only Markdown by its lower-case suffix, and prose that looks like it, has headings after
    `#`, which elsewhere begins a comment.
    """
    atx = suffix in MARKDOWN or (suffix in PROSE - {".rst"} and _is_like_markdown(rows))
    levels = {"=": 1, "-": 2} if atx else {}
    fence, done = "", 0
    for place in range(find_front_matter_end(rows), len(rows)):
        text = rows[place].text
        mark = _FENCE.match(text)
        if atx and (fence or mark):
            fence = _update_fence(fence, mark, text)
        elif atx and (hashes := _ATX.match(text)) and strip_markup(hashes[2]):
            done = place + 1
            yield Heading(
                len(hashes[1]), strip_markup(_CLOSING.sub("", hashes[2].rstrip())), place, done
            )
        elif (underlined := _match_underlined(rows, place, "=-" if atx else "")) and underlined[
            0
        ] >= done:
            done = place + 1
            level = levels.setdefault(underlined[1], len(levels) + 1)
            yield Heading(level, strip_markup(rows[place - 1].text), underlined[0], done)


def find_front_matter_end(rows: Sequence[TextRow]) -> int:
    """Return the index after the YAML front matter, 0 without one."""
    if rows[0].text.rstrip() == "---":
        for place, row in enumerate(rows[1:_FRONT_ROWS], start=1):
            if row.text.rstrip() == "---":
                return place + 1
    return 0


def strip_markup(text: str) -> str:
    """Return a heading without markup; empty if no letter or digit remains."""
    if not any(char.isalnum() for char in text):
        return ""
    bare = " ".join(_MARKUP.sub(lambda mark: mark[1] or "", _IMAGE.sub("", text)).split())
    return bare if any(char.isalnum() for char in bare) else ""


def _update_fence(fence: str, mark: re.Match[str] | None, text: str) -> str:
    """Return the open code fence after a line that may open or close one."""
    if not fence:
        return mark[1] if mark else ""
    closes = mark and mark[1].startswith(fence) and not text.strip().strip(fence[0])
    return "" if closes else fence


def _match_underlined(rows: Sequence[TextRow], place: int, marks: str) -> tuple[int, str] | None:
    """Return the first row and the style of a heading that is underlined in row `place`.

    Without `marks`, any may underline, but the line must be nearly as long as the title, as in
    reStructuredText.
    """
    text = rows[place].text
    line = _UNDERLINE.match(text) if text[:1] in _MARKS and place else None
    if line is None:
        return None
    title = rows[place - 1].text.strip()
    if len(title) > LONGEST_TITLE or _UNDERLINE.match(title) or not strip_markup(title):
        return None
    if line[1] not in marks if marks else len(line[0].rstrip()) < 0.8 * len(title):
        return None
    over = rows[place - 2].text.rstrip() if place > 1 else ""
    if over == line[0].rstrip():
        return place - 2, line[1] * 2
    # Below more than one line, or below an item, the line is a rule or part of a table.
    paragraph = over and not _UNDERLINE.match(over)
    return None if paragraph or _NO_TITLE.match(title) else (place - 1, line[1])


def _is_like_markdown(rows: Sequence[TextRow]) -> bool:
    """Whether the `#` lines are headings: most stand alone, or have levels and a line before."""
    deep = lonely = apart = total = 0
    for place, row in enumerate(rows):
        if hashes := _ATX.match(row.text):
            before, after = (rows[max(place - 1, 0)], rows[min(place + 1, len(rows) - 1)])
            opens = not place or not before.text.strip()
            total += 1
            deep += len(hashes[1]) > 1
            apart += opens
            lonely += opens and not after.text.strip()
    return 2 * lonely > total or (deep > 0 and 2 * apart > total)


LONGEST_ROW: Final = 600
"""Most characters of a row; a longer line is split at the ends of sentences or words."""
LONGEST_BLOCK: Final = 800
"""Characters after which a long paragraph is split between lines."""

_ITEM: Final = re.compile(r"[ \t]*(?:[-*+•][ \t]|\d{1,3}[.)][ \t]|\|)")
_FRONT_TITLE: Final = re.compile(r"title:[ \t]*[\"']?(.*?)[\"']?[ \t]*$", re.IGNORECASE)
_UP_TO: Final = f".{{1,{LONGEST_ROW}}}"
_PIECE: Final = re.compile(rf"{_UP_TO}(?:(?<=[.!?;])\s|$)|{_UP_TO}(?:\s|$)|{_UP_TO}")


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, list item, table row, or piece of code between blank lines.

    It has the rows from the index `first` up to, not including, `end`.
    """

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Section:
    """The blocks under one heading."""

    headings: tuple[str, ...]
    opening: int
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Outline:
    """The parsed structure of a document."""

    title: str
    title_and_path: str
    headings: tuple[Heading, ...]
    rows: tuple[TextRow, ...] = field(repr=False)

    def iterate_sections(self) -> Iterator[Section]:
        """Yield the sections in order; text before the first heading is one too."""
        ends = [*(heading.first for heading in self.headings), len(self.rows)]
        yield Section((), 0, tuple(_split_blocks(self.rows, 0, ends[0])))
        trail: list[Heading] = []
        for heading, end in zip(self.headings, ends[1:], strict=True):
            trail = [*(outer for outer in trail if outer.level < heading.level), heading]
            texts = tuple(heading.text for heading in trail)
            yield Section(texts, heading.first, tuple(_split_blocks(self.rows, heading.end, end)))


def parse_outline(path: str, text: str) -> Outline:
    """Parse the structure of a document, whose text has line feeds at the line ends.

    The suffix of its path gives the syntax; the name is the last choice for a title.
    """
    place = PurePosixPath(path)
    rows = tuple(_split_rows(text))
    headings = tuple(find_headings(rows, place.suffix.lower()))
    title = _choose_title(place, rows, headings)
    return Outline(title, f"{title} {place.with_suffix('')}", headings, rows)


def _split_rows(text: str) -> Iterator[TextRow]:
    for number, line in enumerate(text.split("\n"), start=1):
        if len(line) <= LONGEST_ROW:
            yield TextRow(number, line)
        else:
            yield from (TextRow(number, piece) for piece in _PIECE.findall(line))


def _choose_title(path: PurePosixPath, rows: Sequence[TextRow], headings: Sequence[Heading]) -> str:
    front = find_front_matter_end(rows)
    for row in rows[:front]:
        if (named := _FRONT_TITLE.match(row.text)) and strip_markup(named[1]):
            return strip_markup(named[1])[:LONGEST_TITLE]
    if headings:
        highest = min(headings, key=lambda heading: heading.level)
        alone = sum(heading.level == highest.level for heading in headings) == 1
        # Of several equal headings, only one that opens the document is its title.
        if alone or not any(row.text.strip() for row in rows[front : highest.first]):
            return highest.text[:LONGEST_TITLE]
    elif path.suffix.lower() in PROSE:
        first = next((strip_markup(row.text) for row in rows[front:] if strip_markup(row.text)), "")
        if 0 < len(first) <= LONGEST_TITLE:
            return first
    return path.stem.replace("_", " ").replace("-", " ")


def _split_blocks(rows: Sequence[TextRow], first: int, end: int) -> Iterator[Block]:
    start, size = first, 0
    for place in range(first, end):
        text = rows[place].text
        telling = any(char.isalnum() for char in text)
        ended = not text.strip() or (telling and _ITEM.match(text)) or size > LONGEST_BLOCK
        if size and ended:
            yield Block(start, place)
            size = 0
        if telling:
            start = start if size else place
            size += len(text)
    if size:
        yield Block(start, end)
