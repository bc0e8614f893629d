"""Capabilities of agents that declare none: what their names and their tools' names say.

``CapabilityMap.discover`` derives with ``derive`` unless it is given another ``Deriver``, such
as one that asks a model.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol, runtime_checkable

from echelons.capabilities.capability import Capability, Declared, declared
from echelons.text.stemming import words
from echelons.tree.members import Member

DERIVED: Final = 0.8
"""Confidence of what is derived: less than people declare when they are sure (0.9, 1.0)."""

MOST_OF_A_PROMPT: Final = 2_000
"""Characters of a prompt that are read: its beginning says what the agent is."""


class Deriver(Protocol):
    """Says what an agent can do that declares nothing."""

    def __call__(self, member: Member, /) -> Mapping[str, Capability]:
        """Return the capabilities of ``member``, by name."""
        ...


@runtime_checkable
class Learner(Protocol):
    """A deriver that waits for something, and had better be told of a tree as a whole."""

    def learn(self, root: Member, /) -> None:
        """Find out what all agents of a tree can do that declare nothing."""
        ...

    async def alearn(self, root: Member, /) -> None:
        """Do what ``learn`` does in an event loop."""
        ...


def derive(member: Member) -> Mapping[str, Capability]:
    """Return the words of the agent's name and of each of its tools' names, at 0.8.

    Its description and prompt, and its tools' descriptions, are no names of anything: they stay
    texts (see ``texts_of``), which a matcher reads beside the capabilities.

    Examples:
        >>> from echelons import Agent
        >>> def find_food(place: str) -> str:
        ...     '''Find places to eat.'''
        ...     return place
        >>> list(derive(Agent("tableBooking", tools=[find_food])))
        ['table booking', 'find food']
    """
    named = [member.name, *(name for name, _ in tools_of(member))]
    phrases = dict.fromkeys(" ".join(words(name)) for name in named)
    return {phrase: Capability(DERIVED) for phrase in phrases if phrase}


def capabilities_of(member: Member, deriver: Deriver = derive) -> tuple[Declared, bool]:
    """Return what an agent can do, and whether that had to be derived.

    Raises:
        InvalidCapability: What it declares, or what the deriver says, is none.
    """
    if member.capabilities:
        return declared(member.name, member.capabilities), False
    return declared(member.name, deriver(member)), True


def texts_of(member: Member) -> tuple[str, ...]:
    """Return what is written about an agent: its description, its tools' descriptions.

    The prompt of an agent that declares nothing is one of the texts; for the others it is
    instructions, whose words say less than the declaration.
    """
    prompt = "" if member.capabilities else getattr(member, "prompt", "")
    texts = [member.description, *(text for _, text in tools_of(member)), prompt[:MOST_OF_A_PROMPT]]
    return tuple(text for text in texts if text.strip())


def tools_of(member: Member) -> Iterator[tuple[str, str]]:
    """Yield the name of each of an agent's tools, with the first paragraph about it."""
    for tool in getattr(member, "tools", ()):
        name = getattr(tool, "name", None) or getattr(tool, "__name__", "")
        yield str(name), _first_paragraph(tool)


def _first_paragraph(tool: Any) -> str:
    text = inspect.getdoc(tool) if inspect.isroutine(tool) else getattr(tool, "description", "")
    return " ".join((text or "").strip().split("\n\n")[0].split())
