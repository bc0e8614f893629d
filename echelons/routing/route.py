"""`Route`: the agents found for a task, ranked, with reasons. `Router` makes one for each task."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

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
        return max((each.match for each in (*self.candidates, *self.short)), default=0.0)

    def with_leader(self, agent: str, *, without: Collection[str] = ()) -> Route:
        """Return the route with candidate `agent` first, and without the agents in `without`."""
        kept = [each for each in self.candidates if each.agent not in without]
        # Sorting is stable: all others keep their order.
        return replace(self, candidates=tuple(sorted(kept, key=lambda each: each.agent != agent)))

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
        lines += [f"{at:3}. {self._format_candidate(each)}" for at, each in enumerate(shown, 1)]
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
            "candidates": [to_json(each) for each in self.candidates[:MAX_EXPLAINED]],
            "short": [to_json(each) for each in self.short[:MAX_EXPLAINED]],
        }

    def _format_candidate(self, each: Candidate) -> str:
        return f"{PATH_SEPARATOR.join(each.path)}: {self.explain_candidate(each)}"

    def _candidate_to_json(self, each: Candidate) -> dict[str, Any]:
        return {
            "path": PATH_SEPARATOR.join(each.path),
            "depth": each.depth,
            "confidence": round(each.confidence, 4),
            "match": round(each.match, 4),
            "score": round(each.score, 4),
            "reasons": list(self.reasons(each)),
        }


def _shorten_task(text: str, longest: int = 80) -> str:
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
