"""The profiles of a tree in preorder, superiors first, so that a subtree is a range.

`Router` keeps one index; matchers get its profiles and refer to agents by position.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from echelons.capabilities import Capability, CapabilityMap, DeclaredCapabilities
from echelons.errors import UnknownPath
from echelons.routing.matcher import Profile
from echelons.tree.names import PATH_SEPARATOR

PASSED_ON_FACTOR: Final = 0.5
"""Factor on the confidence of a superior known by its name only, as others do the work."""


class ProfileIndex:
    """The agents of a tree by position, name and path.

    Args:
        tree: The capabilities of all agents.

    Attributes:
        profiles: The profile of each agent.
        paths: The path of each agent: the names from the root down to it.
    """

    def __init__(self, tree: CapabilityMap) -> None:
        self.profiles = [_build_profile(path, each) for path, each in tree.walk()]
        self.paths = [profile.path for profile in self.profiles]
        self._names = {path[-1]: place for place, path in enumerate(self.paths)}
        self._sizes = _count_subtrees(self.paths)

    def find_position(self, agent: str | Sequence[str]) -> int:
        """Return the position of an agent by its name or path; the root's if it is empty.

        Raises:
            UnknownPath: No agent has that name or path.
        """
        path = agent.split(PATH_SEPARATOR) if isinstance(agent, str) else list(agent)
        if not path:
            return 0
        place = self._names.get(path[-1])
        # A name alone is enough, as names are unique; a path must be the agent's own.
        if place is None or (len(path) > 1 and tuple(path) != self.paths[place]):
            raise UnknownPath(PATH_SEPARATOR.join(path), list(self._names))
        return place

    def get_subtree(self, place: int) -> range:
        """Return the positions of all agents below an agent."""
        return range(place + 1, place + self._sizes[place])


def _build_profile(path: tuple[str, ...], known: CapabilityMap) -> Profile:
    capabilities = known.capabilities
    if known.passes_on:
        capabilities = DeclaredCapabilities(
            {name: Capability(PASSED_ON_FACTOR * each) for name, each in capabilities.items()}
        )
    return Profile(path, capabilities, known.derived, known.texts)


def _count_subtrees(paths: Sequence[tuple[str, ...]]) -> list[int]:
    """Return the number of agents in the subtree at each position, its own root included."""
    sizes = [1] * len(paths)
    last: dict[int, int] = {}
    superior: list[int] = []
    for place, path in enumerate(paths):
        superior.append(last.get(len(path) - 1, -1))
        last[len(path)] = place
    for place in range(len(paths) - 1, 0, -1):
        sizes[superior[place]] += sizes[place]
    return sizes
