"""`Branch`: which ledger records a branch of a root's thread sees.

The ledger is never forked. A record that a fork of the past must not see has the id of the root's
checkpoint after which it was written; a branch sees it if it has come past that checkpoint, and
left it on the way on which the thread went on then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from echelons.checkpoints.queries import CheckpointParents, LatestCheckpointId, ReadPlan
from echelons.langgraph_internals import CHECKPOINT_MAP_KEY


@dataclass(frozen=True, slots=True)
class Branch:
    """The checkpoints by which a root has come to its present one."""

    current: str
    # Of each earlier one, the checkpoint that follows it on this branch.
    next_ones: Mapping[str, str]
    # Of each checkpoint of the thread, the first that followed it.
    first_children: Mapping[str, str]
    stored: Collection[str]  # the checkpoints of the root that are stored
    oldest: str  # the earliest of them on this branch

    def sees(self, after: str) -> bool:
        """Return whether the branch sees what was written after a checkpoint of the root."""
        if after in ("", self.current):
            return True
        if after in self.next_ones:
            return self.next_ones[after] == self.first_children[after]
        # Of what was pruned, no other branch is left.
        return after not in self.stored and after < self.oldest

    def goes_on_from(self, after: str) -> bool:
        """Return whether the thread has gone on from a checkpoint to the present one, unforked.

        A fork of it sees what was written there, and is another line of the conversation.
        """
        # Ids grow along the branch.
        ways = ((start, end) for start, end in self.next_ones.items() if start >= after)
        return self.sees(after) and all(self.first_children[start] == end for start, end in ways)


START_BRANCH: Final = Branch("", {}, {}, (), "")
"""The branch of a thread that has no checkpoint yet."""


def get_checkpoint(key: str) -> str:
    """Return the checkpoint of the root that a key ends with."""
    return unquote(key.rpartition("/")[2])


def get_root_checkpoint(configurable: Mapping[str, Any]) -> str:
    """Return the checkpoint of the root at which a task runs; empty if there is none."""
    return str((configurable.get(CHECKPOINT_MAP_KEY) or {}).get("", ""))


def read_latest_branch(thread_id: str) -> ReadPlan[Branch]:
    """Return the branch of a thread on which it goes on."""
    latest: str | None = yield LatestCheckpointId(thread_id)
    return (yield from read_branch(thread_id, latest)) if latest else START_BRANCH


def read_branch(thread_id: str, current: str) -> ReadPlan[Branch]:
    """Return the branch of a thread that leads to a checkpoint of its root."""
    parents: Mapping[str, str | None] = yield CheckpointParents(thread_id)
    return build_branch(parents, current)


def build_branch(parents: Mapping[str, str | None], current: str) -> Branch:
    """Return the branch that leads to a checkpoint, by the parents of those that are stored."""
    # Its id grows with the time at which it was made.
    first_children: dict[str, str] = {}
    for child in sorted(parents):
        first_children.setdefault(parents[child] or "", child)
    next_ones: dict[str, str] = {}
    # What is not stored before its end is run from the latest checkpoint.
    place = current if current in parents else max(parents, default=current)
    if place != current:
        next_ones[place] = current
        first_children.setdefault(place, current)
    while (parent := parents.get(place)) is not None and parent in parents:
        next_ones[parent] = place
        place = parent
    return Branch(current, next_ones, first_children, parents, place)


def plan_moves(
    parents: Mapping[str, str | None],
    kept: Collection[str],
    written: Iterable[str],
    sees: Callable[[Branch, str], bool] = Branch.sees,
) -> dict[str, str | None]:
    """Return after which checkpoints records belong once only some checkpoints are kept.

    With the new checkpoint the kept branches see what they have seen before; it is `None` if none
    of them has seen the record. Kept records are left out.
    """
    left = {checkpoint: parent for checkpoint, parent in parents.items() if checkpoint in kept}
    ends = sorted(left.keys() - left.values(), reverse=True)
    before = {end: build_branch(parents, end) for end in ends}
    then = {end: build_branch(left, end) for end in ends}
    oldest = sorted({branch.oldest for branch in then.values()})
    # What was written after the deleted parent of one is seen by all that came later.
    places = [parent for checkpoint in oldest if (parent := left[checkpoint])] + oldest + [""]
    moves: dict[str, str | None] = {}
    for after in {*written}:
        # The latest counts most, where no place is right for all.
        seen = {end: sees(before[end], after) for end in ends if end != after}
        if not any(seen.values()):
            if after not in kept or any(sees(then[end], after) for end in seen):
                moves[after] = None
            continue

        def rate(place: str, seen: Mapping[str, bool] = seen) -> list[bool]:
            return [sees(then[end], place) is wanted for end, wanted in seen.items()]

        if not all(rate(after)):
            moves[after] = max(places, key=lambda place: (rate(place)[0], sum(rate(place))))
    return moves
