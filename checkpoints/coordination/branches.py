"""`Branch`: which ledger records a branch of a root's thread sees.

The ledger is never forked. A record that a fork of the past must not see has the id of the root's
checkpoint after which it was written; a branch sees it if it has come past that checkpoint, and
left it on the way on which the thread went on then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from echelons.checkpoints.queries import CheckpointParents, ReadPlan


@dataclass(frozen=True, slots=True)
class Branch:
    """The checkpoints by which a root has come to its present one.

    Attributes:
        current: The present checkpoint.
        next_ones: Of each earlier one, the checkpoint that follows it on this branch.
        first_children: Of each checkpoint of the thread, the first that followed it.
        stored: The checkpoints of the root that are stored.
        oldest: The earliest of them on this branch.
    """

    current: str
    next_ones: Mapping[str, str]
    first_children: Mapping[str, str]
    stored: Collection[str]
    oldest: str

    def sees(self, after: str) -> bool:
        """Return whether the branch sees what was written after a checkpoint of the root.

        Args:
            after: The checkpoint; empty for what was written before the first.
        """
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
        ways = ((each, then) for each, then in self.next_ones.items() if each >= after)
        return self.sees(after) and all(self.first_children[each] == then for each, then in ways)


def read_branch(thread_id: str, current: str) -> ReadPlan[Branch]:
    """Return the branch of a thread that leads to a checkpoint of its root."""
    parents: Mapping[str, str | None] = yield CheckpointParents(thread_id)
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
    while (above := parents.get(place)) is not None and above in parents:
        next_ones[above] = place
        place = above
    return Branch(current, next_ones, first_children, parents, place)
