"""A tree as a picture: plain text for terminals, Mermaid for notebooks and GitHub.

``Agent.draw`` returns a ``Drawing``. LangGraph's own ``draw_mermaid(xray=True)`` refuses
two nested nodes of one name, and every level has a ``delegate``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from echelons.members import Member
from echelons.tree import walk


@dataclass(frozen=True, slots=True, repr=False)
class Drawing:
    """The picture of a tree; a notebook shows it as Mermaid, ``print`` as text.

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
        return "\n".join([_label(self.root), *_branches(self.root, "")])

    @property
    def mermaid(self) -> str:
        """The tree as a Mermaid flowchart."""
        names = {place.path: f"agent{number}" for number, place in enumerate(walk(self.root))}
        lines = ["flowchart TD"]
        for place in walk(self.root):
            lines.append(f'    {names[place.path]}["{_escaped(place.member)}"]')
            if len(place.path) > 1:
                lines.append(f"    {names[place.path[:-1]]} --> {names[place.path]}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        # What a notebook without Mermaid and a plain prompt show.
        return self.text

    def _repr_markdown_(self) -> str:
        return f"```mermaid\n{self.mermaid}\n```"


def _branches(member: Member, indent: str) -> Iterator[str]:
    last = len(member.subordinates) - 1
    for place, subordinate in enumerate(member.subordinates):
        turn, below = ("└── ", "    ") if place == last else ("├── ", "│   ")
        yield indent + turn + _label(subordinate)
        yield from _branches(subordinate, indent + below)


def _label(member: Member) -> str:
    summary = " ".join(member.description.split())
    return f"{member.name}: {summary}" if summary else member.name


def _escaped(member: Member) -> str:
    # Mermaid takes HTML entities, and Markdown in labels that begin like a list.
    summary = " ".join(member.description.split())
    for character, entity in (("&", "&amp;"), ('"', "#quot;"), ("<", "&lt;"), (">", "&gt;")):
        summary = summary.replace(character, entity)
    short = summary if len(summary) <= 80 else summary[:79] + "…"
    return f"<b>{member.name}</b><br/>{short}" if short else f"<b>{member.name}</b>"
