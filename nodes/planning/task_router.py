"""The router of a tree, created when the first task names no subordinate.

Most runs never route, and reading the capabilities of a tree takes longer than compiling it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import groupby
from textwrap import shorten
from threading import Lock
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from langgraph.config import get_config

from echelons.agent import Agent
from echelons.capabilities import CapabilityMap, Deriver, TreeDeriver
from echelons.delegation.calls import Candidates
from echelons.delegation.policy import DelegationPolicy
from echelons.identity.failures import get_failure_log
from echelons.plans import Plan, PlanStep, arun_plan_steps, run_plan_steps
from echelons.routing import Part, Route, Router
from echelons.routing.ranking import MAX_EXPLAINED
from echelons.tree.members import walk_tree
from echelons.tree.names import PATH_SEPARATOR

MAX_REASON = 200
"""The most characters stored of why an agent was asked."""
MAX_EXTENDED = 32
"""Number of routers that are kept for an agent with those it has made; others are made again."""


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
        depth, ahead = len(self.route.receiver), self.candidates.remaining
        scores = {candidate.path[depth:]: candidate.score for candidate in self.route.candidates}
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
        resolve_deriver: Returns the deriver of the tree's capabilities, within a run, and the
            saver that it is for; `None` for any.
    """

    def __init__(
        self,
        root: Agent,
        policy: DelegationPolicy,
        resolve_deriver: Callable[[], tuple[Deriver, object | None]],
    ) -> None:
        self._root = root
        self._policy = policy
        self._resolve_deriver = resolve_deriver
        self._routers: WeakKeyDictionary[object, _LazyRouter] = WeakKeyDictionary()
        self._lock = Lock()
        # Reading the capabilities may ask a model: once for the same agents.
        self._extend = lru_cache(MAX_EXTENDED)(self._build_extended)

    def route_task(
        self,
        task: str,
        receiver: str,
        *,
        max_parts: int,
        added: Sequence[Agent] = (),
        closed: Collection[str] = (),
    ) -> Plan[tuple[RoutedTask, ...]]:
        """Return the candidates for a task, or for each of its parts, below a receiver.

        Args:
            task: The task.
            receiver: Name of the agent that has it.
            max_parts: With more parts the task stays whole.
            added: The receiver's subordinates beside the declared ones.
            closed: Paths below the receiver that take no task any more, each with all below it.
        """
        if added:
            routers = self._extend(receiver, (*added,))
            limits: Any = {"max_parts": max_parts, "closed": closed}
            return (yield from routers.route_task(task, receiver, **limits))
        deriver, saver = self._resolve_deriver()
        if isinstance(deriver, TreeDeriver) and self._get_lazy(saver).router is None:
            # A model is asked, without blocking the event loop when the router is created.
            yield PlanStep(
                partial(self._get_router, deriver, saver), partial(deriver.alearn, self._root)
            )
        router = self._get_router(deriver, saver)
        where: Any = {"without": self._list_left_out(receiver, closed)}
        parts: tuple[Part, ...] = ()
        if max_parts > 1:
            parts = yield PlanStep(
                partial(router.split, task, receiver, **where),
                partial(router.asplit, task, receiver, **where),
            )
        if 1 < len(parts) <= max_parts:
            return tuple(_build_routed_task(router, part.route, part) for part in parts)
        route = yield PlanStep(
            partial(router.route, task, receiver, **where),
            partial(router.aroute, task, receiver, **where),
        )
        return (_build_routed_task(router, route),)

    def _list_left_out(self, receiver: str, closed: Collection[str]) -> set[str]:
        """Return the names of the agents that are no candidates: the receiver, and who is gone."""
        left = {receiver}
        if not closed:
            return left
        for place in walk_tree(self._root):
            if receiver in place.path:
                below = place.path[place.path.index(receiver) + 1 :]
                ways = (PATH_SEPARATOR.join(below[: end + 1]) for end in range(len(below)))
                if any(way in closed for way in ways):
                    left.add(place.member.name)
        return left

    def _build_extended(self, receiver: str, added: tuple[Agent, ...]) -> TaskRouter:
        """Return the router of a receiver's subtree, with the subordinates that were added."""
        [superior] = (
            place.member for place in walk_tree(self._root) if place.member.name == receiver
        )
        assert isinstance(superior, Agent)  # noqa: S101  only an agent delegates
        extended = Agent(
            receiver,
            superior.description,
            subordinates=[*superior.subordinates, *added],
            capabilities=superior.capabilities,
        )
        return self.for_tree(extended)

    def for_tree(self, root: Agent) -> TaskRouter:
        """Return a router of the same policy for another tree."""
        return TaskRouter(root, self._policy, self._resolve_deriver)

    def _get_router(self, deriver: Deriver, saver: object | None) -> Router:
        lazy = self._get_lazy(saver)
        with lazy.lock:
            if lazy.router is None:
                capabilities, policy = CapabilityMap.discover(self._root, deriver), self._policy
                lazy.router = Router(capabilities, policy.matcher, policy.threshold, _redact_in_run)
            return lazy.router

    def _get_lazy(self, saver: object | None) -> _LazyRouter:
        # A router must not keep its saver alive: so not the deriver is kept, but its result.
        with self._lock:
            return self._routers.setdefault(self if saver is None else saver, _LazyRouter())


class FittingSubordinate(NamedTuple):
    """Finds the subordinate of one agent that fits a task, or has one below it that does."""

    router: TaskRouter
    receiver: str

    def find(self, task: str) -> str:
        """Return its name; empty if there is none."""
        return _get_first(run_plan_steps(self._route(task)))

    async def afind(self, task: str) -> str:
        """Async version of `find`."""
        return _get_first(await arun_plan_steps(self._route(task)))

    def _route(self, task: str) -> Plan[tuple[RoutedTask, ...]]:
        return self.router.route_task(task, self.receiver, max_parts=1)


def _get_first(routed: Sequence[RoutedTask]) -> str:
    ways = routed[0].candidates.remaining
    return ways[0][0] if ways else ""


@dataclass(slots=True)
class _LazyRouter:
    router: Router | None = None
    lock: Lock = field(default_factory=Lock)


def _redact_in_run(text: str) -> str:
    return get_failure_log(get_config()).redactor(text)


def _build_routed_task(router: Router, route: Route, part: Part | None = None) -> RoutedTask:
    """Return a route as candidates; for a part of a task, its own candidate comes first."""
    ranked = list(route.candidates)
    if part:
        ranked.sort(key=lambda candidate: candidate.agent != part.candidate.agent)
    task, depth = part.task if part else route.task, len(route.receiver)
    needs = router.needs(task, route.receiver)
    abilities = {
        candidate.agent: tuple(name for name in needs if name in router.able(candidate.agent))
        for candidate in ranked
        if needs
    }
    reasons = {
        candidate.agent: shorten(route.explain_candidate(candidate), MAX_REASON, placeholder="…")
        for candidate in ranked[:MAX_EXPLAINED]
    }
    paths = tuple(candidate.path[depth:] for candidate in ranked)
    return RoutedTask(task, route, Candidates(paths, needs, abilities, reasons))
