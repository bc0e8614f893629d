"""Kills a process at each SQL statement of some work in turn, and reports what was left.

``python -m tests.checkpoints.ledger.drivers.killed FOLDER WORK`` prints, as JSON, what each
death left in the database, and at last what is there if nobody dies. Each process is a fork of
this one.
"""

from __future__ import annotations

import itertools
import json
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from langgraph.checkpoint.sqlite import SqliteSaver

from echelons import SqliteCheckpointer
from echelons.checkpoints.clock import utc_now
from echelons.checkpoints.ledger import Fence, Lease, SqliteLedger, Transaction
from echelons.checkpoints.storage.schema import migrate
from echelons.testing.crash import Death, Watch, WatchedConnection, fork, watched

HELD: list[Lease] = []


def prepare(database: Path) -> None:
    """Write what is there before the work begins."""
    with SqliteCheckpointer(database) as saver:
        ledger = SqliteLedger(saver)
        ledger.take_over("trip").release()
        ledger.append("mail", "before")
        ledger.compare_and_set("turn", None, "before")


def in_ledger(work: Callable[[SqliteLedger], object]) -> Callable[[Path, int], None]:
    """Return what does some work with a ledger, and dies at a statement."""

    def die(database: Path, last: int) -> None:
        with watched(Watch()), SqliteCheckpointer(database) as saver:
            ledger = SqliteLedger(saver)
            assert isinstance(saver.conn, WatchedConnection)
            saver.conn.watch = Death(last, "before")
            work(ledger)
            saver.conn.watch = Watch()

    return die


def append(ledger: SqliteLedger) -> None:
    """Append under a lease."""
    ledger.append("mail", "new", fence=Fence("trip", 1))


def both(ledger: SqliteLedger) -> None:
    """Append, and set a key, in one commit."""

    def work(open_: Transaction) -> None:
        found = open_.get("turn")
        open_.append("mail", "new")
        open_.compare_and_set("turn", found.version if found else None, "new")

    ledger.commit(work)


def lease(ledger: SqliteLedger) -> None:
    """Take a lease, and end without releasing it."""
    HELD.append(ledger.lease("trip"))


def migration(database: Path, last: int) -> None:
    """Bring a database up to date that has nothing but LangGraph's own tables."""
    with watched(Death(last, "before")), closing(sqlite3.connect(database)) as connection:
        migrate(connection, str(database), utc_now)


def bare(database: Path) -> None:
    """Make the tables of LangGraph, and nothing else."""
    with closing(sqlite3.connect(database)) as connection:
        SqliteSaver(connection).setup()


def held(database: Path) -> dict[str, Any]:
    """Return what a ledger holds after a death, and that it can still be used."""
    with SqliteCheckpointer(database) as saver:
        ledger = SqliteLedger(saver)
        mail = [entry.record for entry in ledger.read("mail")]
        turn = ledger.get("turn")
        with ledger.lease("trip") as again:
            epoch = again.epoch
        return {
            "mail": mail,
            "turn": turn.value if turn else None,
            "epoch": epoch,
            "next": ledger.append("mail", "after"),
            "files": sorted(each.name for each in database.parent.glob("*-lease-*")),
        }


def tables(database: Path) -> dict[str, Any]:
    """Return what a migration has left, and that another one finishes it."""
    with closing(sqlite3.connect(database)) as connection:
        query = "SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY name"
        left = [name for (name,) in connection.execute(query)]
    with SqliteCheckpointer(database) as saver:
        after = [name for (name,) in saver.conn.execute(query)]
    return {"left": left, "after": after}


WORKS = {
    "append": (prepare, in_ledger(append), held),
    "both": (prepare, in_ledger(both), held),
    "lease": (prepare, in_ledger(lease), held),
    "migration": (bare, migration, tables),
}


def deaths(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    """Yield what is left by the death at each statement, and at last by none."""
    before, work, look = WORKS[name]
    for last in itertools.count(1):
        database = folder / str(last) / "trips.sqlite"
        database.parent.mkdir()
        fork(partial(before, database)).result()
        working = fork(partial(work, database, last))
        ended = working.wait()
        yield look(database)
        if ended != -signal.SIGKILL:
            working.result()
            return


if __name__ == "__main__":
    print(json.dumps(list(deaths(Path(sys.argv[1]), sys.argv[2]))))
