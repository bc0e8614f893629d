"""`CapabilityMap`: the capabilities of all agents of a tree, as an immutable tree of its own.

`echelons.routing` reads it, and `echelons capabilities` prints it. The map of an agent consists
of its own capabilities and its subordinates' maps. Adding or removing an agent creates new maps
only on its path to the root; all others are shared with the previous map.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from echelons.capabilities.capability import DeclaredCapabilities
from echelons.capabilities.deriver import (
    Deriver,
    TreeDeriver,
    collect_texts,
    derive_from_names,
    get_capabilities,
)
from echelons.errors import UnknownPath, duplicate_name, invalid_subordinate
from echelons.text.sanitize import join_printable
from echelons.text.stemming import extract_words
from echelons.tree.drawing import draw_branches
from echelons.tree.members import Member
from echelons.tree.names import PATH_SEPARATOR


@dataclass(frozen=True, slots=True, repr=False)
class CapabilityMap:
    """The capabilities of an agent and of everything below it.

    Attributes:
        agent: The agent's name.
        capabilities: Its own, as confidences by name; `capabilities.full` has the examples.
        derived: Whether they were derived, because it declares none.
        texts: Descriptions of the agent and its tools, and its prompt if `derived`.
        subordinates: The maps of its subordinates, in order.
        total_depth: Levels below it; 0 for a leaf.

    Examples:
        >>> from echelons import Agent
        >>> eat = Agent("restaurants", capabilities={"dining": 0.9, "food": 0.8})
        >>> print(CapabilityMap.discover(Agent("head", subordinates=[eat])))
        head: head (0.8, derived)
        └── restaurants: dining (0.9), food (0.8)
    """

    agent: str
    capabilities: DeclaredCapabilities
    derived: bool = False
    texts: tuple[str, ...] = ()
    subordinates: tuple[CapabilityMap, ...] = ()
    total_depth: int = 0

    @property
    def passes_on(self) -> bool:
        """Whether all it has are subordinates and a capability derived from its own name."""
        name = " ".join(extract_words(self.agent))
        return self.derived and bool(self.subordinates) and [*self.capabilities] == [name]

    @classmethod
    def discover(cls, member: Member, deriver: Deriver = derive_from_names) -> CapabilityMap:
        """Return the map of the tree under `member`.

        Args:
            member: The root of the tree.
            deriver: Derives the capabilities of agents that declare none.
        """
        if isinstance(deriver, TreeDeriver):
            deriver.learn(member)
        return cls._discover(member, deriver)

    @classmethod
    async def adiscover(cls, member: Member, deriver: Deriver = derive_from_names) -> CapabilityMap:
        """Async version of `discover`."""
        if isinstance(deriver, TreeDeriver):
            await deriver.alearn(member)
        return cls._discover(member, deriver)

    def add(
        self, superior: Sequence[str] | str, member: Member, deriver: Deriver = derive_from_names
    ) -> CapabilityMap:
        """Return the map with `member` added as the last subordinate of `superior`.

        The name must be unique on this path and among the new siblings; only `Agent` checks
        whole trees.

        Args:
            superior: The path from this map's agent: `"head/experiences"`, or the names.
            member: The new subordinate, with everything below it.
            deriver: As for `discover`.

        Raises:
            UnknownPath: There is no agent at that path.
            ConfigurationError: The name is already on the path or among the siblings.
        """
        path = self._split_path(superior)
        return self._add_at(path, CapabilityMap.discover(member, deriver), self.agent)

    def remove(self, agent: Sequence[str] | str) -> CapabilityMap:
        """Return the map without an agent and everything below it.

        Args:
            agent: The path from this map's agent: `"head/experiences"`, or the names.

        Raises:
            UnknownPath: There is no agent at that path.
            ConfigurationError: It is this map's own agent.
        """
        path = self._split_path(agent)
        if not path:
            why = "the map is its own; name an agent below it"
            raise invalid_subordinate(self.agent, self.agent, why)
        return self._remove_at(path, self.agent)

    def walk(
        self, parents: tuple[str, ...] = ()
    ) -> Iterator[tuple[tuple[str, ...], CapabilityMap]]:
        """Yield this map and all below with their paths, depth first, subordinates in order."""
        stack: list[tuple[tuple[str, ...], CapabilityMap]] = [((*parents, self.agent), self)]
        while stack:
            path, item = stack.pop()
            yield path, item
            stack.extend(((*path, sub.agent), sub) for sub in reversed(item.subordinates))

    def to_json(self) -> dict[str, Any]:
        """Return the map as JSON, subordinates nested."""
        return {
            "agent": self.agent,
            "derived": self.derived,
            "total_depth": self.total_depth,
            "capabilities": {
                name: {"confidence": item.confidence, "examples": list(item.examples)}
                for name, item in self.capabilities.full.items()
            },
            "subordinates": [subordinate.to_json() for subordinate in self.subordinates],
        }

    def __str__(self) -> str:
        return "\n".join(self._draw_lines())

    def __repr__(self) -> str:
        return f"<CapabilityMap of {self.agent}, {self.total_depth} levels below>"

    @classmethod
    def _discover(cls, member: Member, deriver: Deriver) -> CapabilityMap:
        declared, derived = get_capabilities(member, deriver)
        below = tuple(cls._discover(subordinate, deriver) for subordinate in member.subordinates)
        return cls(member.name, declared, derived, collect_texts(member))._with_subordinates(below)

    def _with_subordinates(self, subordinates: tuple[CapabilityMap, ...]) -> CapabilityMap:
        depth = max((subordinate.total_depth + 1 for subordinate in subordinates), default=0)
        return replace(self, subordinates=subordinates, total_depth=depth)

    def _split_path(self, given: Sequence[str] | str) -> list[str]:
        """Return the names of a path below this map's agent, without its own."""
        path = given.split(PATH_SEPARATOR) if isinstance(given, str) else list(given)
        if not path or path[0] != self.agent:
            raise UnknownPath(PATH_SEPARATOR.join(path), [self.agent])
        return path[1:]

    def _add_at(self, path: Sequence[str], new: CapabilityMap, here: str) -> CapabilityMap:
        names = [subordinate.agent for subordinate in self.subordinates]
        if new.agent == self.agent or (not path and new.agent in names):
            raise duplicate_name(new.agent, (here, f"{here}{PATH_SEPARATOR}{new.agent}"))
        if not path:
            return self._with_subordinates((*self.subordinates, new))
        below = f"{here}{PATH_SEPARATOR}{path[0]}"
        place = self._find_place(path[0], below)
        return self._replace_at(place, self.subordinates[place]._add_at(path[1:], new, below))

    def _remove_at(self, path: Sequence[str], here: str) -> CapabilityMap:
        below = f"{here}{PATH_SEPARATOR}{path[0]}"
        place = self._find_place(path[0], below)
        if len(path) == 1:
            return self._replace_at(place)
        return self._replace_at(place, self.subordinates[place]._remove_at(path[1:], below))

    def _find_place(self, name: str, path: str) -> int:
        names = [subordinate.agent for subordinate in self.subordinates]
        if name not in names:
            raise UnknownPath(path, names)
        return names.index(name)

    def _replace_at(self, place: int, *new: CapabilityMap) -> CapabilityMap:
        return self._with_subordinates(
            (*self.subordinates[:place], *new, *self.subordinates[place + 1 :])
        )

    def _draw_lines(self) -> list[str]:
        how = ", derived" if self.derived else ""
        listed: list[str] = []
        for name, item in self.capabilities.full.items():
            count = len(item.examples)
            examples = f", {count} example{'s' if count > 1 else ''}" if count else ""
            listed.append(f"{join_printable(name)} ({item.confidence:g}{how}{examples})")
        line = f"{self.agent}: {', '.join(listed)}" if listed else self.agent
        return [
            line,
            *draw_branches([subordinate._draw_lines() for subordinate in self.subordinates]),
        ]
