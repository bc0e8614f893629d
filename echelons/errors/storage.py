"""Errors of a database: opening, reading, writing and pruning it.

Raised by the checkpoints, and by the commands that open a database.
"""

from __future__ import annotations

from collections.abc import Sequence

from echelons.errors.base import EchelonsError


class StorageError(EchelonsError):
    """The database cannot be opened, read or written.

    Attributes:
        path: The database.
        why: What SQLite or the system said.
    """

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        self.why = why
        super().__init__(
            f"database {path!r}: {why}; what was committed before is safe. "
            "Check the path, its permissions and the disk, or name another database"
        )


class DatabaseMissing(StorageError):
    """There is no database where threads should be read from; none is made for that.

    Attributes:
        path: The database.
        why: What is wrong.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.why = "there is no such file"
        EchelonsError.__init__(
            self,
            f"there is no database {path!r}; `echelons run` makes one, "
            "or name the one that you mean with --db or ECHELONS_DB",
        )


class DatabaseFolderMissing(StorageError):
    """A database is named in a folder that is not there.

    Attributes:
        path: The database.
        why: What is wrong.
        folder: The folder.
    """

    def __init__(self, path: str, folder: str) -> None:
        self.path = path
        self.why = f"there is no folder {folder!r}"
        self.folder = folder
        EchelonsError.__init__(
            self,
            f"database {path!r}: {self.why}; make the folder, or name another database",
        )


class DatabaseTooNew(StorageError):
    """A newer version of Echelons has brought the database up to date; it was not touched.

    Attributes:
        path: The database.
        why: What is wrong.
        found: The step that its schema has come to.
        known: The last step that this version knows.
    """

    def __init__(self, path: str, found: int, known: int) -> None:
        self.path = path
        self.found = found
        self.known = known
        self.why = f"its schema is at step {found}, and this version knows steps up to {known}"
        EchelonsError.__init__(
            self,
            f"database {path!r} is of a newer version of Echelons: {self.why}; "
            "update Echelons, or name another database. Nothing was changed",
        )


class BackupExists(StorageError):
    """There is a file already where a backup was to be made; it was not touched.

    Attributes:
        path: The file.
        why: What is wrong.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.why = "there is such a file already"
        EchelonsError.__init__(
            self,
            f"no backup was made at {path!r}: {self.why}, and none is ever overwritten; "
            "name another file, or move it away",
        )


class InvalidStrategy(EchelonsError):
    """Threads were to be pruned to less than nothing.

    Attributes:
        strategy: The strategy as it was given.
        limit: What it takes.
    """

    def __init__(self, strategy: str, limit: str) -> None:
        self.strategy = strategy
        self.limit = limit
        super().__init__(f"{strategy} takes {limit}; nothing was changed")


class UnknownStrategy(EchelonsError):
    """Threads were to be pruned in a way that there is not.

    Attributes:
        strategy: The strategy as it was given.
        known: The strategies that there are.
    """

    def __init__(self, strategy: str, known: Sequence[str]) -> None:
        self.strategy = strategy
        self.known = tuple(known)
        super().__init__(
            f"there is no strategy {strategy!r}; use one of {', '.join(self.known)}. "
            "Nothing was changed"
        )
