"""Races: several requests run in parallel, and once enough are fulfilled the others are stopped.

The winners are stored in the ledger, so that an agent resumed later knows that it has lost. Nodes
run each entrant of a race behind a gate that closes when the race is over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from echelons.errors import UnreadableRecord
from echelons.guards.gate import Gate, Halt, ScopedGate, get_gate
from echelons.run_context import get_context, with_context

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

T = TypeVar("T")

LOST_HALT = Halt("stopped", "others have answered, and that is enough")
"""The order that ends an entrant that has lost."""


@dataclass(frozen=True, slots=True)
class RaceEntry:
    """One request in a race: a part of a call that makes several."""

    race: str  # id of the call
    group: int  # number of the task: several agents may be asked to do the same one
    enough: int  # fulfilled tasks that stop the others; 0 to wait for every task

    def stored(self) -> list[Any]:
        """Return it as JSON."""
        return [self.race, self.group, self.enough]

    @classmethod
    def load(cls, stored: Any) -> RaceEntry:
        """Return the entrant from the JSON of `stored`."""
        match stored:
            case [str(race), int(group), int(enough)]:
                return cls(race, group, enough)
        raise UnreadableRecord(cls.__name__, "it is not stored as one")

    def has_lost(self, placed: Collection[int]) -> bool:
        """Return whether enough other tasks are fulfilled, given the groups that are."""
        return 0 < self.enough <= len(placed) and self.group not in placed


class Races(Protocol):
    """The races of a run, as nodes use them; the ledger of the checkpoints has them."""

    # A race has ended while one of its entrants waited for a human's answer.
    has_obsolete_question: bool

    def begin(self) -> None:
        """Forget the waiting entrants, as a run begins; those that still wait register again."""

    def place(self, entrant: RaceEntry) -> int:
        """Record that an entrant has fulfilled its task; return its place, 1 for the first."""
        ...

    def has_lost(self, entrant: RaceEntry) -> bool:
        """Return whether a race is over and an entrant is not among the winners."""
        ...

    async def arun(self, work: Callable[[], T]) -> T:
        """Call some of these methods in an event loop; repeat all of it if the ledger was busy."""
        ...

    def register_waiting(self, entrant: RaceEntry) -> bool:
        """Register that an entrant waits for an answer; return whether it still has to."""
        ...

    def listen(self, entrant: RaceEntry, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back from any thread when an entrant has lost; return a function that ends it."""
        ...


class RaceGate(ScopedGate):
    """The gate of an entrant, which closes when it has lost."""

    def __init__(self, gate: Gate, races: Races, entrant: RaceEntry) -> None:
        super().__init__(gate)
        self._races = races
        self._entrant = entrant

    @property
    def halt(self) -> Halt | None:
        """The order to begin no more steps, once it has lost."""
        return LOST_HALT if self._races.has_lost(self._entrant) else None

    def leave(self, reply: Any, config: Mapping[str, Any]) -> Halt | None:
        """Count the tokens of a reply; return a `Halt` if it must not be acted on."""
        # Asked before the count: if the ledger is busy, all of this is done again.
        over = self.halt
        return self.gate.leave(reply, config) or over

    def listen(
        self, config: Mapping[str, Any], callback: Callable[[Halt], None]
    ) -> Callable[[], None]:
        """Register a callback for when the agent has lost or is stopped."""
        leave = self.gate.listen(config, callback)
        leave_race = self._races.listen(self._entrant, lambda: callback(LOST_HALT))

        def leave_both() -> None:
            leave()
            leave_race()

        return leave_both


def get_races(config: Mapping[str, Any]) -> Races:
    """Return the races in a run's config."""
    races = get_context(config).races
    if races is None:
        raise LookupError("the run is not part of a tree")
    return races


def with_race_gate(config: RunnableConfig, entrant: RaceEntry | None) -> RunnableConfig:
    """Return an entrant's config, with a gate of its own."""
    if entrant is None or not entrant.enough:
        return config
    gate = RaceGate(get_gate(config), get_races(config), entrant)
    return with_context(config, get_context(config)._replace(gate=gate))
