"""Splitting: the parts of a task that needs several agents, and who is meant by each.

`plan` says which texts are to be ranked and makes parts of the rankings; it waits for nothing.
`Router` runs it, with or without an event loop. What words name is read by the rules of the
offline planner, which splits tasks for a superior's direct subordinates; here they are asked for
everybody below a receiver (see `wording`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from echelons.routing.route import Candidate, Route
from echelons.routing.task_wording import Clause, Wording

NEARLY: Final = 0.75
"""Of the best match: who reaches it in every clause can do a task whole."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one agent is asked for.

    Attributes:
        task: What it is about: the clauses that are meant; of a clause for several agents the
            words that name this one. The only part has the task whole.
        candidate: Who is meant.
        route: Who else can do this part, for when that one cannot: the ranking of the clause
            that it stands in, without those who are meant for other words of it.
    """

    task: str
    candidate: Candidate
    route: Route


Plan = Generator[str, Route, tuple[Part, ...]]
"""Yields texts to be ranked, is sent their rankings, and returns the parts."""


class Splitting:
    """A plan while it is followed: whoever ranks, waits or not, as it must.

    Args:
        steps: The plan.

    Attributes:
        asked: The text whose ranking is needed next; empty when the parts are known.
        parts: The parts.
    """

    def __init__(self, steps: Plan) -> None:
        self._steps = steps
        self.asked = ""
        self.parts: tuple[Part, ...] = ()
        self._go_on(None)

    def take(self, route: Route) -> None:
        """Go on with the ranking of `asked`."""
        self._go_on(route)

    def _go_on(self, route: Route | None) -> None:
        try:
            self.asked = self._steps.send(route) if route else next(self._steps)
        except StopIteration as ended:
            self.asked, self.parts = "", ended.value


@dataclass(frozen=True, slots=True)
class _Piece:
    """What one clause has for one agent; nobody's, if none can do it."""

    said: str
    route: Route
    candidate: Candidate | None


def plan(task: str, wording: Wording) -> Plan:
    """Take `task` apart, with one ranking for each of its clauses.

    Args:
        task: The task.
        wording: Its clauses, and whom their words name.
    """
    routes: dict[str, Route] = {}
    for clause in wording.clauses:
        if clause.wished and clause.text not in routes:
            routes[clause.text] = yield clause.text
    pieces = [piece for each in wording.clauses for piece in _pieces(each, routes)]
    parts = tuple(_merged(pieces))
    if len(parts) < 2:
        return tuple(replace(part, task=task) for part in parts)
    if len(routes) > 1 and (able := _able_of_all(list(routes.values()))):
        route = yield task
        if found := next((each for each in route.candidates if each.agent in able), None):
            return (Part(task, found, route),)
    return parts


def _pieces(clause: Clause, routes: dict[str, Route]) -> Iterator[_Piece]:
    route = routes.get(clause.text) if clause.wished else None
    if route is None:
        return
    candidates = {each.agent: each for each in route.candidates}
    named = {agent: said for agent, said in clause.named.items() if agent in candidates}
    if not named or _better(route, named):
        yield _Piece(clause.text, route, route.best)
        return
    if len(named) == 1:
        agent = next(iter(named))
        yield _Piece(clause.text, route.led_by(agent), candidates[agent])
        return
    for agent, said in named.items():
        others = {other for other, words in named.items() if words != said}
        yield _Piece(", ".join(said), route.led_by(agent, without=others), candidates[agent])


def _better(route: Route, named: dict[str, tuple[str, ...]]) -> bool:
    """Whether somebody fits a clause as a whole much better than all whom single words name."""
    most = max(route.candidates, key=lambda each: each.match)
    known = max(each.match for each in route.candidates if each.agent in named)
    return most is route.best and known < NEARLY * most.match


def _able_of_all(routes: Sequence[Route]) -> set[str]:
    """Return who is nearly the best in all clauses that anybody can do."""
    ables = [
        {each.agent for each in route.candidates if each.match >= NEARLY * route.match}
        for route in routes
        if route.candidates
    ]
    return set.intersection(*ables) if ables else set()


def _merged(pieces: Sequence[_Piece]) -> Iterator[Part]:
    """Yield a part for each agent; what nobody can do goes with what stands before it."""
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
