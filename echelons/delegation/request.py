"""What goes down the tree and what comes up: requests, responses, usage.

Pydantic models, stored as JSON with their model's name and validated again when read.
``graphs`` makes requests, ``nodes`` turns a subordinate's end into a response.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from echelons.errors import UnreadableRecord

MAX_HOPS = 10
"""Agents that a request may pass, unless the tree is deeper (seed: recursive delegation)."""


class Status(StrEnum):
    """How a request ended."""

    __stored_as__ = "echelons.delegation.Status"

    FULFILLED = "fulfilled"
    PARTIAL = "partial"
    UNABLE = "unable"
    NEEDS_INPUT = "needs_input"


class _Record(BaseModel):
    """A model that is stored as JSON under its own name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: ClassVar[int] = 1

    def stored(self) -> dict[str, Any]:
        """Return the record as JSON with its model's name and version."""
        return {
            "model": type(self).__name__,
            "version": self.version,
            **self.model_dump(mode="json", exclude_defaults=True),
        }

    @classmethod
    def load(cls, stored: object) -> Self:
        """Return the record in ``stored``.

        Raises:
            UnreadableRecord: It is no record of this model, or not valid.
        """
        if not isinstance(stored, Mapping) or stored.get("model") != cls.__name__:
            raise UnreadableRecord(cls.__name__, "it is not stored as one")
        fields = {key: value for key, value in stored.items() if key not in ("model", "version")}
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            raise UnreadableRecord(cls.__name__, str(error)) from error


class Usage(BaseModel):
    """What a piece of work cost.

    Attributes:
        input_tokens: Tokens read by models.
        output_tokens: Tokens written by models.
        model_calls: Model calls made.
    """

    __stored_as__ = "echelons.delegation.Usage"

    model_config = ConfigDict(frozen=True, extra="forbid")

    input_tokens: int = 0
    output_tokens: int = 0
    model_calls: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            model_calls=self.model_calls + other.model_calls,
        )


class DelegationRequest(_Record):
    """A piece of work on its way down the tree.

    Attributes:
        id: Id of the request, derived from the call that made it.
        origin: Agent that made the request.
        current: Agent that has it now.
        task: What to do, in words.
        context: Facts that travel with the task, by what they are; ``part of`` is the whole of
            which it is a part.
        path: Agents that it has been with, the origin first.
        max_hops: Agents that it may pass.
        attempts: How often it was tried, the current try included.
        budget: What is left of what it may use, by unit: ``seconds``, for all who are asked one
            after the other. Empty if it has no end of its own.
        deadline: By when the agent that has it must have answered, in seconds since 1970 (UTC);
            time in which people are asked comes on top.
        route: Agents still ahead of it, if it is on its way to one further down.
    """

    __stored_as__ = "echelons.delegation.DelegationRequest"

    id: str
    origin: str
    current: str
    task: str
    context: dict[str, Any] = Field(default_factory=dict)
    path: tuple[str, ...] = ()
    max_hops: int = MAX_HOPS
    attempts: int = 1
    budget: dict[str, float] = Field(default_factory=dict)
    deadline: float | None = None
    route: tuple[str, ...] = ()

    @property
    def hops(self) -> int:
        """Steps down that the request has made."""
        return max(len(self.path) - 1, 0)

    @property
    def seconds(self) -> float | None:
        """What is left of its own time; ``None`` if it has no end."""
        return self.budget.get("seconds")

    def after(self, spent: float) -> Self:
        """Return the request when so many seconds of its own time are spent."""
        if self.seconds is None:
            return self
        return self.model_copy(update={"budget": {"seconds": max(self.seconds - spent, 0.0)}})


class DelegationResponse(_Record):
    """What came of a request.

    Attributes:
        request_id: The request that it answers.
        agent: Agent that answers.
        status: How it ended.
        result: The answer, in words; empty if there is none.
        confidence: How sure the agent is, 0 to 1.
        path: Agents from the request's origin to the one that answers.
        usage: What it cost, everything below included, which ``subordinate_responses`` tell apart.
        reason: Why it is not fulfilled; empty if it is.
        partial_results: Parts of an answer, where the whole was not possible.
        subordinate_responses: What the agent's own subordinates answered, or those who were
            asked before it.
        thread_id: The thread on which it was worked off, if several were tried.
        failed: Whether it is unable for an error, for want of time, or because it was not asked,
            and has not said so itself.
    """

    __stored_as__ = "echelons.delegation.DelegationResponse"

    request_id: str
    agent: str
    status: Status
    result: str = ""
    confidence: float = Field(default=0.0, ge=0.0, le=1.0)
    path: tuple[str, ...] = ()
    usage: Usage = Usage()
    reason: str = ""
    partial_results: tuple[str, ...] = ()
    subordinate_responses: tuple[DelegationResponse, ...] = ()
    thread_id: str = ""
    failed: bool = False
