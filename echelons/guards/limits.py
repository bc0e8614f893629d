"""How far a tree may go. ``Agent`` holds one; the root's hold for the whole tree.

How deep the tree may be is checked when it is made. The others are counted while it runs,
for each turn of the root from 0, in the ledger where there is one: a resume, another process
or a crash does not reset them.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

MAX_DEPTH = 32
"""Levels of the deepest tree: LangGraph's metadata grows with the cube of the depth."""
MOST_STEPS = 10_000
"""Steps of a turn if nobody says otherwise: what a runaway may cost, far above honest work."""


class Limits(BaseModel):
    """The limits of a tree: of all its agents together, in one turn of the root.

    Where one is reached nothing is raised: no work begins any more, each agent ends with what
    it has, and the root says which limit it was. The limits of an agent that is not the root
    are its depth alone.

    Attributes:
        depth: Levels that the tree under this agent may have, the agent itself counted
            as 1. Between 1 and 32.
        steps: Model calls, tool calls and runs of subordinates.
        calls: Model calls.
        tokens: Tokens read and written by models, as they report them. The reply that goes
            beyond is known when it is there, and no other is asked for.
        seconds: Time that the turn has been running. It does not pass while the turn waits
            for a human, is paused, or its process is dead. What has begun is not cut short.
        width: Calls that one message may make side by side, requests to all who are asked at
            once counted; those beyond are answered with an error that tells the model.

    Raises:
        pydantic.ValidationError: A limit is out of its range, or has an unknown name.

    Examples:
        >>> Limits(depth=3, calls=100).depth
        3
    """

    __stored_as__ = "echelons.limits.Limits"

    model_config = ConfigDict(frozen=True, extra="forbid")

    depth: int = Field(default=MAX_DEPTH, ge=1, le=MAX_DEPTH)
    steps: int = Field(default=MOST_STEPS, ge=1)
    calls: int | None = Field(default=None, ge=1)
    tokens: int | None = Field(default=None, ge=1)
    seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    width: int | None = Field(default=None, ge=1)

    @property
    def of_a_tree(self) -> tuple[str, ...]:
        """Names of the limits given that only a root may have."""
        return tuple(sorted(self.model_fields_set - {"depth"}))
