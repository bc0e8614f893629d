"""Builds the levels of spawned agents from their specifications and what this process declares."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeAlias

from langchain_core.runnables import Runnable

from echelons.agent import Agent
from echelons.delegation.spawned_agents import AgentSpecification, SpawnableAgent, get_spawnable
from echelons.errors import MissingAgents
from echelons.guards.limits import Limits
from echelons.guards.permissions import (
    ALL_GRANTED,
    NO_PERMISSIONS,
    Grant,
    Permissions,
)
from echelons.guards.spawn import Spawn
from echelons.nodes.subordinate import Subordinate
from echelons.run_context import get_context
from echelons.tree.members import Member
from echelons.tree.names import get_provider_tool_name
from echelons.tree.permission_rules import fit_permissions

LOG = logging.getLogger(__name__)

BuildLevel: TypeAlias = Callable[[Agent], Runnable[Any, Any]]
"""Returns the level of an agent that was made at run time."""
MAX_KEPT = 256
"""Number of spawned agents of one superior whose graphs are kept; the others are made again."""


class SpawnedLevels:
    """The spawned subordinates of one agent.

    Args:
        superior: The agent.
        build_level: Returns the level of an agent below it.
        build_subordinate: Returns an agent as a subordinate, given its level and the name of its
            circuit.
    """

    def __init__(
        self,
        superior: Agent,
        build_level: BuildLevel,
        build_subordinate: Callable[[Agent, Runnable[Any, Any], str], Subordinate],
    ) -> None:
        self._superior = superior
        self._build_level = build_level
        self._build_subordinate = build_subordinate
        self._build = lru_cache(MAX_KEPT)(self._build_new)

    def get_subordinate(self, spec: AgentSpecification, config: Mapping[str, Any]) -> Subordinate:
        """Return a spawned agent as a subordinate.

        Raises:
            MissingAgents: This process does not declare a tool of it, or its profile.
        """
        grant = get_context(config).grant or ALL_GRANTED
        profile = get_spawnable(config).get(spec.profile)
        return self._build(spec, profile, grant)

    def _build_new(
        self, spec: AgentSpecification, profile: SpawnableAgent | None, grant: Grant
    ) -> Subordinate:
        agent = build_spawned_agent(spec, self._superior, profile, grant)
        # An agent that the user has given has no digest.
        if profile and spec.profile_hash not in ("", profile.digest):
            LOG.warning(
                "%s goes on with the profile %r as it is now, which has changed since",
                spec.name,
                spec.profile,
            )
        return self._build_subordinate(agent, self._build_level(agent), spec.profile)


def build_spawned_agent(
    spec: AgentSpecification, superior: Agent, profile: SpawnableAgent | None, grant: Grant
) -> Agent:
    """Return the agent of a specification, with what its superior may use now and no more.

    Args:
        spec: The specification.
        superior: The agent that has made it.
        profile: What it is made after; `None` if it is after none, or that is not declared.
        grant: What its superior may use.

    Raises:
        MissingAgents: This process does not declare a tool of it, or its profile.
    """
    allowed = superior.permissions.spawn
    if spec.profile:
        if profile is None:
            raise MissingAgents(
                "{agent!r} was spawned with the profile {profile!r}, which Session(spawnable=...) "
                "does not name; declare them again. Nothing was changed",
                code="missing_tool",
                agent=spec.name,
                names=(),
                profile=spec.profile,
            )
        base: Agent = profile.member
        tools = list(base.tools)
    else:
        base = Agent(spec.name, spec.role)
        known = {_get_tool_name(each): each for each in superior.tools}
        if missing := [name for name in spec.tools if name not in known]:
            raise MissingAgents(
                "{agent!r} was spawned with the tools {names:each}, which its superior does not "
                "have in this process; declare them again. Nothing was changed",
                code="missing_tool",
                agent=spec.name,
                names=missing,
                profile="",
            )
        # Those that its superior may not give any more are left out.
        given = allowed.tools if allowed else ()
        tools = [known[name] for name in spec.tools if name in given]
    tools = [each for each in tools if grant.allows_tool(_get_tool_name(each))]
    names = {_get_tool_name(each) for each in tools}
    may_contact = superior.permissions.contact_user
    contact_user = spec.contact_user and may_contact
    spawn = _narrow(spec, allowed, base.permissions.spawn, names)
    below = () if spec.kind == "drone" else base.subordinates
    cut: Agent = replace(
        base,
        name=spec.name,
        description=spec.role,
        tools=tools,
        subordinates=tuple(_narrow_member(each, spawn, may_contact) for each in below),
        permissions=NO_PERMISSIONS,
        limits=Limits(),
        response_format=None,
    )
    rules: Permissions = base.permissions.model_copy(
        update={"contact_user": contact_user, "spawn": spawn}
    )
    return replace(cut, permissions=fit_permissions(cut, rules), response_format=None)


def _narrow(
    spec: AgentSpecification, allowed: Spawn | None, own: Spawn | None, tools: set[str]
) -> Spawn | None:
    """Return what a spawned agent may spawn itself."""
    if allowed is None or spec.kind == "drone" or spec.levels == 0:
        return None
    rules = allowed.narrow(own)
    return rules and rules.model_copy(
        update={
            "levels": min(rules.levels, spec.levels),
            "tools": tuple(name for name in rules.tools if name in tools),
        }
    )


def _narrow_member(member: Member, allowed: Spawn | None, contact_user: bool) -> Member:
    """Return a member below a spawned agent, with no more rights than that has."""
    if not isinstance(member, Agent):
        return member
    below = tuple(_narrow_member(each, allowed, contact_user) for each in member.subordinates)
    own, had = member.permissions, member.permissions.spawn
    spawn = allowed.intersect(had) if allowed and had else None
    may_contact = own.contact_user and contact_user
    if (spawn, may_contact) == (had, own.contact_user) and below == member.subordinates:
        return member
    given = own.model_copy(update={"contact_user": may_contact, "spawn": spawn})
    cut = replace(member, subordinates=below, permissions=NO_PERMISSIONS, response_format=None)
    return replace(cut, permissions=fit_permissions(cut, given), response_format=None)


def _get_tool_name(tool: Any) -> str:
    """Return the name under which an agent's model knows a tool."""
    name = get_provider_tool_name(tool) or getattr(tool, "name", None) or tool.__name__
    return str(name)
