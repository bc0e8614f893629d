"""A tree of three levels whose scout gets out of hand, and a monitor that watches it.

The scout looks at one place after the other, and every look takes a second of its clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import BaseCheckpointSaver

from echelons import Agent, DelegationPolicy, effect
from echelons.checkpoints.coordination.orders import get_signals
from echelons.checkpoints.ledger import Transaction, get_ledger
from echelons.features.monitors.ledger import MONITOR
from echelons.monitors import Monitor
from echelons.testing import Call, Reply, ScriptedModel, delegate
from tests.told_lines import get_last

SCOUT = "head/north/scout"
NORTH = "head/north"
WATCH = "head/watch"
PATIENCE = 60.0
"""Seconds of real time after which a test gives up waiting for a monitor."""
ALERT = Call("alert", {"path": SCOUT, "reason": "It goes round in circles."})


class Hands:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = datetime(2026, 5, 1, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += timedelta(seconds=seconds)


class Field:
    """Where the scout looks: it counts the looks, and waits at one of them.

    Args:
        waits_at: The look at which it waits for what the test sets.
        clock: Is moved by a second with each look.
    """

    def __init__(self, waits_at: int = 0, clock: Hands | None = None) -> None:
        self.looks = 0
        self.reached, self.go_on = Event(), Event()
        self._waits_at = waits_at
        self._clock = clock

    @effect(reads_only=True)
    def look(self, place: str) -> str:
        """Look at a place."""
        self.looks += 1
        if self._clock:
            self._clock.advance(1)
        if self.looks == self._waits_at:
            self.reached.set()
            assert self.go_on.wait(PATIENCE), "the monitor has not said what the scout waits for"
        return f"saw {place}"


def call_when_told(saver: BaseCheckpointSaver[Any], callback: Callable[[], object]) -> None:
    """Call a function once something that a monitor says is stored."""
    ledger = get_ledger(saver)

    def has_said(open_: Transaction) -> bool:
        keys = [key for key in open_.list_keys("thread/") if f"/{MONITOR.name}/" in key]
        found = [open_.get_record(MONITOR, key) for key in keys]
        return any(each.value.said for each in found if each)

    def look() -> None:
        # A run in an event loop is told of all that is written.
        if ledger.query(has_said):
            callback()

    get_signals(ledger).listen(look)


def wander(most: int) -> Callable[[Sequence[BaseMessage]], Any]:
    """Return the script of a scout that looks so many times at most."""

    def step(messages: Sequence[BaseMessage]) -> Any:
        looks = sum(each.type == "ai" for each in messages)
        return Call("look", {"place": f"place {looks}"}) if looks < most else "nothing found"

    return step


def build_tree(
    watch: Any,
    field: Field,
    *,
    most: int = 40,
    on_alert: Any = "stop",
    monitors: Sequence[Monitor] | None = None,
    **scripts: Any,
) -> Agent:
    """Return the tree; `watch` is the script of the monitor."""
    model = ScriptedModel(
        {
            "head": [delegate("north", "go"), "over"],
            "north": [delegate("scout", "go"), "north is done"],
            "scout": wander(most),
            "watch": watch,
            **scripts,
        }
    )
    north = Agent("north", subordinates=[Agent("scout", tools=[field.look])])
    if monitors is None:
        monitors = [Monitor("watch", watches="scout")]
    policy = DelegationPolicy(on_alert=on_alert)
    return Agent("head", model=model, subordinates=[north], monitors=monitors, delegation=policy)


def once(call: Call = ALERT, usage: tuple[int, int] = (30, 5)) -> Callable[..., Any]:
    """Return the script of a monitor that makes a call the first time, as it remembers."""

    def step(messages: Sequence[BaseMessage]) -> Any:
        if "You have said" in get_last(messages).text:
            return "nothing"
        return Reply(calls=[call], usage=usage)

    return step
