"""`SpawningFeature`: agents that make subordinates at run time, and are told who comes and goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from langchain_core.messages import BaseMessage

from echelons.features.feature import (
    AgentHooks,
    AgentStep,
    BuiltIn,
    Feature,
    Outcome,
    Place,
)
from echelons.features.spawning.roster import list_roster_notices
from echelons.features.spawning.tools import SpawnSubordinate
from echelons.nodes.planning.spawn_plan import SpawnRules
from echelons.plans import Plan


class SpawningHooks(AgentHooks):
    """The subordinates of one agent, as they come and go.

    Args:
        place: The agent at its place.
    """

    def __init__(self, place: Place) -> None:
        permissions, tools = place.agent.permissions, list[BuiltIn]()
        self._declared = tuple(member.name for member in place.agent.subordinates)
        self._rules: SpawnRules | None = None
        if permissions.spawn and place.can_call:
            self._rules = SpawnRules(permissions.spawn)
            has_budget, contact_user = place.has_budget, permissions.contact_user
            tools.append(SpawnSubordinate(permissions.spawn, contact_user, has_budget=has_budget))
        self.tools: Sequence[BuiltIn] = tools

    def around_step(
        self, step: AgentStep, proceed: Callable[[AgentStep], Plan[Outcome]]
    ) -> Plan[Outcome]:
        """Tell the model which of its subordinates have come or gone."""
        # Most agents make none, and have none dismissed.
        if not (self._rules or step.gate.dismissals):
            return proceed(step)
        notices = list_roster_notices(step, self._rules, self._declared)
        return _announce(notices, step, proceed) if notices else proceed(step)


class SpawningFeature(Feature):
    """Subordinates that are made at run time."""

    name: ClassVar[str] = "spawning"

    def bind(self, place: Place) -> AgentHooks | None:
        """Return what an agent that has subordinates, or may make some, is told of them."""
        agent = place.agent
        has_any = agent.subordinates or (agent.permissions.spawn and place.can_call)
        return SpawningHooks(place) if has_any else None


FEATURE = SpawningFeature()


def _announce(
    notices: list[BaseMessage],
    step: AgentStep,
    proceed: Callable[[AgentStep], Plan[Outcome]],
) -> Plan[Outcome]:
    outcome = yield from proceed(step.add_messages(notices))
    # Only what the model has read is stored.
    if outcome.reply or outcome.cut:
        outcome.added[:0] = notices
    return outcome
