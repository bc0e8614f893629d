"""Commits, on every kind of ledger: all or nothing, and nobody in between."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest

from echelons.checkpoints.ledger import Ledger, Transaction, VersionedValue
from echelons.errors import LeaseLost, ThreadBusy


def test_a_commit_stores_all_that_its_work_did(ledger: Ledger) -> None:
    def begin_turn(open_: Transaction) -> int:
        assert open_.compare_and_set("turn", None, "begun") is not None
        return open_.append("turns", "turn")

    assert ledger.commit(begin_turn) == 1

    assert ledger.get_last_sequence("turns") == 1
    assert ledger.list_keys() == ["turn"]


def test_a_commit_sees_what_it_has_done(ledger: Ledger) -> None:
    def work(open_: Transaction) -> tuple[Any, ...]:
        version = open_.compare_and_set("turn", None, 1)
        assert version is not None
        again = open_.compare_and_set("turn", version, 2)
        open_.append("mail", "x")
        value = open_.get("turn")
        return (
            value == VersionedValue(2, again or 0),
            open_.get_last_sequence("mail"),
            open_.list_keys("t"),
        )

    assert ledger.commit(work) == (True, 1, ["turn"])


def test_nothing_is_left_of_a_commit_that_fails(ledger: Ledger) -> None:
    ledger.append("mail", "before")
    kept = ledger.compare_and_set("kept", None, "before")
    gone = ledger.compare_and_set("gone", None, "before")
    assert kept is not None
    assert gone is not None

    def work(open_: Transaction) -> None:
        open_.append("mail", "lost")
        open_.append("other", "lost")
        changed = open_.compare_and_set("kept", kept, "lost")
        assert changed is not None
        open_.compare_and_set("kept", changed, "lost again")
        open_.compare_and_set("new", None, "lost")
        assert open_.delete("gone", gone)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ledger.commit(work)

    assert [entry.record for entry in ledger.read("mail")] == ["before"]
    assert ledger.read("other") == []
    assert ledger.get("kept") == VersionedValue("before", kept)
    assert ledger.get("gone") == VersionedValue("before", gone)
    assert ledger.list_keys() == ["gone", "kept"]
    assert ledger.append("mail", "after") == 2


def test_a_commit_keeps_others_out_until_it_is_done(ledger: Ledger) -> None:
    written = threading.Event()

    def write() -> None:
        ledger.append("mail", "other")
        written.set()

    other = threading.Thread(target=write)

    def work(open_: Transaction) -> bool:
        open_.append("mail", "first")
        other.start()
        came = written.wait(0.1)  # long enough for a write that nobody keeps out
        open_.append("mail", "second")
        return came

    assert not ledger.commit(work)
    other.join()
    assert [entry.record for entry in ledger.read("mail")] == ["first", "second", "other"]


async def test_the_twins_do_what_their_originals_do(ledger: Ledger) -> None:
    async with await ledger.alease("trip") as lease:
        fence = lease.fence
        with pytest.raises(ThreadBusy):
            await ledger.alease("trip")
        append = partial(ledger.commit, lambda open_: open_.append("mail", 1))
        assert await ledger.arun(append) == 1
        assert await ledger.arun(lambda: ledger.append("mail", 2, fence=fence)) == 2
    assert not lease.held
    async with await ledger.atake_over("trip"):
        with pytest.raises(LeaseLost):
            await ledger.arun(lambda: ledger.append("mail", 3, fence=fence))
