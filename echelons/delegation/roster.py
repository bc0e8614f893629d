"""The subordinates that an agent knows of beside its declared ones, from its messages. Pure.

They come and go while its thread goes on, so they stand in notices and beside results, and never
in its instructions: providers cache a prompt by its beginning.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from echelons.delegation.spawned_agents import GIVEN
from echelons.identity.lineage import ROSTER_KEY, SPAWNED_KEY
from echelons.prompts import fill_text, load_tool_texts
from echelons.tree.names import DISMISS_SUBORDINATE, SPAWN_SUBORDINATE

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

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
    spawned = metadata.get(SPAWNED_KEY)
    specs = spawned.get(GIVEN) if isinstance(spawned, Mapping) else None
    if not isinstance(specs, Mapping):
        return {}
    return {name: build_entry(spec) for name, spec in specs.items() if isinstance(spec, Mapping)}
