"""How far a tree may go. ``Agent`` holds one; the tree is checked against its root's."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

MAX_DEPTH = 32
"""Levels of the deepest tree: LangGraph's metadata grows with the cube of the depth."""


class Limits(BaseModel):
    """The limits of an agent and of everything below it.

    Attributes:
        depth: Levels that the tree under this agent may have, the agent itself counted
            as 1. Between 1 and 32.

    Raises:
        pydantic.ValidationError: A limit is out of its range, or has an unknown name.

    Examples:
        >>> Limits(depth=3).depth
        3
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    depth: int = Field(default=MAX_DEPTH, ge=1, le=MAX_DEPTH)
