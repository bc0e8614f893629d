"""Leases, on every kind of ledger: one holder, and a fence for who was not told."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from echelons import SqliteCheckpointer
from echelons.checkpoints.ledger import Fence, Lease, Ledger, Transaction
from echelons.errors import LeaseLost, ThreadBusy
from tests.checkpoints.ledger.drivers.together import at_once

NOON = "2031-05-17T12:00:00+00:00"


def test_second_holder_is_refused_at_once_with_the_first(ledger: Ledger) -> None:
    with ledger.lease("trip") as lease, pytest.raises(ThreadBusy) as caught:
        assert lease.held
        ledger.lease("trip")

    assert caught.value.thread == "trip"
    assert caught.value.pid == os.getpid()
    assert caught.value.since == NOON


def test_a_lease_is_free_again_when_it_is_released(ledger: Ledger) -> None:
    lease = ledger.lease("trip")
    lease.release()
    lease.release()

    assert not lease.held
    assert ledger.get_holder("trip") is None
    with ledger.lease("trip") as again:
        assert again.held


def test_a_lease_is_released_when_its_block_fails(ledger: Ledger) -> None:
    with pytest.raises(ZeroDivisionError), ledger.lease("trip"):
        raise ZeroDivisionError

    ledger.lease("trip").release()


def test_a_holder_is_known_only_while_it_holds(ledger: Ledger) -> None:
    assert ledger.get_holder("trip") is None

    with ledger.lease("trip") as lease:
        holder = ledger.get_holder("trip")
        assert holder is not None
        assert (holder.epoch, holder.since) == (lease.epoch, lease.since)

    assert ledger.get_holder("trip") is None


def test_leases_of_different_names_do_not_meet(ledger: Ledger) -> None:
    names = [f"trip {number}" for number in range(50)] + ["trip", "TRIP", "tri", "trip-lease-1"]

    leases = [ledger.lease(name) for name in names]

    assert all(lease.held for lease in leases)
    for lease in leases:
        lease.release()


def test_the_epoch_of_a_name_only_grows(ledger: Ledger) -> None:
    epochs = []
    for _ in range(3):
        with ledger.lease("trip") as lease:
            epochs.append(lease.epoch)
    with ledger.lease("other") as other:
        assert other.epoch == 1

    assert epochs == [1, 2, 3]


def test_of_threads_that_want_a_lease_one_gets_it(ledger: Ledger) -> None:
    def take(_: int) -> Any:
        try:
            return ledger.lease("trip")
        except ThreadBusy as busy:
            return busy

    for _ in range(3):
        taken = at_once(12, take)
        held = [each for each in taken if not isinstance(each, ThreadBusy)]
        assert len(held) == 1
        held[0].release()


def test_a_lease_that_was_refused_leaves_no_trace(ledger: Ledger) -> None:
    with ledger.lease("trip") as lease:
        for _ in range(3):
            with pytest.raises(ThreadBusy):
                ledger.lease("trip")
        ledger.commit(lambda open_: open_.require_lease(lease.fence))

    with ledger.lease("trip") as again:
        assert again.epoch == lease.epoch + 1


def test_holder_of_a_lease_can_write(ledger: Ledger) -> None:
    with ledger.lease("trip") as lease:
        assert ledger.append("mail", 1, fence=lease.fence) == 1
        version = ledger.compare_and_set("turn", None, 1, fence=lease.fence)
        assert version is not None
        assert ledger.delete("turn", version, fence=lease.fence)


def test_run_that_was_taken_over_cannot_write(ledger: Ledger) -> None:
    old = ledger.lease("trip")
    version = ledger.compare_and_set("turn", None, "mine", fence=old.fence)
    assert version is not None
    new = ledger.take_over("trip")

    writes: list[Callable[[], object]] = [
        lambda: ledger.append("mail", 1, fence=old.fence),
        lambda: ledger.compare_and_set("turn", version, 1, fence=old.fence),
        lambda: ledger.compare_and_set("other", None, 1, fence=old.fence),
        lambda: ledger.delete("turn", version, fence=old.fence),
        lambda: ledger.commit(lambda open_: open_.require_lease(old.fence)),
    ]
    for write in writes:
        with pytest.raises(LeaseLost) as caught:
            write()
        assert (caught.value.thread, caught.value.epoch, caught.value.current) == ("trip", 1, 2)

    assert ledger.get_last_sequence("mail") == 0
    assert ledger.list_keys() == ["turn"]
    assert ledger.append("mail", "theirs", fence=new.fence) == 1
    old.release()
    new.release()


def test_fence_holds_after_release_until_next_lease(ledger: Ledger) -> None:
    lease = ledger.lease("trip")
    lease.release()
    assert ledger.append("mail", "late", fence=lease.fence) == 1

    ledger.lease("trip").release()
    with pytest.raises(LeaseLost):
        ledger.append("mail", "too late", fence=lease.fence)


def test_what_was_taken_over_stays_taken_when_the_old_holder_releases(ledger: Ledger) -> None:
    old = ledger.lease("trip")
    with ledger.take_over("trip") as new:
        old.release()
        assert new.held
        with pytest.raises(ThreadBusy):
            ledger.lease("trip")


def test_lease_without_holder_can_be_taken_over(ledger: Ledger) -> None:
    with ledger.take_over("trip") as lease:
        assert lease.epoch == 1
        with pytest.raises(ThreadBusy):
            ledger.lease("trip")


def test_a_fence_of_a_name_that_was_never_leased_is_refused(ledger: Ledger) -> None:
    with pytest.raises(LeaseLost) as caught:
        ledger.append("mail", 1, fence=Fence("trip", 1))

    assert caught.value.current == 0


def test_a_fence_holds_for_its_own_name_alone(ledger: Ledger) -> None:
    with ledger.lease("trip") as trip, ledger.lease("other"):
        ledger.take_over("other").release()

        assert ledger.append("mail", 1, fence=trip.fence) == 1


def test_a_fence_stops_a_commit_as_a_whole(ledger: Ledger) -> None:
    old = ledger.lease("trip")
    ledger.take_over("trip").release()

    def work(open_: Transaction) -> None:
        open_.append("mail", 1)
        open_.require_lease(old.fence)

    with pytest.raises(LeaseLost):
        ledger.commit(work)

    assert ledger.read("mail") == []
    old.release()


async def test_a_taker_that_is_cancelled_while_a_thread_takes_a_lease_leaves_it_free(
    tmp_path: Path,
) -> None:
    with SqliteCheckpointer(tmp_path / "trips.sqlite", offload=True) as saver:
        for rounds in range(4):
            taking = asyncio.create_task(saver.ledger.alease("trip"))
            for _ in range(rounds):
                await asyncio.sleep(0)
            taking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await taking
            assert saver.ledger.get_holder("trip") is None


async def test_a_release_that_is_cancelled_before_a_thread_takes_it_frees_the_lease(
    tmp_path: Path,
) -> None:
    with SqliteCheckpointer(tmp_path / "trips.sqlite", offload=True) as saver:
        lease = saver.ledger.lease("trip")
        with busy_worker():
            releasing = asyncio.create_task(lease.arelease())
            await asyncio.sleep(0)  # it is queued behind the work that keeps the only worker
            releasing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await releasing

            assert not lease.held
            assert saver.ledger.get_holder("trip") is None


async def test_a_taker_that_is_cancelled_before_a_thread_takes_the_lease_does_not_wait_for_it(
    tmp_path: Path,
) -> None:
    with SqliteCheckpointer(tmp_path / "trips.sqlite", offload=True) as saver:
        with busy_worker():
            taking = asyncio.create_task(saver.ledger.alease("trip"))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            taking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(taking, 120)

        assert saver.ledger.query(lambda open_: open_.get_last_holder("trip")) is None


async def test_a_taker_that_is_cancelled_twice_while_a_thread_takes_a_lease_leaves_it_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Lease] = []  # for a lease that is dropped would be freed by that
    begun, go_on = threading.Event(), threading.Event()
    take = Ledger.lease

    def take_slowly(ledger: Ledger, name: str) -> Lease:
        begun.set()
        go_on.wait()
        taken.append(take(ledger, name))
        return taken[-1]

    monkeypatch.setattr(Ledger, "lease", take_slowly)
    with SqliteCheckpointer(tmp_path / "trips.sqlite", offload=True) as saver:
        worker = only_worker()
        taking = asyncio.create_task(saver.ledger.alease("trip"))
        while not begun.is_set():
            await asyncio.sleep(0)
        for _ in range(2):
            taking.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await taking
        go_on.set()
        worker.shutdown()

        assert [lease.held for lease in taken] == [False]
        assert saver.ledger.get_holder("trip") is None


def only_worker() -> ThreadPoolExecutor:
    """Have the running loop offload to one thread, and return its executor."""
    worker = ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(worker)
    return worker


@contextmanager
def busy_worker() -> Iterator[None]:
    """Keep the only thread that the running loop offloads to."""
    worker, go_on = only_worker(), threading.Event()
    worker.submit(go_on.wait)
    try:
        yield
    finally:
        go_on.set()
        worker.shutdown()
