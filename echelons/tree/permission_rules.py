"""Checks the approval rules of an agent against the tree below it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from echelons.errors import InvalidSetting, PermissionsWidened, unknown_tool
from echelons.guards.budget import format_amount
from echelons.guards.permissions import (
    ALL_GRANTED,
    NO_PERMISSIONS,
    ApprovalRule,
    ApprovalRules,
    Grant,
    Permissions,
    describe_rule,
    find_wider,
    rank_rule,
)
from echelons.tree import names
from echelons.tree.members import Member, TreePlace, walk_tree
from echelons.tree.names import SPAWN_SUBORDINATE, get_provider_tool_name

_DELEGATION = "name the subordinates, whose tasks a rule holds"
_UPWARD = "what an agent says to its superior is not held"
_CONTACT = "Permissions(contact_user=…) decides whether an agent has it"
_MEMORY = "Agent(memory=…) decides whether an agent has it"
_DECIDED_ELSEWHERE: Final[Mapping[str, str]] = {
    names.CALL_SUBORDINATE: _DELEGATION,
    names.DELEGATE_MANY: _DELEGATION,
    names.REPORT: _UPWARD,
    names.ASK: _UPWARD,
    names.ASK_SUPERIOR: _UPWARD,
    names.ASK_USER: _CONTACT,
    names.ASK_LATER: _CONTACT,
    names.SPAWN_SUBORDINATE: "Permissions(spawn=…) decides whether an agent has it",
    names.DISMISS_SUBORDINATE: "Permissions(spawn=…) decides whether an agent has it",
    names.SEND_MESSAGE: (
        "DelegationPolicy(sibling_messages=…) decides about messages between siblings"
    ),
    names.RECALL: _MEMORY,
    names.PIN: _MEMORY,
    names.READ_RESULT: (
        "it reads what a tool has returned to the agent, and is there with long results"
    ),
}
"""What decides about the calls of each built-in tool in place of a rule."""


def check_permissions(root: Member) -> None:
    """Check the approval rules of an agent against all members below it."""
    places = [*walk_tree(root)]
    _check_grants(root, places)
    _check_spawn(root, places)
    rules = get_permissions(root).approvals
    if not rules:
        return
    targets = {
        name
        for place in places
        for name in (*_list_tools(place.member), *_list_middleware_tools(place.member))
    }
    targets |= {place.member.name for place in places[1:]}
    if any(get_permissions(place.member).spawn for place in places):
        targets.add(SPAWN_SUBORDINATE)
    foreign = {name: place for place in places for name in _list_foreign_tools(place.member)}
    for name in rules:
        if name in foreign:
            graph = foreign[name].path_text
            why = (
                f"it is a tool inside the foreign graph {graph!r}, whose calls cannot be held; "
                "name the graph itself, or approve them in the graph"
            )
            raise unknown_tool(root.name, name, why)
        if name in _DECIDED_ELSEWHERE and name not in targets:
            why = f"it is a built-in tool, and no rule is for it: {_DECIDED_ELSEWHERE[name]}"
            raise unknown_tool(root.name, name, why)
        if name not in targets:
            listed = ", ".join(sorted(targets)) or "none"
            why = f"a rule names a tool or a subordinate of the agent or below it: {listed}"
            raise unknown_tool(root.name, name, why)
    for place in places[1:]:
        for name, rule in get_permissions(place.member).approvals.items():
            outer = rules.get(name, "allow")
            if rank_rule(rule) < rank_rule(outer):
                uses = f"the rule {describe_rule(rule)}"
                limit = describe_rule(outer)
                raise PermissionsWidened(place.path_text, root.name, name, uses, limit)


def check_profiles(root: Member, profiles: Collection[str]) -> None:
    """Check that agents may be made only after profiles that there are.

    Raises:
        InvalidSetting: An agent of a tree names another one.
    """
    for place in walk_tree(root):
        rules = get_permissions(place.member).spawn
        for name in rules.profiles if rules else ():
            if name not in profiles:
                close = get_close_matches(name, profiles, n=1)
                meant = f"did you mean {close[0]!r}? " if close else ""
                listed = ", ".join(profiles)
                why = f"{place.path_text}: {meant}Session(spawnable=…) has {listed}"
                raise InvalidSetting("Spawn", "profiles", name, why)


def fit_permissions(root: Member, wanted: Permissions) -> Permissions:
    """Return the permissions that an agent is to have, without names that it has not below it."""
    places = [*walk_tree(root)]
    tools = {name for place in places for name in _list_all_tools(place.member)}
    targets = tools | {place.member.name for place in places[1:]}
    if wanted.spawn or any(get_permissions(place.member).spawn for place in places):
        targets.add(SPAWN_SUBORDINATE)
    rules: dict[str, ApprovalRule] = {
        name: rule for name, rule in wanted.approvals.items() if name in targets
    }
    granted = None if wanted.tools is None else tuple(n for n in wanted.tools if n in tools)
    return wanted.model_copy(update={"approvals": ApprovalRules(rules), "tools": granted})


def _check_grants(root: Member, places: Sequence[TreePlace]) -> None:
    """Check that what an agent grants is there, and is all that it and those below it use."""
    grant = get_permissions(root).grant
    tools = {name for place in places for name in _list_all_tools(place.member)}
    for name in grant.tools or ():
        if name not in tools:
            listed = ", ".join(sorted(tools)) or "none"
            why = f"tools names a tool of the agent or below it: {listed}"
            raise unknown_tool(root.name, name, why)
    for place in places:
        for name in _list_all_tools(place.member):
            if not grant.allows_tool(name):
                uses = f"the tool {name}"
                limit = _list(grant.tools)
                raise PermissionsWidened(place.path_text, root.name, "tools", uses, limit)
        if wider := find_wider(grant, get_permissions(place.member).grant):
            field, name = wider
            limit = _list(getattr(grant, field))
            raise PermissionsWidened(place.path_text, root.name, field, repr(name), limit)
    outer = get_permissions(root).budget
    most_amounts = outer.amounts if outer else {}
    for place in places[1:]:
        inner = get_permissions(place.member).budget
        for unit, amount in inner.amounts.items() if inner else ():
            most = most_amounts.get(unit)
            if most is not None and amount > most:
                uses, limit = format_amount(unit, amount), format_amount(unit, most)
                raise PermissionsWidened(place.path_text, root.name, f"budget.{unit}", uses, limit)


def _check_spawn(root: Member, places: Sequence[TreePlace]) -> None:
    """Check that an agent passes on only its own tools, and that none below it may spawn more."""
    rules = get_permissions(root).spawn
    if rules is None:
        return
    tools = [*_list_tools(root)]
    for name in rules.tools:
        if name not in tools:
            listed = ", ".join(tools) or "none"
            why = f"an agent can give agents that it spawns a tool of its own: {listed}"
            raise unknown_tool(root.name, name, why)
    for place in places[1:]:
        inner = get_permissions(place.member).spawn
        if inner and (wider := rules.find_wider(inner)):
            field, value = wider
            limit = repr(getattr(rules, field))
            name = f"spawn.{field}"
            raise PermissionsWidened(place.path_text, root.name, name, repr(value), limit)


def _list(names: Sequence[str] | None) -> str:
    return ", ".join(map(repr, names or ())) or "nothing"


def _list_all_tools(member: Member) -> Iterator[str]:
    """Yield the names of a member's tools, those of its middleware and provider included."""
    yield from _list_tools(member)
    yield from filter(None, map(get_provider_tool_name, getattr(member, "tools", ())))
    yield from _list_middleware_tools(member)


def may_add_subordinates(member: Member) -> bool:
    """Return whether a member may get subordinates beside those that it declares."""
    return bool(get_permissions(member).spawn)


def get_rights(member: Member) -> Grant | None:
    """Return the rights that a member is limited to; `None` for all."""
    rights = get_permissions(member).grant
    return rights if rights != ALL_GRANTED else None


def get_permissions(member: Member) -> Permissions:
    """Return the permissions of a member; `NO_PERMISSIONS` for one that is no agent."""
    permissions: Permissions = getattr(member, "permissions", NO_PERMISSIONS)
    return permissions


def _list_tools(member: Member) -> Iterator[str]:
    for tool in getattr(member, "tools", ()):
        if get_provider_tool_name(tool):
            continue  # its provider runs it
        yield str(getattr(tool, "name", None) or tool.__name__)


def _list_middleware_tools(member: Member) -> Iterator[str]:
    for middleware in getattr(member, "middleware", ()):
        yield from (str(tool.name) for tool in getattr(middleware, "tools", ()))


def _list_foreign_tools(member: Member) -> Iterator[str]:
    """Yield the names of the tools inside a foreign graph or Runnable, as far as they are found."""
    left: list[Any] = [getattr(member, "graph", None) or getattr(member, "runnable", None)]
    seen: set[int] = set()
    while left:
        thing = left.pop()
        if thing is None or id(thing) in seen:
            continue
        seen.add(id(thing))
        agent = getattr(thing, "agent", None)
        if isinstance(agent, Member):
            # A tree inside the graph.
            for place in walk_tree(agent):
                yield from _list_tools(place.member)
            continue
        tools, nodes = getattr(thing, "tools_by_name", None), getattr(thing, "nodes", None)
        if isinstance(tools, Mapping):
            yield from map(str, tools)
        if isinstance(nodes, Mapping):
            left += nodes.values()
        # The parts of a node, and of a sequence.
        left += [getattr(thing, "bound", None), *(getattr(thing, "steps", None) or ())]
