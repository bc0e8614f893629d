"""Ranks the agents of a tree for a task, by the matches of one matcher.

`Router` has one ranking with its matcher, and one that compares words, for when the first fails.
Matchers get the profiles of the tree and refer to agents by position.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from echelons.capabilities import Capability, CapabilityMap, DeclaredCapabilities
from echelons.errors import RoutingError, UnknownPath, matcher_failed
from echelons.routing.matcher import Match, Matcher, Profile
from echelons.routing.route import Candidate, Route
from echelons.text.error_lines import describe_failure
from echelons.tree.names import PATH_SEPARATOR

DEPTH_PENALTY: Final = 0.1
"""Deduction for each level between receiver and agent: the closer of two equals is asked."""

PASSED_ON_FACTOR: Final = 0.5
"""Factor on the confidence of a superior known by its name only, as others do the work."""


class ProfileIndex:
    """The agents of a tree by position, name and path, superiors first: a subtree is a range.

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


class RoutingQuery(NamedTuple):
    """A task that the agent at the position `receiver` has, and names that are no candidates."""

    task: str
    receiver: int
    without: Collection[str]


class Ranking:
    """Ranks a receiver and all agents below it, each of which needs a match of `threshold`.

    Raises:
        RoutingError: The matcher could not prepare the profiles.
    """

    def __init__(self, tree: ProfileIndex, matcher: Matcher, threshold: float) -> None:
        self._tree = tree
        self._threshold = threshold
        self._name = type(matcher).__name__
        try:
            self._prepared = matcher.prepare(tree.profiles)
        except RoutingError:
            raise
        except Exception as error:
            raise matcher_failed(self._name, describe_failure(error, "matcher_failed")) from error

    def rank(self, query: RoutingQuery) -> Route:
        """Return the route for a task.

        Raises:
            RoutingError: The matcher returned something other than matches.
            Exception: Any exception of the matcher.
        """
        return self._build_route(query, self._prepared.match(query.task))

    async def arank(self, query: RoutingQuery) -> Route:
        """Async version of `rank`."""
        return self._build_route(query, await self._prepared.amatch(query.task))

    def _build_route(self, query: RoutingQuery, matches: Mapping[int, Match]) -> Route:
        if not isinstance(matches, Mapping):
            raise matcher_failed(self._name, f"{matches!r:.200} are no matches by place")
        receiver = self._tree.paths[query.receiver]
        ranked: list[Candidate] = []
        for place in (query.receiver, *self._tree.get_subtree(query.receiver)):
            path = self._tree.paths[place]
            if place not in matches or path[-1] in query.without:
                continue
            match = matches[place]
            if not isinstance(match, Match) or not all(0 <= value <= 1 for value in match):
                raise matcher_failed(self._name, f"{match!r:.200} is no match within 0 and 1")
            if match.value > 0:
                depth = len(path) - len(receiver)
                score = match.confidence * match.value - DEPTH_PENALTY * depth
                ranked.append(Candidate(path, depth, *match, round(score, 12), place))
        ranked.sort(key=lambda each: (-each.score, each.path))
        fitting = tuple(each for each in ranked if each.match >= self._threshold)
        short = tuple(each for each in ranked if each.match < self._threshold)
        why = partial(self._prepared.reasons, query.task)
        return Route(query.task, receiver, self._threshold, fitting, short, _reasons=why)
