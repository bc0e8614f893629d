"""`Workspace`: reads, lists and writes the files under a folder, and never follows a link.

Each name of a path is opened within the descriptor of the folder before it, so nothing that others
do in the meantime, such as putting a link in place of a folder, leads outside. A file is written
beside its place and renamed into it: a reader sees all of it or nothing.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

from echelons.errors import FileRefused, WorkspaceError, file_refused, file_too_large
from echelons.text.input_limits import read_text, shorten_repr

MAX_PATH_BYTES: Final = 4096
"""Bytes of UTF-8 that a path may have."""
MAX_PART_BYTES: Final = 255
"""Bytes of UTF-8 that a name in a path may have."""
MAX_DEPTH: Final = 64
"""Names that a path may have."""
TEMPORARY_PREFIX: Final = ".echelons-"
"""How the names of files begin that are being written."""

_RESERVED_NAMES: Final = frozenset(
    {
        *("con", "prn", "aux", "nul", "conin$", "conout$", "clock$"),
        *(f"{port}{number}" for port in ("com", "lpt") for number in "0123456789"),
    }
)
"""Devices of Windows, with any extension."""
_LOOKALIKES: Final = frozenset("\u2044\u2215\u2216\u29f8\u29f9\u29f5\u2236\ua789\u0589\u05c3\u1735")
"""Characters like a slash, a backslash or a colon that are no compatibility forms of it."""
_REFUSED_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Control and format characters (the bidirectional ones too), surrogates, and unassigned ones."""
_CONFUSED_SCRIPTS: Final = frozenset({"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE"})
"""Scripts with letters that look like those of another one."""
MAX_FILE_BYTES: Final = 1024 * 1024
"""Bytes of UTF-8 that a file may have."""
MAX_LISTED: Final = 10_000
"""Files that a workspace lists."""


def check_path(value: object) -> str:
    """Return a path in a workspace as it is kept: its names in Unicode's form NFC, between slashes.

    Raises:
        FileRefused: It is no relative path, has other parts than names, or has names that a file
            system may read differently, that look like others, or that hold no work: `.git`.

    Examples:
        >>> check_path("docs/plan.md")
        'docs/plan.md'
        >>> check_path("../plan.md")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        echelons.errors.FileRefused: '../plan.md' is no path of a workspace: ...
    """
    text = read_text(value)
    if text is None:
        raise _invalid_path(shorten_repr(value), "it is no text")
    if why := next(_find_faults(text), ""):
        raise _invalid_path(shorten_repr(text), why)
    return unicodedata.normalize("NFC", text)


def _find_faults(text: str) -> Iterator[str]:
    """Yield what is wrong with a path; only the first is sure, as the later rely on the earlier."""
    if not text:
        yield "it is empty"
    # A character has a byte at least; more are not worth a look.
    if len(text) > MAX_PATH_BYTES:
        yield f"it has more than {MAX_PATH_BYTES} bytes"
    hidden = (
        character for character in text if unicodedata.category(character) in _REFUSED_CATEGORIES
    )
    yield from (
        f"it holds U+{ord(character):04X}, a character that cannot be seen" for character in hidden
    )
    if text.startswith("/"):
        yield "it is absolute"
    if "\\" in text or ":" in text:
        yield "it holds a backslash or a colon"
    normal = unicodedata.normalize("NFC", text)
    if unicodedata.normalize("NFKC", text) != normal or not _LOOKALIKES.isdisjoint(normal):
        yield "it holds a character that looks like another one"
    if len(normal.encode()) > MAX_PATH_BYTES:
        yield f"it has more than {MAX_PATH_BYTES} bytes"
    names = normal.split("/")
    if len(names) > MAX_DEPTH:
        yield f"it has more than {MAX_DEPTH} names"
    for name in names:
        yield from _find_faults_of_name(name)


def _find_faults_of_name(name: str) -> Iterator[str]:
    if name in ("", ".", ".."):
        yield f"{name!r} is no name of a file"
    if len(name.encode()) > MAX_PART_BYTES:
        yield f"one of its names has more than {MAX_PART_BYTES} bytes"
    if name.strip(" ") != name or name.startswith("~") or name.endswith("."):
        yield "a name begins with a space or a tilde, or ends with a space or a dot"
    lower = name.casefold()
    if lower.partition(".")[0].rstrip(" ") in _RESERVED_NAMES:
        yield f"{name!r} is the name of a device on Windows"
    # Git runs what is in there, and `git~1` is its short name on Windows.
    if lower in (".git", "git~1"):
        yield f"{name!r} belongs to Git"
    if lower.startswith(TEMPORARY_PREFIX):
        yield f"{name!r} is a name for files that are being written"
    if not name.isascii() and _mixes_scripts(name):
        yield "a word mixes the letters of scripts that look alike"


def _mixes_scripts(name: str) -> bool:
    """Return whether a word of a name mixes scripts whose letters look alike."""
    words = (word for is_word, word in groupby(name, str.isalpha) if is_word)
    return any(
        len(
            {unicodedata.name(character, "").split(" ")[0] for character in word}
            & _CONFUSED_SCRIPTS
        )
        > 1
        for word in words
    )


def _invalid_path(path: str, why: str) -> FileRefused:
    return FileRefused(
        "{path} is no path of a workspace: {why}; name a file like 'docs/plan.md'",
        code="invalid_path",
        path=path,
        why=why,
    )


# Windows has none of these; a workspace is refused there.
_NO_LINKS: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FOLDER_FLAGS: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NO_LINKS
# Not blocking: opening a FIFO waits for its other end.
_READ_FLAGS: Final = (
    os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | _NO_LINKS
)
_CREATE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINKS


class FileText(NamedTuple):
    """The text of a file, and its hash."""

    text: str
    digest: str


def hash_text(text: str) -> str:
    """Return the hash of a text, SHA-256 of its UTF-8."""
    return sha256(text.encode()).hexdigest()


def check_text(path: str, text: str) -> str:
    """Return a text, if a file of a workspace may have it.

    Raises:
        WorkspaceError: It has more than 1 MiB; it has no UTF-8.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise file_refused(path, "its text holds half a character; send it as UTF-8") from error
    if size > MAX_FILE_BYTES:
        raise file_too_large(path, "its bytes are too many; split it", size, MAX_FILE_BYTES)
    return text


class Workspace:
    """The files under a folder.

    Args:
        root: The folder; it must exist, must not be a link, and be writable.

    Raises:
        WorkspaceError: It is no such folder.

    Examples:
        >>> from tempfile import mkdtemp
        >>> workspace = Workspace(mkdtemp())
        >>> workspace.write("docs/plan.md", "Rome", None)
        >>> workspace.read("docs/plan.md").text, workspace.list_files()
        ('Rome', ['docs/plan.md'])
    """

    def __init__(self, root: str | Path) -> None:
        # What an object says of its class may be anything.
        if not issubclass(type(root), (str, Path)):
            raise _invalid_workspace(shorten_repr(root), "it is no path")
        if os.open not in os.supports_dir_fd:
            raise _invalid_workspace(shorten_repr(root), "this system cannot open files within one")
        # Absolute, as the process may change its folder; a link in it is not resolved.
        try:
            self.root = os.path.abspath(root)  # noqa: PTH100
            with self._open_root() as folder:
                status = os.fstat(folder)
                is_writable = os.access(".", os.W_OK | os.X_OK, dir_fd=folder)
        except ValueError as error:
            raise _invalid_workspace(shorten_repr(root), str(error)) from error
        if self.root == os.sep:
            raise _invalid_workspace(self.root, "it is the whole file system")
        if not is_writable:
            raise _invalid_workspace(self.root, "it cannot be written")
        self._identity = status.st_dev, status.st_ino

    def read(self, path: str) -> FileText | None:
        """Return the text of a file, `None` if there is none.

        Raises:
            WorkspaceError: The path is none of a workspace; it is a link, a folder or a device, is
                larger than 1 MiB, or no text.
        """
        path = check_path(path)
        *folders, name = path.split("/")
        with self._open_folder(path, folders) as folder:
            if folder is None or _stat_entry(path, folder, name) is None:
                return None
            with _refuse_by_name(path):
                try:
                    file = os.open(name, _READ_FLAGS, dir_fd=folder)
                except FileNotFoundError:
                    return None
                with open(file, "rb") as opened:  # noqa: PTH123
                    # Again: another one may be in its place now.
                    _check_kind(path, os.fstat(file))
                    content = opened.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise file_too_large(
                path, "its bytes are too many; split it", len(content), MAX_FILE_BYTES
            )
        try:
            return FileText(content.decode(), sha256(content).hexdigest())
        except UnicodeDecodeError as error:
            raise file_refused(path, "it is no text in UTF-8; use a tool that reads it") from error

    def write(self, path: str, text: str | None, base: str | None) -> None:
        """Put a text into the place of a file, or remove the file, all at once.

        Folders on the way are made. On return it is on the disk.

        Args:
            path: The file.
            text: Its new text; `None` to remove it.
            base: The hash of the text that it has; `None` if there is no such file.

        Raises:
            WorkspaceError: The path is none of a workspace; it has another text; it cannot be
                written: it is a link, has a second name, or the like.
        """
        path = check_path(path)
        *folders, name = path.split("/")
        if text is not None:
            check_text(path, text)
        with self._open_folder(path, folders, create=text is not None) as folder:
            if folder is None:
                self._require_base(path, base)
                return
            entry = _stat_entry(path, folder, name)
            if entry and entry.st_nlink > 1:
                raise file_refused(path, "it has another name elsewhere (a hard link); copy it")
            with _refuse_by_name(path):
                if text is None:
                    self._require_base(path, base)
                    with suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=folder)
                else:
                    mode = stat.S_IMODE(entry.st_mode) & 0o777 if entry else None
                    temporary = _write_beside(folder, text, mode)
                    try:
                        self._require_base(path, base)
                        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
                    except BaseException:
                        with suppress(OSError):
                            os.unlink(temporary, dir_fd=folder)
                        raise
                os.fsync(folder)

    def list_files(self, under: str = "") -> list[str]:
        """Return the paths of all files, sorted; those with names that a path may not have are not.

        Args:
            under: A folder; everything if empty.

        Raises:
            WorkspaceError: The folder is none of a workspace; there are more than 10,000.
        """
        paths: list[str] = []
        waiting: list[tuple[str, ...]] = [tuple(check_path(under).split("/")) if under else ()]
        while waiting:
            parts = waiting.pop()
            with suppress(FileRefused), self._open_folder("/".join(parts), parts) as folder:
                for name, is_folder in _list_entries(folder):
                    path = "/".join((*parts, name))
                    with suppress(FileRefused):
                        # A name in another form than NFC would be found under no path.
                        if check_path(path) != path:
                            continue
                        if is_folder and len(parts) < MAX_DEPTH:
                            waiting.append((*parts, name))
                        elif not is_folder:
                            paths.append(path)
            if len(paths) > MAX_LISTED:
                why = "the files are too many; name a folder with fewer"
                raise file_too_large(under or ".", why, len(paths), MAX_LISTED)
        return sorted(paths)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep out every other process and thread that has locked the workspace.

        The death of the process frees it.
        """
        with self._open_root() as folder:
            if sys.platform != "win32":
                # Loaded here: every session loads this module, and few lock a workspace.
                import fcntl

                fcntl.flock(folder, fcntl.LOCK_EX)
            yield

    def remove_leftovers(self, path: str) -> None:
        """Remove what a process that was killed has left beside a file that it was writing.

        Only while the workspace is locked: another one's file may be written there.
        """
        *folders, _ = check_path(path).split("/")
        with suppress(FileRefused), self._open_folder(path, folders) as folder:
            for name, is_folder in _list_entries(folder):
                if name.startswith(TEMPORARY_PREFIX) and not is_folder:
                    with suppress(OSError):
                        os.unlink(name, dir_fd=folder)

    def _require_base(self, path: str, base: str | None) -> None:
        file = self.read(path)
        if (file.digest if file else None) != base:
            raise FileRefused(
                "{path:quoted}: {why}",
                code="file_changed",
                path=path,
                why="it has been changed since; read it, and change it again",
            )

    @contextmanager
    def _open_root(self) -> Iterator[int]:
        try:
            folder = os.open(self.root, _FOLDER_FLAGS)
        except OSError as error:
            raise _invalid_workspace(self.root, _describe(error)) from error
        try:
            status = os.fstat(folder)
            identity = getattr(self, "_identity", None)
            if identity and identity != (status.st_dev, status.st_ino):
                raise _invalid_workspace(self.root, "another folder was put in its place")
            yield folder
        finally:
            os.close(folder)

    @contextmanager
    def _open_folder(
        self, path: str, names: tuple[str, ...] | list[str], *, create: bool = False
    ) -> Iterator[int | None]:
        """Open the folder of a path, name by name; `None` if there is none."""
        with self._open_root() as root:
            folder = os.dup(root)
            try:
                for name in names:
                    with _refuse_by_name(path):
                        if create:
                            with suppress(FileExistsError):
                                os.mkdir(name, dir_fd=folder)
                                os.fsync(folder)
                        try:
                            below = os.open(name, _FOLDER_FLAGS, dir_fd=folder)
                        except FileNotFoundError:
                            yield None
                            return
                    os.close(folder)
                    folder = below
                yield folder
            finally:
                os.close(folder)


def _stat_entry(path: str, folder: int, name: str) -> os.stat_result | None:
    """Return what is known of a regular file without opening it; `None` if there is none."""
    with _refuse_by_name(path):
        try:
            entry = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
    _check_kind(path, entry)
    return entry


def _check_kind(path: str, status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise file_refused(path, "it is a link; name the file that it leads to")
    if stat.S_ISDIR(status.st_mode):
        raise file_refused(path, "it is a folder; name a file in it")
    if not stat.S_ISREG(status.st_mode):
        raise file_refused(path, "it is a device, a pipe or a socket, and no file")


def _write_beside(folder: int, text: str, mode: int | None) -> str:
    name = f"{TEMPORARY_PREFIX}{uuid4().hex}"
    file = os.open(name, _CREATE_FLAGS, 0o666, dir_fd=folder)
    with open(file, "wb") as opened:  # noqa: PTH123
        if mode is not None:
            os.fchmod(file, mode)
        opened.write(text.encode())
        opened.flush()
        os.fsync(file)
    return name


def _list_entries(folder: int | None) -> Iterator[tuple[str, bool]]:
    """Yield the names of files and folders, with whether each is a folder, and of nothing else."""
    if folder is None:
        return
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield entry.name, True
                elif entry.is_file(follow_symlinks=False):
                    yield entry.name, False
    except OSError:
        # Of a folder that cannot be read, or was removed in the meantime, nothing is listed.
        return


@contextmanager
def _refuse_by_name(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise file_refused(path, _describe(error)) from error


def _describe(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.EMLINK):
        return "it is a link, or a folder on the way is"
    if error.errno == errno.ENOTDIR:
        return "it is no folder, or is reached through a link or a file"
    return (error.strerror or str(error)).lower()


def _invalid_workspace(root: str, why: str) -> WorkspaceError:
    return WorkspaceError(
        "{root:short} is no workspace: {why}; name an existing folder that can be written, by its "
        "own path and not through a link",
        code="invalid_workspace",
        root=root,
        why=why,
    )
