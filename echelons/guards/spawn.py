"""`Spawn`: which subordinates an agent may make at run time, and how many."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field, field_validator

from echelons.settings import Settings

SpawnedKind: TypeAlias = Literal["mortal", "drone"]
"""The kinds of spawned agents.

A mortal may be called again, and is dismissed when its superior has ended its task, unless it is
kept. A drone has no subordinates, and is dismissed at its first answer that is no question.
"""
SPAWNED_KINDS: Final[tuple[SpawnedKind, ...]] = ("mortal", "drone")
SpawnName: TypeAlias = Annotated[str, Field(min_length=1, max_length=1024)]
MAX_SPAWNED = 10_000
"""Highest number of agents that one may be allowed to spawn in a conversation."""


class Spawn(Settings):
    """Which subordinates an agent may make at run time.

    They have no more rights than it has. A spawned agent may spawn too, `levels` deep, and no more
    kinds, profiles and tools than its superior; the numbers are for each agent and conversation.

    Attributes:
        kinds: The kinds that it may make: `"mortal"`, `"drone"` or both.
        profiles: Names of the agents of `Session(spawnable=...)` that it may make copies of.
        tools: Names of its own tools that it may give to agents without a profile.
        at_once: How many of them may be there at the same time.
        total: How many it may make, those counted that are dismissed.
        levels: How many levels of spawned agents there may be below it.

    Raises:
        InvalidSetting: A value is out of its range, or a setting has an unknown name.

    Examples:
        >>> Spawn(tools=("search",), levels=1).kinds
        ('mortal', 'drone')
    """

    kinds: tuple[SpawnedKind, ...] = Field(default=SPAWNED_KINDS, min_length=1)
    profiles: tuple[SpawnName, ...] = ()
    tools: tuple[SpawnName, ...] = ()
    at_once: int = Field(default=8, ge=1, le=MAX_SPAWNED)
    total: int = Field(default=50, ge=1, le=MAX_SPAWNED)
    levels: int = Field(default=2, ge=1, le=32)

    @field_validator("kinds", "profiles", "tools", mode="before")
    @classmethod
    def _refuse_text(cls, value: Any) -> Any:
        # Pydantic takes a text for a list of its letters.
        return value if isinstance(value, list | tuple) else None

    def narrow(self, profile: Spawn | None = None) -> Spawn | None:
        """Return what an agent that was spawned under these rules may spawn, `None` for nothing.

        Its profile may narrow the rules; without one, it may spawn what its superior may.
        """
        if self.levels == 1:
            return None
        return self.model_copy(update={"levels": self.levels - 1}).intersect(profile or self)

    def intersect(self, other: Spawn) -> Spawn | None:
        """Return what both these and other rules allow, `None` for nothing."""
        kinds: tuple[SpawnedKind, ...] = tuple(kind for kind in other.kinds if kind in self.kinds)
        if not kinds:
            return None
        return Spawn(
            kinds=kinds,
            profiles=tuple(name for name in other.profiles if name in self.profiles),
            tools=tuple(name for name in other.tools if name in self.tools),
            at_once=min(self.at_once, other.at_once),
            total=min(self.total, other.total),
            levels=min(self.levels, other.levels),
        )

    def find_wider(self, other: Spawn) -> tuple[str, object] | None:
        """Return the field in which other rules allow more than these, with its value."""
        for field in ("kinds", "profiles", "tools"):
            for name in getattr(other, field):
                if name not in getattr(self, field):
                    return field, name
        for field in ("at_once", "total", "levels"):
            if getattr(other, field) > getattr(self, field):
                return field, getattr(other, field)
        return None
