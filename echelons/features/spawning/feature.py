"""`SpawningFeature`: agents that make subordinates at run time, and notices of these."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from langchain_core.messages import BaseMessage, ToolCall

from echelons.delegation.spawned_agents import MAX_ROLE, build_entry, find_changes, read_roster
from echelons.features.feature import (
    AgentHooks,
    AgentStep,
    BuiltIn,
    Feature,
    Outcome,
    Place,
)
from echelons.guards.dismissals import get_dismissals
from echelons.guards.permissions import Spawn
from echelons.identity.lineage import derive_message_id
from echelons.models.fitting import build_roster_notice
from echelons.models.hidden_messages import leave_out_hidden
from echelons.models.summaries import find_summaries, find_window
from echelons.nodes.planning.call_arguments import DelegatingTool
from echelons.nodes.planning.final_answer import is_paused
from echelons.nodes.planning.spawn_plan import (
    SpawnPlan,
    SpawnRules,
    SpawnSubordinateArgs,
    accept_spawn,
)
from echelons.plans import Plan
from echelons.tree.names import PATH_SEPARATOR, SPAWN_SUBORDINATE

if TYPE_CHECKING:
    from echelons.nodes.planning.tool_calls import ReplyCalls


class SpawnSubordinate(DelegatingTool):
    """The tool that makes a subordinate and gives it its first task."""

    name, arguments = SPAWN_SUBORDINATE, SpawnSubordinateArgs

    def __init__(self, rules: Spawn, contact_user: bool) -> None:
        self._rules = rules
        self._contact_user = contact_user

    def build_schema(self) -> dict[str, Any]:
        """Return what a model is shown of it."""
        rules = self._rules
        properties: dict[str, Any] = {
            "role": {"type": "string", "maxLength": MAX_ROLE},
            "message": {"type": "string"},
        }
        if rules.profiles:
            properties["profile"] = {"type": "string", "enum": [*rules.profiles]}
        if rules.tools:
            names = {"type": "string", "enum": [*rules.tools]}
            properties["tools"] = {"type": "array", "items": names}
        if self._contact_user:
            properties["contact_user"] = {"type": "boolean", "default": False}
        properties["kind"] = {
            "type": "string",
            "enum": [*rules.kinds],
            "default": rules.kinds[0],
        }
        if "mortal" in rules.kinds:
            properties["keep"] = {"type": "boolean", "default": False}
        properties |= self._show_fields()
        return self._describe(properties, ["role", "message"])

    def accept(self, call: ToolCall, reply: ReplyCalls) -> str:
        """Add the request with which the new subordinate begins."""
        return accept_spawn(call, call["args"], reply, self.fields)


def list_roster_notices(
    step: AgentStep, rules: SpawnRules | None, declared: Collection[str]
) -> list[BaseMessage]:
    """Return the notices of its subordinates for an agent's next model call.

    Raises:
        UnreadableRecord: Stored summaries are damaged.
    """
    past, state, config = step.past, step.state, step.config
    gate, identity, messages = step.gate, step.identity, state["messages"]
    below = get_dismissals(gate).list_below(PATH_SEPARATOR.join(identity.path))
    dismissed = [name for name in declared if name in below]
    plan = SpawnPlan.build(rules, past, state, config) if rules else None
    if not (dismissed or (plan and plan.known)) or is_paused(messages):
        return []
    shown = leave_out_hidden([*past.messages, *messages], gate.hidden_messages)
    summaries = find_summaries(shown)
    segment = identity.request_id or identity.turn
    roster = read_roster(shown[find_window(shown, summaries) :], segment, summaries.roster)
    spawned = plan.living if plan else {}
    living = {
        name: build_entry(spec.stored(), stays=spec.segment != segment)
        for name, spec in spawned.items()
    }
    if not (changes := find_changes(roster, living, dismissed)):
        return []
    latest = next((message.id for message in reversed(messages) if message.id), "")
    return [build_roster_notice(changes, derive_message_id(identity.thread_id, f"roster/{latest}"))]


class SpawningHooks(AgentHooks):
    """The subordinates of one agent, as they come and go."""

    has_notices = True

    def __init__(self, place: Place) -> None:
        permissions, tools = place.agent.permissions, list[BuiltIn]()
        self._declared = tuple(member.name for member in place.agent.subordinates)
        self._rules: SpawnRules | None = None
        if permissions.spawn and place.can_call:
            self._rules = SpawnRules(permissions.spawn)
            tools.append(SpawnSubordinate(permissions.spawn, permissions.contact_user))
        self.tools: Sequence[BuiltIn] = tools

    def around_step(
        self, step: AgentStep, proceed: Callable[[AgentStep], Plan[Outcome]]
    ) -> Plan[Outcome]:
        """Tell the model which of its subordinates have come or gone."""
        # Most agents make none, and have none dismissed.
        if not (self._rules or get_dismissals(step.gate)):
            return proceed(step)
        notices = list_roster_notices(step, self._rules, self._declared)
        return _announce(notices, step, proceed) if notices else proceed(step)


class SpawningFeature(Feature):
    """Subordinates that are made at run time."""

    name: ClassVar[str] = "spawning"

    def bind(self, place: Place) -> AgentHooks | None:
        """Return the notices for an agent that has subordinates, or may make some."""
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
