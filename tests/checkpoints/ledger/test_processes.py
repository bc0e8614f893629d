"""Processes that share a database: none loses what another wrote, and death frees a lease."""

from __future__ import annotations

import fcntl
import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from echelons import SqliteCheckpointer
from echelons.checkpoints.ledger import Ledger, SqliteLedger, require_lease
from echelons.errors import LeaseLost, StorageError, ThreadBusy
from tests.checkpoints.ledger.drivers.remote import Remote
from tests.fork_server import ForkServer

Start = Callable[[int], list[Remote]]


@pytest.fixture
def ledger(saver: SqliteCheckpointer) -> Ledger:
    """The ledger of this process."""
    return SqliteLedger(saver)


@pytest.fixture(scope="module")
def idle() -> Iterator[list[Remote]]:
    """Processes that a test has left alive, for the next: to start one takes a second."""
    processes: list[Remote] = []
    yield processes
    for process in processes:
        process.kill()


@pytest.fixture
def start(
    idle: list[Remote], database: Path, saver: SqliteCheckpointer, fork_server: ForkServer
) -> Iterator[Start]:
    """What brings so many other processes to the same database."""
    started: list[Remote] = []

    def start(count: int) -> list[Remote]:
        started.extend(idle.pop() if idle else Remote(fork_server) for _ in range(count))
        for process in started:
            process.tell("open", str(database))
        for process in started:
            process.answer()
        return started

    yield start
    for process in started:
        if process.is_idle:
            idle.append(process)
        else:
            process.kill()


@pytest.fixture
def remote(start: Start) -> Remote:
    """Another process on the same database."""
    return start(1)[0]


def test_four_processes_that_append_lose_nothing_and_agree_on_the_order(
    start: Start, ledger: Ledger
) -> None:
    processes = start(4)
    for process in processes:
        process.tell("append", "mail", 50)
    written = {process.pid: process.answer() for process in processes}

    entries = ledger.read("mail")
    assert [entry.sequence for entry in entries] == list(range(1, 201))
    for pid, sequences in written.items():
        own = [entry for entry in entries if entry.record[0] == pid]
        assert [entry.sequence for entry in own] == sequences
        assert [entry.record[1] for entry in own] == list(range(50))


def test_a_lease_is_never_held_by_two_of_several_processes(start: Start, ledger: Ledger) -> None:
    processes = start(3)
    for process in processes:
        process.tell("count_under", "trip", "count", 25)

    assert [process.answer() for process in processes] == [0, 0, 0]
    found = ledger.get("count")
    assert found is not None
    assert found.value == 75
    with ledger.lease("trip") as lease:
        assert lease.epoch == 76


def test_a_holder_in_another_process_is_named(ledger: Ledger, remote: Remote) -> None:
    assert remote.do("lease", "trip") == 1

    with pytest.raises(ThreadBusy) as caught:
        ledger.lease("trip")

    assert caught.value.pid == remote.pid
    holder = ledger.get_holder("trip")
    assert holder is not None
    assert holder.pid == remote.pid
    remote.do("release", "trip")
    ledger.lease("trip").release()


def test_this_process_keeps_others_from_its_lease(ledger: Ledger, remote: Remote) -> None:
    with ledger.lease("trip"):
        answer = remote.do("lease", "trip")
        assert (answer["error"], answer["pid"]) == ("ThreadBusy", os.getpid())

    assert remote.do("lease", "trip") == 2


def test_kill_9_frees_a_lease_at_once(ledger: Ledger, remote: Remote, database: Path) -> None:
    remote.do("lease", "trip")
    remote.do("lease", "other")
    remote.kill()

    assert ledger.get_holder("trip") is None
    with ledger.lease("trip") as lease:
        assert lease.epoch == 2
    ledger.lease("other").release()
    assert not list(database.parent.glob("*-lease-*"))


def test_checks_of_a_dead_holder_do_not_mistake_each_other_for_it(
    ledger: Ledger, remote: Remote, database: Path
) -> None:
    remote.do("lease", "trip")
    remote.kill()
    (file,) = database.parent.glob("*-lease-*")

    with file.open("rb") as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)  # as one does who asks at this very moment
        assert ledger.get_holder("trip") is None
        ledger.lease("trip").release()


def test_a_fork_does_not_keep_the_lease_of_a_dead_process(ledger: Ledger, remote: Remote) -> None:
    remote.do("lease", "trip")
    forked, held = remote.do("fork", "trip")
    try:
        assert held == "free"
        with pytest.raises(ThreadBusy):
            ledger.lease("trip")
        remote.process.kill()
        remote.process.wait()  # its output stays open, for the fork has it, too
        os.kill(forked, 0)  # it lives

        ledger.lease("trip").release()
    finally:
        os.kill(forked, signal.SIGKILL)


def test_a_stopped_holder_keeps_its_lease(ledger: Ledger, remote: Remote) -> None:
    remote.do("lease", "trip")
    remote.stop()

    with pytest.raises(ThreadBusy) as caught:
        ledger.lease("trip")

    assert caught.value.pid == remote.pid
    remote.go_on()
    assert remote.do("append_under", "trip", "mail", "still mine") == 1


def test_a_holder_stopped_in_a_write_keeps_its_lease(database: Path, remote: Remote) -> None:
    remote.do("lease", "trip")
    with SqliteCheckpointer(database, busy_timeout=0) as impatient:
        ledger = SqliteLedger(impatient)
        remote.tell("stop_in_a_write", "mail")
        remote.wait_until_stopped()

        with pytest.raises(ThreadBusy):
            ledger.lease("trip")
        with pytest.raises(StorageError, match="locked"):
            ledger.append("mail", "fast")
        with pytest.raises(StorageError, match="locked"):
            ledger.lease("free")
        assert ledger.read("mail") == []

        remote.go_on()
        remote.answer()
        ledger.lease("free").release()
        assert [entry.record for entry in ledger.read("mail")] == ["slow"]


def test_run_taken_over_while_stopped_cannot_write(ledger: Ledger, remote: Remote) -> None:
    remote.do("lease", "trip")
    assert remote.do("append_under", "trip", "mail", "mine") == 1
    remote.stop()

    with ledger.take_over("trip") as lease:
        remote.go_on()
        answer = remote.do("append_under", "trip", "mail", "mine again")
        assert (answer["error"], answer["epoch"], answer["current"]) == ("LeaseLost", 1, 2)
        assert remote.do("lease", "trip")["error"] == "ThreadBusy"
        remote.do("release", "trip")
        assert ledger.append("mail", "theirs", fence=lease.fence) == 2

    assert [entry.record for entry in ledger.read("mail")] == ["mine", "theirs"]


def test_two_sessions_of_one_process_exclude_each_other(database: Path, ledger: Ledger) -> None:
    lease = ledger.lease("trip")
    with SqliteCheckpointer(database) as second:
        other = SqliteLedger(second)
        with pytest.raises(ThreadBusy):
            other.lease("trip")
        # Neither a refused lease, nor a connection that is closed, frees what another holds.
        other.lease("other").release()
    with pytest.raises(ThreadBusy):
        ledger.lease("trip")
    assert lease.held
    lease.release()


def test_a_database_is_one_under_all_its_names(
    database: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = database.parent / "link.sqlite"
    link.symlink_to(database)
    monkeypatch.chdir(database.parent)

    with ledger.lease("trip"):
        for name in (link, Path(database.name), Path(link.name)):
            with SqliteCheckpointer(name) as saver, pytest.raises(ThreadBusy):
                SqliteLedger(saver).lease("trip")
            # A relative name stays what it was when the database was opened.
        with SqliteCheckpointer(database.name) as saver:
            other = SqliteLedger(saver)
            monkeypatch.chdir("/")
            with pytest.raises(ThreadBusy):
                other.lease("trip")


def test_the_locks_of_a_database_are_its_owners_alone(database: Path, ledger: Ledger) -> None:
    with ledger.lease("trip"):
        (file,) = database.parent.glob("*-lease-*")
        assert file.stat().st_mode & 0o777 == 0o600

    assert not file.exists()


def test_a_lock_that_cannot_be_made_is_named_and_nothing_is_changed(tmp_path: Path) -> None:
    with SqliteCheckpointer(tmp_path / ("x" * 240)) as saver:
        ledger = SqliteLedger(saver)
        for take in (ledger.lease, ledger.take_over):
            with pytest.raises(StorageError, match="too long"):
                take("trip")

        assert ledger.get_holder("trip") is None
        with saver.cursor() as cursor:
            assert cursor.execute("SELECT * FROM ledger_leases").fetchall() == []
        assert ledger.append("mail", 1) == 1


def test_a_lease_survives_the_loss_of_its_file_through_its_fence(
    database: Path, ledger: Ledger
) -> None:
    old = ledger.lease("trip")
    next(database.parent.glob("*-lease-*")).unlink()

    with ledger.lease("trip"), pytest.raises(LeaseLost):
        ledger.append("mail", 1, fence=old.fence)
    old.release()


def test_epochs_that_a_restored_database_has_forgotten_are_not_given_again(
    database: Path, saver: SqliteCheckpointer, ledger: Ledger
) -> None:
    old = ledger.lease("trip")
    with saver.cursor() as cursor:
        cursor.execute("DELETE FROM ledger_leases")

    with ledger.lease("trip") as lease:
        assert lease.epoch == old.epoch + 1
        with pytest.raises(LeaseLost):
            ledger.append("mail", 1, fence=old.fence)
    old.release()


def test_a_lease_that_is_dropped_is_free_and_its_holder_is_warned(ledger: Ledger) -> None:
    lease = ledger.lease("trip")
    with pytest.warns(ResourceWarning):
        del lease

    ledger.lease("trip").release()


def test_a_transaction_of_the_checkpointer_can_be_fenced(
    saver: SqliteCheckpointer, database: Path, ledger: Ledger
) -> None:
    with saver.cursor() as cursor:
        cursor.execute("CREATE TABLE notes (text)")
    lease = ledger.lease("trip")

    with SqliteCheckpointer(database, busy_timeout=0) as second:
        with saver.cursor() as cursor:
            require_lease(cursor, lease.fence)
            # From the check to the commit, nobody can take the lease over.
            with pytest.raises(StorageError, match="locked"):
                SqliteLedger(second).take_over("trip")
            cursor.execute("INSERT INTO notes VALUES ('kept')")
        taken = SqliteLedger(second).take_over("trip")

    for check_first in (True, False):
        with pytest.raises(LeaseLost), saver.cursor() as cursor:
            if check_first:
                require_lease(cursor, lease.fence)
            cursor.execute("INSERT INTO notes VALUES ('lost')")
            require_lease(cursor, lease.fence)
    with saver.cursor() as cursor:
        require_lease(cursor, taken.fence)
        assert cursor.execute("SELECT text FROM notes").fetchall() == [("kept",)]
    lease.release()
    taken.release()


def test_a_closed_database_is_named(database: Path) -> None:
    with SqliteCheckpointer(database) as saver:
        ledger = SqliteLedger(saver)
        lease = ledger.lease("trip")
    with pytest.raises((StorageError, sqlite3.ProgrammingError)):
        ledger.append("mail", 1)
    lease.release()
    assert not lease.held
