"""Records of every kind on the branches of a thread, beside a model of what each branch sees."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelons.checkpoints.coordination.records import (
    Branch,
    Records,
    Versions,
    build_branch,
    move_records,
)
from echelons.checkpoints.ledger import MemoryLedger, Transaction
from echelons.errors import LedgerDamaged

THREAD = "my trip/1"
NAMES = ("a/b", "c")


@dataclass(frozen=True, slots=True)
class Item:
    """A record that has its checkpoint in itself."""

    text: str
    after: str


DROPPED = Records[int]("dropped", int)


def _note_drop(open_: Transaction, parts: tuple[str, ...]) -> None:
    DROPPED.add(open_, 1, *parts)


DATED = Records[Item]("dated", Item, "value", drop=_note_drop)
LISTED = Records[list[Item]]("listed", list[Item], "items", sees=Branch.goes_on_from)
MARKED = Records[list[str]](
    "marked", list[str], "key", merge=lambda one, other: sorted({*one, *other})
)
VERSIONED = Records[str]("versioned", str, "key")
SHARED = Records[list[str]]("shared", list[str])
KINDS = (DATED, DROPPED, LISTED, MARKED, VERSIONED, SHARED)


@dataclass
class Seen:
    """What a branch sees of the records of each kind."""

    dated: frozenset[str] = frozenset()
    listed: frozenset[str] = frozenset()
    marked: frozenset[str] = frozenset()
    versioned: dict[str, str] = field(default_factory=dict)


@dataclass
class Model:
    """A thread whose records are copied with each checkpoint.

    Attributes:
        parents: The parent of each checkpoint.
        begun: What each checkpoint began with, and all that leave it but the first begin with.
        left: What there was when it was left first.
        shared: What all branches see.
    """

    parents: dict[str, str | None] = field(default_factory=lambda: {"01": None})
    begun: dict[str, Seen] = field(default_factory=lambda: {"01": Seen()})
    left: dict[str, Seen] = field(default_factory=lambda: {"01": Seen()})
    shared: list[str] = field(default_factory=list)
    current: str = "01"
    written: int = 0

    @property
    def present(self) -> Seen:
        return self.left[self.current]

    def step(self, above: str) -> None:
        """Go on from a checkpoint: from the current one, or from an earlier one as a fork."""
        is_first = above not in self.parents.values()
        self.current = f"{int(max(self.left)) + 1:02}"
        self.parents[self.current] = above
        seen = self.left[above] if is_first else self.begun[above]
        # A fork is another line of the conversation.
        listed = seen.listed if is_first else frozenset[str]()
        for place in (self.begun, self.left):
            place[self.current] = Seen(seen.dated, listed, seen.marked, dict(seen.versioned))

    def write(self, ledger: MemoryLedger, kind: str, name: str) -> None:
        """Write a record of a kind at the current checkpoint."""
        self.written += 1
        text, seen, after = str(self.written), self.present, self.current
        branch = build_branch(self.parents, after)

        def store(open_: Transaction) -> None:
            match kind:
                case "dated":
                    assert DATED.add(open_, Item(text, after), THREAD, name, text)
                    seen.dated |= {text}
                case "listed":
                    item = Item(text, after)
                    LISTED.change(open_, lambda old: [*(old or ()), item], THREAD, name)
                    seen.listed |= {text}
                case "marked":
                    MARKED.change(
                        open_, lambda old: sorted({*(old or ()), text}), THREAD, name, after
                    )
                    seen.marked |= {text}
                case "shared":
                    SHARED.change(open_, lambda old: [*(old or ()), text], THREAD, name)
                    self.shared.append(text)
                case _:
                    versions = Versions(VERSIONED, branch, THREAD)
                    assert versions.replace(open_, versions.find(open_, name), text, name)
                    seen.versioned[name] = text

        ledger.commit(store)

    def prune(self, ledger: MemoryLedger, kept: set[str]) -> None:
        """Keep some checkpoints, and of the others the records that the current branch sees."""
        ledger.commit(lambda open_: move_records(open_, THREAD, self.parents, kept, KINDS))
        self.parents = {each: above for each, above in self.parents.items() if each in kept}

    def check(self, ledger: MemoryLedger) -> None:
        """Compare what the current branch sees with what is stored."""
        branch = build_branch(self.parents, self.current)

        def read(open_: Transaction) -> tuple[Seen, list[str]]:
            listed = [item for record in LISTED.find_all(open_, THREAD) for item in record.value]
            versions = Versions(VERSIONED, branch, THREAD)
            seen = Seen(
                frozenset(
                    record.value.text
                    for record in DATED.find_all(open_, THREAD)
                    if DATED.sees(branch, *DATED.list_afters(record))
                ),
                frozenset(item.text for item in listed if LISTED.sees(branch, item.after)),
                frozenset(
                    text
                    for record in MARKED.find_all(open_, THREAD)
                    if MARKED.sees(branch, *MARKED.list_afters(record))
                    for text in record.value
                ),
                {
                    VERSIONED.split(record.key)[1]: record.value
                    for record in versions.list(open_).values()
                },
            )
            shared = [text for record in SHARED.find_all(open_, THREAD) for text in record.value]
            return seen, sorted(shared, key=int)

        assert ledger.query(read) == (self.present, self.shared)


@given(st.data())
def test_branch_sees_records_of_its_past_and_no_others(data: st.DataObject) -> None:
    ledger, model = MemoryLedger(), Model()
    kinds = st.sampled_from(["dated", "listed", "marked", "versioned", "shared"])
    for _ in range(data.draw(st.integers(1, 25))):
        match data.draw(st.sampled_from(["write", "write", "write", "step", "step", "fork"])):
            case "write":
                model.write(ledger, data.draw(kinds), data.draw(st.sampled_from(NAMES)))
            case "step":
                model.step(model.current)
            case _:
                model.step(data.draw(st.sampled_from(sorted(model.parents))))
        model.check(ledger)
    for _ in range(data.draw(st.integers(1, 2))):
        kept = {each for each in model.parents if data.draw(st.booleans())} | {model.current}
        model.prune(ledger, kept)
        model.check(ledger)
        model.write(ledger, data.draw(kinds), data.draw(st.sampled_from(NAMES)))
        model.step(model.current)
        model.check(ledger)


def test_record_that_no_branch_sees_is_dropped_and_its_kind_returned() -> None:
    ledger, model = MemoryLedger(), Model()
    model.step("01")
    model.write(ledger, "dated", "a/b")
    model.step("01")
    model.prune(ledger, {"01", "03"})

    model.check(ledger)
    assert ledger.query(lambda open_: DATED.list_names(open_, THREAD, "a/b")) == []
    assert ledger.query(lambda open_: DROPPED.get(open_, THREAD, "a/b", "1")) == 1


def test_change_without_difference_is_not_stored() -> None:
    ledger = MemoryLedger()
    ledger.commit(lambda open_: SHARED.change(open_, lambda _: ["1"], THREAD, "c"))
    before = ledger.query(lambda open_: SHARED.find(open_, THREAD, "c"))
    ledger.commit(lambda open_: SHARED.change(open_, lambda old: [*(old or ())], THREAD, "c"))

    assert ledger.query(lambda open_: SHARED.find(open_, THREAD, "c")) == before
    assert not ledger.commit(lambda open_: SHARED.add(open_, ["2"], THREAD, "c"))


def test_damaged_record_is_reported_where_it_is_read_and_survives_pruning() -> None:
    ledger, model = MemoryLedger(), Model()
    model.write(ledger, "dated", "c")
    key = DATED.key(THREAD, "c", "2")
    ledger.compare_and_set(key, None, ["damaged"])
    model.step("01")
    model.prune(ledger, {"02"})

    with pytest.raises(LedgerDamaged, match=key):
        ledger.query(lambda open_: DATED.find_all(open_, THREAD))
    assert ledger.query(lambda open_: DATED.list_names(open_, THREAD, "c")) == ["1", "2"]


def test_decision_of_another_branch_stays_unseen_when_all_its_checkpoints_are_pruned() -> None:
    ledger, model = MemoryLedger(), Model()
    model.write(ledger, "listed", "c")
    for _ in range(10):
        model.step(model.current)
    model.step("01")
    model.prune(ledger, {"01", "02", "11", "12"})
    model.step(model.current)
    model.prune(ledger, {"13"})

    model.check(ledger)
