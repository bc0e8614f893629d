"""``TreeRouter``: the router of a tree, made when the first task names nobody.

Most trees are run without ever routing; to read what everybody can do takes longer than to
compile them.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from threading import Lock

from echelons.agent import Agent
from echelons.capabilities import CapabilityMap
from echelons.delegating import Delegating
from echelons.routing import THRESHOLD, Route, Router


class TreeRouter:
    """Finds who in a tree takes a task.

    Args:
        root: The tree.
        rules: The root's.
    """

    def __init__(self, root: Agent, rules: Delegating) -> None:
        self._root = root
        self._rules = rules
        self._lock = Lock()

    def route(self, task: str, receiver: str, *, without: Collection[str]) -> Route:
        """Rank everybody below a receiver for a task; see ``Router.route``."""
        return self._made().route(task, receiver, without=without)

    async def aroute(self, task: str, receiver: str, *, without: Collection[str]) -> Route:
        """Do the same in an event loop."""
        return await self._made().aroute(task, receiver, without=without)

    def _made(self) -> Router:
        with self._lock:
            return self._router

    @cached_property
    def _router(self) -> Router:
        threshold = THRESHOLD if self._rules.threshold is None else self._rules.threshold
        return Router(CapabilityMap.discover(self._root), self._rules.matcher, threshold)
