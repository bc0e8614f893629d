"""`ScopedGate`: a gate around another, for a deadline or a lost race of a subordinate alone.

Nodes put it into the subordinate's config.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from echelons.guards.budget import Allowance, Budgets, GrantRequest, NotedCall
from echelons.guards.dismissals import Dismissals
from echelons.guards.gate import Gate, Halt, Pause, Step


class ScopedGate(ABC):
    """The gate of a subordinate that may have to end before the run; it wraps its superior's."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.arun = gate.arun
        self.backpressure = gate.backpressure
        self.mailboxes = gate.mailboxes
        self.held_attempts = gate.held_attempts

    @property
    def dismissals(self) -> Dismissals:
        """The dismissals of its thread, as it knew them at the latest step."""
        return self.gate.dismissals

    @property
    def hidden_messages(self) -> frozenset[str]:
        """The ids of the messages of its thread that no model is shown."""
        return self.gate.hidden_messages

    def find_dismissal(self, open_: Any, config: Mapping[str, Any]) -> Halt | None:
        """Return the dismissal that an agent is under in an open transaction of the ledger."""
        return self.gate.find_dismissal(open_, config)

    def dismiss(self, name: str, config: Mapping[str, Any]) -> Sequence[str]:
        """Dismiss a subordinate of the agent, and all below it, for good."""
        return self.gate.dismiss(name, config)

    @property
    @abstractmethod
    def halt(self) -> Halt | None:
        """The order to begin no more steps, or `None`."""

    @property
    def allowance(self) -> Allowance | None:
        """What the root may spend."""
        return self.gate.allowance

    @property
    def budgets(self) -> Budgets:
        """The budgets of its agents."""
        return self.gate.budgets

    def enter(
        self, step: Step, config: Mapping[str, Any], grants: Sequence[GrantRequest] = ()
    ) -> Halt | Pause | None:
        """Count a step, or return the order that forbids it."""
        halt = None if step is Step.APPROVAL else self.halt
        return halt or self.gate.enter(step, config, grants)

    def check_hold(self) -> None:
        """Hold a step that is not counted, of a foreign graph, while the run has to become idle."""
        self.gate.check_hold()

    def leave(self, reply: Any, config: Mapping[str, Any]) -> Halt | None:
        """Count the tokens of a reply; return a `Halt` if it must not be acted on."""
        return self.gate.leave(reply, config)

    @property
    def limits_tokens(self) -> bool:
        """Whether the tokens of its models are limited."""
        return self.gate.limits_tokens

    def note_call(self, call: NotedCall, config: Mapping[str, Any]) -> None:
        """Count and record a model call that has ended."""
        self.gate.note_call(call, config)

    def get_time(self) -> datetime:
        """Return the time of the clock by which the deadlines of questions are set, in UTC."""
        return self.gate.get_time()

    def note_deadline(self, deadline: datetime) -> None:
        """Let a question's deadline be looked at before each step."""
        self.gate.note_deadline(deadline)

    def listen(
        self, config: Mapping[str, Any], callback: Callable[[Halt], None]
    ) -> Callable[[], None]:
        """Register a callback for when the agent is stopped; return a function to remove it."""
        return self.gate.listen(config, callback)
