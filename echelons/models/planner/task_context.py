"""The task of this turn, with what the human and the superior said around it.

`planner_turn` reads it from the conversation; `arguments` and `reply_plan` read from it. A superior
passes a task on whole, so that the next level can split it by the same rules, and adds which part
is meant and what was said before. Both lines are plain language, so that a language model at the
next level understands them as well as a planner does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from echelons.language import lexicon as lex
from echelons.language.tokens import TokenizedText
from echelons.models.planner.place_names import PlaceRole, find_place_names

PART_PREFIX: Final = "Your part: "
EARLIER_PREFIX: Final = "Earlier: "

MAX_EARLIER_CHARACTERS: Final = 1_000
"""Characters of the earlier message that are passed on."""

MAX_STATEMENTS: Final = 3
"""Earlier messages of the human that a task can depend on."""

MAX_REFERENCE_WORDS: Final = 200
"""Words of a task searched for references; a longer task is taken to be complete."""

MAX_SHORT_WORDS: Final = 12
"""Length in words up to which "it" may refer to an earlier message."""


@dataclass(frozen=True)
class TaskBrief:
    """The message to a subordinate: a task, with the lines that its superior's planner added.

    Attributes:
        task: The task, as the human put it.
        part: The words of the task that are meant; empty if all of it is.
        earlier: The earlier statement that the task depends on; empty if none.
    """

    task: str
    part: tuple[str, ...] = ()
    earlier: str = ""

    @classmethod
    def from_text(cls, text: str) -> TaskBrief:
        r"""Parse `text`; a text without the added lines is only a task.

        >>> TaskBrief.from_text("Rome, with museums and food\nYour part: museums, food")
        TaskBrief(task='Rome, with museums and food', part=('museums', 'food'), earlier='')
        """
        task, earlier = _split_last_line(text, EARLIER_PREFIX)
        task, part = _split_last_line(task, PART_PREFIX)
        return cls(task, tuple(word for word in part.split(", ") if word), earlier)

    def __str__(self) -> str:
        lines = [self.task]
        if self.part:
            lines.append(PART_PREFIX + ", ".join(self.part))
        if self.earlier:
            earlier = " ".join(self.earlier.split())
            more = "…" if len(earlier) > MAX_EARLIER_CHARACTERS else ""
            lines.append(f"{EARLIER_PREFIX}{earlier[:MAX_EARLIER_CHARACTERS]}{more}")
        return "\n".join(lines)


def _split_last_line(text: str, mark: str) -> tuple[str, str]:
    before, newline, last = text.rpartition("\n")
    if newline and last.startswith(mark):
        return before, last.removeprefix(mark)
    return text, ""


@dataclass(frozen=True)
class TaskContext:
    """A task in its conversation.

    Attributes:
        brief: The task with the lines added by the superior.
        thread: Earlier messages of the same thread, the latest first.
    """

    brief: TaskBrief
    thread: tuple[TokenizedText, ...] = ()

    @cached_property
    def earlier(self) -> tuple[TokenizedText, ...]:
        """The earlier statements, the latest first; that passed on by the superior comes first."""
        passed_on = (TokenizedText(self.brief.earlier),) if self.brief.earlier else ()
        return (*passed_on, *self.thread)

    @cached_property
    def task(self) -> TokenizedText:
        """The tokenised task."""
        return TokenizedText(self.brief.task)

    @property
    def part(self) -> tuple[str, ...]:
        """The words of the task that are meant; empty if all are."""
        return self.brief.part

    @cached_property
    def depends_on_earlier(self) -> bool:
        """Whether the task cannot be understood without the earlier statements."""
        return bool(self.earlier) and _is_dependent(self.task)

    @cached_property
    def background(self) -> str:
        """The text of the earlier statements that the task depends on; empty if none."""
        if self.brief.earlier:
            return self.brief.earlier
        if self.depends_on_earlier:
            return " ".join(reading.text for reading in _select_background(self.earlier))
        places = find_place_names(self.task)
        if any(place.certain or place.role is not PlaceRole.MENTION for place in places):
            return ""
        return next((one.text for one in self.earlier if _has_certain_place(one)), "")

    def iterate_readings(self) -> Iterator[TokenizedText]:
        """Yield the task, then the earlier statements, the latest first."""
        yield self.task
        yield from self.earlier


def _select_background(earlier: Sequence[TokenizedText]) -> Iterator[TokenizedText]:
    """Yield the last few statements, up to the first that is complete in itself."""
    for reading in earlier[:MAX_STATEMENTS]:
        yield reading
        if not _is_dependent(reading):
            return


def _is_dependent(reading: TokenizedText) -> bool:
    said = [token.word for token in reading.tokens[:MAX_REFERENCE_WORDS]]
    if said[:1] in (["and"], ["also"], ["or"]) or said[:2] in (["what", "about"], ["how", "about"]):
        return True
    if lex.BACK_REFERENCES.intersection(said) or _has_place_reference(said):
        return True
    short = len(reading.tokens) <= MAX_SHORT_WORDS and not _has_certain_place(reading)
    return short and bool(lex.PRONOUNS_FOR_THINGS.intersection(said))


def _has_place_reference(said: Sequence[str]) -> bool:
    """Return whether a "there" refers to a place: in "is there a museum" it does not."""
    return any(
        word == "there"
        and not lex.EXISTENTIAL_WORDS.intersection([*said[max(0, i - 1) : i], *said[i + 1 : i + 2]])
        for i, word in enumerate(said)
    )


def _has_certain_place(reading: TokenizedText) -> bool:
    return any(place.certain for place in find_place_names(reading))
