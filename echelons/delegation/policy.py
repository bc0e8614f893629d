"""``Delegating``: how a superior finds and asks its subordinates."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from echelons.guards.circuit_breaker import Breaking

TIMEOUT = 30.0
"""Seconds that a subordinate has, unless somebody says otherwise (recursive delegation)."""


class Delegating(BaseModel):
    """How an agent delegates; its subordinates do likewise unless they say otherwise.

    Attributes:
        exploring: Whom a task goes to that names nobody: ``"ordered"``, the best first and the
            next if that one cannot; ``"parallel"``, everybody who fits at once, and the best
            answer counts.
        splitting: Whether a task that names nobody and needs several agents becomes a request to
            each.
        timeout: Seconds in which a subordinate must have answered, those below it included;
            never more than its superior has left. ``None`` for no end. Time in which people
            are asked does not count.
        request_timeout: Seconds that a request has that names nobody, all who are asked one after
            the other included; ``None`` for no end but those of each.
        matcher: Says who fits a task that names nobody; the root's holds for the tree. See
            ``echelons.routing``; words are compared if left out.
        deriver: Says what agents can do that declare nothing; the root's holds for the tree.
            See ``echelons.capabilities``; their names do if left out.
        threshold: The match, from 0 to 1, that somebody needs; the matcher's own if left out.
        breaking: When a subordinate that fails is not asked for a while.

    Raises:
        pydantic.ValidationError: A value is out of its range, or has an unknown name.

    Examples:
        >>> Delegating(timeout=120).timeout
        120.0
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    exploring: Literal["ordered", "parallel"] = "ordered"
    splitting: bool = True
    timeout: float | None = Field(default=TIMEOUT, gt=0, allow_inf_nan=False)
    request_timeout: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    matcher: Any = None
    deriver: Any = None
    threshold: float | None = Field(default=None, ge=0, le=1)
    breaking: Breaking = Field(default_factory=Breaking)
