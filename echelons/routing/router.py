"""`Router`: ranks the agents that fit a task, and splits tasks that need several agents.

The score is `confidence * match - 0.1 * depth`, for the receiver itself at depth 0 and for all
agents below it (see `ranking`). The matcher supplies the match. If it fails, for instance because
a service is down, words are compared instead, and the route says so.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from echelons.capabilities import CapabilityMap
from echelons.errors import RoutingError, invalid_task, matcher_failed
from echelons.routing.lexical_matcher import LexicalMatcher
from echelons.routing.matcher import Matcher
from echelons.routing.ranking import ProfileIndex, Ranking, Route, RoutingQuery
from echelons.routing.task_splitter import Part, SplitSteps, plan_parts
from echelons.text.error_lines import Redactor, describe_failure, format_traceback, redact_secrets
from echelons.text.input_limits import refuse_unreadable

if TYPE_CHECKING:
    from echelons.routing.task_splitter import Vocabulary

LOG = logging.getLogger(__name__)


class Router:
    """Finds the agents that fit a task, anywhere in a tree.

    Args:
        tree: The capabilities of all agents.
        matcher: Rates how well each agent fits; a `LexicalMatcher` if left out.
        threshold: The match, from 0 to 1, that an agent needs; the matcher's own if left out.
            It applies to the match alone, not to the score: an agent far below the receiver, or
            of low confidence, may still be the only one that can do the task.
        redactor: Returns the text of a matcher's exception without what must not be seen.

    Raises:
        RoutingError: The threshold is no number from 0 to 1; the matcher cannot read the tree, or
            has no readable threshold.

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
        self,
        tree: CapabilityMap,
        matcher: Matcher | None = None,
        threshold: float | None = None,
        redactor: Redactor = redact_secrets,
    ) -> None:
        self.tree = tree
        self._redactor = redactor
        self.matcher: Matcher = matcher or LexicalMatcher()
        with refuse_unreadable(lambda why: matcher_failed(type(self.matcher).__name__, why)):
            limit = self.matcher.threshold if threshold is None else threshold
        number = isinstance(limit, (int, float)) and not isinstance(limit, bool)
        if not number or not 0 <= limit <= 1:
            raise RoutingError(
                "{threshold!r} is no threshold; pass a number from 0 (any match) to 1, or leave "
                "it out",
                code="invalid_threshold",
                threshold=limit,
            )
        self.threshold = float(limit)
        self._profiles = ProfileIndex(tree)
        self._vocabularies: dict[int, Vocabulary] = {}
        self._ranking = Ranking(self._profiles, self.matcher, self.threshold)

    def route(
        self, task: str, receiver: str | Sequence[str] = (), *, without: Collection[str] = ()
    ) -> Route:
        """Return the receiver and all agents below it, ranked for `task`.

        Args:
            task: The task.
            receiver: Name or path of the agent that has the request; the root if left out.
            without: Names of agents that are no candidates, such as the caller itself and
                agents that were asked before.

        Raises:
            InvalidInput: The task is not a string, or blank.
            UnknownPath: There is no such receiver.
        """
        return self._rank(self._build_query(task, receiver, without))

    async def aroute(
        self, task: str, receiver: str | Sequence[str] = (), *, without: Collection[str] = ()
    ) -> Route:
        """Async version of `route`."""
        return await self._arank(self._build_query(task, receiver, without))

    def split(
        self, task: str, receiver: str | Sequence[str] = (), *, without: Collection[str] = ()
    ) -> tuple[Part, ...]:
        """Return the parts of `task`, each for the agent that can do it.

        Each clause is ranked once and goes to the agents that its words name, by the rules of
        `echelons.offline`: refused and settled clauses become no part. A clause that names no
        agent goes to its best candidate. A task that one agent can do as a whole stays one part.
        The receiver, which does the splitting, gets no part.

        Returns:
            The parts, one for each agent, with the route of each; empty if no agent below the
            receiver can do any of it.

        Raises:
            InvalidInput: The task is not a string, or blank.
            UnknownPath: There is no such receiver.
        """
        query, steps = self._start_split(self._build_query(task, receiver, without))
        while steps.next_text:
            steps.add_route(self._rank(query._replace(task=steps.next_text)))
        return steps.parts

    async def asplit(
        self, task: str, receiver: str | Sequence[str] = (), *, without: Collection[str] = ()
    ) -> tuple[Part, ...]:
        """Async version of `split`."""
        query, steps = self._start_split(self._build_query(task, receiver, without))
        while steps.next_text:
            steps.add_route(await self._arank(query._replace(task=steps.next_text)))
        return steps.parts

    def needs(self, task: str, receiver: str | Sequence[str] = ()) -> tuple[str, ...]:
        """Return the capabilities of agents below the receiver that a task's words name.

        Words alone count, whatever the matcher, so the call does not block. Empty if fewer than
        two are named, because then there is nothing to combine.

        Raises:
            InvalidInput: The task is not a string, or blank.
            UnknownPath: There is no such receiver.
        """
        query = self._build_query(task, receiver, ())
        needed = self._get_vocabulary(query.receiver).find_capabilities(task)
        return tuple(dict.fromkeys(map(self._get_vocabulary(0).normalize_spelling, needed)))

    def able(self, agent_name: str) -> frozenset[str]:
        """Return the names of an agent's own capabilities, for comparison with `needs`.

        If agents spell a capability differently ("flight", "flights"), both the agent's own
        and the common spelling are included.

        Raises:
            UnknownPath: There is no such agent.
        """
        names = self._profiles.profiles[self._profiles.find_position(agent_name)].capabilities
        return frozenset({*names, *map(self._get_vocabulary(0).normalize_spelling, names)})

    def _rank(self, query: RoutingQuery) -> Route:
        try:
            return self._ranking.rank(query)
        except Exception as error:  # noqa: BLE001 - embeddings and models raise anything
            return self._rank_by_words(query, error)

    async def _arank(self, query: RoutingQuery) -> Route:
        try:
            return await self._ranking.arank(query)
        except Exception as error:  # noqa: BLE001 - as above
            return self._rank_by_words(query, error)

    def _rank_by_words(self, query: RoutingQuery, error: Exception) -> Route:
        if isinstance(self.matcher, LexicalMatcher):
            raise error
        reason = describe_failure(error, "matcher_failed", self._redactor)
        why = f"{type(self.matcher).__name__} failed: {reason}"
        traceback = format_traceback(error, self._redactor)
        LOG.warning("%s; words are compared instead\n%s", why, traceback)
        return replace(self._word_ranking.rank(query), fallback=why)

    @cached_property
    def _word_ranking(self) -> Ranking:
        # A threshold chosen for one matcher does not apply to another.
        return Ranking(self._profiles, LexicalMatcher(), LexicalMatcher.threshold)

    def _start_split(self, query: RoutingQuery) -> tuple[RoutingQuery, SplitSteps]:
        clauses = self._get_vocabulary(query.receiver, query.without).read_clauses(query.task)
        receiver = self._profiles.paths[query.receiver][-1]
        steps = SplitSteps(plan_parts(query.task, clauses))
        return query._replace(without={*query.without, receiver}), steps

    def _get_vocabulary(self, place: int, without: Collection[str] = ()) -> Vocabulary:
        # The rules of language take a while to load, and most runs never split a task.
        from echelons.routing.task_splitter import Vocabulary

        below = [
            self._profiles.profiles[position] for position in self._profiles.get_subtree(place)
        ]
        if left := {child.name for child in below}.intersection(without):
            return Vocabulary([child for child in below if child.name not in left])
        if place not in self._vocabularies:
            self._vocabularies[place] = Vocabulary(below)
        return self._vocabularies[place]

    def _build_query(
        self, task: object, receiver: str | Sequence[str], without: Collection[str]
    ) -> RoutingQuery:
        if not isinstance(task, str) or not task.strip():
            raise invalid_task(task)
        return RoutingQuery(task, self._profiles.find_position(receiver), without)
