"""SQLite connections that call a watch before and after each statement.

The watch can let a statement fail or kill the process. `watched` applies to all
connections that this process opens while it is active, in any library.
"""

from __future__ import annotations

import itertools
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any, Literal, Self, TypeAlias, cast

from echelons.testing.crash.processes import die

Side: TypeAlias = Literal["before", "after"]


class Watch:
    """Base class of watches; does nothing."""

    def before(self, connection: sqlite3.Connection, statement: str) -> None:
        """Called before a statement; an exception raised here replaces its execution."""

    def after(self, connection: sqlite3.Connection, statement: str) -> None:
        """Called after a statement has been executed."""


class Count(Watch):
    """Collects the statements, in the order of their execution."""

    def __init__(self) -> None:
        self.statements: list[str] = []

    def after(self, connection: sqlite3.Connection, statement: str) -> None:
        """Add the statement."""
        self.statements.append(statement)


class Death(Watch):
    """Kills the process before or after one statement.

    Args:
        at: The number of the statement, from 1.
        when: Whether to die before or after it.
    """

    def __init__(self, at: int, when: Side) -> None:
        self._at = at
        self._when = when
        self._started = itertools.count(1)
        self._done = itertools.count(1)

    def before(self, connection: sqlite3.Connection, statement: str) -> None:
        """Die here, if this is the place."""
        if next(self._started) == self._at and self._when == "before":
            die()

    def after(self, connection: sqlite3.Connection, statement: str) -> None:
        """Die here, if this is the place."""
        if next(self._done) == self._at and self._when == "after":
            die()


class Fault(Enum):
    """Errors of SQLite when it cannot write: code, name and message."""

    FULL = (sqlite3.SQLITE_FULL, "SQLITE_FULL", "database or disk is full")
    BUSY = (sqlite3.SQLITE_BUSY, "SQLITE_BUSY", "database is locked")
    IOERR = (sqlite3.SQLITE_IOERR, "SQLITE_IOERR", "disk I/O error")

    def error(self) -> sqlite3.OperationalError:
        """Return the exception that Python's `sqlite3` raises for it."""
        code, name, text = self.value
        error = sqlite3.OperationalError(text)
        error.sqlite_errorcode, error.sqlite_errorname = code, name
        return error


class Failure(Watch):
    """Makes one write fail.

    Args:
        at: The number of the write, from 1.
        fault: The error that it fails with.

    Attributes:
        at: The number of the write.
        writes: Counter of the writes.
        hit: The statement that failed; empty if there were fewer writes.
    """

    def __init__(self, at: int, fault: Fault) -> None:
        self.hit = ""
        self.at = at
        self.writes = itertools.count(1)
        self._fault = fault

    def before(self, connection: sqlite3.Connection, statement: str) -> None:
        """Fail here, if this is the place."""
        if is_write(statement) and next(self.writes) == self.at:
            self.hit = statement
            raise self._fault.error()


def is_write(statement: str) -> bool:
    """Return whether a statement writes, or begins or commits a transaction.

    Examples:
        >>> [is_write(each) for each in ("SELECT 1", "insert INTO notes VALUES (1)", "COMMIT")]
        [False, True, True]
    """
    writes = r"\s*(?:INSERT|UPDATE|DELETE|REPLACE|CREATE|DROP|ALTER|BEGIN|COMMIT)"
    return re.match(writes, statement, re.IGNORECASE) is not None


@contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """Watch the statements of all connections that are opened inside the context.

    The connections stay watched afterwards. Statements that `sqlite3` adds itself, such as
    the `BEGIN` before the first change, count as part of the statement they precede.
    """
    connect: Callable[..., Any] = sqlite3.connect

    def connect_watched(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection: WatchedConnection = connect(*args, **{**kwargs, "factory": WatchedConnection})
        connection.watch = watch
        return connection

    sqlite3.connect = connect_watched  # type: ignore[assignment]
    try:
        yield
    finally:
        sqlite3.connect = connect


class WatchedCursor(sqlite3.Cursor):
    """A cursor that calls the watch before and after each statement."""

    def execute(self, sql: str, parameters: Any = (), /) -> Self:
        """Execute a statement."""
        with cast("WatchedConnection", self.connection).observe_statement(sql):
            return super().execute(sql, parameters)

    def executemany(self, sql: str, seq_of_parameters: Iterable[Any], /) -> Self:
        """Execute a statement for each row, each watched separately."""
        for parameters in seq_of_parameters:
            self.execute(sql, parameters)
        return self

    def executescript(self, sql_script: str, /) -> sqlite3.Cursor:
        """Commit, and execute the statements of a script, each watched separately."""
        self.connection.commit()
        level, self.connection.isolation_level = self.connection.isolation_level, None
        statement = ""
        try:
            for piece in sql_script.split(";"):
                statement += f"{piece};"
                # The body of a trigger has semicolons of its own.
                if sqlite3.complete_statement(statement) and piece.strip():
                    self.execute(statement)
                    statement = ""
        finally:
            self.connection.isolation_level = level
        return self


class WatchedConnection(sqlite3.Connection):
    """A connection that calls its watch before and after each statement."""

    watch: Watch = Watch()

    def cursor(self, factory: Any = WatchedCursor) -> Any:
        """Return a watched cursor."""
        return super().cursor(factory)

    def execute(self, sql: str, parameters: Any = (), /) -> Any:
        """Execute a statement with a cursor of its own."""
        return self.cursor().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> Any:
        """Execute a statement for each row with a cursor of its own."""
        return self.cursor().executemany(sql, parameters)

    def executescript(self, sql_script: str, /) -> Any:
        """Execute a script with a cursor of its own."""
        return self.cursor().executescript(sql_script)

    def commit(self) -> None:
        """Commit, if there is something to commit."""
        if self.in_transaction:
            with self.observe_statement("COMMIT"):
                super().commit()

    def rollback(self) -> None:
        """Roll back, if there is something to roll back."""
        if self.in_transaction:
            with self.observe_statement("ROLLBACK"):
                super().rollback()

    def __exit__(self, *raised: Any) -> Literal[False]:
        """Commit, or roll back after an error, as the module's own connections do."""
        if raised[0] is None:
            self.commit()
        else:
            self.rollback()
        return False

    @contextmanager
    def observe_statement(self, statement: str) -> Iterator[None]:
        """Call the watch before and after a statement."""
        self.watch.before(self, statement)
        yield
        self.watch.after(self, statement)
