"""``Router``: ranks the agents of a tree for a task.

The rule is one line: ``confidence * match - 0.1 * depth``, for the receiver itself at depth 0 and
for everybody below it. The matcher says the match; everything else is here, and pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from echelons.capabilities import Capability, CapabilityMap, Declared
from echelons.errors import InvalidTask, InvalidThreshold, MatcherFailed, UnknownAgent
from echelons.names import PATH_SEPARATOR
from echelons.routing.lexical import LexicalMatcher
from echelons.routing.matcher import Match, Matcher, Prepared, Profile
from echelons.routing.route import Candidate, Route
from echelons.routing.splitting import Part, shares, statements, team_of

if TYPE_CHECKING:
    from echelons.models.planner.team import Team

DEPTH_PENALTY: Final = 0.1
"""What every level between receiver and agent costs: the closer of two equals is asked."""

PASSED_ON: Final = 0.5
"""Of its confidence, for a superior that is known by its name only: others do what it says."""


class Router:
    """Finds who fits a task, anywhere in a tree.

    Args:
        tree: What everybody can do.
        matcher: Says how well somebody fits; the words of both are compared if left out.
        threshold: The match, from 0 to 1, that somebody needs; the matcher's own if left out.
            It is held against the match alone: who is far away, or modest, can still be the only
            one who can.

    Raises:
        InvalidThreshold: The threshold is no number from 0 to 1.

    Examples:
        >>> from echelons import Agent
        >>> eat = Agent("restaurants", capabilities={"food": 0.9})
        >>> fly = Agent("flights", capabilities={"flights": 0.9})
        >>> router = Router(CapabilityMap.discover(Agent("head", subordinates=[eat, fly])))
        >>> router.route("Find me a flight to Rome").best.path
        ('head', 'flights')
        >>> router.route("What is the weather like?").best is None
        True
    """

    def __init__(
        self, tree: CapabilityMap, matcher: Matcher | None = None, threshold: float | None = None
    ) -> None:
        self.tree = tree
        self.matcher: Matcher = matcher or LexicalMatcher()
        self.threshold = _checked(self.matcher.threshold if threshold is None else threshold)
        self._profiles = [_profile(path, each) for path, each in tree.walk()]
        self._paths = [profile.path for profile in self._profiles]
        self._places = {path[-1]: place for place, path in enumerate(self._paths)}
        self._sizes = _sizes(self._paths)
        self._teams: dict[int, Team] = {}
        self._prepared: Prepared = self.matcher.prepare(self._profiles)

    def route(
        self, task: str, receiver: str | Sequence[str] = (), *, without: Collection[str] = ()
    ) -> Route:
        """Rank the receiver and everybody below it for ``task``.

        Args:
            task: What is asked for.
            receiver: Name or path of the agent that has the request; the root if left out.
            without: Names of agents that are no candidates: the caller of its own request, and
                who has been asked before.

        Raises:
            InvalidTask: The task is no text, or blank.
            UnknownAgent: There is no such receiver.
            MatcherFailed: The matcher said something that is no match.
        """
        place = self._receiver(task, receiver)
        return self._ranked(task, place, without, self._prepared.match(task))

    async def aroute(
        self, task: str, receiver: str | Sequence[str] = (), *, without: Collection[str] = ()
    ) -> Route:
        """Do the same, without blocking the event loop while the matcher waits."""
        place = self._receiver(task, receiver)
        return self._ranked(task, place, without, await self._prepared.amatch(task))

    def split(
        self, task: str, receiver: str | Sequence[str] = (), *, without: Collection[str] = ()
    ) -> tuple[Part, ...]:
        """Take ``task`` apart by who can do what of it.

        By the capabilities that its words name, for everybody below the receiver, by the rules
        of the offline planner: what is refused or settled is nobody's part. Where
        no capability is named, each clause is routed by itself. The receiver gets no part: it
        is the one who splits.

        Returns:
            The parts, each with who is meant and the ranking for it, nobody meant twice; none
            if nobody can do any of it.

        Raises:
            InvalidTask: The task is no text, or blank.
            UnknownAgent: There is no such receiver.
            MatcherFailed: The matcher said something that is no match.
        """
        place = self._receiver(task, receiver)
        kept = {*without, self._paths[place][-1]}
        path = self._paths[place]
        if named := self._parts(shares(self._team(place), task), path, kept):
            return named
        routes = [self.route(each, path, without=kept) for each in statements(task)]
        meant = {each.best.agent: each for each in reversed(routes) if each.best}
        if len(meant) > 1:
            first = [each for each in routes if each in meant.values()]
            return tuple(Part(each.task, each.best, each) for each in first if each.best)
        whole = self.route(task, path, without=kept)
        return (Part(task, whole.best, whole),) if whole.best else ()

    def _parts(
        self, meant: Sequence[tuple[str, str]], path: tuple[str, ...], without: Collection[str]
    ) -> tuple[Part, ...]:
        parts: list[Part] = []
        for agent, said in meant:
            route = self.route(said, path, without=without)
            found = next((each for each in route.candidates if each.agent == agent), None)
            if found:
                parts.append(Part(said, found, route))
        return tuple(parts)

    def _team(self, place: int) -> Team:
        if place not in self._teams:
            below = range(place + 1, place + self._sizes[place])
            self._teams[place] = team_of([self._profiles[each] for each in below])
        return self._teams[place]

    def _receiver(self, task: object, receiver: str | Sequence[str]) -> int:
        if not isinstance(task, str) or not task.strip():
            raise InvalidTask(task)
        path = receiver.split(PATH_SEPARATOR) if isinstance(receiver, str) else list(receiver)
        if not path:
            return 0
        place = self._places.get(path[-1])
        # A name alone will do; a path must be the agent's own.
        if place is None or (len(path) > 1 and tuple(path) != self._paths[place]):
            raise UnknownAgent(PATH_SEPARATOR.join(path), list(self._places))
        return place

    def _ranked(
        self, task: str, receiver: int, without: Collection[str], matches: Mapping[int, Match]
    ) -> Route:
        top = len(self._paths[receiver])
        ranked: list[Candidate] = []
        for place in range(receiver, receiver + self._sizes[receiver]):
            match = matches.get(place)
            if match is None or self._paths[place][-1] in without:
                continue
            self._check(match)
            if match.value > 0:
                path = self._paths[place]
                depth = len(path) - top
                score = match.confidence * match.value - DEPTH_PENALTY * depth
                ranked.append(Candidate(path, depth, *match, round(score, 12), place))
        ranked.sort(key=lambda each: (-each.score, each.path))
        return Route(
            task,
            self._paths[receiver],
            self.threshold,
            tuple(each for each in ranked if each.match >= self.threshold),
            tuple(each for each in ranked if each.match < self.threshold),
            partial(self._prepared.reasons, task),
        )

    def _check(self, match: Match) -> None:
        if not all(0 <= value <= 1 for value in match):
            raise MatcherFailed(type(self.matcher).__name__, f"{match!r} is not within 0 and 1")


def _checked(threshold: float) -> float:
    number = isinstance(threshold, (int, float)) and not isinstance(threshold, bool)
    if not number or not 0 <= threshold <= 1:
        raise InvalidThreshold(threshold)
    return float(threshold)


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
