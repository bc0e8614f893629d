"""Writes to a database all the time, as some other program might, until it is ended.

``python -m tests.crash.drivers.writer DATABASE`` makes a table of its own in it, says so with an
empty line, and adds a row in each transaction. A transaction takes a while: others must wait.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from contextlib import closing


def main(database: str) -> None:
    """Write, and never stop."""
    with closing(sqlite3.connect(database, timeout=60, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS foreign_notes (at REAL)")
        print(flush=True)
        while True:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO foreign_notes VALUES (?)", (time.time(),))
            time.sleep(0.003)
            connection.execute("COMMIT")
            time.sleep(0.001)


if __name__ == "__main__":
    main(sys.argv[1])
