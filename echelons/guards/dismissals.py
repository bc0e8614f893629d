"""`Dismissals`: the agents of a thread that were dismissed, each with all below it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from echelons.errors import AgentDismissed

_SEPARATOR: Final = "/"
"""That of the names in a path, see `echelons.tree.names`."""
DISMISSED_PREFIX: Final = "dismissed: "
"""How the reason of a response begins whose agent was dismissed."""


@dataclass(frozen=True, slots=True)
class Dismissal:
    """The dismissal of an agent and of all below it, for good.

    Attributes:
        path: The agent's path.
        by: Who has dismissed it, as they said; the path of an agent if that was its superior.
        at: When, ISO 8601, UTC.
        graceful: Whether those at work finish their request. They begin no other one.
    """

    path: str
    by: str = ""
    at: str = ""
    graceful: bool = False

    @property
    def why(self) -> str:
        """Why one of its agents does nothing more, in a few words."""
        return f"{self.path} was dismissed"

    def build_error(self, path: str) -> AgentDismissed:
        """Return the error that what is meant for an agent at or below it is refused with."""
        return AgentDismissed(path or self.path, self.path, self.at, self.by)


DismissalListener: TypeAlias = Callable[[Sequence[Dismissal]], None]
"""Is told the dismissals of a thread that a run has not seen before."""


class Dismissals:
    """The dismissals that hold on a branch of a thread.

    Args:
        found: They. Of those of one agent the first holds, unless a later one is not graceful.

    Examples:
        >>> dismissals = Dismissals([Dismissal("head/north")])
        >>> dismissals.find("head/north/camp").why, dismissals.find("head/northern")
        ('head/north was dismissed', None)
    """

    def __init__(self, found: Iterable[Dismissal] = ()) -> None:
        self._found: dict[str, Dismissal] = {}
        self._below: dict[str, set[str]] = {}
        for each in found:
            self.add(each)

    def __bool__(self) -> bool:
        return bool(self._found)

    def __iter__(self) -> Iterator[Dismissal]:
        return iter([*self._found.values()])  # a copy: another thread may add to it

    def add(self, new: Dismissal) -> bool:
        """Add a dismissal; return whether it holds, as none of its agent is as strict."""
        held = self._found.get(new.path)
        if held and (new.graceful or not held.graceful):
            return False
        self._found[new.path] = new
        names = new.path.split(_SEPARATOR)
        for end in range(1, len(names)):
            above, below = _SEPARATOR.join(names[:end]), _SEPARATOR.join(names[end:])
            self._below.setdefault(above, set()).add(below)
        return True

    def get(self, path: str) -> Dismissal | None:
        """Return the dismissal of the agent itself, if there is one."""
        return self._found.get(path)

    def find(self, path: str) -> Dismissal | None:
        """Return the dismissal that an agent is under, that of a superior first.

        One that is not graceful comes before all others.
        """
        if not self._found:
            return None
        names = path.split(_SEPARATOR)
        ways = (_SEPARATOR.join(names[: end + 1]) for end in range(len(names)))
        held = [each for way in ways if (each := self._found.get(way))]
        return min(held, key=lambda each: each.graceful, default=None)

    def find_heir(self, path: str) -> str | None:
        """Return who has what a dismissed agent leaves: its nearest superior that was not.

        Empty for the user, as the root was dismissed; `None` if the agent was not.

        Examples:
            >>> found = Dismissals([Dismissal("head/north"), Dismissal("head/north/camp")])
            >>> found.find_heir("head/north/camp"), found.find_heir("head/south")
            ('head', None)
        """
        names = path.split(_SEPARATOR)
        ways = (_SEPARATOR.join(names[: end + 1]) for end in range(len(names)))
        highest = next((way for way in ways if way in self._found), None)
        return None if highest is None else highest.rpartition(_SEPARATOR)[0]

    def list_below(self, path: str) -> frozenset[str]:
        """Return the paths below an agent that were dismissed themselves, as it sees them.

        Examples:
            >>> found = Dismissals([Dismissal("head/north"), Dismissal("head/south/camp")])
            >>> sorted(found.list_below("head"))
            ['north', 'south/camp']
        """
        return frozenset(self._below.get(path, ()))


NO_DISMISSALS: Final = Dismissals()
