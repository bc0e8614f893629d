"""Lets the n-th write of a trip fail, and goes on.

``python -m tests.crash.drivers.failing FOLDER STEP`` prints, as JSON, a report for every STEP-th
write and each way to fail: three that SQLite is said to have failed, and three in which it
really does, from then on and until the process ends.
"""

from __future__ import annotations

import gc
import json
import resource
import shutil
import sqlite3
import sys
from abc import abstractmethod
from contextlib import closing, suppress
from functools import partial
from hashlib import sha256
from pathlib import Path

from echelons.testing.crash import Count, Failure, Fault, fork, is_write, watched
from tests.crash.drivers.trials import WORLDS, Report, place_in, spread
from tests.crash.drivers.trip import Place, live, look


class Failing(Failure):
    """Lets one write fail, and compares what is stored before it and after it.

    Attributes:
        changed: Whether anything was stored between the two.
    """

    def __init__(self, at: int, fault: Fault, database: Path) -> None:
        super().__init__(at, fault)
        self.changed = False
        self._database = database
        self._before = ""

    def before(self, connection: sqlite3.Connection, statement: str) -> None:
        """Fail here, if this is the place."""
        self.compare()
        try:
            super().before(connection, statement)
        except sqlite3.OperationalError:
            self._before = stored(self._database)
            raise

    def compare(self) -> None:
        """Look whether what is stored is still what it was."""
        if self._before:
            self.changed = stored(self._database) != self._before
            self._before = ""


def stored(database: Path) -> str:
    """Return what tells two states of a database apart, as others see it."""
    with closing(sqlite3.Connection(str(database))) as connection:
        return sha256("\n".join(connection.iterdump()).encode()).hexdigest()


class Lasting(Failure):
    """Sees to it that SQLite cannot write any more, from the n-th write on."""

    def __init__(self, at: int, place: Place) -> None:
        super().__init__(at, Fault.FULL)
        self.place = place

    def before(self, connection: sqlite3.Connection, statement: str) -> None:
        """Begin here, or as soon as it is possible."""
        if is_write(statement) and next(self.writes) >= self.at and not self.hit:
            self.hit = statement if self.begin(connection) else ""

    @abstractmethod
    def begin(self, connection: sqlite3.Connection) -> bool:
        """Begin, and return whether that was possible."""


class Full(Lasting):
    """The database cannot grow."""

    def begin(self, connection: sqlite3.Connection) -> bool:
        pages = sqlite3.Connection.execute(connection, "PRAGMA page_count").fetchone()[0]
        sqlite3.Connection.execute(connection, f"PRAGMA max_page_count = {pages}").close()
        return True


class Locked(Lasting):
    """Somebody else writes, and does not come to an end."""

    def begin(self, connection: sqlite3.Connection) -> bool:
        self.other = sqlite3.Connection(str(self.place.database), timeout=0)
        with suppress(sqlite3.OperationalError):  # the trip is in the middle of a transaction
            self.other.execute("BEGIN IMMEDIATE")
        return self.other.in_transaction


class Unwritable(Lasting):
    """The system writes to no file beyond the end that the log of changes has now."""

    def begin(self, connection: sqlite3.Connection) -> bool:
        log = Path(f"{self.place.database}-wal")
        size = log.stat().st_size if log.exists() else 0
        resource.setrlimit(resource.RLIMIT_FSIZE, (max(size, 4096), resource.RLIM_INFINITY))
        return True


LASTING: dict[str, type[Full] | type[Locked] | type[Unwritable]] = {
    "full": Full,
    "locked": Locked,
    "unwritable": Unwritable,
}
WAYS = (*LASTING, *(fault.name for fault in Fault))


def failed(folder: Path, number: int) -> Report:
    """Let one write fail in one way, and return what came of it."""
    at, way = divmod(number, len(WAYS))
    return Trial(place_in(folder, number), at, WAYS[way]).report(number)


class Trial:
    """One write that fails."""

    def __init__(self, place: Place, at: int, way: str) -> None:
        self._place = place
        self._at = at
        self._way = way
        self._world = WORLDS[at % 2]

    def report(self, number: int) -> Report:
        """Let it fail, go on in this process or another, and return what came of it."""
        first = fork(self._live).result()
        report = {
            "trial": number,
            "deaths": [[self._way, self._at, self._world]],
            **first,
            "end": fork(self._finish).result(),
        }
        shutil.rmtree(self._place.folder)
        return report

    def _live(self) -> Report:
        if self._way in LASTING:
            lasting = LASTING[self._way](self._at, self._place)
            return {"error": self._failing(lasting), "hit": lasting.hit, "changed": False}
        failing = Failing(self._at, Fault[self._way], self._place.database)
        error = self._failing(failing)
        failing.compare()
        if self._at % 3:  # else another process goes on
            live(self._place, self._world)
        return {"error": error, "hit": failing.hit, "changed": failing.changed}

    def _failing(self, watch: Failure) -> str:
        with watched(watch):
            try:
                live(self._place, self._world, busy_timeout=0.02)
            except Exception as error:
                return f"{type(error).__name__}: {error}"
        return ""

    def _finish(self) -> Report:
        live(self._place, self._world)
        return look(self._place)


def main(folder: str, step: str) -> None:
    """Make the trials, and print what came of them; the first report is of no failure at all."""
    place, count = place_in(Path(folder), -1), Count()
    with watched(count):
        for world in WORLDS:
            live(place, world)
    writes = sum(map(is_write, count.statements))
    gc.freeze()
    chosen = [
        at * len(WAYS) + way
        for way in range(len(WAYS))
        for at in range(1 + way % int(step), writes + 1, int(step))
    ]
    end = {"trial": -1, "deaths": [], "end": look(place)}
    print(json.dumps([end, *spread(partial(failed, Path(folder)), chosen)]))


if __name__ == "__main__":
    main(*sys.argv[1:])
