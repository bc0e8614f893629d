"""`Alert`, and what the superior of a monitor decides about one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

AlertDecision: TypeAlias = Literal["tell", "stop", "ignore"]
"""What becomes of an alert. `"tell"` has the superior read it at its next model call; `"stop"` also
stops the agent that it is about, with all below it; `"ignore"` keeps it for people alone."""


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert of a monitor about an agent.

    Attributes:
        monitor: Path of the monitor.
        path: Path of the agent that it is about.
        reason: Why, in the words of the monitor's model.
    """

    monitor: str
    path: str
    reason: str


def decide_alert(
    rule: AlertDecision | Callable[[Alert], AlertDecision], alert: Alert
) -> AlertDecision:
    """Return what becomes of an alert, by a superior's rule.

    Raises:
        ValueError: The rule is a function, and returns no decision.

    Examples:
        >>> decide_alert("stop", Alert("head/watch", "head/scout", "It repeats itself."))
        'stop'
    """
    decision: object = rule(alert) if callable(rule) else rule
    for known in get_args(AlertDecision):
        if decision == known:
            return known  # type: ignore[no-any-return]
    raise ValueError(f"on_alert returned {decision!r}, and may return 'tell', 'stop' or 'ignore'")
