"""A crash kit: processes to kill, stop and wake, and SQLite that dies or fails on request.

Echelons tests its crash guarantees with it, and an application can test its own. Nothing is
simulated: deaths are `SIGKILL` of real processes.

Examples:
    >>> import sqlite3
    >>> from echelons.testing.crash import Failure, Fault, watched
    >>> with watched(Failure(2, Fault.FULL)):
    ...     connection = sqlite3.connect(":memory:")
    >>> for statement in ("CREATE TABLE notes (text)", "INSERT INTO notes VALUES ('x')"):
    ...     connection.execute(statement).close()
    Traceback (most recent call last):
    sqlite3.OperationalError: database or disk is full
    >>> connection.close()
"""

from __future__ import annotations

import itertools
import json
import os
import re
import select
import signal
import sqlite3
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any, Literal, NoReturn, Self, TypeAlias, cast


class ProcessFailed(Exception):
    """A process did not finish its work: it raised an exception, or it was killed.

    Attributes:
        code: Its exit code, or the negative number of the signal that killed it.
        output: Its traceback or error output; empty if it was killed.
    """

    def __init__(self, code: int, output: str) -> None:
        self.code = code
        self.output = output
        super().__init__(f"the process ended with {code}\n{output}".strip())


class Process:
    """A child process.

    Attributes:
        pid: Its process id.
    """

    def __init__(self, pid: int, output: int) -> None:
        self.pid = pid
        self._output = output
        self._output_bytes = b""
        self._code: int | None = None

    def kill(self) -> int:
        """Kill it unless it has ended, wait for its end, and return its exit code."""
        if self._code is None:
            os.kill(self.pid, signal.SIGKILL)
        return self.wait()

    def kill_after(self, seconds: float) -> int:
        """Kill it after that many seconds unless it has ended; return its exit code."""
        if self._code is None and not select.select([self._output], [], [], seconds)[0]:
            os.kill(self.pid, signal.SIGKILL)
        return self.wait()

    def stop(self) -> bool:
        """Stop it unless it has ended, and return whether it is stopped."""
        if self._code is None:
            os.kill(self.pid, signal.SIGSTOP)
        return self.wait_until_stopped()

    def wait_until_stopped(self) -> bool:
        """Wait until it has stopped, perhaps by itself; return `False` if it ended instead."""
        if self._code is not None:
            return False
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            self._record_end(status)
            return False
        return True

    def wake(self) -> None:
        """Let it continue where it was stopped."""
        if self._code is None:
            os.kill(self.pid, signal.SIGCONT)

    def wait(self) -> int:
        """Wait for its end; return its exit code, or the negative number of a signal."""
        if self._code is None:
            self._read()
            self._record_end(os.waitpid(self.pid, 0)[1])
        assert self._code is not None  # noqa: S101
        return self._code

    def result(self) -> Any:
        """Wait for its end, and return the value that its work returned.

        Raises:
            ProcessFailed: The work did not finish.
        """
        code = self.wait()
        if code != 0:
            raise ProcessFailed(code, self._output_bytes.decode())
        return json.loads(self._output_bytes)

    def _read(self) -> None:
        while piece := os.read(self._output, 65536):
            self._output_bytes += piece

    def _record_end(self, status: int) -> None:
        self._code = os.waitstatus_to_exitcode(status)
        self._read()
        os.close(self._output)


def fork(work: Callable[[], Any]) -> Process:
    """Call a function in a fork of this process; its return value must be JSON.

    Call this from a process without threads or open databases, because a fork inherits
    neither threads nor locks. `run` starts such a process.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        # Do the work, write its result to the pipe, and exit without running exit handlers.
        code, output = 1, ""
        try:
            output = json.dumps(work())
            code = 0
        except BaseException:  # noqa: BLE001  sent to the parent
            output = traceback.format_exc()
        finally:
            with os.fdopen(writer, "w") as pipe:
                pipe.write(output)
            os._exit(code)
    os.close(writer)
    return Process(pid, reader)


def run(module: str, *arguments: str, folder: Path | None = None) -> Any:
    """Run a module in a new interpreter, and return the JSON that it prints.

    Args:
        module: Its name, as after `python -m`.
        arguments: Its command-line arguments.
        folder: Its working folder, from which it is imported.

    Raises:
        ProcessFailed: Its exit code was not 0.
    """
    command = [sys.executable, "-m", module, *arguments]
    ended = subprocess.run(  # noqa: S603
        command, cwd=folder, capture_output=True, text=True, check=False
    )
    if ended.returncode != 0:
        raise ProcessFailed(ended.returncode, ended.stderr)
    return json.loads(ended.stdout)


def die() -> NoReturn:
    """Kill this process as `kill -9` does, without any cleanup or flush."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


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
