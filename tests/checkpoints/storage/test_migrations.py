"""Databases of any age are brought up to date, and those of a newer version are let be."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver

from echelons import Agent, Session, SqliteCheckpointer, ThreadStore
from echelons.checkpoints.ledger import SqliteLedger
from echelons.checkpoints.open import open_existing
from echelons.checkpoints.storage.schema import EVENTS_SCHEMA, MIGRATION_STEPS, migrate
from echelons.errors import StorageError
from echelons.testing import ScriptedModel
from tests.error_codes import raises_code

KNOWN = list(range(1, len(MIGRATION_STEPS) + 1))


def steps(database: Path) -> list[int]:
    """Return the steps that a database has taken."""
    return [step for (step,) in rows(database, "SELECT step FROM echelons_schema ORDER BY step")]


def rows(database: Path, query: str) -> list[Any]:
    """Return what a query finds, without opening the database as ours."""
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(query).fetchall()


def schema(database: Path) -> list[Any]:
    """Return all that a database is made of."""
    return rows(database, "SELECT type, name, sql FROM sqlite_master ORDER BY type, name")


def test_a_new_database_takes_every_step_and_says_when(tmp_path: Path) -> None:
    noon = datetime(2031, 5, 17, 12, 0, tzinfo=UTC)
    database = tmp_path / "new.sqlite"
    SqliteCheckpointer(database, clock=lambda: noon).close()

    found = rows(database, "SELECT step, at FROM echelons_schema ORDER BY step")
    assert found == [(step, noon.isoformat()) for step in KNOWN]


def test_a_database_that_is_up_to_date_is_not_written_to(tmp_path: Path) -> None:
    database = tmp_path / "trips.sqlite"
    SqliteCheckpointer(database).close()
    before = database.read_bytes()

    with closing(sqlite3.connect(database)) as other:
        other.execute("BEGIN IMMEDIATE")  # nobody else can write
        SqliteCheckpointer(database, busy_timeout=0).close()

    assert database.read_bytes() == before


def test_a_database_from_before_the_steps_were_counted_is_brought_up_to_date(
    tmp_path: Path,
) -> None:
    new, old = tmp_path / "new.sqlite", tmp_path / "old.sqlite"
    for database in (new, old):
        agent = Agent("head", model=ScriptedModel(["Hi."]))
        with Session(agent, database, thread="trip") as session:
            session.send("Hello").result()
    with closing(sqlite3.connect(old)) as connection:
        names = "SELECT name FROM sqlite_master WHERE type = 'table'"
        known = ("checkpoints", "writes", "events")
        for (name,) in connection.execute(names).fetchall():
            if name not in known and not name.startswith("sqlite_"):
                connection.execute(f"DROP TABLE {name}")
        connection.executescript(EVENTS_SCHEMA)  # as it was opened in those days
    assert schema(old) != schema(new)

    with open_existing(old) as saver:
        assert [root.name for root in ThreadStore(saver).roots()] == ["trip"]
        assert SqliteLedger(saver).append("mail", 1) == 1

    assert schema(old) == schema(new)
    assert steps(old) == KNOWN


def test_an_older_view_of_delegations_is_replaced(tmp_path: Path) -> None:
    new, old = tmp_path / "new.sqlite", tmp_path / "old.sqlite"
    for database in (new, old):
        SqliteCheckpointer(database).close()
    with closing(sqlite3.connect(old)) as connection, connection:
        connection.execute("DELETE FROM echelons_schema WHERE step >= 4")
        connection.execute("DROP VIEW delegations")
        connection.execute(
            "CREATE VIEW delegations AS SELECT thread_id, at FROM events WHERE kind = 'delegation'"
        )

    SqliteCheckpointer(old).close()

    assert schema(old) == schema(new)
    assert steps(old) == KNOWN


def test_circuits_go_to_the_paths_that_have_their_names(tmp_path: Path) -> None:
    database = tmp_path / "trips.sqlite"
    SqliteCheckpointer(database).close()
    paths = ["head", "head/north/clerk", "head/south/clerk", "head/clerk_2", "desk", "desk/clerk"]
    paths += ["app/desk/porter", "head/north/clerk"]
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("DELETE FROM echelons_schema WHERE step >= 5")
        connection.executemany(
            "INSERT INTO events (thread_id, agent_thread_id, agent_path, checkpoint_ns,"
            " checkpoint_id, at, kind, key, data) VALUES ('', '', ?, '', '', '', 'message', ?, '')",
            [(path, str(number)) for number, path in enumerate(paths)],
        )
        connection.executemany(
            "INSERT INTO ledger_values (key, version, at, value) VALUES (?, ?, '', ?)",
            [
                ("breaker/head/clerk", 4, "{}"),
                ("breaker/desk/porter", 5, '{"failures": 1}'),
                ("breaker/head/gone", 6, "{}"),
                ("intensity/head/head/north", 7, "[1]"),
                ("thread/head/open", 8, "0"),
            ],
        )

    SqliteCheckpointer(database).close()

    assert steps(database) == KNOWN
    assert rows(database, "SELECT key, version, value FROM ledger_values ORDER BY key") == [
        ("circuit//app/desk/porter", 5, '{"failures": 1}'),
        ("circuit//head/north/clerk", 4, "{}"),
        ("circuit//head/south/clerk", 4, "{}"),
        ("intensity//head/north", 7, "[1]"),
        ("thread/head/open", 8, "0"),
    ]


def test_a_database_of_langgraph_alone_is_brought_up_to_date(tmp_path: Path) -> None:
    database = tmp_path / "theirs.sqlite"
    with closing(sqlite3.connect(database)) as connection:
        SqliteSaver(connection).setup()

    SqliteCheckpointer(database).close()

    assert steps(database) == KNOWN


def test_a_database_of_a_newer_version_is_refused_and_not_touched(tmp_path: Path) -> None:
    database = tmp_path / "trips.sqlite"
    SqliteCheckpointer(database).close()
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("INSERT INTO echelons_schema VALUES (4711, 'later')")
        connection.execute("DROP TABLE writes")  # as a newer version may have done
    before = database.read_bytes()

    with raises_code("database_too_new") as caught:
        SqliteCheckpointer(database)

    assert (caught.value.path, caught.value.found) == (str(database), 4711)
    assert caught.value.known == len(MIGRATION_STEPS)
    assert isinstance(caught.value, StorageError)
    assert database.read_bytes() == before
    with raises_code("database_too_new"):
        open_existing(database)


def test_an_app_can_number_its_own_database(tmp_path: Path) -> None:
    database = tmp_path / "app.sqlite"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA user_version = 4711")

    SqliteCheckpointer(database).close()

    assert rows(database, "PRAGMA user_version") == [(4711,)]
    assert steps(database) == KNOWN


def test_a_step_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = tmp_path / "trips.sqlite"
    with closing(sqlite3.connect(database)) as connection:
        SqliteSaver(connection).setup()
    before = schema(database)
    broken = (*MIGRATION_STEPS, "CREATE TABLE half (id);\nINSERT INTO nowhere VALUES (1);")
    with monkeypatch.context() as patch:
        patch.setattr("echelons.checkpoints.storage.schema.MIGRATION_STEPS", broken)
        with pytest.raises(StorageError, match="nowhere"):
            SqliteCheckpointer(database)

    assert schema(database) == before
    SqliteCheckpointer(database).close()
    assert steps(database) == KNOWN


def test_opening_waits_while_another_process_makes_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = tmp_path / "new.sqlite"
    waiting = Event()

    class Watched(sqlite3.Connection):
        def execute(self, *arguments: Any) -> sqlite3.Cursor:
            if arguments == ("BEGIN IMMEDIATE",):
                waiting.set()
            return super().execute(*arguments)

    connect = sqlite3.connect
    with closing(connect(database, check_same_thread=False)) as other, ThreadPoolExecutor() as pool:
        other.execute("BEGIN EXCLUSIVE")
        with monkeypatch.context() as patch:
            patch.setattr(sqlite3, "connect", partial(connect, factory=Watched))
            opening = pool.submit(lambda: SqliteCheckpointer(database, busy_timeout=2).close())
            pool.submit(opening.exception).add_done_callback(lambda _: waiting.set())
            assert waiting.wait(300)
            other.commit()
            opening.result()

    assert steps(database) == KNOWN


def test_concurrent_first_opens_of_a_database_all_succeed(tmp_path: Path) -> None:
    together = Barrier(6)

    def opened(number: int) -> list[int]:
        database = tmp_path / f"{number}.sqlite"
        together.wait()
        SqliteCheckpointer(database).close()
        return steps(database)

    for number in range(10):
        with ThreadPoolExecutor(6) as pool:
            assert list(pool.map(opened, [number] * 6)) == [KNOWN] * 6


def test_a_connection_that_has_taken_all_steps_takes_none(tmp_path: Path) -> None:
    with SqliteCheckpointer(tmp_path / "trips.sqlite") as saver:
        done: list[str] = []
        saver.conn.set_trace_callback(done.append)
        migrate(saver.conn, saver.path, lambda: datetime.now(UTC))

    assert not [statement for statement in done if not statement.startswith("SELECT")]
