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

from echelons.testing.crash.processes import Process, ProcessFailed, die, fork, run
from echelons.testing.crash.statements import (
    Count,
    Death,
    Failure,
    Fault,
    Side,
    Watch,
    WatchedConnection,
    is_write,
    watched,
)

__all__ = [
    "Count",
    "Death",
    "Failure",
    "Fault",
    "Process",
    "ProcessFailed",
    "Side",
    "Watch",
    "WatchedConnection",
    "die",
    "fork",
    "is_write",
    "run",
    "watched",
]
