"""`AgentSpecification`: what is stored of an agent that was made at run time.

It holds names only, never code: whoever rebuilds the agent gives it the tools and the profile that
have these names in its own process.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import count
from typing import Any, Final, get_type_hints
from uuid import uuid5

from echelons.errors import UnreadableRecord
from echelons.guards.spawn import SPAWNED_KINDS, SpawnedKind
from echelons.identity.lineage import ECHELONS_NS
from echelons.tree.names import NAME_PATTERN

VERSION: Final = 1
MAX_ROLE: Final = 200
"""Most characters of a role."""
_MAX_SLUG = 48
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class AgentSpecification:
    """What is stored of a spawned agent.

    Attributes:
        id: Its id, derived from the call that has made it; never used again.
        name: Its name: a slug of its role, and the first eight digits of its id.
        role: What it is for, as its superior has put it: data, never instructions of ours.
        kind: What ends it.
        segment: The request of its superior in which it was made, or the turn of a root.
        profile: Name of the agent that it is a copy of; empty for none.
        profile_hash: Digest of that agent when this one was made.
        tools: Names of its tools.
        model: Name of its model's class, for people.
        contact_user: Whether it may ask the user past its superior.
        keep: Whether it outlives the request in which it was made.
        levels: How many levels of spawned agents there may be below it.
    """

    id: str
    name: str
    role: str
    kind: SpawnedKind
    segment: str
    profile: str = ""
    profile_hash: str = ""
    tools: tuple[str, ...] = ()
    model: str = ""
    contact_user: bool = False
    keep: bool = False
    levels: int = 0

    @property
    def quoted_role(self) -> str:
        """Its role as a JSON string, in which it cannot be taken for text of ours."""
        return json.dumps(self.role, ensure_ascii=False)

    def stored(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"version": VERSION, **asdict(self), "tools": list(self.tools)}

    @classmethod
    def load(cls, stored: object) -> AgentSpecification:
        """Return a specification from JSON.

        Raises:
            UnreadableRecord: It is damaged, or of a later version.
        """
        version = stored.get("version") if isinstance(stored, Mapping) else None
        if not isinstance(stored, Mapping) or type(version) is not int or version != VERSION:
            raise UnreadableRecord(cls.__name__, f"it is not stored as one of version {VERSION}")
        given = dict(stored)
        del given["version"]
        tools = given.get("tools")
        if given.keys() != _FIELDS.keys() or not isinstance(tools, list):
            raise UnreadableRecord(cls.__name__, "it has not the fields of one")
        given["tools"] = tuple(tools)
        try:
            return _build_checked(**given)
        except TypeError as error:
            # What cannot be hashed is no value of a field.
            raise UnreadableRecord(cls.__name__, str(error)) from error


# Each reply of an agent that may spawn loads those of all that it has made.
@lru_cache(maxsize=4096, typed=True)
def _build_checked(**given: Any) -> AgentSpecification:
    """Return a specification from its fields, which it has all.

    Raises:
        UnreadableRecord: One of them is none.
    """
    kind = AgentSpecification.__name__
    for key, each in given.items():
        if type(each) is not _FIELDS[key]:
            raise UnreadableRecord(kind, f"its {key} is {type(each).__name__}")
    known = AgentSpecification(**given)
    is_named = (
        _ID.fullmatch(known.id)
        and NAME_PATTERN.fullmatch(known.name)
        and known.name.endswith(f"-{known.id[:8]}")
    )
    if not is_named or known.kind not in SPAWNED_KINDS or len(known.role) > MAX_ROLE:
        raise UnreadableRecord(kind, "its id, name, kind or role is none")
    if known.levels < 0:
        raise UnreadableRecord(kind, f"its levels are {known.levels}")
    if not all(isinstance(each, str) for each in known.tools):
        raise UnreadableRecord(kind, "its tools are no names")
    return known


_FIELDS: Final[Mapping[str, type]] = {
    **get_type_hints(AgentSpecification),
    "kind": str,
    "tools": tuple,
}


def derive_spawned_agent(
    thread: str, message: str, call: str, role: str, taken: Collection[str] = ()
) -> tuple[str, str]:
    """Return the id and the name of an agent that a call makes.

    Args:
        thread: Thread of the agent that calls.
        message: Id of the message with the call.
        call: Id of the call.
        role: What the agent is for.
        taken: Names that are taken: of two agents with one role, the digits can be the same.
    """
    slug = _build_slug(role)
    for attempt in count(1):
        suffix = "" if attempt == 1 else f"/{attempt}"
        own = str(uuid5(ECHELONS_NS, f"{thread}/{message}/{call}/agent{suffix}"))
        name = f"{slug}-{own[:8]}"
        if name not in taken:
            return own, name
    raise AssertionError  # counting does not end


def _build_slug(role: str) -> str:
    """Return a role in the characters of a name.

    Examples:
        >>> _build_slug("Reads the Café's menu!"), _build_slug("42 things"), _build_slug("侦察")
        ('reads-the-cafe-s-menu', 'agent-42-things', 'agent')
    """
    plain = unicodedata.normalize("NFKD", role).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
    if not slug or not slug[0].isalpha():
        slug = f"agent-{slug}"
    return slug[:_MAX_SLUG].strip("-")
