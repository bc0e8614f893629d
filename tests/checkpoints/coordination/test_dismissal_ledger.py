"""The dismissals of a thread, read by a run: each once, whatever becomes of their log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from echelons import SqliteCheckpointer
from echelons.checkpoints.coordination.dismissal_ledger import DismissalLog, commit_dismissal
from echelons.checkpoints.ledger import build_key
from echelons.checkpoints.thread_events import WriteLocation
from echelons.guards.dismissals import Dismissal

THREAD = "t"
LOG = build_key(THREAD, "dismissals")


@pytest.fixture
def saver() -> Iterator[SqliteCheckpointer]:
    with SqliteCheckpointer(":memory:") as saver:
        yield saver


def dismiss(saver: SqliteCheckpointer, path: str, *, graceful: bool = False) -> None:
    where = WriteLocation(THREAD, "", "1", THREAD, "head")
    commit_dismissal(saver.ledger, where, Dismissal(path, graceful=graceful), ())


def refresh(saver: SqliteCheckpointer, log: DismissalLog) -> tuple[list[str], list[str]]:
    """Return the paths of the dismissals that hold, and of those that are new."""
    found, new = saver.ledger.query(lambda open_: log.refresh(open_, ()))
    return [each.path for each in found], [each.path for each in new]


def count_statements(saver: SqliteCheckpointer, log: DismissalLog) -> int:
    seen: list[str] = []
    saver.conn.set_trace_callback(seen.append)
    refresh(saver, log)
    saver.conn.set_trace_callback(None)
    return len(seen)


def test_run_learns_of_a_dismissal_once(saver: SqliteCheckpointer) -> None:
    log = DismissalLog(THREAD)
    assert refresh(saver, log) == ([], [])
    dismiss(saver, "head/a")
    assert refresh(saver, log) == (["head/a"], ["head/a"])
    dismiss(saver, "head/b")
    dismiss(saver, "head/b")
    assert refresh(saver, log) == (["head/a", "head/b"], ["head/b"])
    assert refresh(saver, DismissalLog(THREAD)) == (["head/a", "head/b"], ["head/a", "head/b"])


def test_a_stricter_dismissal_of_the_same_agent_is_new(saver: SqliteCheckpointer) -> None:
    log = DismissalLog(THREAD)
    dismiss(saver, "head/a", graceful=True)
    refresh(saver, log)
    dismiss(saver, "head/a")

    assert refresh(saver, log) == (["head/a"], ["head/a"])
    dismiss(saver, "head/a", graceful=True)
    assert refresh(saver, log) == (["head/a"], [])


def test_a_refresh_costs_the_same_after_a_thousand_dismissals(saver: SqliteCheckpointer) -> None:
    log = DismissalLog(THREAD)
    dismiss(saver, "head/first")
    refresh(saver, log)
    dismiss(saver, "head/second")
    few = count_statements(saver, log)
    for number in range(1000):
        dismiss(saver, f"head/agent{number}")
    refresh(saver, log)
    dismiss(saver, "head/last")

    assert count_statements(saver, log) == few


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE ledger_entries SET record = 'no JSON' WHERE stream = ?",
        "UPDATE ledger_entries SET record = '7' WHERE stream = ?",
        """UPDATE ledger_entries SET record = '"thread/t/elsewhere"' WHERE stream = ?""",
    ],
)
def test_a_damaged_log_hides_no_dismissal(saver: SqliteCheckpointer, damage: str) -> None:
    log = DismissalLog(THREAD)
    dismiss(saver, "head/a")
    refresh(saver, log)
    dismiss(saver, "head/b")
    with saver.cursor() as cursor:
        cursor.execute(damage, (LOG,))

    assert refresh(saver, log) == (["head/a", "head/b"], ["head/b"])
    dismiss(saver, "head/c")
    assert refresh(saver, log)[1] == ["head/c"]


def test_dismissals_without_a_log_hold(saver: SqliteCheckpointer) -> None:
    dismiss(saver, "head/a")
    with saver.cursor() as cursor:
        cursor.execute("DELETE FROM ledger_entries WHERE stream = ?", (LOG,))
    log = DismissalLog(THREAD)

    assert refresh(saver, log) == (["head/a"], ["head/a"])
    dismiss(saver, "head/b")
    assert refresh(saver, log) == (["head/a", "head/b"], ["head/b"])
