"""Races: several agents are asked, and once enough of them have answered the others are stopped.

The winners are written into the ledger, for who is resumed must know that it has lost.
``nodes`` run each part of a race behind a gate that closes when it is over; ``checkpoints``
keep the races of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from echelons.errors import UnreadableRecord
from echelons.guards.gate import GATE_KEY, Gate, Halt, Pause, Step, gate_of
from echelons.guards.scoped_gate import Bounded

RACES_KEY = "__echelons_races"
"""Where a run's config holds its races; LangGraph stores nothing that begins like this."""

LOST = Halt("stopped", "others have answered, and that is enough")
"""What ends who has lost."""


@dataclass(frozen=True, slots=True)
class Entrant:
    """A part of a call that makes several requests.

    Attributes:
        race: The call.
        group: The task that it is for; several agents may be asked for one.
        enough: Tasks whose fulfilment stops the others; 0 if every task is waited for.
    """

    race: str
    group: int
    enough: int

    def stored(self) -> list[Any]:
        """Return it as JSON."""
        return [self.race, self.group, self.enough]

    @classmethod
    def load(cls, stored: Any) -> Entrant:
        """Return what is kept in ``stored``.

        Raises:
            UnreadableRecord: It is damaged.
        """
        match stored:
            case [str(race), int(group), int(enough)]:
                return cls(race, group, enough)
        raise UnreadableRecord(cls.__name__, "it is not stored as one")

    def has_lost(self, placed: Collection[int]) -> bool:
        """Return whether those who are in are enough without it."""
        return 0 < self.enough <= len(placed) and self.group not in placed


class Races(Protocol):
    """The races of a run.

    Attributes:
        moot: Whether a race has ended while one of its entrants waited for an answer.
    """

    moot: bool

    def begin(self) -> None:
        """Forget who has waited: a run begins, and whoever still waits says so again."""
        ...

    def place(self, entrant: Entrant) -> int:
        """Write down that an entrant has fulfilled its task; return its place, 1 for the first.

        Raises:
            LeaseLost: Somebody else runs the thread now.
            StorageError: The ledger could not be written.
        """
        ...

    async def aplace(self, entrant: Entrant) -> int:
        """Do what ``place`` does in an event loop."""
        ...

    def has_lost(self, entrant: Entrant) -> bool:
        """Return whether a race is over, and without an entrant."""
        ...

    async def ahas_lost(self, entrant: Entrant) -> bool:
        """Do what ``has_lost`` does in an event loop."""
        ...

    def waits(self, entrant: Entrant) -> bool:
        """Take note that an entrant waits for an answer; return whether it still has to."""
        ...

    def listen(self, entrant: Entrant, told: Callable[[], None]) -> Callable[[], None]:
        """Have somebody told, from any thread, when an entrant has lost; return what ends that."""
        ...


class Raced(Bounded):
    """The gate of an entrant: closed once it has lost.

    Args:
        gate: The gate of its superior.
        races: The races of the run.
        entrant: Whose gate it is.
    """

    def __init__(self, gate: Gate, races: Races, entrant: Entrant) -> None:
        super().__init__(gate)
        self._races = races
        self._entrant = entrant

    @property
    def over(self) -> Halt | None:
        """Why nothing begins any more, if it has lost."""
        return LOST if self._races.has_lost(self._entrant) else None

    async def aenter(self, step: Step, config: Mapping[str, Any]) -> Halt | Pause | None:
        """Do what ``enter`` does in an event loop."""
        lost = await self._races.ahas_lost(self._entrant)
        return LOST if lost else await self.gate.aenter(step, config)

    def leave(self, reply: Any, config: Mapping[str, Any]) -> Halt | None:
        """Count what a reply cost, and return why it must not be acted on, if so."""
        return self.gate.leave(reply, config) or self.over

    async def aleave(self, reply: Any, config: Mapping[str, Any]) -> Halt | None:
        """Do what ``leave`` does in an event loop."""
        return await self.gate.aleave(reply, config) or self.over

    def listen(self, config: Mapping[str, Any], told: Callable[[Halt], None]) -> Callable[[], None]:
        """Have somebody told when the agent has lost, or is stopped, while it runs."""
        leave = self.gate.listen(config, told)
        leave_race = self._races.listen(self._entrant, lambda: told(LOST))

        def leave_both() -> None:
            leave()
            leave_race()

        return leave_both


def races_of(config: Mapping[str, Any]) -> Races:
    """Return the races of a run.

    Raises:
        KeyError: It is run outside of a tree.
    """
    races: Races = config["configurable"][RACES_KEY]
    return races


def raced(config: Mapping[str, Any], entrant: Entrant | None) -> dict[str, Any]:
    """Return a config for an entrant; the same for a subordinate that races with nobody."""
    if entrant is None or not entrant.enough:
        return dict(config)
    gate = Raced(gate_of(config), races_of(config), entrant)
    return {**config, "configurable": {**config["configurable"], GATE_KEY: gate}}
