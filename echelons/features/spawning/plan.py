"""`SpawnPlan`: the agents that one has made in a conversation, or makes with its reply. Pure.

What an agent has made stands in the heads of their threads. So a fork has those of its past, and
nothing else has to be stored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

from langchain_core.messages import ToolCall
from pydantic import AfterValidator, BaseModel, Field, StrictBool

from echelons.agent import Agent
from echelons.delegation.calls import Candidates, SubordinateCall
from echelons.delegation.spawned_agents import (
    GIVEN,
    MAX_LISTED,
    MAX_ROLE,
    NEVER_BEGUN,
    AgentSpecification,
    SpawnableAgent,
    SpawnedAgent,
    collect_spawned,
    count_levels,
    derive_spawned_agent,
    find_given_agents,
    get_spawnable,
)
from echelons.errors import SpawnRefused
from echelons.features.feature import AddedSubordinates
from echelons.guards.dismissals import get_dismissals
from echelons.guards.gate import get_gate
from echelons.guards.limits import MAX_DEPTH
from echelons.guards.permissions import Spawn, SpawnedKind
from echelons.identity.lineage import Identity, require_identity
from echelons.identity.thread_history import Head, Past
from echelons.nodes.planning.call_arguments import validate_arguments
from echelons.run_context import get_context
from echelons.text.error_lines import join_printable
from echelons.tree.members import collect_capabilities
from echelons.tree.names import PATH_SEPARATOR

if TYPE_CHECKING:
    from echelons.nodes.planning.tool_calls import ReplyCalls

MAX_ROUTED = 1024
"""Number of spawned agents that the router knows at once; the others are read again."""
MAX_SPAWN_MESSAGE = 64 * 1024
"""Most bytes of the first task of a spawned agent."""


def _check_role(role: str) -> str:
    """Return a role in one line, which must say something."""
    if not (text := join_printable(role)):
        raise ValueError("say in a few words what it is for")
    return text


def _check_spawn_message(text: str) -> str:
    if (size := len(text.encode(errors="replace"))) > MAX_SPAWN_MESSAGE:
        raise ValueError(f"{size} bytes, and at most {MAX_SPAWN_MESSAGE}; shorten it")
    return text


class SpawnSubordinateArgs(BaseModel):
    """Arguments of `spawn_subordinate`."""

    role: Annotated[str, Field(max_length=MAX_ROLE), AfterValidator(_check_role)]
    message: Annotated[str, Field(min_length=1), AfterValidator(_check_spawn_message)]
    profile: str | None = None
    tools: list[str] | None = None
    contact_user: StrictBool = False
    kind: SpawnedKind | None = None
    keep: StrictBool = False


@dataclass(frozen=True, slots=True)
class SpawnRules:
    """The agents that a level may spawn.

    Attributes:
        allowed: The agent's rules.
        declared: Names of its declared subordinates.
        model: Name of its model's class.
        contact_user: Whether it may ask the user past its superior.
        build_routed: Returns what the router knows of one, the same for the same specification.
    """

    allowed: Spawn
    declared: Collection[str] = ()
    model: str = ""
    contact_user: bool = False
    build_routed: Callable[[AgentSpecification, SpawnableAgent | None], Agent] = field(
        default_factory=lambda: lru_cache(MAX_ROUTED)(_build_routed_agent), compare=False
    )


@dataclass(slots=True)
class SpawnPlan(AddedSubordinates):
    """The spawned agents of one conversation.

    Attributes:
        rules: The rules for the agents that it may spawn.
        heads: The heads of the conversation's threads.
        identity: The agent.
        profiles: The agents that this process lets be copied, by the names of the profiles.
        dismissed: Names of those of its subordinates that were dismissed.
        levels_around: The levels of trees around that the path of the agent does not name.
        max_depth: Most levels of the tree, with those around it.
        tools: Names of its own tools.
        new: The specifications of those that the reply makes, by call id.
    """

    rules: SpawnRules
    heads: Mapping[str, Head]
    identity: Identity
    profiles: Mapping[str, SpawnableAgent] = field(default_factory=dict)
    dismissed: Collection[str] = ()
    levels_around: int = 0
    max_depth: int = MAX_DEPTH
    tools: Collection[str] = ()
    new: dict[str, AgentSpecification] = field(default_factory=dict)
    known: dict[str, SpawnedAgent] = field(init=False)
    living: dict[str, AgentSpecification] = field(init=False)

    def __post_init__(self) -> None:
        self.known = collect_spawned(self.heads)
        self.living = {
            name: agent.spec
            for name, agent in self.known.items()
            if name not in self.dismissed
            and not agent.is_dismissed(self._segment)
            and self._may_have_profile(agent)
        }

    @classmethod
    def build(
        cls,
        rules: SpawnRules,
        past: Past,
        state: Mapping[str, Any],
        config: Mapping[str, Any],
        tools: Collection[str] = (),
    ) -> SpawnPlan:
        """Return the plan of the agent of a node's config."""
        heads: dict[str, Head] = {**past.heads, **(state.get("heads") or {})}
        adopted = find_given_agents(chain(past.messages, state["messages"]))
        identity, spawnable = require_identity(config), get_spawnable(config)
        path = PATH_SEPARATOR.join(identity.path)
        dismissed = get_dismissals(get_gate(config)).list_below(path)
        context = get_context(config)
        return cls(
            rules,
            {**adopted, **heads},
            identity,
            spawnable,
            dismissed,
            context.levels_around,
            context.max_depth,
            tools,
        )

    @property
    def callable(self) -> Collection[str]:
        """Names of those that are there."""
        return self.living

    @property
    def _segment(self) -> str:
        return self.identity.request_id or self.identity.turn

    def list_agents(self) -> tuple[Agent, ...]:
        """Return what tasks are routed by: roles, and what profiles can do."""
        return tuple(
            self.rules.build_routed(spec, self.profiles.get(spec.profile))
            for spec in self.living.values()
        )

    def list_beside(self, name: str) -> list[str]:
        """Return the names of the latest others, those that the reply makes included."""
        names = [*self.living, *(spec.name for spec in self.new.values())]
        return [other for other in names if other != name][-MAX_LISTED:]

    def spawn(
        self, call_id: str, message_id: str, wanted: SpawnSubordinateArgs
    ) -> AgentSpecification:
        """Return the specification of a new agent.

        Raises:
            SpawnRefused: It must not be made.
        """
        self._check_numbers()
        taken = {*self.known, *self.rules.declared, *(new.name for new in self.new.values())}
        agent_id, name = derive_spawned_agent(
            self.identity.thread_id, message_id, call_id, wanted.role, taken
        )
        allowed = self.rules.allowed.kinds
        kind = wanted.kind or allowed[0]
        if kind not in allowed:
            raise SpawnRefused(f"kind: {kind!r} is none that you may make, but: {_list(allowed)}")
        if kind == "drone" and wanted.keep:
            raise SpawnRefused("keep: a drone ends with its first answer; make a mortal to keep it")
        if wanted.contact_user and not self.rules.contact_user:
            raise SpawnRefused("contact_user: you may not ask the user yourself; leave it out")
        profile, tools = self._check_profile(wanted), self._check_tools(wanted)
        levels = self.profiles[profile].levels if profile and kind != "drone" else 1
        deepest = self.levels_around + len(self.identity.path) + levels
        limit = self.max_depth
        if deepest > limit:
            below = ", with those below it," if levels > 1 else ""
            raise SpawnRefused(
                f"it{below} would be at level {deepest}, and the tree's limit is {limit} levels; "
                "do it yourself, or tell your superior"
            )
        inner = self.rules.allowed.narrow() if kind == "mortal" else None
        spec = AgentSpecification(
            id=agent_id,
            name=name,
            role=wanted.role,
            kind=kind,
            segment=self._segment,
            profile=profile,
            profile_hash=self.profiles[profile].digest if profile else "",
            tools=tools,
            model="" if profile else self.rules.model,
            contact_user=wanted.contact_user,
            keep=wanted.keep,
            levels=inner.levels if inner else 0,
        )
        self.new[call_id] = spec
        return spec

    def add(
        self, call: ToolCall, task: str, profile: str, fields: Mapping[str, Any], reply: ReplyCalls
    ) -> str:
        """Add an agent after a profile, with the request with which it begins."""
        arguments = {"role": profile, "message": task, "profile": profile, "kind": "mortal"}
        wanted = validate_arguments(SpawnSubordinateArgs, arguments)
        return wanted if isinstance(wanted, str) else self.begin(call, wanted, fields, reply)

    def begin(
        self,
        call: ToolCall,
        wanted: SpawnSubordinateArgs,
        fields: Mapping[str, Any],
        reply: ReplyCalls,
    ) -> str:
        """Add the request with which a new agent begins; return why it is refused, if it is."""
        call_id = call["id"] or ""
        request = SubordinateCall(
            call_id, "", wanted.message, reset=True, tool=call["name"], is_new=True
        )
        if refusal := reply.take_width(1):
            reply.refused.append((request, refusal))
            return ""
        try:
            spec = self.spawn(call_id, reply.message.id or "", wanted)
        except SpawnRefused as error:
            reply.remaining_width += 1
            return str(error)
        reply.requests.append(replace(request, subordinate=spec.name, fields=fields))
        return ""

    def count_levels(self, name: str) -> int:
        """Return the number of levels from a spawned agent down; 0 for one that is none."""
        made = next((new for new in self.new.values() if new.name == name), None)
        spec = self.known[name].spec if name in self.known else made
        return count_levels(spec.stored(), self.profiles) if spec else 0

    def find_fault(self, name: str) -> str | None:
        """Return why a spawned agent cannot be called; empty if it can, `None` if it is none."""
        if name not in self.known:
            return None
        if name in self.living:
            return ""
        if name in self.dismissed:
            return f"{name!r} was dismissed, for good; spawn another"
        spec, statuses = self.known[name]
        why = "it has answered" if spec.kind == "drone" else "the task it was made for has ended"
        if not self._may_have_profile(self.known[name]):
            return f"{name!r} has the profile {spec.profile!r}, which you may not give any more"
        if set(statuses) <= {NEVER_BEGUN}:
            why = "its first task was not begun, or was given up"
        return f"{name!r} is dismissed: {why}; spawn another, and keep=true where it must stay"

    def list_facts(
        self, requests: Sequence[SubordinateCall], candidates: Mapping[str, Candidates]
    ) -> dict[str, dict[str, Any]]:
        """Return the specifications of the agents that requests may go to, by call id and name."""
        specs = {name: agent.spec for name, agent in self.known.items()}
        specs |= {new.name: new for new in self.new.values()}
        listed: dict[str, dict[str, Any]] = {}
        for request in requests:
            names = {request.subordinate}
            if request.call_id in candidates:
                names.update(way[0] for way in candidates[request.call_id].remaining)
            if stored := {name: specs[name].stored() for name in sorted(names & specs.keys())}:
                listed[request.call_id] = stored
        return listed

    def _may_have_profile(self, made: SpawnedAgent) -> bool:
        profile = made.spec.profile
        is_allowed = not profile or profile in self.rules.allowed.profiles
        return is_allowed or GIVEN in made.statuses

    def _check_numbers(self) -> None:
        allowed = self.rules.allowed
        at_once = len(self.living) + len(self.new)
        if at_once >= allowed.at_once:
            raise SpawnRefused(
                f"{at_once} agents of yours are there, and at most {allowed.at_once} may be at "
                "once; give the task to one of them, or wait until one has ended"
            )
        total = len(self.known) + len(self.new)
        if total >= allowed.total:
            raise SpawnRefused(
                f"you have spawned {total} agents, and may spawn {allowed.total} in all; give the "
                "task to one that is there, or do it yourself"
            )

    def _check_profile(self, wanted: SpawnSubordinateArgs) -> str:
        profile, allowed = wanted.profile or "", self.rules.allowed.profiles
        if profile and profile not in allowed:
            listed = _list(allowed)
            raise SpawnRefused(
                f"profile: you may not give the profile {profile!r}, but: {listed}; leave it out"
            )
        if profile and profile not in self.profiles:
            declared = _list([*self.profiles])
            raise SpawnRefused(
                f"profile: no agent called {profile!r} is declared in this process, but: "
                f"{declared} (Session(spawnable=...)); leave it out"
            )
        return profile

    def _check_tools(self, wanted: SpawnSubordinateArgs) -> tuple[str, ...]:
        if wanted.profile:
            if wanted.tools is not None:
                raise SpawnRefused("tools: a profile has its own; leave them out, or the profile")
            return ()
        granted = tuple(name for name in self.rules.allowed.tools if name in self.tools)
        if wanted.tools is None:
            return granted
        for name in wanted.tools:
            if name not in granted:
                raise SpawnRefused(
                    f"tools: {name!r} is none that you may give, but: {_list(granted)}"
                )
        return tuple(dict.fromkeys(wanted.tools))


def _build_routed_agent(spec: AgentSpecification, profile: SpawnableAgent | None) -> Agent:
    """Return what the router knows of a spawned agent: its role, and what its profile can do."""
    if profile is None:
        return Agent(spec.name, spec.role)
    member = profile.member
    about = f"{member.description.rstrip('.')}. {spec.role}" if member.description else spec.role
    return Agent(spec.name, about, capabilities=collect_capabilities(member))


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
