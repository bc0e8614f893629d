"""`Places`: the agents of a tree in one row, superiors first, so that a subtree is a range.

`Router` keeps one; matchers are given its profiles, and name agents by their places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from echelons.capabilities import Capability, CapabilityMap, Declared
from echelons.errors import UnknownAgent
from echelons.routing.matcher import Profile
from echelons.tree.names import PATH_SEPARATOR

PASSED_ON: Final = 0.5
"""Of its confidence, for a superior that is known by its name only: others do what it says."""


class Places:
    """Where everybody stands.

    Args:
        tree: What everybody can do.

    Attributes:
        profiles: What a matcher may know of each agent.
        paths: Names from the root down to each.
    """

    def __init__(self, tree: CapabilityMap) -> None:
        self.profiles = [_profile(path, each) for path, each in tree.walk()]
        self.paths = [profile.path for profile in self.profiles]
        self._names = {path[-1]: place for place, path in enumerate(self.paths)}
        self._sizes = _sizes(self.paths)

    def at(self, agent: str | Sequence[str]) -> int:
        """Return the place of an agent, by its name or its path; the root's for none.

        Raises:
            UnknownAgent: Nobody has that name, or stands at that path.
        """
        path = agent.split(PATH_SEPARATOR) if isinstance(agent, str) else list(agent)
        if not path:
            return 0
        place = self._names.get(path[-1])
        # A name alone will do; a path must be the agent's own.
        if place is None or (len(path) > 1 and tuple(path) != self.paths[place]):
            raise UnknownAgent(PATH_SEPARATOR.join(path), list(self._names))
        return place

    def below(self, place: int) -> range:
        """Return the places of everybody below an agent."""
        return range(place + 1, place + self._sizes[place])


def _profile(path: tuple[str, ...], known: CapabilityMap) -> Profile:
    capabilities = known.capabilities
    if known.passes_on:
        capabilities = Declared(
            {name: Capability(PASSED_ON * each) for name, each in capabilities.items()}
        )
    return Profile(path, capabilities, known.derived, known.texts)


def _sizes(paths: Sequence[tuple[str, ...]]) -> list[int]:
    """Return for each place how many agents its subtree has, itself included."""
    sizes = [1] * len(paths)
    last: dict[int, int] = {}
    superior: list[int] = []
    for place, path in enumerate(paths):
        superior.append(last.get(len(path) - 1, -1))
        last[len(path)] = place
    for place in range(len(paths) - 1, 0, -1):
        sizes[superior[place]] += sizes[place]
    return sizes
