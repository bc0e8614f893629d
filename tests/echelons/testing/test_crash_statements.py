"""Every statement of a watched connection is seen, whichever way it is executed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from echelons.testing.crash import Count, Failure, Fault, watched


@pytest.fixture
def count() -> Count:
    """A watch that keeps what it sees."""
    return Count()


@pytest.fixture
def connection(count: Count) -> Iterator[sqlite3.Connection]:
    """A watched connection with a table."""
    with watched(count):
        opened = sqlite3.connect(":memory:")
    with closing(opened):
        opened.execute("CREATE TABLE notes (text)")
        count.statements.clear()
        yield opened


def test_statements_of_connections_and_cursors_are_seen_once(
    connection: sqlite3.Connection, count: Count
) -> None:
    insert = "INSERT INTO notes VALUES (?)"
    connection.execute(insert, ("a",))
    connection.cursor().execute(insert, ("b",))
    connection.executemany(insert, [("c",), ("d",)])
    connection.commit()
    connection.commit()
    with connection:
        connection.execute(insert, ("e",))

    assert count.statements == [insert] * 4 + ["COMMIT", insert, "COMMIT"]
    assert connection.execute("SELECT count(*) FROM notes").fetchone() == (5,)


def test_the_statements_of_a_script_are_seen_one_by_one(
    connection: sqlite3.Connection, count: Count
) -> None:
    trigger = (
        "CREATE TRIGGER often AFTER DELETE ON notes BEGIN"
        " INSERT INTO notes VALUES ('x'); INSERT INTO notes VALUES ('y'); END;"
    )
    connection.execute("INSERT INTO notes VALUES ('a')")
    connection.executescript(f"{trigger} DELETE FROM notes;\n")

    assert [each.split()[0] for each in count.statements] == [
        "INSERT",
        "COMMIT",
        "CREATE",
        "DELETE",
    ]
    assert connection.execute("SELECT text FROM notes").fetchall() == [("x",), ("y",)]
    assert not connection.in_transaction


def test_an_error_within_a_with_block_is_rolled_back_and_goes_on(
    connection: sqlite3.Connection, count: Count
) -> None:
    with pytest.raises(ZeroDivisionError), connection:
        connection.execute("INSERT INTO notes VALUES ('a')")
        _ = 1 / 0

    assert count.statements[-1] == "ROLLBACK"
    assert connection.execute("SELECT count(*) FROM notes").fetchone() == (0,)


@pytest.mark.parametrize("fault", Fault)
def test_a_fault_is_what_sqlite_itself_raises_at_the_chosen_write_and_no_other(
    fault: Fault,
) -> None:
    failure = Failure(3, fault)
    with watched(failure), closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE notes (text)")
        connection.execute("SELECT 1")
        connection.execute("INSERT INTO notes VALUES ('a')")
        with pytest.raises(sqlite3.OperationalError) as caught:
            connection.commit()
        connection.commit()

    assert failure.hit == "COMMIT"
    assert (caught.value.sqlite_errorcode, caught.value.sqlite_errorname) == fault.value[:2]


def test_a_full_database_and_a_locked_one_say_the_words_that_the_faults_say(
    connection: sqlite3.Connection, tmp_path_factory: pytest.TempPathFactory
) -> None:
    connection.execute("PRAGMA max_page_count = 1")
    with pytest.raises(sqlite3.OperationalError) as full:
        connection.execute("INSERT INTO notes VALUES (zeroblob(100000))")
    path = tmp_path_factory.mktemp("locked") / "notes.sqlite"
    with closing(sqlite3.connect(path)) as first, closing(sqlite3.connect(path, 0)) as second:
        first.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError) as busy:
            second.execute("BEGIN IMMEDIATE")

    assert said(full.value) == Fault.FULL.value
    assert said(busy.value) == Fault.BUSY.value


def said(error: sqlite3.OperationalError) -> tuple[int, str, str]:
    return error.sqlite_errorcode, error.sqlite_errorname, str(error)


def test_connections_opened_later_are_as_they_were() -> None:
    with watched(Count()):
        pass
    with closing(sqlite3.connect(":memory:")) as connection:
        assert type(connection) is sqlite3.Connection
