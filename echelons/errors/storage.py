"""Errors of a database: opening, reading, writing and pruning it.

Raised by the checkpoints, and by the commands that open a database.
"""

from __future__ import annotations

from dataclasses import field

from echelons.errors.base import EchelonsError


class StorageError(EchelonsError):
    """The database cannot be opened, read or written.

    Attributes:
        path: The database.
        why: What SQLite or the system said.
    """

    path: str
    why: str
    message = (
        "database {path!r}: {why}; what was committed before is safe. Check the path, its "
        "permissions and the disk, or name another database"
    )


class DatabaseMissing(StorageError):
    """The database to read does not exist; it is not created.

    Attributes:
        path: The database.
        why: What is wrong.
    """

    why: str = field(init=False)
    message = (
        "there is no database {path!r}; `echelons run` makes one, or name the one that you mean "
        "with --db or ECHELONS_DB"
    )

    def __post_init__(self) -> None:
        self.why = "there is no such file"
        super().__post_init__()


class DatabaseFolderMissing(StorageError):
    """The folder of the database does not exist.

    Attributes:
        path: The database.
        why: What is wrong.
        folder: The folder.
    """

    why: str = field(init=False)
    folder: str
    message = "database {path!r}: {why}; make the folder, or name another database"

    def __post_init__(self) -> None:
        self.why = f"there is no folder {self.folder!r}"
        super().__post_init__()


class DatabaseTooNew(StorageError):
    """A newer version of Echelons has migrated the database; it was not changed.

    Attributes:
        path: The database.
        why: What is wrong.
        found: The migration step of its schema.
        known: The last step that this version knows.
    """

    why: str = field(init=False)
    found: int
    known: int
    message = (
        "database {path!r} is of a newer version of Echelons: {why}; update Echelons, or name "
        "another database. Nothing was changed"
    )

    def __post_init__(self) -> None:
        self.why = (
            f"its schema is at step {self.found}, and this version knows steps up to {self.known}"
        )
        super().__post_init__()


class BackupExists(StorageError):
    """The file of a backup exists already; it was not changed.

    Attributes:
        path: The file.
        why: What is wrong.
    """

    why: str = field(init=False)
    message = (
        "no backup was made at {path!r}: {why}, and none is ever overwritten; name another file, "
        "or move it away"
    )

    def __post_init__(self) -> None:
        self.why = "there is such a file already"
        super().__post_init__()


class InvalidStrategy(EchelonsError):
    """The strategy of pruning threads is unknown or has an invalid limit.

    Attributes:
        strategy: The strategy as it was given.
        why: What is wrong with it.
    """

    strategy: str
    why: str
    message = "{strategy} {why}; nothing was changed"
