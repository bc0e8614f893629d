"""Every kind of ledger: a test that takes ``ledger`` runs on each of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import pytest

from echelons import SqliteCheckpointer
from echelons.checkpoints.ledger import Ledger, MemoryLedger, SqliteLedger
from echelons.checkpoints.ledger.transaction import MAX_RECORD_SIZE

KINDS = ("memory", "file", "file in threads", "no file")
NOON = datetime(2031, 5, 17, 12, 0, tzinfo=UTC)


class MakeLedger(Protocol):
    """What makes an empty ledger of a kind."""

    def __call__(self, *, limit: int = MAX_RECORD_SIZE) -> Ledger: ...


@pytest.fixture(params=KINDS)
def make_ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeLedger]:
    """What makes an empty ledger of each kind in turn, whose clock stands at noon."""
    kind = request.param
    with ExitStack() as opened:

        def make(*, limit: int = MAX_RECORD_SIZE) -> Ledger:
            if kind == "memory":
                return MemoryLedger(clock=lambda: NOON, limit=limit)
            path = ":memory:" if kind == "no file" else tmp_path / "ledger.sqlite"
            saver = opened.enter_context(
                SqliteCheckpointer(path, offload=kind == "file in threads")
            )
            return SqliteLedger(saver, clock=lambda: NOON, limit=limit)

        yield make


@pytest.fixture
def ledger(make_ledger: MakeLedger) -> Ledger:
    """An empty ledger whose clock stands at noon."""
    return make_ledger()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Where a database of threads is, or will be."""
    return tmp_path / "trips.sqlite"


@pytest.fixture
def saver(database: Path) -> Iterator[SqliteCheckpointer]:
    """A checkpointer on it."""
    with SqliteCheckpointer(database) as opened:
        yield opened
