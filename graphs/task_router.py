"""The router of a tree, created when the first task names no subordinate.

Most runs never route, and reading the capabilities of a tree takes longer than compiling it.
"""

from __future__ import annotations

from functools import cached_property
from threading import Lock

from langgraph.config import get_config

from echelons.agent import Agent
from echelons.capabilities import CapabilityMap, Deriver, Learner, ModelDeriver, derive
from echelons.checkpoints.coordination.capability_cache import Derived
from echelons.checkpoints.inherited_config import saver_of
from echelons.checkpoints.ledger import ledger_of
from echelons.delegation.candidates import Ways
from echelons.delegation.policy import Delegating
from echelons.nodes.planning.delegation_plan import Found
from echelons.routing import Part, Route, Router


class TreeRouter:
    """Finds candidates for tasks in one tree.

    Args:
        root: The root of the tree.
        rules: The root's delegation policy.
    """

    def __init__(self, root: Agent, rules: Delegating) -> None:
        self._root = root
        self._rules = rules
        self._lock = Lock()

    def find(self, task: str, receiver: str, *, parts: int) -> tuple[Found, ...]:
        """Return the candidates for a task, or for each of its parts, below a receiver."""
        router, without = self._made(), {receiver}
        found = router.split(task, receiver, without=without) if parts > 1 else ()
        if not 1 < len(found) <= parts:
            return (_found(router, router.route(task, receiver, without=without)),)
        return tuple(_found(router, each.route, each) for each in found)

    async def afind(self, task: str, receiver: str, *, parts: int) -> tuple[Found, ...]:
        """Async version of `route_task`."""
        await self._learn()
        router, without = self._made(), {receiver}
        found = await router.asplit(task, receiver, without=without) if parts > 1 else ()
        if not 1 < len(found) <= parts:
            return (_found(router, await router.aroute(task, receiver, without=without)),)
        return tuple(_found(router, each.route, each) for each in found)

    def _made(self) -> Router:
        with self._lock:
            return self._router

    @cached_property
    def _router(self) -> Router:
        known = CapabilityMap.discover(self._root, self._deriver)
        return Router(known, self._rules.matcher, self._rules.threshold)

    @cached_property
    def _deriver(self) -> Deriver:
        return deriver_of(self._root.name, self._rules.deriver)

    async def _learn(self) -> None:
        # A model is asked here, without blocking the event loop when the router is created.
        if "_router" not in self.__dict__ and isinstance(self._deriver, Learner):
            await self._deriver.alearn(self._root)


def _found(router: Router, route: Route, part: Part | None = None) -> Found:
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
    return Found(task, route, Ways(tuple(each.path[above:] for each in ranked), needs, able))


def deriver_of(tree: str, given: Deriver | None) -> Deriver:
    """Return a tree's capability deriver; a `ModelDeriver` caches its results in the run's ledger.

    Args:
        tree: Name of the tree's root.
        given: The deriver of the tree's policy; `None` for the default.

    Raises:
        RuntimeError: It is called outside of a graph's run.
    """
    if not isinstance(given, ModelDeriver):
        return given or derive
    saver = saver_of(get_config().get("configurable", {}))
    return given.kept_in(Derived(ledger_of(saver), tree)) if saver else given
