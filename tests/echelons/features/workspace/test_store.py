"""Changes of a workspace on the branches of a thread, beside a model of what each branch sees."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from echelons.checkpoints.coordination.records import Branch, build_branch, move_records
from echelons.checkpoints.ledger import build_key
from echelons.checkpoints.ledger.memory_ledger import MemoryLedger
from echelons.features.workspace.changes import FileChange
from echelons.features.workspace.feature import CHANGE, LedgerChanges

FILES = ("plan.md", "notes.md")


@dataclass
class Model:
    """A thread whose changes are copied with each checkpoint.

    Attributes:
        parents: The parent of each checkpoint.
        begun: What each checkpoint began with, and all that leave it but the first begin with.
        left: What there was when it was left first.
    """

    parents: dict[str, str | None] = field(default_factory=lambda: {"01": None})
    begun: dict[str, dict[str, str]] = field(default_factory=lambda: {"01": {}})
    left: dict[str, dict[str, str]] = field(default_factory=lambda: {"01": {}})
    current: str = "01"

    @property
    def present(self) -> dict[str, str]:
        return self.left[self.current]

    def step(self, above: str) -> None:
        """Go on from a checkpoint: from the current one, or from an earlier one as a fork."""
        is_first = above not in self.parents.values()
        self.current = f"{len(self.parents) + 1:02}"
        self.parents[self.current] = above
        self.begun[self.current] = dict(self.left[above] if is_first else self.begun[above])
        self.left[self.current] = dict(self.begun[self.current])

    def build_branch(self) -> Branch:
        return build_branch(self.parents, self.current)


def open_store(ledger: MemoryLedger, branch: Branch) -> LedgerChanges:
    return LedgerChanges(ledger, "trip", "head", branch)


def read(store: LedgerChanges) -> dict[str, str | None]:
    changes = {file: each.text for file, each in store.load().items()}
    assert changes == {file: each.text for file in FILES if (each := store.find(file))}
    return changes


@given(st.data())
def test_a_branch_sees_what_was_changed_on_its_way_and_nothing_else(data: st.DataObject) -> None:
    ledger, model = MemoryLedger(), Model()
    for number in range(data.draw(st.integers(1, 25))):
        store = open_store(ledger, model.build_branch())
        file = data.draw(st.sampled_from(FILES))
        match data.draw(st.sampled_from(["write", "write", "remove", "step", "step", "fork"])):
            case "write":
                text = str(number)
                assert store.replace(file, store.find(file), FileChange(text, (None,)))
                model.present[file] = text
            case "remove":
                assert store.replace(file, store.find(file), None)
                model.present.pop(file, None)
            case "step":
                model.step(model.current)
            case _:
                model.step(data.draw(st.sampled_from(sorted(model.parents))))
        assert read(open_store(ledger, model.build_branch())) == model.present

    kept = {each for each in model.parents if data.draw(st.booleans())} | {model.current}
    ledger.commit(lambda open_: move_records(open_, "trip", model.parents, kept, [CHANGE]))
    left = {each: above for each, above in model.parents.items() if each in kept}
    assert read(open_store(ledger, build_branch(left, model.current))) == model.present


def test_a_change_that_another_call_has_made_meanwhile_is_not_replaced() -> None:
    ledger, model = MemoryLedger(), Model()
    first = open_store(ledger, model.build_branch())
    assert first.replace("plan.md", None, FileChange("Rome", (None,)))
    model.step("01")
    store = open_store(ledger, model.build_branch())
    before = store.find("plan.md")

    assert store.replace("plan.md", before, FileChange("Bari", (None,)))
    for after in (FileChange("Turin", (None,)), None):
        assert not store.replace("plan.md", before, after)
        assert not store.replace("plan.md", None, after)
    assert read(store) == {"plan.md": "Bari"}


def test_what_no_other_branch_sees_leaves_nothing_when_it_is_removed() -> None:
    ledger = MemoryLedger()
    store = open_store(ledger, Model().build_branch())
    assert store.replace("plan.md", None, FileChange("Rome", (None,)))

    assert store.replace("plan.md", store.find("plan.md"), None)
    assert ledger.list_keys(build_key("trip", CHANGE.name, "")) == []
