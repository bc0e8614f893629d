"""The agents that others may be made after at run time, in the config of a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from echelons.errors import InvalidOption
from echelons.run_context import get_context
from echelons.text.input_limits import is_label, shorten_repr
from echelons.tree.members import Member, fingerprint_tree, measure_heights

NOTHING_SPAWNABLE: Final[Mapping[str, SpawnableAgent]] = {}


class SpawnableAgent(NamedTuple):
    """An agent that others may be made after.

    Attributes:
        member: The agent.
        digest: Digest of it, with its prompt and its tools, where these are plain.
        levels: Number of levels from it down, itself included.
    """

    member: Any
    digest: str
    levels: int = 1

    @classmethod
    def build(cls, member: Member) -> SpawnableAgent:
        """Return an agent with its digest."""
        prompt = getattr(member, "prompt", "")
        tools = [str(getattr(each, "name", None) or each) for each in getattr(member, "tools", ())]
        known = [fingerprint_tree(member), prompt if isinstance(prompt, str) else "", tools]
        digest = hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]
        return cls(member, digest, measure_heights(member)[member.name])


def check_spawnable(given: object) -> dict[str, SpawnableAgent]:
    """Return the agents that a caller lets be spawned, by name.

    Raises:
        InvalidOption: They are no mapping from names to agents.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        why = "give a mapping from names to agents"
        raise InvalidOption("spawnable", shorten_repr(given), why)
    found: dict[str, SpawnableAgent] = {}
    for name, each in given.items():
        # A profile is an agent: only an agent has a model.
        if not (is_label(name) and isinstance(each, Member) and hasattr(each, "model")):
            why = "it is no name with an agent"
            raise InvalidOption("spawnable", shorten_repr((name, each)), why)
        if getattr(each, "is_monitored", False):
            why = "it has monitors, and they watch what is declared alone; leave them out"
            raise InvalidOption("spawnable", shorten_repr(name), why)
        found[name] = SpawnableAgent.build(each)
    return found


def count_levels(spec: object, profiles: Mapping[str, SpawnableAgent]) -> int:
    """Return the number of levels from a spawned agent down, with those that it may make.

    Args:
        spec: Its specification, as it is stored; 1 is returned for one that is damaged.
        profiles: The agents that others may be made after.
    """
    if not isinstance(spec, Mapping) or spec.get("kind") != "mortal":
        return 1
    profile, below = profiles.get(str(spec.get("profile"))), spec.get("levels")
    return (profile.levels if profile else 1) + (below if isinstance(below, int) else 0)


def get_spawnable(config: Mapping[str, Any]) -> Mapping[str, SpawnableAgent]:
    """Return the agents that can be spawned in a run, by name."""
    return get_context(config).spawnable
