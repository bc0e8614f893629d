"""Before a stored run goes on: does the tree still have whom it waits in?

LangGraph itself ends such a run silently, with empty answers. A differing fingerprint only
triggers the comparison; a changed prompt or a new document passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.types import Command

from echelons import tree
from echelons.agent import Agent
from echelons.checkpoints.inherited import saver_of
from echelons.checkpoints.pending import OpenAgent, unfinished
from echelons.checkpoints.reading import OneCheckpoint, Plan, aread, read
from echelons.errors import MissingAgents
from echelons.lineage import Identity
from echelons.members import Member
from echelons.names import PATH_SEPARATOR


def check_resume(agent: Agent, own: Any, given: Any, config: Mapping[str, Any]) -> None:
    """Check that a tree can go on with a thread.

    Args:
        agent: The tree's root.
        own: The saver that the tree was compiled with.
        given: The run's input; only a resume is checked.
        config: The run's config.

    Raises:
        MissingAgents: It waits in agents or nodes that the tree does not have.
    """
    saver, thread_id = _resumed(own, given, config)
    if saver and thread_id:
        read(saver, _check(agent, thread_id))


async def acheck_resume(agent: Agent, own: Any, given: Any, config: Mapping[str, Any]) -> None:
    """Do what ``check_resume`` does in an event loop.

    Raises:
        MissingAgents: It waits in agents or nodes that the tree does not have.
    """
    saver, thread_id = _resumed(own, given, config)
    if saver and thread_id:
        await aread(saver, _check(agent, thread_id))


def _resumed(
    own: Any, given: Any, config: Mapping[str, Any]
) -> tuple[BaseCheckpointSaver[Any] | None, str | None]:
    if given is not None and not isinstance(given, Command):
        return None, None
    saver = saver_of(config) or (own if isinstance(own, BaseCheckpointSaver) else None)
    thread_id = (config.get("configurable") or {}).get("thread_id")
    return saver, None if thread_id is None else str(thread_id)


def _check(agent: Agent, thread_id: str) -> Plan[None]:
    head = yield OneCheckpoint(thread_id)
    identity = Identity.read(head.metadata) if head else None
    if identity is None or identity.tree == tree.fingerprint(agent):
        return
    waiting = yield from unfinished(thread_id)
    lost = list(missing(agent, waiting))
    if lost:
        raise MissingAgents(thread_id, lost)


def missing(root: Agent, waiting: Iterable[OpenAgent]) -> list[str]:
    """Return the paths of agents and nodes that are waited in and not in the tree."""
    members = {place.path: place.member for place in tree.walk(root)}
    lost: dict[str, None] = {}
    for each in waiting:
        member = members.get(each.path)
        if member is None:
            lost[PATH_SEPARATOR.join(each.path)] = None
            continue
        nodes = _nodes(member)
        for node in each.nodes:
            if node not in nodes:
                lost[PATH_SEPARATOR.join((*each.path, node))] = None
    return list(lost)


def _nodes(member: Member) -> set[str]:
    """Return the names that work can be sent to at a member's level."""
    own = {"reason", "run", "refuse", "dispatch"} | {each.name for each in member.subordinates}
    if member.subordinates:
        own.add("delegate")
    if getattr(member, "tools", ()):
        own.add("act")
    return own
