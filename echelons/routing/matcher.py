"""What a matcher is: it says how well each agent fits a task, from 0 to 1.

`Router` prepares a matcher once for a map and asks it for every task. `LexicalMatcher`,
`EmbeddingMatcher` and `ModelMatcher` are three; anything with these methods is another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from echelons.capabilities import Declared

MOST_READ = 12_000
"""Characters of a task that a matcher reads: of a longer one the beginning and the end."""


@dataclass(frozen=True, slots=True)
class Profile:
    """All that a matcher may know of an agent.

    Attributes:
        path: Names from the root down to the agent.
        capabilities: What it can do; `capabilities.full` has the example tasks.
        derived: Whether the capabilities were derived from names.
        texts: Descriptions of it and its tools.
    """

    path: tuple[str, ...]
    capabilities: Declared
    derived: bool = False
    texts: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The agent's name."""
        return self.path[-1]

    @property
    def confidence(self) -> float:
        """Its best confidence: what counts where it is unknown which capability is meant."""
        return max(self.capabilities.values(), default=0.0)

    @property
    def examples(self) -> tuple[tuple[str, float], ...]:
        """Its example tasks, each with the confidence of the capability it stands under."""
        return tuple(
            (text, each.confidence)
            for each in self.capabilities.full.values()
            for text in each.examples
        )


class Match(NamedTuple):
    """How well an agent fits a task.

    Attributes:
        value: From 0, not at all, to 1.
        confidence: What the agent says of itself, for what of it the task is about.
    """

    value: float
    confidence: float


class Prepared(Protocol):
    """A matcher that has read the profiles of a tree."""

    def match(self, task: str) -> Mapping[int, Match]:
        """Return the matches above 0, by the places of the profiles."""
        ...

    async def amatch(self, task: str) -> Mapping[int, Match]:
        """Return the same, without blocking the event loop."""
        ...

    def reasons(self, task: str, place: int) -> Sequence[str]:
        """Return in readable lines what of a task speaks for the profile at `place`."""
        ...


class Matcher(Protocol):
    """A way to find out who fits a task."""

    @property
    def threshold(self) -> float:
        """The match, from 0 to 1, below which nobody counts as able, if a router says nothing."""
        ...

    def prepare(self, profiles: Sequence[Profile]) -> Prepared:
        """Read the profiles of a tree; nothing is waited for."""
        ...


def saturated(evidence: float) -> float:
    """Return evidence, which has no upper end, as a match: `e² / (1 + e²)`.

    This is Hill's equation: little counts next to nothing, 1 is as likely as not, and no
    amount reaches 1, so that more evidence is always more.

    >>> [round(saturated(evidence), 2) for evidence in (-1, 0, 0.5, 1, 2, 4)]
    [0.0, 0.0, 0.2, 0.5, 0.8, 0.94]
    """
    if evidence <= 0:
        return 0.0
    return evidence * evidence / (1 + evidence * evidence)


def excerpt(task: str) -> str:
    """Return what matchers read of a task."""
    if len(task) <= MOST_READ:
        return task
    return f"{task[: MOST_READ // 2]}\n{task[-MOST_READ // 2 :]}"
