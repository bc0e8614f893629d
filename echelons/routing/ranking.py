"""Ranks the agents of a tree for a task, by the matches of one matcher.

`Router` has one ranking with its matcher, and one that compares words, for when the first fails.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Final, NamedTuple

from echelons.errors import MatcherFailed
from echelons.routing.matcher import Match, Matcher
from echelons.routing.profile_index import ProfileIndex
from echelons.routing.route import Candidate, Route

DEPTH_PENALTY: Final = 0.1
"""Deduction for each level between receiver and agent: the closer of two equals is asked."""


class RoutingQuery(NamedTuple):
    """A task to rank agents for.

    Attributes:
        task: The task.
        receiver: The position of the agent that has the request.
        without: Names of agents that are no candidates.
    """

    task: str
    receiver: int
    without: Collection[str]


class Ranking:
    """Ranks a receiver and all agents below it.

    Args:
        tree: The profiles of the tree.
        matcher: Rates how well each agent fits.
        threshold: The match that an agent needs, from 0 to 1.
    """

    def __init__(self, tree: ProfileIndex, matcher: Matcher, threshold: float) -> None:
        self._tree = tree
        self._threshold = threshold
        self._name = type(matcher).__name__
        self._prepared = matcher.prepare(tree.profiles)

    def rank(self, query: RoutingQuery) -> Route:
        """Return the route for a task.

        Raises:
            MatcherFailed: The matcher returned something other than matches.
            Exception: Any exception of the matcher.
        """
        return self._build_route(query, self._prepared.match(query.task))

    async def arank(self, query: RoutingQuery) -> Route:
        """Async version of `rank`."""
        return self._build_route(query, await self._prepared.amatch(query.task))

    def _build_route(self, query: RoutingQuery, matches: Mapping[int, Match]) -> Route:
        if not isinstance(matches, Mapping):
            raise MatcherFailed(self._name, f"{matches!r:.200} are no matches by place")
        receiver = self._tree.paths[query.receiver]
        ranked: list[Candidate] = []
        for place in (query.receiver, *self._tree.get_subtree(query.receiver)):
            path = self._tree.paths[place]
            if place not in matches or path[-1] in query.without:
                continue
            match = self._check_match(matches[place])
            if match.value > 0:
                depth = len(path) - len(receiver)
                score = match.confidence * match.value - DEPTH_PENALTY * depth
                ranked.append(Candidate(path, depth, *match, round(score, 12), place))
        ranked.sort(key=lambda each: (-each.score, each.path))
        return Route(
            query.task,
            receiver,
            self._threshold,
            tuple(each for each in ranked if each.match >= self._threshold),
            tuple(each for each in ranked if each.match < self._threshold),
            _reasons=partial(self._prepared.reasons, query.task),
        )

    def _check_match(self, match: Match) -> Match:
        if not isinstance(match, Match) or not all(0 <= value <= 1 for value in match):
            raise MatcherFailed(self._name, f"{match!r:.200} is no match within 0 and 1")
        return match
