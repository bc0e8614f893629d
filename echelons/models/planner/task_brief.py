"""The message to a subordinate: a task, with the lines that its superior's planner added.

A superior passes a task on whole, so that the next level can split it by the same rules, and adds
which part is meant and what was said before. Both lines are plain language, so that a language
model at the next level understands them as well as a planner does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PART_PREFIX: Final = "Your part: "
EARLIER_PREFIX: Final = "Earlier: "

MAX_EARLIER_CHARACTERS: Final = 1_000
"""Characters of the earlier message that are passed on."""


@dataclass(frozen=True)
class TaskBrief:
    """A task with its context.

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
            lines.append(EARLIER_PREFIX + _shorten_text(self.earlier))
        return "\n".join(lines)


def _split_last_line(text: str, mark: str) -> tuple[str, str]:
    before, newline, last = text.rpartition("\n")
    if newline and last.startswith(mark):
        return before, last.removeprefix(mark)
    return text, ""


def _shorten_text(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_EARLIER_CHARACTERS else f"{line[:MAX_EARLIER_CHARACTERS]}…"
