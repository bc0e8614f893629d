"""The protocol of matchers, which rate from 0 to 1 how well each agent fits a task.

`Router` prepares a matcher once for a capability map and calls it for every task.
`LexicalMatcher`, `EmbeddingMatcher` and `ModelMatcher` implement the protocol.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from echelons.capabilities import DeclaredCapabilities
from echelons.routing.word_weights import read_words

MAX_TASK_CHARACTERS = 12_000
"""Characters of a task that a matcher reads; of a longer one, its beginning and its end."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The facts that a matcher knows of an agent.

    Attributes:
        path: Names from the root down to the agent.
        capabilities: Its capabilities; `capabilities.full` has their example tasks.
        derived: Whether the capabilities were derived from names.
        texts: Descriptions of it and its tools.
    """

    path: tuple[str, ...]
    capabilities: DeclaredCapabilities
    derived: bool = False
    texts: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The agent's name."""
        return self.path[-1]

    @property
    def confidence(self) -> float:
        """Its best confidence, used where it is unknown which capability is meant."""
        return max(self.capabilities.values(), default=0.0)

    @property
    def examples(self) -> tuple[tuple[str, float], ...]:
        """Its example tasks, each with the confidence of its capability."""
        return tuple(
            (text, item.confidence)
            for item in self.capabilities.full.values()
            for text in item.examples
        )

    @property
    def ability(self) -> Hashable:
        """The overlap of two agents: the names of their capabilities.

        If they were derived, the descriptions too. Its own name is then one of them: it counts
        only if there is no other, and without its number ("weather_2").
        """
        phrases = {read_words(name).stems for name in self.capabilities}
        if not self.derived:
            return frozenset(phrases)
        name_stems = read_words(self.name).stems
        plain = tuple(filter(None, (item.rstrip("0123456789") for item in name_stems)))
        return frozenset(phrases - {name_stems} or {plain or name_stems}), self.texts


class Match(NamedTuple):
    """How well an agent fits a task.

    Attributes:
        value: The match, from 0 (not at all) to 1.
        confidence: The agent's declared confidence in the capability that the task is about.
    """

    value: float
    confidence: float


class PreparedMatcher(Protocol):
    """A matcher that has read the profiles of a tree."""

    def match(self, task: str) -> Mapping[int, Match]:
        """Return the matches above 0, by position of the profile."""
        ...

    async def amatch(self, task: str) -> Mapping[int, Match]:
        """Async version of `match`."""
        ...

    def reasons(self, task: str, place: int) -> Sequence[str]:
        """Return readable reasons why a task matches the profile at position `place`."""
        ...


class Matcher(Protocol):
    """A way of rating how well agents fit a task."""

    @property
    def threshold(self) -> float:
        """The match, from 0 to 1, that an agent needs, unless the router sets another."""
        ...

    def prepare(self, profiles: Sequence[Profile]) -> PreparedMatcher:
        """Prepare the profiles of a tree, without blocking."""
        ...


def find_equals(profiles: Sequence[Profile], *, by_examples: bool = False) -> list[int]:
    """Return for each profile the position of the first that can do the same.

    Words that many agents share tell little, unless the agents are equal: then there is nothing
    to tell apart. So statistics over a tree count each of these positions once.
    """
    first: dict[Hashable, int] = {}
    return [
        first.setdefault(
            frozenset(text for text, _ in item.examples)
            if by_examples and item.examples
            else item.ability,
            place,
        )
        if item.capabilities
        else place
        for place, item in enumerate(profiles)
    ]


def saturate_evidence(evidence: float) -> float:
    """Return unbounded evidence as a match below 1: `e² / (1 + e²)`.

    This is Hill's equation: a little evidence counts almost nothing, 1 gives a half, and more
    evidence always gives a higher match.
    """
    if evidence <= 0:
        return 0.0
    return evidence * evidence / (1 + evidence * evidence)


def shorten_task(task: str) -> str:
    """Return the excerpt of a task that matchers read."""
    if len(task) <= MAX_TASK_CHARACTERS:
        return task
    return f"{task[: MAX_TASK_CHARACTERS // 2]}\n{task[-MAX_TASK_CHARACTERS // 2 :]}"
