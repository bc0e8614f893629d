"""The roster: whom an agent may call, written so that any model can read it.

``render`` writes the description of the tool ``call_subordinate``; a language model reads
it as prose, the offline planner reads it back with ``parse``. One line is one subordinate::

    - restaurants: Finds places to eat. Can: dining (0.9), food (0.9)

A line starts with ``- name: `` and its last ``. Can: `` ends the description, which is
kept on one line and without a full stop of its own. A capability that is not made of plain
words is written as a JSON string whose colons are escaped, so nothing that an author writes
can pass for structure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from echelons.errors import InvalidName
from echelons.tree.names import PATTERN, check_name

NOTHING_LISTED: Final = "(nothing listed)"

_CAN: Final = ". Can: "
_LINE: Final = re.compile(rf"- ({PATTERN.pattern}): ")
_PLAIN: Final = re.compile(r"\w(?:[\w &/'+-]{0,198}\w)?")
_ABILITY: Final = re.compile(r'("(?:[^"\\]|\\.)*"|[^",()]+) \(([^()\s]+)\)(?:, |$)')


@dataclass(frozen=True)
class Entry:
    """One subordinate as its superior sees it.

    Attributes:
        name: The agent's name, the value that ``call_subordinate`` takes.
        description: What it does; put on one line, without its closing full stops.
        capabilities: What its whole subtree can do, each with a confidence from 0 to 1.

    Raises:
        InvalidName: ``name`` is no agent's name, and would not stand out in the text.
    """

    name: str
    description: str = ""
    capabilities: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_name(self.name)
        object.__setattr__(self, "description", _on_one_line(self.description).rstrip(". "))


def render(entries: Iterable[Entry]) -> str:
    """Write ``entries``, one line each, in their order.

    >>> print(render([Entry("hotels", "Finds rooms.", {"sleep": 0.9, "rooms": 1.0})]))
    - hotels: Finds rooms. Can: sleep (0.9), rooms (1.0)
    """
    return "\n".join(
        f"- {entry.name}: {entry.description}{_CAN}{_abilities(entry.capabilities)}"
        for entry in entries
    )


def parse(text: str) -> tuple[Entry, ...]:
    r"""Read back what :func:`render` wrote; lines of any other form are passed over.

    >>> parse("You may call:\n- hotels: Finds rooms. Can: sleep (0.9)")
    (Entry(name='hotels', description='Finds rooms', capabilities={'sleep': 0.9}),)
    """
    return tuple(entry for line in text.split("\n") if (entry := _entry(line)))


def _entry(line: str) -> Entry | None:
    head = _LINE.match(line)
    if head is None:
        return None
    description, can, abilities = line[head.end() :].rpartition(_CAN)
    if not can:
        return None
    try:
        return Entry(head[1], description, _read_abilities(abilities))
    except InvalidName:  # a name that no agent can have: not a line of ours
        return None


def _on_one_line(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _abilities(capabilities: Mapping[str, float]) -> str:
    listed = (f"{_written(name)} ({float(value)!r})" for name, value in capabilities.items())
    return ", ".join(listed) or NOTHING_LISTED


def _written(capability: str) -> str:
    if _PLAIN.fullmatch(capability):
        return capability
    return json.dumps(capability).replace(":", "\\u003a")


def _read_abilities(text: str) -> dict[str, float]:
    read: dict[str, float] = {}
    end = 0
    # Stopping where the form ends keeps noise linear: a search would begin again everywhere.
    while ability := _ABILITY.match(text, end):
        end = ability.end()
        try:
            read[_read(ability[1])] = float(ability[2])
        except ValueError:  # not ours: someone else's line that happens to look like one
            continue
    return read


def _read(written: str) -> str:
    return str(json.loads(written)) if written.startswith('"') else written
