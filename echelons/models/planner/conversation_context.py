"""The task of this turn in the context of the human's earlier messages.

`planner_turn` builds it from the conversation; `arguments` and `reply_plan` read from it.
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
"""Earlier messages of the human that a task can depend on."""

MOST_WORDS: Final = 200
"""Words of a task searched for references; a longer task is taken to be complete."""

SHORT: Final = 12
"""Length in words up to which "it" may refer to an earlier message."""


@dataclass(frozen=True)
class Said:
    """A task in its conversation.

    Attributes:
        brief: The task with the lines added by the superior.
        thread: Earlier messages of the same thread, the latest first.
    """

    brief: Brief
    thread: tuple[Reading, ...] = ()

    @cached_property
    def earlier(self) -> tuple[Reading, ...]:
        """The earlier statements, the latest first; that passed on by the superior comes first."""
        told = (Reading(self.brief.earlier),) if self.brief.earlier else ()
        return (*told, *self.thread)

    @cached_property
    def task(self) -> Reading:
        """The tokenised task."""
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
        """Whether the task cannot be understood without the earlier statements."""
        return bool(self.earlier) and _leans(self.task)

    @cached_property
    def ground(self) -> str:
        """The text of the earlier statements that the task depends on; empty if none."""
        if self.brief.earlier:
            return self.brief.earlier
        if self.leans:
            return " ".join(reading.text for reading in _down_to_firm(self.earlier))
        if any(place.certain or place.role is not Role.MENTION for place in self.places):
            return ""
        return next((one.text for one in self.earlier if _names_a_place(one)), "")

    def back(self) -> Iterator[Reading]:
        """Yield the task, then the earlier statements, the latest first."""
        yield self.task
        yield from self.earlier


def _down_to_firm(earlier: Sequence[Reading]) -> Iterator[Reading]:
    """Yield the last few statements, up to the first that is complete in itself."""
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
    """Return whether a "there" refers to a place: in "is there a museum" it does not."""
    return any(
        word == "there"
        and not lex.EXISTENCE.intersection(said[max(0, i - 1) : i])
        and not lex.EXISTENCE.intersection(said[i + 1 : i + 2])
        for i, word in enumerate(said)
    )


def _names_a_place(reading: Reading) -> bool:
    return any(place.certain for place in places(reading))
