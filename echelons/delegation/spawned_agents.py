"""The agents that one has made in a conversation, as the heads of their threads say. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from echelons.delegation.agent_specification import AgentSpecification
from echelons.delegation.request import Status
from echelons.errors import UnreadableRecord
from echelons.identity.lineage import SPAWNED_KEY
from echelons.identity.thread_history import Head

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

GIVEN: Final = "given"
"""In place of a call's id, for an agent that the user gives another; also its status until it has
answered."""
NEVER_BEGUN: Final = "never begun"
"""In place of a response's status, for an agent that was not allowed to begin."""

_STATUSES = frozenset({*map(str, Status), NEVER_BEGUN, GIVEN})


class SpawnedAgent(NamedTuple):
    """An agent that was made at run time.

    Attributes:
        spec: Its specification.
        statuses: The statuses of its latest responses, one for each of its threads that has one.
    """

    spec: AgentSpecification
    statuses: list[str]

    def is_dismissed(self, segment: str) -> bool:
        """Return whether it has come to its end.

        Args:
            segment: The request that its superior works on, or the turn of a root; empty if the
                superior works on nothing.
        """
        # Who has asked has not answered yet.
        if Status.NEEDS_INPUT in self.statuses:
            return False
        # Without a status, the turn in which it was made was given up before its first answer.
        if all(each == NEVER_BEGUN for each in self.statuses):
            return True
        return self.spec.kind == "drone" or not (self.spec.keep or self.spec.segment == segment)


def find_given_agents(messages: Iterable[BaseMessage]) -> dict[str, Head]:
    """Return the heads of the agents that the user has given, by the ids of their messages.

    A thread of an agent has a head of its own once it has been called.
    """
    return {
        message.id or "": Head(agent=name, spawned=spec, status=GIVEN)
        for message in messages
        if message.type == "human" and SPAWNED_KEY in message.response_metadata
        for name, spec in message.response_metadata[SPAWNED_KEY].get(GIVEN, {}).items()
    }


def collect_spawned(heads: Mapping[str, Head]) -> dict[str, SpawnedAgent]:
    """Return the agents that were spawned in a conversation, by name, in the order of their start.

    One of which something is damaged is left out: it is dismissed.
    """
    found: dict[str, SpawnedAgent] = {}
    damaged: set[str] = set()
    for head in heads.values():
        if "spawned" not in head:
            continue
        try:
            spec = AgentSpecification.load(head["spawned"])
        except UnreadableRecord:
            damaged.add(head["agent"])
            continue
        known = found.setdefault(spec.name, SpawnedAgent(spec, []))
        if "status" in head:
            known.statuses.append(head["status"])
            if not _is_status(head["status"]):
                damaged.add(spec.name)
        if spec.name != head["agent"]:
            damaged |= {spec.name, head["agent"]}
    return {name: each for name, each in found.items() if name not in damaged}


def find_damaged(heads: Mapping[str, Head], found: Collection[str]) -> set[str]:
    """Return the names of those of which something is damaged: that `collect_spawned` left out."""
    return {
        head["agent"] for head in heads.values() if "spawned" in head and head["agent"] not in found
    }


def _is_status(stored: object) -> bool:
    return isinstance(stored, str) and stored in _STATUSES
