"""`Backups`: checks and backs up a database while it is in use.

Both read through their own connection, so conversations go on meanwhile. A database in memory
has only the saver's connection.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from echelons.checkpoints.maintenance.integrity_check import IntegrityCheck, IntegrityReport
from echelons.checkpoints.maintenance.thread_admin import ThreadAdmin
from echelons.checkpoints.storage.connection import (
    IN_MEMORY,
    create_private_file,
    wrap_storage_errors,
)
from echelons.errors import StorageError


class Backups(ThreadAdmin):
    """A saver whose database can be checked and backed up."""

    path: str

    def check(self) -> IntegrityReport:
        """Check the file, every row, every seal, and every link between threads.

        Reads the whole database; conversations go on meanwhile.

        Returns:
            A report of all faults.
        """
        with self._open_reader() as connection:
            return IntegrityCheck(connection, self.serde, self._seals).run()

    async def acheck(self) -> IntegrityReport:
        """Async version of `check`."""
        return await asyncio.to_thread(self.check)

    def backup(self, path: str | Path) -> None:
        """Copy a consistent snapshot of the database into a new file with mode 0600.

        Conversations go on meanwhile. The copy holds everything that was committed before, and
        opens like the original.

        Args:
            path: The new file. It is empty until the copy is complete.

        Raises:
            StorageError: The file exists already; it is not changed; SQLite could not read or
                write; no file is left.
        """
        target = str(path)
        with (
            self._open_reader() as connection,
            wrap_storage_errors(target),
            _reserve_file(target) as part,
            closing(sqlite3.connect(part)) as copy,
        ):
            connection.backup(copy)

    async def abackup(self, path: str | Path) -> None:
        """Async version of `backup`."""
        await asyncio.to_thread(self.backup, path)

    @contextmanager
    def _open_reader(self) -> Iterator[sqlite3.Connection]:
        with wrap_storage_errors(self.path):
            if self.path == IN_MEMORY:
                with self.cursor(transaction=False) as cursor:
                    yield cursor.connection
                return
            address = f"{Path(self.path).absolute().as_uri()}?mode=ro"
            with closing(sqlite3.connect(address, uri=True)) as connection:
                yield connection


@contextmanager
def _reserve_file(path: str) -> Iterator[str]:
    """Yield a private temporary file, and rename it to a path once it is complete."""
    try:
        create_private_file(path, os.O_EXCL)
    except FileExistsError:
        raise StorageError(
            path,
            "there is such a file already",
            "no backup was made at {path!r}: {why}, and none is ever overwritten; name another "
            "file, or move it away",
            code="backup_exists",
        ) from None
    part = f"{path}.{uuid4().hex}.part"
    try:
        create_private_file(part, os.O_EXCL)
        yield part
        Path(part).replace(path)
    except BaseException:
        for file in (part, path):
            with suppress(OSError):
                Path(file).unlink()
        raise
