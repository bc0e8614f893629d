"""`SpawnPlan`: the agents that one has made in a conversation, or makes with its reply. Pure.

What an agent has made stands in the heads of their threads. So a fork has those of its past, and
nothing else has to be stored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

from langchain_core.messages import ToolCall
from pydantic import AfterValidator, BaseModel, Field, StrictBool

from echelons.delegation.calls import Candidates, SubordinateCall
from echelons.delegation.spawned_agents import (
    GIVEN,
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
from echelons.guards.dismissals import get_dismissals
from echelons.guards.gate import get_gate
from echelons.guards.limits import MAX_DEPTH
from echelons.guards.permissions import Spawn, SpawnedKind
from echelons.identity.lineage import Identity, require_identity
from echelons.identity.thread_history import Head, Past
from echelons.nodes.planning.call_arguments import (
    extend_arguments,
    store_fields,
    validate_arguments,
)
from echelons.run_context import get_context
from echelons.text.error_lines import join_printable
from echelons.tree.names import PATH_SEPARATOR

if TYPE_CHECKING:
    from echelons.features.feature import RequestField
    from echelons.nodes.planning.tool_calls import ReplyCalls


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
        tools: Names of its own tools.
        declared: Names of its declared subordinates.
        model: Name of its model's class.
        contact_user: Whether it may ask the user past its superior.
    """

    allowed: Spawn
    tools: Collection[str] = ()
    declared: Collection[str] = ()
    model: str = ""
    contact_user: bool = False


@dataclass(slots=True)
class SpawnPlan:
    """The spawned agents of one conversation.

    Attributes:
        rules: The rules for the agents that it may spawn.
        heads: The heads of the conversation's threads.
        identity: The agent.
        profiles: The agents that this process lets be copied, by the names of the profiles.
        dismissed: Names of those of its subordinates that were dismissed.
        levels_around: The levels of trees around that the path of the agent does not name.
        max_depth: Most levels of the tree, with those around it.
        new: The specifications of those that the reply makes, by call id.
    """

    rules: SpawnRules
    heads: Mapping[str, Head]
    identity: Identity
    profiles: Mapping[str, SpawnableAgent] = field(default_factory=dict)
    dismissed: Collection[str] = ()
    levels_around: int = 0
    max_depth: int = MAX_DEPTH
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
        cls, rules: SpawnRules, past: Past, state: Mapping[str, Any], config: Mapping[str, Any]
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
        )

    @property
    def _segment(self) -> str:
        return self.identity.request_id or self.identity.turn

    @property
    def names(self) -> list[str]:
        """The names of the agents that are there, those that the reply makes included."""
        return [*self.living, *(spec.name for spec in self.new.values())]

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

    def count_levels(self, name: str) -> int:
        """Return the number of levels from a spawned agent down; 0 for one that is none."""
        made = next((new for new in self.new.values() if new.name == name), None)
        spec = self.known[name].spec if name in self.known else made
        return count_levels(spec.stored(), self.profiles) if spec else 0

    def find_fault(self, name: str) -> str:
        """Return why a spawned agent cannot be called; empty if it can, or is none."""
        if name in self.living or name not in self.known:
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

    def list_specifications(
        self, requests: Iterable[SubordinateCall], candidates: Mapping[str, Candidates]
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
        granted = tuple(name for name in self.rules.allowed.tools if name in self.rules.tools)
        if wanted.tools is None:
            return granted
        for name in wanted.tools:
            if name not in granted:
                raise SpawnRefused(
                    f"tools: {name!r} is none that you may give, but: {_list(granted)}"
                )
        return tuple(dict.fromkeys(wanted.tools))


def accept_spawn(
    call: ToolCall,
    arguments: Mapping[str, Any],
    reply: ReplyCalls,
    fields: tuple[RequestField, ...] = (),
) -> str:
    """Add the request with which a new subordinate begins; return why it is refused, if it is."""
    wanted = validate_arguments(extend_arguments(SpawnSubordinateArgs, fields), arguments)
    call_id = call["id"] or ""
    if isinstance(wanted, str):
        return wanted
    if reply.spawns is None:
        return "profile: you may spawn no subordinates; leave it out"
    request = SubordinateCall(
        call_id, "", wanted.message, reset=True, tool=call["name"], is_new=True
    )
    if refusal := reply.take_width(1):
        reply.refused.append((request, refusal))
        return ""
    try:
        spec = reply.spawns.spawn(call_id, reply.message.id or "", wanted)
    except SpawnRefused as error:
        reply.remaining_width += 1
        return str(error)
    reply.requests.append(
        replace(request, subordinate=spec.name, fields=store_fields(wanted, fields))
    )
    return ""


def build_given_agent(profile: str, message_id: str, identity: Identity) -> AgentSpecification:
    """Return the specification of an agent that the user gives another, which then keeps it."""
    role = join_printable(profile)[:MAX_ROLE]
    agent_id, name = derive_spawned_agent(identity.thread_id, message_id, GIVEN, role)
    segment = identity.request_id or identity.turn
    return AgentSpecification(agent_id, name, role, "mortal", segment, profile, keep=True)


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
