"""`DismissalFeature`: agents that dismiss their subordinates."""

from __future__ import annotations

from typing import ClassVar

from echelons.features.dismissal.tools import DismissSubordinate
from echelons.features.feature import AgentHooks, Feature, Place


class DismissalHooks(AgentHooks):
    """The tool of an agent that may make subordinates, and dismiss any."""

    tools = (DismissSubordinate(),)


class DismissalFeature(Feature):
    """Dismissals by an agent."""

    name: ClassVar[str] = "dismissal"

    def bind(self, place: Place) -> AgentHooks | None:
        """Return the tool of an agent that may make subordinates."""
        return DismissalHooks() if place.can_call and place.agent.permissions.spawn else None


FEATURE = DismissalFeature()
