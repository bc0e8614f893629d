"""Splits a task that needs several agents into parts, one for each agent.

The split is a generator: it yields the texts to be ranked, is sent their routes and returns the
parts. So the same code serves the synchronous and the asynchronous `Router`, which does the
ranking. Which agents the words name is read by `agent_mentions`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from echelons.routing.route import Candidate, Route

if TYPE_CHECKING:
    from echelons.routing.agent_mentions import TaskClause

NEARLY_BEST: Final = 0.75
"""Fraction of the best match; an agent that reaches it in every clause can do the whole task."""


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a task for one agent.

    Attributes:
        task: Its clauses; of a clause for several agents only the words that name this one. An
            only part has the whole task.
        candidate: The agent that it is for.
        route: The ranking of its clause, for when that agent cannot do it; without the agents
            that other words of the clause name.
    """

    task: str
    candidate: Candidate
    route: Route


SplitPlan = Generator[str, Route, tuple[Part, ...]]
"""A generator that yields texts to be ranked, is sent their routes, and returns the parts."""


class SplitSteps:
    """A split in progress; the caller ranks each text, synchronously or not.

    Attributes:
        next_text: The text to rank next; empty when the parts are known.
        parts: The parts, once known.
    """

    def __init__(self, steps: SplitPlan) -> None:
        self._steps = steps
        self.parts: tuple[Part, ...] = ()
        # Where no clause requests anything, there is nothing to rank and there are no parts.
        self.next_text = next(steps, "")

    def add_route(self, route: Route) -> None:
        """Continue with the route of the text in `next_text`."""
        try:
            self.next_text = self._steps.send(route)
        except StopIteration as ended:
            self.next_text, self.parts = "", ended.value


@dataclass(frozen=True, slots=True)
class _ClausePiece:
    """The words of a clause for one agent; without a candidate if no agent can do them."""

    said: str
    route: Route
    candidate: Candidate | None


def plan_parts(task: str, clauses: Sequence[TaskClause]) -> SplitPlan:
    """Split `task`, with one route for each of its clauses."""
    routes: dict[str, Route] = {}
    for clause in clauses:
        if clause.is_requested and clause.text not in routes:
            routes[clause.text] = yield clause.text
    pieces = [piece for each in clauses for piece in _split_clause(each, routes)]
    parts = tuple(_merge_pieces(pieces))
    if len(parts) < 2:
        return tuple(replace(part, task=task) for part in parts)
    if len(routes) > 1 and (able := _find_able_of_all(list(routes.values()))):
        route = yield task
        if found := next((each for each in route.candidates if each.agent in able), None):
            return (Part(task, found, route),)
    return parts


def _split_clause(clause: TaskClause, routes: dict[str, Route]) -> Iterator[_ClausePiece]:
    route = routes.get(clause.text) if clause.is_requested else None
    if route is None:
        return
    candidates = {each.agent: each for each in route.candidates}
    named = {agent: said for agent, said in clause.agent_words.items() if agent in candidates}
    if not named or _has_better_agent(route, named):
        yield _ClausePiece(clause.text, route, route.best)
        return
    if len(named) == 1:
        agent = next(iter(named))
        yield _ClausePiece(clause.text, route.with_leader(agent), candidates[agent])
        return
    for agent, said in named.items():
        others = {other for other, words in named.items() if words != said}
        led = route.with_leader(agent, without=others)
        yield _ClausePiece(", ".join(said), led, candidates[agent])


def _has_better_agent(route: Route, named: dict[str, tuple[str, ...]]) -> bool:
    """Return whether the best candidate fits a clause far better than the agents its words name."""
    most = max(route.candidates, key=lambda each: each.match)
    known = max(each.match for each in route.candidates if each.agent in named)
    return most is route.best and known < NEARLY_BEST * most.match


def _find_able_of_all(routes: Sequence[Route]) -> set[str]:
    """Return the names of agents nearly the best in all clauses that have candidates."""
    ables = [
        {each.agent for each in route.candidates if each.match >= NEARLY_BEST * route.match}
        for route in routes
        if route.candidates
    ]
    return set.intersection(*ables) if ables else set()


def _merge_pieces(pieces: Sequence[_ClausePiece]) -> Iterator[Part]:
    """Yield a part for each agent; a piece without candidate joins the piece before it."""
    said: dict[str, list[str]] = {}
    first: dict[str, tuple[Candidate, Route]] = {}
    agent = next((piece.candidate.agent for piece in pieces if piece.candidate), "")
    for piece in pieces:
        if piece.candidate:
            agent = piece.candidate.agent
            first.setdefault(agent, (piece.candidate, piece.route))
        said.setdefault(agent, []).append(piece.said)
    for agent, (candidate, route) in first.items():
        yield Part(", ".join(dict.fromkeys(said[agent])), candidate, route)
