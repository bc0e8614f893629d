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
    """

    remaining: tuple[AgentPath, ...] = ()
    required: tuple[str, ...] = ()
    abilities: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.remaining or self.required)

    def without_first(self) -> Candidates:
        """Return the candidates without the first."""
        return replace(self, remaining=self.remaining[1:])

    def stored(self) -> dict[str, Any]:
        """Return it as JSON."""
        ahead = [list(path) for path in self.remaining]
        if not self.required:
            return {"ahead": ahead}
        able = {agent: list(names) for agent, names in self.abilities.items()}
        return {"ahead": ahead, "needs": list(self.required), "able": able}

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
            )
        except (AttributeError, TypeError) as error:
            raise UnreadableRecord("Candidates", f"{type(error).__name__}: {error}") from error


NO_CANDIDATES = Candidates()
"""No candidates: for a request that names its subordinate."""
