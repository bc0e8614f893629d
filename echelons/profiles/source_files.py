"""The files of a profile: found, read once, and with their faults."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple


class Fault(NamedTuple):
    """One thing that is wrong with a profile."""

    file: str
    line: int
    error: str
    why: str

    @property
    def place(self) -> str:
        """The file with its line."""
        return f"{self.file}:{self.line}" if self.line else self.file


MAX_FILE_BYTES = 1024 * 1024
"""Largest file of a profile, in bytes."""


class SourceFile(NamedTuple):
    """The text of a file."""

    path: Path
    name: str
    text: str

    @property
    def digest(self) -> str:
        """A digest of the text, equal on every machine."""
        return hashlib.sha256(self.text.encode()).hexdigest()


class FolderEntries(NamedTuple):
    """The entries of a folder, in the order of their names."""

    folders: list[Path]
    files: list[Path]
    whole: bool = True


@dataclass(slots=True)
class FolderReader:
    """Reads what is in a team's folder, and notes what cannot be read."""

    root: Path
    faults: list[Fault] = field(default_factory=list)

    def name(self, path: Path) -> str:
        """Return a path from the team's folder on."""
        return path.relative_to(self.root).as_posix()

    def add_fault(self, path: Path | str, line: int, error: str, why: str) -> None:
        """Note a fault of a file, given by its path or its name."""
        name = path if isinstance(path, str) else self.name(path)
        self.faults.append(Fault(name, line, error, why))

    def list_folder(self, folder: Path, parents: frozenset[Path] = frozenset()) -> FolderEntries:
        """Return the entries of a folder; those that lead out of the team's folder are left out."""
        result = FolderEntries([], [])
        try:
            with os.scandir(folder) as listed:
                entries = sorted(listed, key=lambda entry: entry.name)
        except OSError as error:
            self._refuse_unreadable(folder, error)
            return result._replace(whole=False)
        for entry in entries:
            path = folder / entry.name
            if entry.is_symlink() and not self._may_follow(path, parents):
                result = result._replace(whole=False)
                continue
            (result.folders if entry.is_dir() else result.files).append(path)
        return result

    def read_file(self, path: Path) -> SourceFile | None:
        """Return a file's text; `None` if it cannot be read."""
        try:
            # What is no plain file, such as a pipe, may never end.
            if not stat.S_ISREG(path.stat().st_mode):
                self.add_fault(path, 0, "InvalidFile", "it is no plain file; put one in its place")
                return None
            with path.open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            self._refuse_unreadable(path, error)
            return None
        if len(data) > MAX_FILE_BYTES:
            size = path.stat().st_size
            why = f"it has {size} bytes, and a file of a profile at most {MAX_FILE_BYTES}"
            self.add_fault(path, 0, "FileTooLarge", f"{why}: shorten it")
            return None
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            why = f"byte {data[error.start]:#04x} is no UTF-8: save the file as UTF-8"
            self.add_fault(path, line, "UnicodeDecodeError", why)
            return None
        return SourceFile(path, self.name(path), text.replace("\r\n", "\n"))

    def read_named_file(self, folder: Path, name: str, place: tuple[str, int]) -> SourceFile | None:
        """Return the text of a file that a setting names; `None` if it cannot be read."""
        try:
            path = (folder / name).resolve(strict=True)
        except (OSError, RuntimeError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            self.add_fault(*place, "UnknownFile", f"{name!r} cannot be read: {reason}")
            return None
        if not path.is_relative_to(self.root):
            why = f"{name!r} is out of the team's folder: copy it into the folder"
            self.add_fault(*place, "OutsideFolder", why)
            return None
        return self.read_file(path)

    def _may_follow(self, link: Path, parents: frozenset[Path]) -> bool:
        try:
            target = link.resolve(strict=True)
        except (OSError, RuntimeError) as error:
            self._refuse_unreadable(link, error)
            return False
        if not target.is_relative_to(self.root):
            why = f"it is a link to {str(target)!r}, out of the team's folder: copy it instead"
            self.add_fault(link, 0, "OutsideFolder", why)
            return False
        if target in parents:
            why = f"it is a link to {self.name(target)!r}, which it lies in: remove it"
            self.add_fault(link, 0, "CyclicTree", why)
            return False
        return True

    def _refuse_unreadable(self, path: Path, error: Exception) -> None:
        reason = getattr(error, "strerror", None) or str(error)
        self.add_fault(path, 0, type(error).__name__, f"it cannot be read: {reason}")
