"""What is wrong with the files of a profile, each with its file and line."""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    """One thing that is wrong with a profile.

    Attributes:
        file: The file or folder, from the team's folder on; the folder itself is `"."`.
        line: The line, from 1 on; 0 for the whole file.
        error: The kind of fault: the name of an error of Echelons or Python.
        why: The value, what is wrong with it, and the way out.
    """

    file: str
    line: int
    error: str
    why: str

    @property
    def place(self) -> str:
        """The file with its line."""
        return f"{self.file}:{self.line}" if self.line else self.file
