"""The roster: the list of an agent's subordinates, for a language model and for the planner.

A language model reads `describe_subordinates` in its system message. The offline planner parses
what `render_roster` writes, which travels beside the schema of `call_subordinate`. There, one line
is one subordinate:

    - restaurants: Finds places to eat. Can: dining (0.9), food (0.9)

A line starts with `- name: `, and its last `. Can: ` ends the description, which is put on one
line without a final full stop. A capability that is not made of plain words is written as a JSON
string with its colons escaped, so that no author's text can be taken for structure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from echelons.errors import ConfigurationError
from echelons.prompts import load_tool_texts
from echelons.text.sanitize import join_printable
from echelons.tree.members import Member
from echelons.tree.names import NAME_PATTERN, check_name, get_provider_tool_name

MAX_NAMES: Final = 8
"""Tools, subordinates or capabilities of a branch that its superior's model reads at most."""
NOTHING_LISTED: Final = "(nothing listed)"

_CAN: Final = ". Can: "
_LINE: Final = re.compile(rf"- ({NAME_PATTERN.pattern}): ")
_PLAIN: Final = re.compile(r"\w(?:[\w &/'+-]{0,198}\w)?")
_ABILITY: Final = re.compile(r'("(?:[^"\\]|\\.)*"|[^",()]+) \(([^()\s]+)\)(?:, |$)')


@dataclass(frozen=True)
class RosterEntry:
    """One subordinate as described to its superior; the description is put on one line."""

    name: str
    description: str = ""
    capabilities: Mapping[str, float] = field(default_factory=dict)  # of its whole subtree

    def __post_init__(self) -> None:
        check_name(self.name)  # the line of any other could not be parsed
        object.__setattr__(self, "description", join_printable(self.description).rstrip(". "))


def render_roster(entries: Iterable[RosterEntry]) -> str:
    """Return the roster of some subordinates, one line each, in order.

    >>> print(render_roster([RosterEntry("hotels", "Finds rooms.", {"sleep": 0.9, "rooms": 1.0})]))
    - hotels: Finds rooms. Can: sleep (0.9), rooms (1.0)
    """
    return "\n".join(
        f"- {entry.name}: {entry.description}{_CAN}{_format_capabilities(entry.capabilities)}"
        for entry in entries
    )


def describe_subordinates(members: Iterable[Member]) -> str:
    """Return what an agent's model reads of its subordinates; empty if it has none.

    A line has the name, the description, or else the capabilities, and the names of the tools or
    the subordinates.
    """
    lines = [_describe_member(member) for member in members]
    return "\n".join([load_tool_texts("roster")["heading"], *lines]) if lines else ""


def _describe_member(member: Member) -> str:
    about = join_printable(member.description).rstrip(". ") or _list_names(member.capabilities)
    if names := [subordinate.name for subordinate in member.subordinates]:
        has = f"Subordinates: {_list_names(names)}"
    else:
        tools = getattr(member, "tools", ())
        names = [get_provider_tool_name(tool) or _get_tool_name(tool) for tool in tools]
        has = f"Tools: {_list_names(names)}" if names else ""
    facts = ". ".join(filter(None, (about, has)))
    return f"- {member.name}: {facts}." if facts else f"- {member.name}"


def _get_tool_name(tool: object) -> str:
    return str(getattr(tool, "name", None) or getattr(tool, "__name__", ""))


def _list_names(names: Iterable[str]) -> str:
    shown = [join_printable(name) for name in names]
    more = f" and {len(shown) - MAX_NAMES} more" if len(shown) > MAX_NAMES else ""
    return ", ".join(shown[:MAX_NAMES]) + more


def parse_roster(text: str) -> tuple[RosterEntry, ...]:
    r"""Return the entries of a roster; lines of any other form are skipped.

    >>> parse_roster("You may call:\n- hotels: Finds rooms. Can: sleep (0.9)")
    (RosterEntry(name='hotels', description='Finds rooms', capabilities={'sleep': 0.9}),)
    """
    return tuple(entry for line in text.split("\n") if (entry := _parse_line(line)))


def _parse_line(line: str) -> RosterEntry | None:
    head = _LINE.match(line)
    description, can, abilities = line[head.end() if head else 0 :].rpartition(_CAN)
    if not head or not can:
        return None
    try:
        return RosterEntry(head[1], description, _parse_capabilities(abilities))
    except ConfigurationError:  # not an agent's name, so not a line of a roster
        return None


def _format_capabilities(capabilities: Mapping[str, float]) -> str:
    quoted = {
        name: name if _PLAIN.fullmatch(name) else json.dumps(name).replace(":", "\\u003a")
        for name in capabilities
    }
    listed = (f"{quoted[name]} ({float(value)!r})" for name, value in capabilities.items())
    return ", ".join(listed) or NOTHING_LISTED


def _parse_capabilities(text: str) -> dict[str, float]:
    capabilities: dict[str, float] = {}
    end = 0
    # Matching from `end` keeps malformed text linear; a search would start again everywhere.
    while ability := _ABILITY.match(text, end):
        end = ability.end()
        try:
            name = str(json.loads(ability[1])) if ability[1].startswith('"') else ability[1]
            capabilities[name] = float(ability[2])
        except ValueError:  # some other line that happens to look like one of a roster
            continue
    return capabilities
