"""The capabilities of a team as a tree for people: of each agent the best, by confidence. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.cells import cell_len

from echelons.capabilities import Capability, CapabilityMap
from echelons.text.sanitize import join_printable
from echelons.tree.drawing import draw_branches

BEST_CAPABILITIES = 12
"""Capabilities that are shown of each agent, unless all are wanted."""
NARROWEST = 40
"""Columns of the narrowest lines: below them, names would be hard to read."""
_CONFIDENCE_WIDTH = 6
_GUIDE_WIDTH = 4


def format_capability_tree(known: CapabilityMap, width: int, most: int | None) -> str:
    """Return a tree of agents, each with its capabilities, a line for each confidence.

    Args:
        known: The capabilities.
        width: Columns of the terminal; longer lines are wrapped between capabilities.
        most: Number of capabilities that are shown of each agent, the best; `None` for all.
    """
    return "\n".join(_draw_agent(known, width, most))


def _draw_agent(known: CapabilityMap, width: int, most: int | None) -> list[str]:
    listed = sorted(known.capabilities.full.items(), key=lambda each: -each[1].confidence)
    below = [_draw_agent(each, width - _GUIDE_WIDTH, most) for each in known.subordinates]
    guide = "│   " if below else "    "
    lines: list[str] = []
    for confidence, group in groupby(listed[:most], key=lambda each: each[1].confidence):
        room = max(width, NARROWEST) - _GUIDE_WIDTH - _CONFIDENCE_WIDTH
        names = [_format_capability(name, each) for name, each in group]
        for place, line in enumerate(_fill_lines(names, room)):
            head = "" if place else f"{confidence:g}"
            lines.append(f"{guide}{head:<{_CONFIDENCE_WIDTH}}{line}")
    if most is not None and len(listed) > most:
        lines.append(f"{guide}and {len(listed) - most} more (--all)")
    title = f"{known.agent} (derived)" if known.derived and listed else known.agent
    return [title, *lines, *draw_branches(below)]


def _format_capability(name: str, capability: Capability) -> str:
    count = len(capability.examples)
    return join_printable(name) + (f" ({count} example{'s' if count > 1 else ''})" if count else "")


def _fill_lines(names: Sequence[str], room: int) -> Iterator[str]:
    """Yield names joined with commas, in lines of at most `room` columns where that is possible."""
    line = names[0]
    for name in names[1:]:
        if cell_len(f"{line}, {name},") > room:
            yield f"{line},"
            line = name
        else:
            line = f"{line}, {name}"
    yield line
