"""What was said: the task of this turn and what the human said before it.

`turn` makes it from the conversation, `arguments` and `plan` read from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from echelons.language import lexicon as lex
from echelons.language.tokens import Reading
from echelons.models.planner.place_names import Place, Role, places
from echelons.models.planner.task_brief import Brief

MOST_STATEMENTS: Final = 3
"""Earlier messages of the human that a task can stand on."""

MOST_WORDS: Final = 200
"""Words of a task in which pointers are looked for; who writes more says it all."""

SHORT: Final = 12
"""Words of a task in which "it" may well be something said before."""


@dataclass(frozen=True)
class Said:
    """A task in its conversation.

    Attributes:
        brief: The task with the lines of its superior.
        thread: What was said before in the same thread, the latest first.
    """

    brief: Brief
    thread: tuple[Reading, ...] = ()

    @cached_property
    def earlier(self) -> tuple[Reading, ...]:
        """What was said before, the latest first; what the superior told goes before all."""
        told = (Reading(self.brief.earlier),) if self.brief.earlier else ()
        return (*told, *self.thread)

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
    def ground(self) -> str:
        """The earlier statements that the task stands on, the latest first; empty if none."""
        if self.brief.earlier:
            return self.brief.earlier
        if self.leans:
            return " ".join(reading.text for reading in _down_to_firm(self.earlier))
        if any(place.certain or place.role is not Role.MENTION for place in self.places):
            return ""
        return next((one.text for one in self.earlier if _names_a_place(one)), "")

    def back(self) -> Iterator[Reading]:
        """The task, then what was said before it, the latest first."""
        yield self.task
        yield from self.earlier


def _down_to_firm(earlier: Sequence[Reading]) -> Iterator[Reading]:
    """The last few statements, down to the first that stands on its own."""
    for reading in earlier[:MOST_STATEMENTS]:
        yield reading
        if not _leans(reading):
            return


def _leans(reading: Reading) -> bool:
    said = [token.word for token in reading.tokens[:MOST_WORDS]]
    if said[:1] in (["and"], ["also"], ["or"]) or said[:2] in (["what", "about"], ["how", "about"]):
        return True
    if lex.POINTERS.intersection(said) or _points_there(said):
        return True
    short = len(reading.tokens) <= SHORT and not _names_a_place(reading)
    return short and bool(lex.PRONOUNS_FOR_THINGS.intersection(said))


def _points_there(said: Sequence[str]) -> bool:
    """Whether "there" is a place: in "is there a museum" it is not."""
    return any(
        word == "there"
        and not lex.EXISTENCE.intersection(said[max(0, i - 1) : i])
        and not lex.EXISTENCE.intersection(said[i + 1 : i + 2])
        for i, word in enumerate(said)
    )


def _names_a_place(reading: Reading) -> bool:
    return any(place.certain for place in places(reading))
