"""Drawings of a tree: plain text for terminals, Mermaid for notebooks and GitHub.

LangGraph's own `draw_mermaid(xray=True)` rejects two nested nodes of one name, and every level
has a `delegate`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from echelons.text.sanitize import join_printable
from echelons.tree.members import Member, list_monitors, walk_tree
from echelons.tree.names import PATH_SEPARATOR

MAX_LABEL_LENGTH = 80  # characters of a description in a Mermaid label

# All ASCII punctuation but ' ( ) , - and .
_MARKUP = re.compile(r"[!-&*+/:-@\[-`{-~]")
# Sequences that Mermaid interprets even in entities: \n, formulas in $$, icons as fa:fa-car.
_SEQUENCE = re.compile(r"[\\$](?=.)|fa\w?:(?=fa)")
_WORD_JOINER = "\u2060"  # invisible; inserted to break up a sequence


@dataclass(frozen=True, slots=True, repr=False)
class Drawing:
    """The drawing of a tree; a notebook shows it as Mermaid, `print` as text.

    Examples:
        >>> from echelons import Agent
        >>> eat = Agent("restaurants", "Finds places to eat")
        >>> print(Agent("head", "Plans trips", subordinates=[eat]).draw())
        head: Plans trips
        └── restaurants: Finds places to eat
    """

    root: Member

    @property
    def text(self) -> str:
        """The tree as lines of text."""
        return "\n".join(_draw_member(self.root))

    @property
    def mermaid(self) -> str:
        """The tree as a Mermaid flowchart."""
        names = {place.path: f"agent{number}" for number, place in enumerate(walk_tree(self.root))}
        places = {place.member.name: place.path for place in walk_tree(self.root)}
        lines = ["flowchart TD"]
        for place in walk_tree(self.root):
            lines.append(f'    {names[place.path]}["{_format_mermaid_label(place.member)}"]')
            if len(place.path) > 1:
                lines.append(f"    {names[place.path[:-1]]} --> {names[place.path]}")
        for place in walk_tree(self.root):
            for number, monitor in enumerate(list_monitors(place.member)):
                node = f"{names[place.path]}monitor{number}"
                lines.append(f'    {node}(["{_format_mermaid_label(monitor)}"])')
                watched = monitor.watches.rpartition(PATH_SEPARATOR)[2] or place.member.name
                lines.append(f"    {node} -. watches .-> {names[places[watched]]}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        # Shown by the plain Python prompt, and by notebooks without Mermaid.
        return self.text

    def _repr_markdown_(self) -> str:
        return f"```mermaid\n{self.mermaid}\n```"


def draw_branches(branches: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of some drawn subtrees, as branches of the line above them."""
    for place, (first, *more) in enumerate(branches, start=1):
        turn, below = ("└── ", "    ") if place == len(branches) else ("├── ", "│   ")
        yield turn + first
        yield from (below + line for line in more)


def draw_guides(levels: Sequence[int]) -> list[str]:
    """Return the guides before each row of a tree, given the levels of its rows.

    >>> draw_guides([0, 1, 2, 1])
    ['', '├── ', '│   └── ', '└── ']
    """
    guides: list[str] = []
    # From the last row upwards: of each level, whether a row further down continues it.
    continues: list[bool] = []
    for level in reversed(levels):
        del continues[level + 1 :]
        continues += [False] * (level + 1 - len(continues))
        outer = "".join("│   " if is_open else "    " for is_open in continues[1:level])
        guides.append(outer + ("├── " if continues[level] else "└── ") if level else "")
        continues[level] = True
    return guides[::-1]


def _draw_member(member: Member) -> list[str]:
    branches = [_draw_member(subordinate) for subordinate in member.subordinates]
    for monitor in list_monitors(member):
        watched = monitor.watches.rpartition(PATH_SEPARATOR)[2] or member.name
        branches.append([f"{_format_label(monitor)} (monitor of {watched})"])
    return [_format_label(member), *draw_branches(branches)]


def _format_label(member: Member) -> str:
    summary = join_printable(member.description)
    return f"{member.name}: {summary}" if summary else member.name


def _format_mermaid_label(member: Member) -> str:
    text = escape_mermaid(member.description)
    return f"<b>{member.name}</b><br/>{text}" if text else f"<b>{member.name}</b>"


def escape_mermaid(text: str) -> str:
    """Return a text for a Mermaid label, shortened, as a line in which nothing is interpreted."""
    # Mermaid interprets directives and styles in labels too, but not numbered entities.
    summary = join_printable(text)
    short = summary if len(summary) <= MAX_LABEL_LENGTH else summary[: MAX_LABEL_LENGTH - 1] + "…"
    apart = _SEQUENCE.sub(rf"\g<0>{_WORD_JOINER}", short)
    return _MARKUP.sub(lambda match: f"#{ord(match[0])};", apart)
