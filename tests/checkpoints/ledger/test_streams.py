"""Streams, on every kind of ledger: in order, without gaps, and nothing is lost."""

from __future__ import annotations

import pytest

from echelons.checkpoints.ledger import Ledger, StreamEntry
from tests.checkpoints.ledger.drivers.together import at_once

NOON = "2031-05-17T12:00:00+00:00"


def test_records_come_back_in_the_order_in_which_they_were_appended(ledger: Ledger) -> None:
    assert [ledger.append("mail", {"n": n}) for n in range(3)] == [1, 2, 3]

    assert ledger.read("mail") == [
        StreamEntry(1, NOON, {"n": 0}),
        StreamEntry(2, NOON, {"n": 1}),
        StreamEntry(3, NOON, {"n": 2}),
    ]


def test_streams_are_counted_each_on_its_own(ledger: Ledger) -> None:
    ledger.append("a", 1)

    assert ledger.append("b", 2) == 1
    assert ledger.get_last_sequence("a") == ledger.get_last_sequence("b") == 1
    assert [entry.record for entry in ledger.read("b")] == [2]


def test_a_stream_that_was_never_written_is_empty(ledger: Ledger) -> None:
    assert ledger.read("nothing") == []
    assert ledger.get_last_sequence("nothing") == 0


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
