"""`DismissalFeature`: agents that dismiss their subordinates."""

from __future__ import annotations

from typing import ClassVar

from echelons.checkpoints.tree_control.dismissal_ledger import DISMISSAL
from echelons.features.dismissal.guard import DismissalGuard
from echelons.features.dismissal.tools import DismissSubordinate
from echelons.features.feature import AgentHooks, Feature, GateScope, Place
from echelons.guards.gate import StepGuard


class DismissalHooks(AgentHooks):
    """The tool of an agent that may make subordinates, and dismiss any."""

    tools = (DismissSubordinate(),)


class DismissalFeature(Feature):
    """Dismissals by an agent."""

    name: ClassVar[str] = "dismissal"
    records = (DISMISSAL,)

    def bind(self, place: Place) -> AgentHooks | None:
        """Return the tool of an agent that may make subordinates."""
        return DismissalHooks() if place.can_call and place.agent.permissions.spawn else None

    def guard(self, run: GateScope) -> StepGuard:
        """Return the dismissals of a run."""
        return DismissalGuard(run)


FEATURE = DismissalFeature()
