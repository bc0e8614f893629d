"""Capabilities of agents that declare none: by default, derived from names.

`CapabilityMap.discover` uses `derive_from_names` unless it is given another `Deriver`, such as
`ModelDeriver`, which asks a model.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol, runtime_checkable

from echelons.capabilities.capability import Capability, DeclaredCapabilities, check_capabilities
from echelons.errors import RoutingError, deriver_failed
from echelons.text.error_lines import describe_failure
from echelons.text.input_limits import read_text
from echelons.text.stemming import extract_words
from echelons.tree.members import Member
from echelons.tree.names import get_provider_tool_name

DERIVED_CONFIDENCE: Final = 0.8
"""Confidence of derived capabilities: less than people usually declare (0.9, 1.0)."""

MAX_PROMPT_TEXT: Final = 2_000
"""Characters of a prompt used as text: its beginning describes the agent."""


class Deriver(Protocol):
    """Derives the capabilities of an agent that declares none."""

    def __call__(self, member: Member, /) -> Mapping[str, Capability]:
        """Return the capabilities of `member`, by name."""
        ...


@runtime_checkable
class TreeDeriver(Protocol):
    """A deriver that does slow work, which is faster for a whole tree at once."""

    def learn(self, root: Member, /) -> None:
        """Derive the capabilities of all agents of a tree that declare none."""

    async def alearn(self, root: Member, /) -> None:
        """Async version of `learn`."""


def derive_from_names(member: Member) -> Mapping[str, Capability]:
    """Return the words of an agent's name and of its tools' names, with confidence 0.8.

    Its description and prompt, and its tools' descriptions, do not name capabilities: they are
    texts (see `collect_texts`), which a matcher reads beside the capabilities.

    Examples:
        >>> from echelons import Agent
        >>> def find_food(place: str) -> str:
        ...     '''Find places to eat.'''
        ...     return place
        >>> list(derive_from_names(Agent("tableBooking", tools=[find_food])))
        ['table booking', 'find food']
    """
    named = [member.name, *(name for name, _ in iterate_tools(member))]
    phrases = dict.fromkeys(" ".join(extract_words(name)) for name in named)
    return {phrase: Capability(DERIVED_CONFIDENCE) for phrase in phrases if phrase}


def get_capabilities(
    member: Member, deriver: Deriver = derive_from_names
) -> tuple[DeclaredCapabilities, bool]:
    """Return an agent's capabilities, validated, and whether they were derived.

    Raises:
        RoutingError: The deriver raised an exception.
    """
    if member.capabilities:
        return check_capabilities(member.name, member.capabilities), False
    try:
        derived = deriver(member)
    except RoutingError:
        raise
    except Exception as error:
        raise deriver_failed(member.name, describe_failure(error, "deriver_failed")) from error
    return check_capabilities(member.name, derived), True


def collect_texts(member: Member) -> tuple[str, ...]:
    """Return the descriptions of an agent and of its tools.

    The prompt is included if the agent declares no capabilities, and it is no function; otherwise
    it says less than the declaration.
    """
    prompt: Any = "" if member.capabilities else getattr(member, "prompt", "")
    # That of a message is in its `text`.
    prompt = read_text(getattr(prompt, "text", prompt)) or ""
    tools = (text for _, text in iterate_tools(member))
    texts = (member.description, *tools, prompt[:MAX_PROMPT_TEXT])
    return tuple(text for text in texts if text.strip())


def iterate_tools(member: Member) -> Iterator[tuple[str, str]]:
    """Yield the name of each of an agent's tools, and the first paragraph of its description."""
    for tool in getattr(member, "tools", ()):
        name = getattr(tool, "name", None) or getattr(tool, "__name__", "")
        name = name or get_provider_tool_name(tool)
        text = inspect.getdoc(tool) if inspect.isroutine(tool) else getattr(tool, "description", "")
        yield str(name), " ".join((text or "").strip().split("\n\n")[0].split())
