"""`Ways`: the ranked candidates for a routed task, as stored in messages and queued requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from echelons.errors import UnreadableRecord

Way = tuple[str, ...]
"""Names from a subordinate down to a candidate."""


@dataclass(frozen=True, slots=True)
class Ways:
    """The candidates for a routed task.

    Attributes:
        ahead: The paths to the candidates not yet asked, best first.
        needs: Capabilities that the task needs; empty if unknown, or if it needs only one.
        able: Which of these each agent has, by its name.
    """

    ahead: tuple[Way, ...] = ()
    needs: tuple[str, ...] = ()
    able: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.ahead or self.needs)

    def after(self) -> Ways:
        """Return the candidates without the first."""
        return replace(self, ahead=self.ahead[1:])

    def stored(self) -> dict[str, Any]:
        """Return it as JSON."""
        kept: dict[str, Any] = {"ahead": [list(way) for way in self.ahead]}
        if self.needs:
            kept |= {
                "needs": list(self.needs),
                "able": {agent: list(names) for agent, names in self.able.items()},
            }
        return kept

    @classmethod
    def load(cls, stored: Mapping[str, Any]) -> Ways:
        """Return the candidates from the JSON of `stored`.

        Raises:
            UnreadableRecord: It is damaged.
        """
        try:
            return cls(
                tuple(tuple(way) for way in stored.get("ahead", ())),
                tuple(stored.get("needs", ())),
                {agent: tuple(names) for agent, names in stored.get("able", {}).items()},
            )
        except (AttributeError, TypeError) as error:
            raise UnreadableRecord("Ways", f"{type(error).__name__}: {error}") from error


NOBODY = Ways()
"""No candidates: for a request that names its subordinate."""
