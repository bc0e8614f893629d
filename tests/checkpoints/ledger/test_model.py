"""Any sequence of calls does to every ledger what it does to a few dictionaries and lists."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from echelons import SqliteCheckpointer
from echelons.checkpoints.ledger import (
    Fence,
    Lease,
    Ledger,
    MemoryLedger,
    SqliteLedger,
    Transaction,
)
from echelons.errors import LeaseLost, ThreadBusy

NAMES = st.sampled_from(["a", "a/b", "a/c", "b", "ä"])
VALUES = st.none() | st.integers(0, 9) | st.lists(st.text(max_size=3), max_size=2)
SEQUENCES = st.integers(-1, 6)
VERSIONS = st.none() | st.integers(0, 30)


class LedgerModel(RuleBasedStateMachine):
    """A ledger, and what it should hold."""

    leases = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.ledger = self.opened()
        self.streams: dict[str, list[Any]] = {}
        self.values: dict[str, tuple[Any, int]] = {}
        self.given: set[tuple[str, int]] = set()
        self.epochs: dict[str, int] = {}
        self.holders: dict[str, Lease] = {}
        self.all_leases: list[Lease] = []

    @abstractmethod
    def opened(self) -> Ledger:
        """Return an empty ledger."""

    def fenced(self, lease: Lease | None) -> Fence | None:
        return lease.fence if lease else None

    def is_lost(self, lease: Lease | None) -> bool:
        return lease is not None and self.epochs[lease.name] != lease.epoch

    @rule(stream=NAMES, record=VALUES, lease=st.none() | leases)
    def append(self, stream: str, record: Any, lease: Lease | None) -> None:
        if self.is_lost(lease):
            with pytest.raises(LeaseLost):
                self.ledger.append(stream, record, fence=self.fenced(lease))
            return
        sequence = self.ledger.append(stream, record, fence=self.fenced(lease))
        self.streams.setdefault(stream, []).append(record)
        assert sequence == len(self.streams[stream])

    @rule(stream=NAMES, after=SEQUENCES, limit=st.none() | SEQUENCES)
    def read(self, stream: str, after: int, limit: int | None) -> None:
        found = [entry[::2] for entry in self.ledger.read(stream, after, limit)]
        after = max(after, 0)
        known = list(enumerate(self.streams.get(stream, []), start=1))[after:]
        assert found == known[: len(known) if limit is None else max(limit, 0)]

    @rule(key=NAMES, guess=VERSIONS, knows=st.booleans(), value=VALUES, lease=st.none() | leases)
    def compare_and_set(
        self, key: str, guess: int | None, knows: bool, value: Any, lease: Lease | None
    ) -> None:
        actual = self.values[key][1] if key in self.values else None
        expected = actual if knows else guess
        if self.is_lost(lease):
            with pytest.raises(LeaseLost):
                self.ledger.compare_and_set(key, expected, value, fence=self.fenced(lease))
            return
        version = self.ledger.compare_and_set(key, expected, value, fence=self.fenced(lease))
        if expected != actual:
            assert version is None
            return
        assert version is not None
        assert (key, version) not in self.given
        self.given.add((key, version))
        self.values[key] = value, version

    @rule(key=NAMES, guess=st.integers(0, 30), knows=st.booleans())
    def delete(self, key: str, guess: int, knows: bool) -> None:
        actual = self.values[key][1] if key in self.values else None
        expected = actual if knows and actual is not None else guess
        assert self.ledger.delete(key, expected) == (actual == expected)
        if actual == expected:
            del self.values[key]

    @rule(target=leases, name=NAMES)
    def take_over(self, name: str) -> Lease:
        lease = self.ledger.take_over(name)
        return self.begun(lease)

    @rule(target=leases, name=NAMES)
    def lease(self, name: str) -> Any:
        if name in self.holders and self.holders[name].held:
            with pytest.raises(ThreadBusy):
                self.ledger.lease(name)
            return self.holders[name]
        return self.begun(self.ledger.lease(name))

    def begun(self, lease: Lease) -> Lease:
        assert lease.held
        self.epochs[lease.name] = self.epochs.get(lease.name, 0) + 1
        assert lease.epoch == self.epochs[lease.name]
        self.holders[lease.name] = lease
        self.all_leases.append(lease)
        return lease

    @rule(lease=leases)
    def release(self, lease: Lease) -> None:
        lease.release()
        assert not lease.held

    @rule(name=NAMES, value=VALUES, version=st.integers(0, 30))
    def fail_to_commit(self, name: str, value: Any, version: int) -> None:
        def work(open_: Transaction) -> None:
            open_.append(name, value)
            found = open_.get(name)
            open_.compare_and_set(name, found.version if found else None, value)
            open_.compare_and_set(f"{name}/new", None, value)
            open_.delete(f"{name}/new", version)
            raise LookupError

        with pytest.raises(LookupError):
            self.ledger.commit(work)

    @invariant()
    def both_hold_the_same(self) -> None:
        for name in ("a", "b", "ä"):
            assert self.ledger.get_last_sequence(name) == len(self.streams.get(name, []))
            assert self.ledger.get(name) == self.values.get(name)
            holder = self.ledger.get_holder(name)
            lease = self.holders.get(name)
            assert (holder.epoch if holder else None) == (
                lease.epoch if lease and lease.held else None
            )
        assert self.ledger.list_keys() == sorted(self.values)
        assert self.ledger.list_keys("a/") == sorted(key for key in self.values if key[:2] == "a/")

    def teardown(self) -> None:
        for lease in self.all_leases:
            lease.release()


class InMemory(LedgerModel):
    def opened(self) -> Ledger:
        return MemoryLedger()


class InSqlite(LedgerModel):
    def opened(self) -> Ledger:
        self.folder = TemporaryDirectory()
        self.saver = SqliteCheckpointer(Path(self.folder.name) / "ledger.sqlite")
        return SqliteLedger(self.saver)

    def teardown(self) -> None:
        super().teardown()
        self.saver.close()
        assert [each.name for each in Path(self.folder.name).iterdir()] == ["ledger.sqlite"]
        self.folder.cleanup()


TestInMemory = InMemory.TestCase
TestInSqlite = InSqlite.TestCase
TestInMemory.settings = settings(max_examples=25, stateful_step_count=30)
TestInSqlite.settings = settings(max_examples=25, stateful_step_count=30)
