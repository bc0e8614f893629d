"""What was said: the task of this turn and what the human said before it.

``turn`` makes it from the conversation, ``arguments`` and ``plan`` read from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from echelons.models.planner import lexicon as lex
from echelons.models.planner.brief import Brief
from echelons.models.planner.places import Place, places
from echelons.models.planner.reading import Reading


@dataclass(frozen=True)
class Said:
    """A task in its conversation.

    Attributes:
        brief: The task with the lines of its superior.
        earlier: What was said before, the latest first.
    """

    brief: Brief
    earlier: tuple[Reading, ...] = ()

    @cached_property
    def task(self) -> Reading:
        """The task as rules read it."""
        return Reading(self.brief.task)

    @property
    def part(self) -> tuple[str, ...]:
        """The words of the task that are meant; empty if all are."""
        return self.brief.part

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """The places that the task names."""
        return places(self.task)

    @cached_property
    def leans(self) -> bool:
        """Whether the task cannot be understood without what was said before."""
        return bool(self.earlier) and _leans(self.task)

    @cached_property
    def ground(self) -> Reading | None:
        """The earlier statement that the task stands on, if it stands on one."""
        if not self.earlier:
            return None
        if self.leans:
            return next((one for one in self.earlier if not _leans(one)), self.earlier[0])
        if any(place.certain for place in self.places):
            return None
        return next((one for one in self.earlier if _names_a_place(one)), None)

    def back(self) -> Iterator[Reading]:
        """The task, then what was said before it, the latest first."""
        yield self.task
        yield from self.earlier


def _leans(reading: Reading) -> bool:
    said = [token.word for token in reading.tokens[:200]]
    opens = said[:1] in (["and"], ["also"], ["or"]) or said[:2] in (
        ["what", "about"],
        ["how", "about"],
    )
    return opens or bool(lex.LEANING.intersection(said))


def _names_a_place(reading: Reading) -> bool:
    return any(place.certain for place in places(reading))
