"""Agents that are made at run time, and the roster of those that an agent can call."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_type_hints
from uuid import uuid5

from echelons.delegation.request import Status
from echelons.errors import UnreadableRecord, invalid_option
from echelons.guards.permissions import SPAWNED_KINDS, SpawnedKind
from echelons.identity.lineage import ADDED_KEY, ECHELONS_NS, ROSTER_KEY
from echelons.identity.thread_history import Head
from echelons.prompts import fill_text, load_tool_texts
from echelons.run_context import get_context
from echelons.text.error_lines import join_printable
from echelons.text.input_limits import is_label, shorten_repr
from echelons.tree.members import Member, fingerprint_tree, is_watched, measure_heights
from echelons.tree.names import DISMISS_SUBORDINATE, NAME_PATTERN, SPAWN_SUBORDINATE

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

    from echelons.identity.lineage import Identity


GIVEN: Final = "given"
"""In place of a call's id, for an agent that the user gives another; also its status until it has
answered."""
NEVER_BEGUN: Final = "never begun"
"""In place of a response's status, for an agent that was not allowed to begin."""
_STATUSES = frozenset({*map(str, Status), NEVER_BEGUN, GIVEN})

VERSION: Final = 1
MAX_ROLE: Final = 200  # characters
_MAX_SLUG = 48
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class AgentSpecification:
    """The stored facts of a spawned agent.

    Attributes:
        id: Its id, derived from the call that has made it; never used again.
        name: Its name: a slug of its role, and the first eight digits of its id.
        role: Its purpose in its superior's words: data, never instructions of ours.
        kind: Its kind, which decides when it ends.
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
        """Return a specification from JSON; raise `UnreadableRecord` if it is damaged or newer."""
        version = stored.get("version") if isinstance(stored, Mapping) else None
        if not isinstance(stored, Mapping) or type(version) is not int or version != VERSION:
            raise UnreadableRecord(cls.__name__, f"it is not stored as one of version {VERSION}")
        fields = {key: value for key, value in stored.items() if key != "version"}
        tools = fields.get("tools")
        if fields.keys() != _FIELDS.keys() or not isinstance(tools, list):
            raise UnreadableRecord(cls.__name__, "it has not the fields of one")
        fields["tools"] = tuple(tools)
        try:
            return _build_checked(**fields)
        except TypeError as error:  # no field has a value that cannot be hashed
            raise UnreadableRecord(cls.__name__, str(error)) from error


# Each reply of an agent that may spawn loads those of all that it has made.
@lru_cache(maxsize=4096, typed=True)
def _build_checked(**fields: Any) -> AgentSpecification:
    """Return a specification from all of its fields."""
    kind = AgentSpecification.__name__
    for key, value in fields.items():
        if type(value) is not _FIELDS[key]:
            raise UnreadableRecord(kind, f"its {key} is {type(value).__name__}")
    spec = AgentSpecification(**fields)
    is_named = (
        _ID.fullmatch(spec.id)
        and NAME_PATTERN.fullmatch(spec.name)
        and spec.name.endswith(f"-{spec.id[:8]}")
    )
    if not is_named or spec.kind not in SPAWNED_KINDS or len(spec.role) > MAX_ROLE:
        raise UnreadableRecord(kind, "its id, name, kind or role is none")
    if spec.levels < 0:
        raise UnreadableRecord(kind, f"its levels are {spec.levels}")
    if not all(isinstance(tool, str) for tool in spec.tools):
        raise UnreadableRecord(kind, "its tools are no names")
    return spec


_FIELDS: Final[Mapping[str, type]] = {
    **get_type_hints(AgentSpecification),
    "kind": str,
    "tools": tuple,
}


def derive_spawned_agent(
    thread: str, message: str, call: str, role: str, taken: Collection[str] = ()
) -> tuple[str, str]:
    """Return the id and the name of the agent that a call in a message of a thread makes."""
    slug = _build_slug(role)
    for attempt in count(1):
        suffix = "" if attempt == 1 else f"/{attempt}"
        id_ = str(uuid5(ECHELONS_NS, f"{thread}/{message}/{call}/agent{suffix}"))
        name = f"{slug}-{id_[:8]}"
        # Two agents of one role may have the same digits.
        if name not in taken:
            return id_, name
    raise AssertionError  # counting does not end


def build_given_agent(profile: str, message_id: str, identity: Identity) -> AgentSpecification:
    """Return the specification of an agent that the user gives another, which then keeps it."""
    role = join_printable(profile)[:MAX_ROLE]
    agent_id, name = derive_spawned_agent(identity.thread_id, message_id, GIVEN, role)
    segment = identity.request_id or identity.turn
    return AgentSpecification(agent_id, name, role, "mortal", segment, profile, keep=True)


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


NOTHING_SPAWNABLE: Final[Mapping[str, SpawnableAgent]] = {}


class SpawnableAgent(NamedTuple):
    """An agent that others may be made after."""

    member: Any
    digest: str  # of its shape, and of its prompt and tools where these are plain
    levels: int = 1  # from it down, itself included

    @classmethod
    def build(cls, member: Member) -> SpawnableAgent:
        """Return an agent with its digest."""
        prompt = getattr(member, "prompt", "")
        tools = [str(getattr(tool, "name", None) or tool) for tool in getattr(member, "tools", ())]
        facts = [fingerprint_tree(member), prompt if isinstance(prompt, str) else "", tools]
        digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
        return cls(member, digest, measure_heights(member)[member.name])


def check_spawnable(agents: object) -> dict[str, SpawnableAgent]:
    """Return the agents that a caller lets be spawned, by name."""
    if agents is None:
        return {}
    if not isinstance(agents, Mapping):
        why = "give a mapping from names to agents"
        raise invalid_option("spawnable", shorten_repr(agents), why)
    spawnable: dict[str, SpawnableAgent] = {}
    for name, agent in agents.items():
        # A profile is an agent: only an agent has a model.
        if not (is_label(name) and isinstance(agent, Member) and hasattr(agent, "model")):
            why = "it is no name with an agent"
            raise invalid_option("spawnable", shorten_repr((name, agent)), why)
        if is_watched(agent):
            why = "it has monitors, and they watch what is declared alone; leave them out"
            raise invalid_option("spawnable", shorten_repr(name), why)
        spawnable[name] = SpawnableAgent.build(agent)
    return spawnable


def count_levels(spec: object, profiles: Mapping[str, SpawnableAgent]) -> int:
    """Return the number of levels from a spawned agent down, with those that it may make."""
    if not isinstance(spec, Mapping) or spec.get("kind") != "mortal":
        return 1  # also for a damaged one
    profile, levels = profiles.get(str(spec.get("profile"))), spec.get("levels")
    return (profile.levels if profile else 1) + (levels if isinstance(levels, int) else 0)


def get_spawnable(config: Mapping[str, Any]) -> Mapping[str, SpawnableAgent]:
    """Return the agents that can be spawned in a run, by name."""
    return get_context(config).spawnable


class SpawnedAgent(NamedTuple):
    """An agent that was made at run time."""

    spec: AgentSpecification
    statuses: list[str]  # of its latest responses, one for each of its threads that has one

    def is_dismissed(self, segment: str) -> bool:
        """Return whether it has ended, given the request or turn that its superior works on."""
        # An agent that has asked a question still has to answer its request.
        if Status.NEEDS_INPUT in self.statuses:
            return False
        # Without a status, the turn in which it was made was given up before its first answer.
        if all(status == NEVER_BEGUN for status in self.statuses):
            return True
        return self.spec.kind == "drone" or not (self.spec.keep or self.spec.segment == segment)


def find_given_agents(messages: Iterable[BaseMessage]) -> dict[str, Head]:
    """Return the heads of the agents that the user has given, by the ids of their messages."""
    return {
        message.id or "": Head(agent=name, spawned=spec, status=GIVEN)
        for message in messages
        if message.type == "human" and ADDED_KEY in message.response_metadata
        for name, spec in message.response_metadata[ADDED_KEY].get(GIVEN, {}).items()
    }


def collect_spawned(heads: Mapping[str, Head]) -> dict[str, SpawnedAgent]:
    """Return the agents that were spawned in a conversation, by name, in the order of their start.

    One with damaged records is left out: it counts as dismissed.
    """
    spawned: dict[str, SpawnedAgent] = {}
    damaged: set[str] = set()
    for head in heads.values():
        if "spawned" not in head:
            continue
        try:
            spec = AgentSpecification.load(head["spawned"])
        except UnreadableRecord:
            damaged.add(head["agent"])
            continue
        agent = spawned.setdefault(spec.name, SpawnedAgent(spec, []))
        if "status" in head:
            status: object = head["status"]
            agent.statuses.append(head["status"])
            if not (isinstance(status, str) and status in _STATUSES):
                damaged.add(spec.name)
        if spec.name != head["agent"]:
            damaged |= {spec.name, head["agent"]}
    return {name: agent for name, agent in spawned.items() if name not in damaged}


def find_damaged(heads: Mapping[str, Head], intact: Collection[str]) -> set[str]:
    """Return the names of the agents that `collect_spawned` has left out."""
    agents = {head["agent"] for head in heads.values() if "spawned" in head}
    return agents.difference(intact)


MAX_LISTED: Final = 32
"""Subordinates that one notice names at most."""


class RosterEntry(NamedTuple):
    """An agent's knowledge of a subordinate."""

    role: str = ""  # what it was made for, quoted; empty for one that was dismissed
    until: str = ""  # the segment with which it ends; empty for one that stays

    def stored(self) -> list[str]:
        """Return it as JSON."""
        return [*self]


DISMISSED: Final = RosterEntry()
Roster = Mapping[str, RosterEntry]
"""An agent's knowledge of subordinates, by name."""
StoredRoster = Mapping[str, tuple[str, str]]
"""The same as it is stored with summaries."""
Changes = Mapping[str, RosterEntry | None]
"""Changes of a roster: `None` for a spawned agent that has ended."""


def build_entry(spec: Mapping[str, Any], *, stays: bool = False) -> RosterEntry:
    """Return the entry of a living spawned agent, from its stored specification.

    With `stays` it is kept although its segment has ended: it waits for an answer.
    """
    role = json.dumps(str(spec.get("role", "")), ensure_ascii=False)
    return RosterEntry(role, "" if stays or spec.get("keep") else str(spec.get("segment", "")))


def read_roster(
    messages: Iterable[BaseMessage],
    segment: str,
    before: StoredRoster | None = None,
) -> dict[str, RosterEntry]:
    """Return what some messages tell of subordinates, without those of an ended segment."""
    # A notice has announced that these end with it.
    roster = read_whole_roster(messages, before)
    return {name: entry for name, entry in roster.items() if entry.until in ("", segment)}


def read_whole_roster(
    messages: Iterable[BaseMessage], before: StoredRoster | None = None
) -> dict[str, RosterEntry]:
    """Return what some messages tell of subordinates, those of ended segments included."""
    roster = {name: RosterEntry(*stored) for name, stored in (before or {}).items()}
    for message in messages:
        metadata = message.response_metadata
        if metadata and message.type in ("human", "tool"):
            for name, entry in _read_changes(metadata).items():
                roster.pop(name, None)
                if entry is not None:
                    roster[name] = entry
    return roster


def find_changes(listed: Roster, living: Roster, dismissed: Collection[str]) -> Changes:
    """Return what an agent does not know yet of its living and its dismissed subordinates."""
    present = {name for name, entry in listed.items() if entry.role}
    return {
        **{name: entry for name, entry in living.items() if name not in present},
        **dict.fromkeys(present - living.keys() - {*dismissed}),
        **{name: DISMISSED for name in sorted(dismissed) if listed.get(name) != DISMISSED},
    }


def describe_changes(changes: Changes) -> str:
    """Return changes of a roster as a model reads them.

    Examples:
        >>> print(describe_changes({"scout-1": RosterEntry('"finds paths"'), "clerk": DISMISSED}))
        You also have these subordinates, which call_subordinate reaches by name, with what each \
was made for: scout-1 "finds paths". Of your subordinates, these are gone, and nothing reaches \
them: clerk.
    """
    texts: list[str] = []
    spawn_texts = load_tool_texts(SPAWN_SUBORDINATE)
    living = [
        f"{name} {entry.role}{spawn_texts['until'] if entry.until else ''}"
        for name, entry in changes.items()
        if entry and entry.role
    ]
    if living:
        texts.append(_fill(spawn_texts["living"], living))
    if gone := [name for name, entry in changes.items() if not (entry and entry.role)]:
        texts.append(_fill(load_tool_texts(DISMISS_SUBORDINATE)["gone"], gone))
    return " ".join(texts)


def _fill(text: str, names: Collection[str]) -> str:
    latest = [*names][-MAX_LISTED:]
    others = f" (and {more} others)" if (more := len(names) - len(latest)) else ""
    return fill_text(text, names=f"{', '.join(latest)}{others}").strip()


def _read_changes(metadata: Mapping[str, Any]) -> Changes:
    if isinstance(changes := metadata.get(ROSTER_KEY), Mapping):
        return {
            str(name): RosterEntry(*map(str, stored)) if isinstance(stored, list) else None
            for name, stored in changes.items()
        }
    spawned = metadata.get(ADDED_KEY)
    specs = spawned.get(GIVEN) if isinstance(spawned, Mapping) else None
    if not isinstance(specs, Mapping):
        return {}
    return {name: build_entry(spec) for name, spec in specs.items() if isinstance(spec, Mapping)}
