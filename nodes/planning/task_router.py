"""The router of a tree, created when the first task names no subordinate.

Most runs never route, and reading the capabilities of a tree takes longer than compiling it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from textwrap import shorten
from threading import Lock

from echelons.agent import Agent
from echelons.capabilities import CapabilityMap, Deriver, TreeDeriver
from echelons.delegation.candidates import Candidates
from echelons.delegation.policy import DelegationPolicy
from echelons.routing import Part, Route, Router
from echelons.routing.route import MAX_EXPLAINED
from echelons.text.redaction import Redactor

MAX_REASON = 200
"""The most characters stored of why an agent was asked."""


@dataclass(frozen=True, slots=True)
class RoutedTask:
    """A task, or a part of one, with the candidates for it.

    Attributes:
        task: The task.
        route: The ranking.
        candidates: The paths to all candidates, relative to the receiver.
    """

    task: str
    route: Route
    candidates: Candidates

    def prefer_idle(self, at_work: Collection[str]) -> RoutedTask:
        """Return it with the agents in `at_work` behind all others of the same score."""
        above, ahead = len(self.route.receiver), self.candidates.remaining
        scores = {each.path[above:]: each.score for each in self.route.candidates}
        idle_first = tuple(
            way
            for _, equals in groupby(ahead, scores.__getitem__)
            for way in sorted(equals, key=lambda way: way[-1] in at_work)
        )
        return replace(self, candidates=replace(self.candidates, remaining=idle_first))


class TaskRouter:
    """Finds candidates for tasks in one tree.

    Args:
        root: The root of the tree.
        policy: The root's delegation policy.
        resolve_deriver: Returns the deriver of the tree's capabilities, within a run.
        redactor: Returns the text of an exception without what must not be seen.
    """

    def __init__(
        self,
        root: Agent,
        policy: DelegationPolicy,
        resolve_deriver: Callable[[], Deriver],
        redactor: Redactor,
    ) -> None:
        self._root = root
        self._policy = policy
        self._resolve_deriver = resolve_deriver
        self._redactor = redactor
        self._lock = Lock()

    def route_task(self, task: str, receiver: str, *, max_parts: int) -> tuple[RoutedTask, ...]:
        """Return the candidates for a task, or for each of its parts, below a receiver.

        With more than `max_parts` parts the task stays whole.
        """
        router, without = self._get_router(), {receiver}
        found = router.split(task, receiver, without=without) if max_parts > 1 else ()
        if not 1 < len(found) <= max_parts:
            return (_build_routed_task(router, router.route(task, receiver, without=without)),)
        return tuple(_build_routed_task(router, each.route, each) for each in found)

    async def aroute_task(
        self, task: str, receiver: str, *, max_parts: int
    ) -> tuple[RoutedTask, ...]:
        """Async version of `route_task`."""
        # A model is asked here, without blocking the event loop when the router is created.
        if "_router" not in self.__dict__ and isinstance(self._deriver, TreeDeriver):
            await self._deriver.alearn(self._root)
        router, without = self._get_router(), {receiver}
        found = await router.asplit(task, receiver, without=without) if max_parts > 1 else ()
        if not 1 < len(found) <= max_parts:
            return (
                _build_routed_task(router, await router.aroute(task, receiver, without=without)),
            )
        return tuple(_build_routed_task(router, each.route, each) for each in found)

    def _get_router(self) -> Router:
        with self._lock:
            return self._router

    @cached_property
    def _router(self) -> Router:
        known = CapabilityMap.discover(self._root, self._deriver)
        policy = self._policy
        return Router(known, policy.matcher, policy.threshold, self._redactor)

    @cached_property
    def _deriver(self) -> Deriver:
        return self._resolve_deriver()


def _build_routed_task(router: Router, route: Route, part: Part | None = None) -> RoutedTask:
    """Return a route as candidates; for a part of a task, its own candidate comes first."""
    ranked = list(route.candidates)
    if part:
        ranked.sort(key=lambda each: each.agent != part.candidate.agent)
    task, above = part.task if part else route.task, len(route.receiver)
    needs = router.needs(task, route.receiver)
    able = {
        each.agent: tuple(name for name in needs if name in router.able(each.agent))
        for each in ranked
        if needs
    }
    reasons = {
        each.agent: shorten(route.explain_candidate(each), MAX_REASON, placeholder="…")
        for each in ranked[:MAX_EXPLAINED]
    }
    paths = tuple(each.path[above:] for each in ranked)
    return RoutedTask(task, route, Candidates(paths, needs, able, reasons))
