"""Keys, on every kind of ledger: set and deleted by who knows their version."""

from __future__ import annotations

from typing import Any

from echelons.checkpoints.ledger import Ledger, VersionedValue
from tests.checkpoints.ledger.drivers.together import at_once


def test_a_key_that_was_never_set_is_not_there(ledger: Ledger) -> None:
    assert ledger.get("turn") is None
    assert ledger.list_keys() == []


def test_key_is_set_once_if_none_is_expected(ledger: Ledger) -> None:
    version = ledger.compare_and_set("turn", None, "begun")

    assert version is not None
    assert ledger.compare_and_set("turn", None, "begun again") is None
    assert ledger.get("turn") == VersionedValue("begun", version)


def test_key_is_set_only_with_its_version(ledger: Ledger) -> None:
    first = ledger.compare_and_set("turn", None, 1)
    assert first is not None
    second = ledger.compare_and_set("turn", first, 2)
    assert second is not None
    assert second > first

    for unknown in (first, second + 1, 0, -1, 2**80):
        assert ledger.compare_and_set("turn", unknown, 3) is None
    assert ledger.compare_and_set("other", first, 3) is None
    assert ledger.get("turn") == VersionedValue(2, second)


def test_null_is_a_value_and_not_an_absence(ledger: Ledger) -> None:
    version = ledger.compare_and_set("turn", None, None)

    assert version is not None
    assert ledger.get("turn") == VersionedValue(None, version)
    assert ledger.compare_and_set("turn", None, 1) is None


def test_key_is_deleted_only_with_its_version(ledger: Ledger) -> None:
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


def test_nor_when_a_younger_key_is_deleted_after_it(ledger: Ledger) -> None:
    assert ledger.compare_and_set("young", None, 0) == 1
    seen: list[int | None] = [None]
    for number in range(3):
        seen.append(ledger.compare_and_set("old", seen[-1], number))
    last = seen[-1]
    assert last is not None
    assert ledger.delete("old", last)
    assert ledger.delete("young", 1)

    assert ledger.compare_and_set("old", None, "new") not in seen


def test_keys_are_listed_by_what_they_begin_with_in_order(ledger: Ledger) -> None:
    keys = ["a", "a/", "a/1", "a/10", "a/2", "a0", "A/1", "ä/1", "a/\uffff", "a/\U0010ffff", "b%_*"]
    for key in keys:
        ledger.compare_and_set(key, None, 0)

    assert ledger.list_keys() == sorted(keys)
    assert ledger.list_keys("a/") == ["a/", "a/1", "a/10", "a/2", "a/\uffff", "a/\U0010ffff"]
    assert ledger.list_keys("a/\U0010ffff") == ["a/\U0010ffff"]
    assert ledger.list_keys("b%") == ["b%_*"]
    assert ledger.list_keys("%") == []


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
