"""`Monitor`: what an agent that watches others is declared as, and the `Alert` that it may make."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from pydantic import Field, field_validator

from echelons.delegation.policy import AlertDecision
from echelons.errors import duplicate_name, invalid_field
from echelons.guards.budget import Budget
from echelons.settings import Settings
from echelons.text.input_limits import list_items, read_text, refuse_unreadable
from echelons.tree.members import is_watched, list_monitors, walk_tree
from echelons.tree.names import PATH_SEPARATOR, check_name

if TYPE_CHECKING:
    from echelons.agent import Agent

DEFAULT_BUDGET = Budget(calls=20)
"""What a monitor may spend in one turn if it is not told otherwise."""
SPENT_UNITS = frozenset({"calls", "tokens", "money"})
"""The units of a budget that a monitor can have."""
MONITORS = "Monitor, in a list"
"""What the monitors of an agent may be."""


class Monitor(Settings):
    """An agent that reads what others do, and reports or alerts; it never acts.

    Pass it to its superior as `Agent(monitors=[...])`, and works beside every turn of a
    `Session`: its model reads the new events of the agents that it watches, and may call `report`,
    which people see, or `alert`. Its superior decides in code what becomes of an alert
    (`DelegationPolicy(on_alert=...)`). It has no other tools, is given no tasks, and no agent waits
    for it.

    Attributes:
        name: As of an `Agent`; unique in its tree.
        description: Its purpose, in a sentence.
        model: As of an `Agent`, but no function; that of its superior if left out.
        prompt: The events that it should alert about.
        watches: Name of the agent that it watches with all below it, or its path from the
            superior down; the superior itself if left out.
        every_events: It looks as soon as there are so many events that it has not read,
        every_seconds: and otherwise so many seconds after it last did, if there are any.
        budget: The amount that it may spend in one turn, in `calls`, `tokens` and `money`.

    Raises:
        ConfigurationError: A value is invalid; the subclass says which.

    Examples:
        >>> from echelons import Agent
        >>> watch = Monitor("watch", "Looks out for loops", watches="scout")
        >>> print(Agent("head", subordinates=[Agent("scout")], monitors=[watch]).draw())
        head
        ├── scout
        └── watch: Looks out for loops (monitor of scout)
    """

    name: str
    description: str = ""
    model: Any = None
    prompt: str = ""
    watches: str = ""
    every_events: int = Field(default=20, ge=1, le=100_000)
    every_seconds: float = Field(default=5.0, gt=0, le=86_400, allow_inf_nan=False)
    budget: Budget = DEFAULT_BUDGET

    if TYPE_CHECKING:

        def __init__(  # noqa: PLR0913
            self,
            name: str,
            description: str = "",
            *,
            model: Any = None,
            prompt: str = "",
            watches: str = "",
            every_events: int = 20,
            every_seconds: float = 5.0,
            budget: Budget = ...,
        ) -> None: ...

    else:

        def __init__(self, name: str = "", description: str = "", **values: Any) -> None:
            super().__init__(name=name, description=description, **values)

    @field_validator("name", mode="before")
    @classmethod
    def _check_name(cls, value: Any) -> str:
        return check_name(value)

    @field_validator("description", "prompt", "watches", mode="before")
    @classmethod
    def _check_text(cls, value: Any) -> str:
        text = read_text(value)
        if text is None:
            raise ValueError("it is no text")
        return text

    @field_validator("model")
    @classmethod
    def _check_model(cls, value: Any) -> Any:
        named = isinstance(value, str) and value.strip()
        # A model class has the method too, but is no model.
        usable = not isinstance(value, type) and callable(getattr(value, "bind_tools", None))
        if not (value is None or named or usable):
            raise ValueError("it is no chat model that calls tools, and no name of one")
        return value

    @field_validator("budget")
    @classmethod
    def _check_units(cls, value: Budget) -> Budget:
        if other := value.amounts.keys() - SPENT_UNITS:
            raise ValueError(f"a monitor spends calls, tokens and money, and no {', '.join(other)}")
        return value


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
    for choice in get_args(AlertDecision):
        if decision == choice:
            return choice  # type: ignore[no-any-return]
    raise ValueError(f"on_alert returned {decision!r}, and may return 'tell', 'stop' or 'ignore'")


def check_monitors(agent: Agent) -> tuple[Monitor, ...]:
    """Return the monitors of an agent whose names, and those below it, are unique in its tree."""
    with refuse_unreadable(lambda _: invalid_field(agent.name, "monitors", "…", MONITORS)):
        return _check_declared(agent) if is_watched(agent) else ()


def _check_declared(agent: Agent) -> tuple[Monitor, ...]:
    monitors: Any = agent.monitors
    if isinstance(monitors, (str, bytes, Mapping)) or not hasattr(monitors, "__iter__"):
        raise invalid_field(agent.name, "monitors", monitors, MONITORS)
    declared = tuple(list_items(monitors))
    places = [*walk_tree(agent)]
    names = {place.path_text for place in places} | {place.member.name for place in places}
    for monitor in declared:
        if not isinstance(monitor, Monitor):
            raise invalid_field(agent.name, "monitors", monitor, MONITORS)
        if monitor.watches and monitor.watches not in names:
            raise invalid_field(
                monitor.name, "watches", monitor.watches, "the name of an agent below"
            )
    taken = {place.member.name: place.path_text for place in places}
    for place in places:
        below = declared if place.member is agent else list_monitors(place.member)
        for monitor in below:
            path = PATH_SEPARATOR.join((*place.path, monitor.name))
            if monitor.name in taken:
                raise duplicate_name(monitor.name, (taken[monitor.name], path))
            taken[monitor.name] = path
    return declared
