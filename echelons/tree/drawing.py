"""Drawings of a tree: plain text for terminals, Mermaid for notebooks and GitHub.

LangGraph's own `draw_mermaid(xray=True)` rejects two nested nodes of one name, and every level
has a `delegate`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from echelons.tree.members import Member
from echelons.tree.walk import walk_tree

MAX_LABEL_LENGTH = 80
"""Characters of a description shown in a Mermaid label."""

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
        return "\n".join([_format_label(self.root), *_draw_branches(self.root, "")])

    @property
    def mermaid(self) -> str:
        """The tree as a Mermaid flowchart."""
        names = {place.path: f"agent{number}" for number, place in enumerate(walk_tree(self.root))}
        lines = ["flowchart TD"]
        for place in walk_tree(self.root):
            lines.append(f'    {names[place.path]}["{_format_mermaid_label(place.member)}"]')
            if len(place.path) > 1:
                lines.append(f"    {names[place.path[:-1]]} --> {names[place.path]}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        # Shown by the plain Python prompt, and by notebooks without Mermaid.
        return self.text

    def _repr_markdown_(self) -> str:
        return f"```mermaid\n{self.mermaid}\n```"


def _draw_branches(member: Member, indent: str) -> Iterator[str]:
    last = len(member.subordinates) - 1
    for place, subordinate in enumerate(member.subordinates):
        turn, below = ("└── ", "    ") if place == last else ("├── ", "│   ")
        yield indent + turn + _format_label(subordinate)
        yield from _draw_branches(subordinate, indent + below)


def _format_label(member: Member) -> str:
    summary = _clean_description(member)
    return f"{member.name}: {summary}" if summary else member.name


def _format_mermaid_label(member: Member) -> str:
    # Mermaid interprets directives and styles in labels too, but not numbered entities.
    summary = _clean_description(member)
    short = summary if len(summary) <= MAX_LABEL_LENGTH else summary[: MAX_LABEL_LENGTH - 1] + "…"
    apart = _SEQUENCE.sub(rf"\g<0>{_WORD_JOINER}", short)
    text = _MARKUP.sub(lambda found: f"#{ord(found[0])};", apart)
    return f"<b>{member.name}</b><br/>{text}" if text else f"<b>{member.name}</b>"


def _clean_description(member: Member) -> str:
    """Return the description on one line, without control characters."""
    printable = (each if each.isprintable() else " " for each in member.description)
    return " ".join("".join(printable).split())
