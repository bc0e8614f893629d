"""Candidates for a task, ranked: what a router returns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, NamedTuple

from echelons.capabilities import Capability, CapabilityMap, DeclaredCapabilities
from echelons.errors import RoutingError, UnknownPath, matcher_failed
from echelons.routing.matcher import Match, Matcher, Profile
from echelons.text.error_lines import describe_failure
from echelons.tree.names import PATH_SEPARATOR

MAX_EXPLAINED = 10
"""Candidates shown in an explanation."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An agent that fits a task.

    Attributes:
        path: Names from the root down to it.
        depth: Levels below the receiver; 0 for the receiver itself.
        match: How well it fits according to the matcher, from 0 to 1.
        confidence: Its declared confidence in the capability that the task is about.
        score: `confidence * match - 0.1 * depth`.
        place: Its position among the profiles of the tree, superiors first.
    """

    path: tuple[str, ...]
    depth: int
    match: float
    confidence: float
    score: float
    place: int

    @property
    def agent(self) -> str:
        """Its name."""
        return self.path[-1]


@dataclass(frozen=True, slots=True)
class Route:
    """The ranking of a task at a receiver.

    Attributes:
        task: The task.
        receiver: Path of the agent that has the request.
        threshold: The match that an agent needs.
        candidates: The agents that reach the threshold, the best first.
        short: The agents that match but stay below the threshold, the best first.
        fallback: Why words were compared instead of using the matcher; empty if it succeeded.

    Examples:
        >>> from echelons import Agent
        >>> from echelons.capabilities import CapabilityMap
        >>> from echelons.routing import Router
        >>> eat = Agent("restaurants", capabilities={"food": 0.9})
        >>> router = Router(CapabilityMap.discover(Agent("head", subordinates=[eat])))
        >>> print(router.route("Where is good food?").explain())
        at head, for "Where is good food?": restaurants
          1. head/restaurants: 0.35 = 0.9 * 0.50 - 0.1 * 1; words: food
    """

    task: str
    receiver: tuple[str, ...]
    threshold: float
    candidates: tuple[Candidate, ...]
    short: tuple[Candidate, ...] = ()
    fallback: str = ""
    _reasons: Callable[[int], Sequence[str]] = field(
        default=lambda _: (), repr=False, compare=False
    )

    @property
    def best(self) -> Candidate | None:
        """The first candidate, or None if there is none."""
        return self.candidates[0] if self.candidates else None

    @property
    def match(self) -> float:
        """The best match, agents below the threshold included; 0 if no agent matches."""
        return max((candidate.match for candidate in (*self.candidates, *self.short)), default=0.0)

    def with_leader(self, agent: str, *, without: Collection[str] = ()) -> Route:
        """Return the route with candidate `agent` first, and without the agents in `without`."""
        kept = [candidate for candidate in self.candidates if candidate.agent not in without]
        # Sorting is stable: all others keep their order.
        return replace(self, candidates=tuple(sorted(kept, key=lambda item: item.agent != agent)))

    def reasons(self, candidate: Candidate) -> Sequence[str]:
        """Return readable reasons why the task matches a candidate."""
        try:
            return list(self._reasons(candidate.place))
        except Exception as error:  # noqa: BLE001 - a matcher of the user's own raises anything
            return [f"no reasons: {describe_failure(error, 'matcher_failed')}"]

    def explain_candidate(self, candidate: Candidate) -> str:
        """Return the terms of a candidate's score and the reasons, on one line."""
        terms = f"{candidate.confidence:.2g} * {candidate.match:.2f} - 0.1 * {candidate.depth}"
        why = "".join(f"; {reason}" for reason in self.reasons(candidate))
        return f"{candidate.score:.2f} = {terms}{why}"

    def explain(self) -> str:
        """Return the ranking as text, with the terms of each score and the reasons."""
        best = self.best.agent if self.best else "no agent"
        at = PATH_SEPARATOR.join(self.receiver)
        lines = [f'at {at}, for "{_shorten_task(self.task)}": {best}']
        shown = self.candidates[:MAX_EXPLAINED]
        lines += [
            f"{at:3}. {self._format_candidate(candidate)}" for at, candidate in enumerate(shown, 1)
        ]
        if more := len(self.candidates) - len(shown):
            lines.append(f"     and {more} more")
        if self.short:
            below = f"{len(self.short)} below the threshold {self.threshold:g}"
            lines.append(f"  {below}; the nearest: {self._format_candidate(self.short[0])}")
        if self.fallback:
            lines.append(f"  by words alone, for {self.fallback}")
        return "\n".join(lines)

    def json(self) -> dict[str, Any]:
        """Return the ranking as a JSON-compatible dict."""
        to_json = self._candidate_to_json
        return {
            "task": self.task,
            "receiver": PATH_SEPARATOR.join(self.receiver),
            "threshold": self.threshold,
            "fallback": self.fallback,
            "candidates": [to_json(candidate) for candidate in self.candidates[:MAX_EXPLAINED]],
            "short": [to_json(candidate) for candidate in self.short[:MAX_EXPLAINED]],
        }

    def _format_candidate(self, candidate: Candidate) -> str:
        return f"{PATH_SEPARATOR.join(candidate.path)}: {self.explain_candidate(candidate)}"

    def _candidate_to_json(self, candidate: Candidate) -> dict[str, Any]:
        return {
            "path": PATH_SEPARATOR.join(candidate.path),
            "depth": candidate.depth,
            "confidence": round(candidate.confidence, 4),
            "match": round(candidate.match, 4),
            "score": round(candidate.score, 4),
            "reasons": list(self.reasons(candidate)),
        }


def _shorten_task(text: str, longest: int = 80) -> str:
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


DEPTH_PENALTY: Final = 0.1
"""Deduction for each level between receiver and agent: the closer of two equals is asked."""

PASSED_ON_FACTOR: Final = 0.5
"""Factor on the confidence of a superior known by its name only, as others do the work."""


class ProfileIndex:
    """The agents of a tree by position, name and path, superiors first: a subtree is a range."""

    def __init__(self, tree: CapabilityMap) -> None:
        self.profiles = [_build_profile(path, candidate) for path, candidate in tree.walk()]
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


def _build_profile(path: tuple[str, ...], capability_map: CapabilityMap) -> Profile:
    capabilities = capability_map.capabilities
    if capability_map.passes_on:
        capabilities = DeclaredCapabilities(
            {
                name: Capability(PASSED_ON_FACTOR * candidate)
                for name, candidate in capabilities.items()
            }
        )
    return Profile(path, capabilities, capability_map.derived, capability_map.texts)


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
        except Exception as error:
            if isinstance(error, RoutingError) and error.code == "matcher_failed":
                raise
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
        ranked.sort(key=lambda item: (-item.score, item.path))
        fitting = tuple(candidate for candidate in ranked if candidate.match >= self._threshold)
        short = tuple(candidate for candidate in ranked if candidate.match < self._threshold)
        why = partial(self._prepared.reasons, query.task)
        return Route(query.task, receiver, self._threshold, fitting, short, _reasons=why)
