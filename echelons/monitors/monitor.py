"""`Monitor`: what an agent that watches others is declared as."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import Field, field_validator

from echelons.guards.budget import Budget
from echelons.settings import Settings
from echelons.text.input_limits import read_text
from echelons.tree.names import check_name

DEFAULT_BUDGET = Budget(calls=20)
"""What a monitor may spend in one turn if it is not told otherwise."""
SPENT_UNITS = frozenset({"calls", "tokens", "money"})
"""The units of a budget that a monitor can have."""


class Monitor(Settings):
    """An agent that reads what others do, and reports or alerts; it never acts.

    It is given to its superior as `Agent(monitors=[...])`, and works beside every turn of a
    `Session`: its model reads the new events of the agents that it watches, and may call `report`,
    which people see, or `alert`. What becomes of an alert, its superior decides in code
    (`DelegationPolicy(on_alert=...)`). It has no other tools, is given no tasks, and nobody waits
    for it.

    Attributes:
        name: As of an `Agent`; unique in its tree.
        description: What it is for, in a sentence.
        model: As of an `Agent`, but no function; that of its superior if left out.
        prompt: What it should alert about.
        watches: Name of the agent that it watches with all below it, or its path from the
            superior down; the superior itself if left out.
        every_events: It looks as soon as there are so many events that it has not read,
        every_seconds: and otherwise so many seconds after it last did, if there are any.
        budget: What it may spend in one turn, in `calls`, `tokens` and `money`.

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
    def _check_name(cls, given: Any) -> str:
        return check_name(given)

    @field_validator("description", "prompt", "watches", mode="before")
    @classmethod
    def _check_text(cls, given: Any) -> str:
        text = read_text(given)
        if text is None:
            raise ValueError("it is no text")
        return text

    @field_validator("model")
    @classmethod
    def _check_model(cls, given: Any) -> Any:
        named = isinstance(given, str) and given.strip()
        # A model class has the method too, but is no model.
        usable = not isinstance(given, type) and callable(getattr(given, "bind_tools", None))
        if not (given is None or named or usable):
            raise ValueError("it is no chat model that calls tools, and no name of one")
        return given

    @field_validator("budget")
    @classmethod
    def _check_units(cls, given: Budget) -> Budget:
        if other := given.amounts.keys() - SPENT_UNITS:
            raise ValueError(f"a monitor spends calls, tokens and money, and no {', '.join(other)}")
        return given


@dataclass(frozen=True, slots=True)
class PlacedMonitor:
    """A monitor at its place in a tree.

    Attributes:
        monitor: The monitor.
        path: Its path.
        superior: Path of its superior.
        watched: Path of the agent that it watches with all below it.
        model: Its chat model.
        on_alert: What its superior does about its alerts, see `DelegationPolicy`.
    """

    monitor: Monitor
    path: str
    superior: str
    watched: str
    model: Any
    on_alert: Any = "tell"
