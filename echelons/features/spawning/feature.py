"""`SpawningFeature`: agents that make subordinates at run time, and notices of these."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from langchain_core.messages import BaseMessage, ToolCall

from echelons.agent import Agent
from echelons.delegation.join import is_dismissed
from echelons.delegation.request import DelegationResponse
from echelons.delegation.spawned_agents import (
    MAX_ROLE,
    NEVER_BEGUN,
    AgentSpecification,
    SpawnableAgent,
    build_entry,
    count_levels,
    find_changes,
    get_spawnable,
    read_roster,
)
from echelons.features.feature import (
    AddedAgent,
    AgentHooks,
    AgentStep,
    BuiltIn,
    Feature,
    Outcome,
    Place,
    SubordinateSource,
)
from echelons.features.spawning.agents import build_spawned_agent
from echelons.features.spawning.plan import SpawnPlan, SpawnRules, SpawnSubordinateArgs
from echelons.guards.dismissals import get_dismissals
from echelons.guards.permissions import ALL_GRANTED, Grant, Spawn
from echelons.identity.lineage import (
    ROSTER_KEY,
    WARNING_KEY,
    derive_message_id,
    get_level,
    require_identity,
)
from echelons.identity.thread_history import Head
from echelons.models.fitting import build_roster_notice
from echelons.models.hidden_messages import leave_out_hidden
from echelons.models.summaries import find_summaries, find_window
from echelons.nodes.planning.call_arguments import (
    DelegatingTool,
    store_fields,
    validate_arguments,
)
from echelons.nodes.planning.final_answer import is_paused
from echelons.plans import Plan
from echelons.run_context import get_context
from echelons.tree.members import walk_tree
from echelons.tree.names import PATH_SEPARATOR, SPAWN_SUBORDINATE

if TYPE_CHECKING:
    from echelons.delegation.policy import DelegationPolicy
    from echelons.nodes.planning.tool_calls import CallableTools, ReplyCalls, ReplyScope
    from echelons.nodes.request_queue import QueuedRequest

LOG = logging.getLogger(__name__)

MAX_KEPT = 256
"""Number of spawned agents of one superior that are kept; the others are made again."""


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
        wanted: Any = validate_arguments(self.arguments, call["args"])
        if isinstance(wanted, str):
            return wanted
        assert isinstance(reply.added, SpawnPlan)  # noqa: S101  an agent with the tool has the source
        fields = store_fields(wanted, self.fields)
        return reply.added.begin(call, wanted, fields, reply)


class SpawnSource(SubordinateSource):
    """The agents that one makes at run time."""

    def __init__(self, place: Place, allowed: Spawn) -> None:
        agent = place.agent
        self.profiles = allowed.profiles
        self.rules = SpawnRules(
            allowed,
            declared=tuple(member.name for member in agent.subordinates),
            model=type(place.model).__name__,
            contact_user=agent.permissions.contact_user,
        )
        self._superior = agent
        self._build = lru_cache(MAX_KEPT)(self._build_new)

    def read(self, scope: ReplyScope, tools: CallableTools) -> SpawnPlan:
        """Return the agents that a reply sees."""
        return SpawnPlan.build(self.rules, scope.past, scope.state, scope.config, tools.tools)

    def build(self, facts: Any, config: Mapping[str, Any]) -> AddedAgent:
        """Return an agent made of its specification and what this process declares."""
        spec = AgentSpecification.load(facts)
        grant = get_context(config).rights or ALL_GRANTED
        return self._build(spec, get_spawnable(config).get(spec.profile), grant)

    def _build_new(
        self, spec: AgentSpecification, profile: SpawnableAgent | None, grant: Grant
    ) -> AddedAgent:
        agent = build_spawned_agent(spec, self._superior, profile, grant)
        # An agent that the user has given has no digest.
        if profile and spec.profile_hash not in ("", profile.digest):
            LOG.warning(
                "%s goes on with the profile %r as it is now, which has changed since",
                spec.name,
                spec.profile,
            )
        return AddedAgent(agent, spec.profile)

    def find_model(self, facts: Any, config: Mapping[str, Any]) -> Any:
        """Return the model of an agent's profile; `None` for that of its superior."""
        known = get_spawnable(config)
        profile = known.get(str(facts.get("profile"))) if isinstance(facts, Mapping) else None
        return getattr(profile.member, "model", None) if profile else None

    def count_levels(self, facts: Any, config: Mapping[str, Any]) -> int:
        """Return the number of levels from an agent down."""
        return count_levels(facts, get_spawnable(config))

    def keep(
        self, order: QueuedRequest, head: Head, answer: DelegationResponse | None, *, began: bool
    ) -> tuple[QueuedRequest, Head]:
        """Keep the specification and the status of an agent in the head of its thread."""
        kept = Head(**head)
        kept["spawned"] = order.added[order.request.current]
        if answer and began:
            kept["status"] = str(answer.status)
        elif answer:
            # What was never allowed to begin is not there: it would be called unasked.
            kept.setdefault("status", NEVER_BEGUN)
            order = replace(order, added={})
        return order, kept

    def describe(
        self, order: QueuedRequest, answer: DelegationResponse, config: Mapping[str, Any]
    ) -> tuple[Sequence[str], Mapping[str, Any]]:
        """Return how an agent has ended with its answer, or until when it is there."""
        notices, metadata, identity = list[str](), dict[str, Any](), require_identity(config)
        if spec := order.added.get(answer.agent):
            end = _find_end(spec, answer, identity.request_id or identity.turn)
            stays = "" if spec.get("keep") else " until your present task has ended"
            there = f"{answer.agent} is there{stays}; call_subordinate reaches it by this name"
            notices.append(end or there)
            entry = None if end else build_entry(spec, stays=answer.awaits_answer).stored()
            metadata[ROSTER_KEY] = {answer.agent: entry}
        if order.is_new and (warning := _find_warning(config)):
            notices.append(f"Warning about {answer.agent}: {warning}")
            metadata[WARNING_KEY] = warning
        return notices, metadata


def _find_warning(config: Mapping[str, Any]) -> str:
    """Return the warning about a new agent near the tree's last level; empty for any other."""
    level, deepest = get_level(config) + 1, get_context(config).max_depth
    if level < deepest - 1:
        return ""
    left = "it can make none" if level == deepest else "what it makes can make none"
    return f"it is at level {level} of {deepest}: {left}"


def _find_end(spec: Mapping[str, Any], answer: DelegationResponse, segment: str) -> str:
    """Return how a spawned agent has ended with its answer; empty if it is there."""
    if answer.awaits_answer:
        return ""
    if is_dismissed(answer):
        return f"{answer.agent} is gone: it was dismissed"
    if spec.get("kind") == "drone":
        return f"{answer.agent}, a drone, has ended with this answer"
    is_over = segment and spec.get("segment") != segment
    if is_over and not spec.get("keep"):
        return f"{answer.agent} has ended with this answer: so has the task it was made for"
    return ""


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
            self.source = SpawnSource(place, permissions.spawn)
            self._rules = self.source.rules
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

    def compile(
        self, root: Agent, models: Mapping[str, Any], policies: Mapping[str, DelegationPolicy]
    ) -> None:
        """Log once that spawned agents run outside of middleware, which may be oversight."""
        around: dict[tuple[str, ...], list[str]] = {}
        for place in walk_tree(root):
            agent = place.member
            if not isinstance(agent, Agent):
                continue
            inherited = around.get(place.path[:-1], []) if agent.inherit_middleware else []
            names = around[place.path] = [*inherited, *(layer.name for layer in agent.middleware)]
            spawn = agent.permissions.spawn
            if names and spawn and not spawn.inherit_middleware:
                LOG.warning(
                    "the agents that %s spawns run without its middleware (%s); "
                    "Spawn(inherit_middleware=True) puts it around theirs",
                    place.path_text,
                    ", ".join(names),
                )


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
