"""The roster: the list of an agent's subordinates in the description of `call_subordinate`.

A language model reads it as prose; the offline planner parses it. One line is one subordinate:

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

from echelons.errors import InvalidName
from echelons.text.sanitize import join_printable
from echelons.tree.names import NAME_PATTERN, check_name

NOTHING_LISTED: Final = "(nothing listed)"

_CAN: Final = ". Can: "
_LINE: Final = re.compile(rf"- ({NAME_PATTERN.pattern}): ")
_PLAIN: Final = re.compile(r"\w(?:[\w &/'+-]{0,198}\w)?")
_ABILITY: Final = re.compile(r'("(?:[^"\\]|\\.)*"|[^",()]+) \(([^()\s]+)\)(?:, |$)')


@dataclass(frozen=True)
class RosterEntry:
    """One subordinate as described to its superior.

    Attributes:
        name: The agent's name, as `call_subordinate` takes it.
        description: What it does; on one line, without final full stops.
        capabilities: The capabilities of its whole subtree, each with a confidence from 0 to 1.
    """

    name: str
    description: str = ""
    capabilities: Mapping[str, float] = field(default_factory=dict)

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
    except InvalidName:  # not an agent's name, so not a line of a roster
        return None


def _format_capabilities(capabilities: Mapping[str, float]) -> str:
    quoted = {
        name: name if _PLAIN.fullmatch(name) else json.dumps(name).replace(":", "\\u003a")
        for name in capabilities
    }
    listed = (f"{quoted[name]} ({float(value)!r})" for name, value in capabilities.items())
    return ", ".join(listed) or NOTHING_LISTED


def _parse_capabilities(text: str) -> dict[str, float]:
    read: dict[str, float] = {}
    end = 0
    # Matching from `end` keeps malformed text linear; a search would start again everywhere.
    while ability := _ABILITY.match(text, end):
        end = ability.end()
        try:
            name = str(json.loads(ability[1])) if ability[1].startswith('"') else ability[1]
            read[name] = float(ability[2])
        except ValueError:  # some other line that happens to look like one of a roster
            continue
    return read
