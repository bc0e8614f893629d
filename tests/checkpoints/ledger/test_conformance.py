"""What every ledger promises, asked of each kind of it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from echelons.checkpoints.ledger import Entry, Fence, Ledger, Transaction, Value
from echelons.errors import LeaseLost, ThreadBusy

T = TypeVar("T")
NOON = "2031-05-17T12:00:00+00:00"


def at_once(count: int, work: Callable[[int], T]) -> list[T]:
    """Do some work in so many threads that all begin together."""
    together = threading.Barrier(count)

    def begin(number: int) -> T:
        together.wait()
        return work(number)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # or a thread is often done before the next one begins
    try:
        with ThreadPoolExecutor(count) as pool:
            return list(pool.map(begin, range(count)))
    finally:
        sys.setswitchinterval(interval)


# Streams


def test_records_come_back_in_the_order_in_which_they_were_appended(ledger: Ledger) -> None:
    assert [ledger.append("mail", {"n": n}) for n in range(3)] == [1, 2, 3]

    assert ledger.read("mail") == [
        Entry(1, NOON, {"n": 0}),
        Entry(2, NOON, {"n": 1}),
        Entry(3, NOON, {"n": 2}),
    ]


def test_streams_are_counted_each_on_its_own(ledger: Ledger) -> None:
    ledger.append("a", 1)

    assert ledger.append("b", 2) == 1
    assert ledger.last("a") == ledger.last("b") == 1
    assert [entry.record for entry in ledger.read("b")] == [2]


def test_a_stream_that_was_never_written_is_empty(ledger: Ledger) -> None:
    assert ledger.read("nothing") == []
    assert ledger.last("nothing") == 0


@pytest.mark.parametrize(
    ("after", "limit", "found"),
    [
        (0, None, [1, 2, 3, 4]),
        (2, None, [3, 4]),
        (4, None, []),
        (99, None, []),
        (-5, None, [1, 2, 3, 4]),
        (-5, 2, [1, 2]),
        (1, 2, [2, 3]),
        (1, 0, []),
        (1, -1, []),
        (2**80, None, []),
        (0, 2**80, [1, 2, 3, 4]),
    ],
)
def test_a_reader_goes_on_after_what_it_knows(
    ledger: Ledger, after: int, limit: int | None, found: list[int]
) -> None:
    for number in range(1, 5):
        ledger.append("mail", number)

    assert [entry.sequence for entry in ledger.read("mail", after, limit)] == found


def test_an_optimistic_append_succeeds_only_at_the_end_that_was_seen(ledger: Ledger) -> None:
    assert ledger.append_after("mail", 0, "first") == 1
    assert ledger.append_after("mail", 0, "late") is None
    assert ledger.append_after("mail", 7, "early") is None
    assert ledger.append_after("mail", 1, "second") == 2

    assert [entry.record for entry in ledger.read("mail")] == ["first", "second"]


def test_of_threads_that_append_after_the_same_entry_one_succeeds(ledger: Ledger) -> None:
    written = at_once(12, lambda number: ledger.append_after("mail", 0, number))

    assert sorted(written, key=str) == [1, *[None] * 11]
    assert ledger.last("mail") == 1


def test_threads_that_append_lose_nothing_and_leave_no_gap(ledger: Ledger) -> None:
    def append(number: int) -> list[int]:
        return [ledger.append("mail", [number, place]) for place in range(10)]

    written = at_once(8, append)

    entries = ledger.read("mail")
    assert [entry.sequence for entry in entries] == list(range(1, 81))
    for number, sequences in enumerate(written):
        own = [entry for entry in entries if entry.record[0] == number]
        assert [entry.sequence for entry in own] == sequences
        assert [entry.record[1] for entry in own] == list(range(10))


# Keys


def test_a_key_that_was_never_set_is_not_there(ledger: Ledger) -> None:
    assert ledger.get("turn") is None
    assert ledger.keys() == []


def test_a_key_is_set_once_by_who_expects_nothing(ledger: Ledger) -> None:
    version = ledger.compare_and_set("turn", None, "begun")

    assert version is not None
    assert ledger.compare_and_set("turn", None, "begun again") is None
    assert ledger.get("turn") == Value("begun", version)


def test_a_key_is_set_only_by_who_knows_its_version(ledger: Ledger) -> None:
    first = ledger.compare_and_set("turn", None, 1)
    assert first is not None
    second = ledger.compare_and_set("turn", first, 2)
    assert second is not None
    assert second > first

    for unknown in (first, second + 1, 0, -1, 2**80):
        assert ledger.compare_and_set("turn", unknown, 3) is None
    assert ledger.compare_and_set("other", first, 3) is None
    assert ledger.get("turn") == Value(2, second)


def test_null_is_a_value_and_not_an_absence(ledger: Ledger) -> None:
    version = ledger.compare_and_set("turn", None, None)

    assert version is not None
    assert ledger.get("turn") == Value(None, version)
    assert ledger.compare_and_set("turn", None, 1) is None


def test_a_key_is_deleted_only_by_who_knows_its_version(ledger: Ledger) -> None:
    version = ledger.compare_and_set("turn", None, 1)
    assert version is not None

    assert not ledger.delete("turn", version + 1)
    assert not ledger.delete("other", version)
    assert ledger.delete("turn", version)
    assert not ledger.delete("turn", version)
    assert ledger.get("turn") is None


def test_a_version_is_not_given_again_to_a_key_that_was_deleted(ledger: Ledger) -> None:
    seen = set()
    for number in range(5):
        version = ledger.compare_and_set("turn", None, number)
        assert version is not None
        assert version not in seen
        seen.add(version)
        assert ledger.delete("turn", version)

    assert ledger.compare_and_set("turn", None, "new") is not None
    assert all(ledger.compare_and_set("turn", old, "stale") is None for old in seen)


def test_keys_are_listed_by_what_they_begin_with_in_order(ledger: Ledger) -> None:
    keys = ["a", "a/", "a/1", "a/10", "a/2", "a0", "A/1", "ä/1", "a/\uffff", "a/\U0010ffff", "b%_*"]
    for key in keys:
        ledger.compare_and_set(key, None, 0)

    assert ledger.keys() == sorted(keys)
    assert ledger.keys("a/") == ["a/", "a/1", "a/10", "a/2", "a/\uffff", "a/\U0010ffff"]
    assert ledger.keys("a/\U0010ffff") == ["a/\U0010ffff"]
    assert ledger.keys("b%") == ["b%_*"]
    assert ledger.keys("%") == []


def test_twenty_threads_that_count_lose_no_increment(ledger: Ledger) -> None:
    def count(_: int) -> None:
        for _ in range(15):
            while True:
                found = ledger.get("count")
                value, version = found or (0, None)
                if ledger.compare_and_set("count", version, value + 1) is not None:
                    break

    at_once(20, count)

    found = ledger.get("count")
    assert found is not None
    assert found.value == 300


def test_what_is_stored_does_not_change_with_what_was_given_or_read(ledger: Ledger) -> None:
    given: dict[str, Any] = {"list": [1]}
    ledger.append("mail", given)
    ledger.compare_and_set("turn", None, given)

    given["list"].append(2)
    ledger.read("mail")[0].record["list"].append(3)
    found = ledger.get("turn")
    assert found is not None
    found.value["list"].append(4)

    found = ledger.get("turn")
    assert found is not None
    assert found.value == ledger.read("mail")[0].record == {"list": [1]}


# Commits


def test_a_commit_stores_all_that_its_work_did(ledger: Ledger) -> None:
    def begin_turn(open_: Transaction) -> int:
        assert open_.compare_and_set("turn", None, "begun") is not None
        return open_.append("turns", "turn")

    assert ledger.commit(begin_turn) == 1

    assert ledger.last("turns") == 1
    assert ledger.keys() == ["turn"]


def test_a_commit_sees_what_it_has_done(ledger: Ledger) -> None:
    def work(open_: Transaction) -> tuple[Any, ...]:
        version = open_.compare_and_set("turn", None, 1)
        assert version is not None
        again = open_.compare_and_set("turn", version, 2)
        open_.append("mail", "x")
        value = open_.get("turn")
        return value == Value(2, again or 0), open_.last("mail"), open_.keys("t")

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
    assert ledger.get("kept") == Value("before", kept)
    assert ledger.get("gone") == Value("before", gone)
    assert ledger.keys() == ["gone", "kept"]
    assert ledger.append("mail", "after") == 2


# Leases


def test_a_second_holder_is_refused_at_once_and_told_who_holds_it(ledger: Ledger) -> None:
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
    assert ledger.holder("trip") is None
    with ledger.lease("trip") as again:
        assert again.held


def test_a_lease_is_released_when_its_block_fails(ledger: Ledger) -> None:
    with pytest.raises(ZeroDivisionError), ledger.lease("trip"):
        raise ZeroDivisionError

    ledger.lease("trip").release()


def test_a_holder_is_known_only_while_it_holds(ledger: Ledger) -> None:
    assert ledger.holder("trip") is None

    with ledger.lease("trip") as lease:
        holder = ledger.holder("trip")
        assert holder is not None
        assert (holder.epoch, holder.since) == (lease.epoch, lease.since)

    assert ledger.holder("trip") is None


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
        ledger.check(lease.fence)

    with ledger.lease("trip") as again:
        assert again.epoch == lease.epoch + 1


# Fences


def test_who_holds_a_lease_can_write_under_it(ledger: Ledger) -> None:
    with ledger.lease("trip") as lease:
        ledger.check(lease.fence)
        assert ledger.append("mail", 1, fence=lease.fence) == 1
        assert ledger.append_after("mail", 1, 2, fence=lease.fence) == 2
        version = ledger.compare_and_set("turn", None, 1, fence=lease.fence)
        assert version is not None
        assert ledger.delete("turn", version, fence=lease.fence)


def test_who_was_taken_over_cannot_write_any_more(ledger: Ledger) -> None:
    old = ledger.lease("trip")
    version = ledger.compare_and_set("turn", None, "mine", fence=old.fence)
    assert version is not None
    new = ledger.take_over("trip")

    writes: list[Callable[[], object]] = [
        lambda: ledger.append("mail", 1, fence=old.fence),
        lambda: ledger.append_after("mail", 0, 1, fence=old.fence),
        lambda: ledger.compare_and_set("turn", version, 1, fence=old.fence),
        lambda: ledger.compare_and_set("other", None, 1, fence=old.fence),
        lambda: ledger.delete("turn", version, fence=old.fence),
        lambda: ledger.check(old.fence),
        lambda: ledger.commit(lambda open_: open_.require(old.fence)),
    ]
    for write in writes:
        with pytest.raises(LeaseLost) as caught:
            write()
        assert (caught.value.thread, caught.value.epoch, caught.value.current) == ("trip", 1, 2)

    assert ledger.last("mail") == 0
    assert ledger.keys() == ["turn"]
    assert ledger.append("mail", "theirs", fence=new.fence) == 1
    old.release()
    new.release()


def test_what_was_taken_over_stays_taken_when_the_old_holder_releases(ledger: Ledger) -> None:
    old = ledger.lease("trip")
    with ledger.take_over("trip") as new:
        old.release()
        assert new.held
        with pytest.raises(ThreadBusy):
            ledger.lease("trip")


def test_a_lease_that_nobody_holds_can_be_taken_over(ledger: Ledger) -> None:
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
        open_.require(old.fence)

    with pytest.raises(LeaseLost):
        ledger.commit(work)

    assert ledger.read("mail") == []
    old.release()


# Event loops


async def test_the_twins_do_what_their_originals_do(ledger: Ledger) -> None:
    async with await ledger.alease("trip") as lease:
        fence = lease.fence
        with pytest.raises(ThreadBusy):
            await ledger.alease("trip")
        assert (await ledger.aholder("trip")) == ledger.holder("trip")
        assert await ledger.aappend("mail", 1, fence=fence) == 1
        assert await ledger.aappend_after("mail", 1, 2) == 2
        assert await ledger.alast("mail") == 2
        assert await ledger.aread("mail", after=1) == ledger.read("mail", after=1)
        version = await ledger.acompare_and_set("turn", None, 1, fence=fence)
        assert version is not None
        assert await ledger.aget("turn") == Value(1, version)
        assert await ledger.akeys("t") == ["turn"]
        assert await ledger.acommit(lambda open_: open_.delete("turn", version))
        assert not await ledger.adelete("turn", version)
        await ledger.acheck(fence)
    assert not lease.held
    async with await ledger.atake_over("trip"):
        with pytest.raises(LeaseLost):
            await ledger.aappend("mail", 3, fence=fence)
