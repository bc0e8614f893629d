"""Agents made of their specifications, with what their superiors may use in this process."""

from __future__ import annotations

from dataclasses import replace

from echelons.agent import Agent
from echelons.delegation.spawned_agents import AgentSpecification, SpawnableAgent
from echelons.errors import missing_profile, missing_tool
from echelons.guards.limits import Limits
from echelons.guards.permissions import NO_PERMISSIONS, Grant, Permissions, Spawn
from echelons.tree.members import Member
from echelons.tree.names import get_shown_tool_name
from echelons.tree.permission_rules import fit_permissions


def build_spawned_agent(
    spec: AgentSpecification, superior: Agent, profile: SpawnableAgent | None, grant: Grant
) -> Agent:
    """Return the agent of a specification, with what its superior may use now and no more."""
    allowed = superior.permissions.spawn
    if spec.profile:
        if profile is None:
            raise missing_profile(spec.name, spec.profile)
        base: Agent = profile.member
        tools = list(base.tools)
    else:
        base = Agent(spec.name, spec.role)
        tools_by_name = {get_shown_tool_name(tool): tool for tool in superior.tools}
        if missing := [name for name in spec.tools if name not in tools_by_name]:
            raise missing_tool(spec.name, missing)
        # Those that its superior may not give any more are left out.
        allowed_tools = allowed.tools if allowed else ()
        tools = [tools_by_name[name] for name in spec.tools if name in allowed_tools]
    tools = [tool for tool in tools if grant.allows_tool(get_shown_tool_name(tool))]
    names = {get_shown_tool_name(tool) for tool in tools}
    may_contact = superior.permissions.contact_user
    contact_user = spec.contact_user and may_contact
    spawn = _narrow(spec, allowed, base.permissions.spawn, names)
    below = () if spec.kind == "drone" else base.subordinates
    cut: Agent = replace(
        base,
        name=spec.name,
        description=spec.role,
        tools=tools,
        subordinates=tuple(_narrow_member(member, spawn, may_contact) for member in below),
        permissions=NO_PERMISSIONS,
        limits=Limits(),
        response_format=None,
        inherit_middleware=base.inherit_middleware or bool(allowed and allowed.inherit_middleware),
    )
    rules: Permissions = base.permissions.model_copy(
        update={"contact_user": contact_user, "spawn": spawn}
    )
    return replace(cut, permissions=fit_permissions(cut, rules), response_format=None)


def _narrow(
    spec: AgentSpecification, allowed: Spawn | None, grant_within: Spawn | None, tools: set[str]
) -> Spawn | None:
    """Return what a spawned agent may spawn itself."""
    if allowed is None or spec.kind == "drone" or spec.levels == 0:
        return None
    rules = allowed.narrow(grant_within)
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
    below = tuple(
        _narrow_member(subordinate, allowed, contact_user) for subordinate in member.subordinates
    )
    permissions, had = member.permissions, member.permissions.spawn
    spawn = allowed.intersect(had) if allowed and had else None
    may_contact = permissions.contact_user and contact_user
    if (spawn, may_contact) == (had, permissions.contact_user) and below == member.subordinates:
        return member
    narrowed = permissions.model_copy(update={"contact_user": may_contact, "spawn": spawn})
    cut = replace(member, subordinates=below, permissions=NO_PERMISSIONS, response_format=None)
    return replace(cut, permissions=fit_permissions(cut, narrowed), response_format=None)
