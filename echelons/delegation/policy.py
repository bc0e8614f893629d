"""`DelegationPolicy`: how an agent selects and calls its subordinates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import Field, ValidationInfo, field_validator

from echelons.delegation.context import ContextPolicy
from echelons.delegation.mail import SiblingDecision
from echelons.guards.circuit_breaker import BreakerPolicy
from echelons.settings import Settings
from echelons.text.input_limits import ID_PATTERN

DEFAULT_TIMEOUT = 120.0
"""Default time in seconds that an agent has, for each level from it down.

Real models may take 30 s for one long reply.
"""

Seconds: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]


AlertDecision: TypeAlias = Literal["tell", "stop", "ignore"]
"""What becomes of an alert. `"tell"` has the superior read it at its next model call; `"stop"` also
stops the agent that it is about, with all below it; `"ignore"` keeps it for people alone."""


class DelegationPolicy(Settings):
    """How an agent delegates; inherited by its subordinates unless they have a policy of their own.

    A task is routed if the call names no subordinate.

    Attributes:
        exploring: How a routed task is tried: `"ordered"`, the best candidate first, and the
            next one if that is unable; `"parallel"`, all candidates at once, and the best
            response counts.
        splitting: Whether a routed task that needs several agents is split into a request for
            each.
        timeout: Seconds in which a subordinate must answer, including those below it; never more
            than its superior has left. `"by_level"` for 120 seconds times the levels from it
            down, those included that may be made at run time, `None` for no limit. Time spent
            waiting for people does not count.
        request_timeout: Seconds for a routed task, including all candidates tried one after the
            other; `None` for no limit except that of each candidate.
        max_hops: Agents that a request of this agent may pass on its way down from the root, the
            one that answers included; never more than a superior's policy allows. `None` for no
            limit of its own: ten, or the depth of the tree if that is more.
        repeats: Whether a task is refused that the same agent has answered in the same turn:
            `"refuse"`, if nothing but that task has been worked on since; `"allow"`, never.
        matcher: Scores the agents for a routed task; the root's applies to the tree. See
            `echelons.routing`; by default it compares words.
        deriver: Derives capabilities of agents that declare none; the root's applies to the
            tree. See `echelons.capabilities`; by default it uses the agents' names.
        threshold: The lowest score, from 0 to 1, of a candidate; the matcher's own by default.
        sibling_messages: The handling of a message from one of its subordinates to another:
            `"copy"` delivers it, and shows the agent's model a copy; `"hold"` shows it to the
            agent's model alone, which may pass it on; `"refuse"`; or a function that decides
            about each, by its `sender`, `receiver` and `text`. One that fails holds it.
        progress: Whether subordinates are shown `send_message` also without siblings, to tell how
            far they are.
        joins: Whether the agent's model is shown `delegate_many`, which takes the first, the best
            or a quorum of several answers.
        context: The part of the agent's own work that subordinates see beside their task: a
            `ContextPolicy`, a function from a `DelegationContext` to another, or `None` for
            nothing.
        on_alert: The handling of an alert of one of its monitors: `"tell"` has the agent's model
            read it at its next call; `"stop"` also stops the agent that it is about, with all
            below it; `"ignore"` does neither; or a function that decides about each `Alert`, by
            its `monitor`, `path` and `reason`. If it fails, the agent's model reads the alert.
        breaker: When a failing subordinate is not called for a while.
        breaker_scope: Keeps the circuits of this tree apart from those of other trees in the same
            database whose agents have the same paths, such as those of another tenant: 1 to 128
            letters, digits and `._:-`. The root's applies to the tree.

    Raises:
        InvalidSetting: A value is out of its range, or has an unknown name.

    Examples:
        >>> DelegationPolicy(timeout=120).compute_timeout(levels=3)
        120.0
        >>> DelegationPolicy().compute_timeout(levels=3)
        360.0
    """

    exploring: Literal["ordered", "parallel"] = "ordered"
    splitting: bool = True
    timeout: Seconds | Literal["by_level"] | None = "by_level"
    request_timeout: Seconds | None = None
    max_hops: int | None = Field(default=None, ge=1)
    repeats: Literal["refuse", "allow"] = "refuse"
    matcher: Any = None
    deriver: Any = None
    threshold: float | None = Field(default=None, ge=0, le=1)
    sibling_messages: Any = "copy"
    progress: bool = False
    joins: bool = False
    context: ContextPolicy | Any = None
    on_alert: Any = "tell"
    breaker: BreakerPolicy = Field(default_factory=BreakerPolicy)
    breaker_scope: str = Field(default="", pattern=rf"^({ID_PATTERN.pattern})?$")

    @field_validator("matcher", "deriver")
    @classmethod
    def _check_interface(cls, value: Any, info: ValidationInfo) -> Any:
        kinds = {"matcher": "a matcher of `echelons.routing`", "deriver": "a function"}
        fits = callable(getattr(value, "prepare", None) if info.field_name == "matcher" else value)
        if value is not None and not fits:
            raise ValueError(f"it is not {kinds[info.field_name or '']}")
        return value

    @field_validator("context", mode="before")
    @classmethod
    def _check_context(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return ContextPolicy(**value)
        is_function = callable(value) and not isinstance(value, type)
        if not (value is None or is_function or isinstance(value, ContextPolicy)):
            raise ValueError("it is no ContextPolicy, and no function of a DelegationContext")
        return value

    @field_validator("sibling_messages")
    @classmethod
    def _check_rule(cls, value: Any) -> Any:
        if not callable(value) and value not in get_args(SiblingDecision):
            raise ValueError("it is none of 'copy', 'hold' and 'refuse', and no function")
        return value

    @field_validator("on_alert")
    @classmethod
    def _check_alert_rule(cls, value: Any) -> Any:
        if not callable(value) and value not in get_args(AlertDecision):
            raise ValueError("it is none of 'tell', 'stop' and 'ignore', and no function")
        return value

    def compute_timeout(self, levels: int) -> float | None:
        """Return the seconds of a subordinate with so many levels from it down, 1 for itself."""
        return DEFAULT_TIMEOUT * levels if self.timeout == "by_level" else self.timeout


DEFAULT_POLICY = DelegationPolicy()
"""The policy of a root that has none of its own."""
