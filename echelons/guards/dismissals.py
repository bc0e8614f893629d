"""`Dismissals`: the agents of a thread that were dismissed, each with all below it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from echelons.errors import ControlError

if TYPE_CHECKING:
    from echelons.guards.gate import Gate

_SEPARATOR: Final = "/"
"""As `echelons.tree.names.PATH_SEPARATOR`, which is of an outer layer."""
DISMISSED_PREFIX: Final = "dismissed: "
"""The beginning of the reason in a response of a dismissed agent."""


@dataclass(frozen=True, slots=True)
class Dismissal:
    """The dismissal of an agent and of all below it, for good."""

    path: str
    by: str = ""  # a name that a person gave, or the path of its superior
    at: str = ""  # ISO 8601, UTC
    graceful: bool = False  # agents at work finish their request, and begin no other

    @property
    def why(self) -> str:
        """Why one of its agents does nothing more, in a few words."""
        return f"{self.path} was dismissed"

    def build_error(self, path: str) -> ControlError:
        """Return the error for a message or task to an agent at or below it."""
        path = path or self.path
        agent = "it" if path == self.path else "{dismissed!r}"
        by, at = " by {by!r}" if self.by else "", " at {at}" if self.at else ""
        remedy = "another agent"
        if "/" not in self.path:
            remedy = "another thread, or a fork of this one from before"
        return ControlError(
            f"nothing reaches {{path:short}}: {agent} was dismissed{by}{at}, for good; use "
            f"{remedy}. Nothing was stored",
            code="agent_dismissed",
            path=path,
            dismissed=self.path,
            at=self.at,
            by=self.by,
        )


DismissalListener: TypeAlias = Callable[[Sequence[Dismissal]], None]
"""Called with the dismissals of a thread that a run has not seen before."""


class Dismissals:
    """The dismissals that hold on a branch of a thread.

    Of those of one agent the first holds, unless a later one is not graceful.

    Examples:
        >>> dismissals = Dismissals([Dismissal("head/north")])
        >>> dismissals.find("head/north/camp").why, dismissals.find("head/northern")
        ('head/north was dismissed', None)
    """

    def __init__(self, dismissals: Iterable[Dismissal] = ()) -> None:
        self._by_path: dict[str, Dismissal] = {}
        self._below: dict[str, set[str]] = {}
        for dismissal in dismissals:
            self.add(dismissal)

    def __bool__(self) -> bool:
        return bool(self._by_path)

    def __iter__(self) -> Iterator[Dismissal]:
        return iter([*self._by_path.values()])  # a copy: another thread may add to it

    def add(self, new: Dismissal) -> bool:
        """Add a dismissal; return whether it is stricter than that of its agent so far."""
        earlier = self._by_path.get(new.path)
        if earlier and (new.graceful or not earlier.graceful):
            return False
        self._by_path[new.path] = new
        names = new.path.split(_SEPARATOR)
        for end in range(1, len(names)):
            superior, below = _SEPARATOR.join(names[:end]), _SEPARATOR.join(names[end:])
            self._below.setdefault(superior, set()).add(below)
        return True

    def get(self, path: str) -> Dismissal | None:
        """Return the dismissal of the agent itself, if there is one."""
        return self._by_path.get(path)

    def find(self, path: str) -> Dismissal | None:
        """Return the dismissal that an agent is under: the strictest, of these the uppermost."""
        if not self._by_path:
            return None
        dismissals = (self._by_path.get(prefix) for prefix in _iterate_prefixes(path))
        return min(filter(None, dismissals), key=attrgetter("graceful"), default=None)

    def find_heir(self, path: str) -> str | None:
        """Return the superior that inherits from a dismissed agent: the nearest not dismissed.

        Empty for the user, as the root was dismissed; `None` if the agent was not.

        Examples:
            >>> dismissals = Dismissals([Dismissal("head/north"), Dismissal("head/north/camp")])
            >>> dismissals.find_heir("head/north/camp"), dismissals.find_heir("head/south")
            ('head', None)
        """
        highest = next(
            (prefix for prefix in _iterate_prefixes(path) if prefix in self._by_path), None
        )
        return None if highest is None else highest.rpartition(_SEPARATOR)[0]

    def list_below(self, path: str) -> frozenset[str]:
        """Return the paths below an agent that were dismissed themselves, as it sees them.

        Examples:
            >>> dismissals = Dismissals([Dismissal("head/north"), Dismissal("head/south/camp")])
            >>> sorted(dismissals.list_below("head"))
            ['north', 'south/camp']
        """
        return frozenset(self._below.get(path, ()))


def _iterate_prefixes(path: str) -> Iterator[str]:
    """Yield the paths from the root down to an agent."""
    names = path.split(_SEPARATOR)
    return (_SEPARATOR.join(names[: end + 1]) for end in range(len(names)))


NO_DISMISSALS: Final = Dismissals()


def get_dismissals(gate: Gate) -> Dismissals:
    """Return the dismissals that a run sees, as its gate has read them last."""
    guard = gate.guards.get("dismissal")
    return guard.dismissals if guard else NO_DISMISSALS
