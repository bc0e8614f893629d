"""`Candidates`: the ranked agents for a routed task, as messages and queued requests store it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from echelons.errors import UnreadableRecord

AgentPath = tuple[str, ...]
"""Names from a subordinate down to a candidate."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates for a routed task.

    Attributes:
        remaining: The paths to the candidates not yet tried, best first.
        required: Capabilities that the task needs; empty if unknown, or if it needs only one.
        abilities: Which of these each agent has, by its name.
        reasons: Why the best of them are asked, by the agent's name.
    """

    remaining: tuple[AgentPath, ...] = ()
    required: tuple[str, ...] = ()
    abilities: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.remaining or self.required)

    def without_first(self) -> Candidates:
        """Return the candidates without the first."""
        return replace(self, remaining=self.remaining[1:])

    def stored(self) -> dict[str, Any]:
        """Return it as JSON."""
        kept: dict[str, Any] = {"ahead": [list(path) for path in self.remaining]}
        ahead = {path[-1] for path in self.remaining}
        if why := {agent: text for agent, text in self.reasons.items() if agent in ahead}:
            kept["why"] = why
        if self.required:
            able = {agent: list(names) for agent, names in self.abilities.items()}
            kept |= {"needs": list(self.required), "able": able}
        return kept

    @classmethod
    def load(cls, stored: Mapping[str, Any]) -> Candidates:
        """Return the candidates from the JSON of `stored`.

        Raises:
            UnreadableRecord: It is damaged.
        """
        try:
            return cls(
                tuple(tuple(path) for path in stored.get("ahead", ())),
                tuple(stored.get("needs", ())),
                {agent: tuple(names) for agent, names in stored.get("able", {}).items()},
                {agent: str(text) for agent, text in stored.get("why", {}).items()},
            )
        except (AttributeError, TypeError) as error:
            raise UnreadableRecord("Candidates", f"{type(error).__name__}: {error}") from error


NO_CANDIDATES = Candidates()
"""No candidates: for a request that names its subordinate."""
