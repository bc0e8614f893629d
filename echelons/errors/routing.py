"""Errors of finding an agent: who is meant, what a matcher says, where the limit lies."""

from __future__ import annotations

from collections.abc import Sequence

from echelons.errors.base import SHORT, EchelonsError

MOST_NAMED = 20
"""Names that a message lists."""


class RoutingError(EchelonsError):
    """A task cannot be routed in the way that was asked for."""


class UnknownAgent(RoutingError):
    """A name or path leads to no agent of the tree.

    Attributes:
        agent: What was given.
        known: The names that there are.
    """

    def __init__(self, agent: str, known: Sequence[str]) -> None:
        self.agent = agent
        self.known = tuple(known)
        more = f" and {len(known) - MOST_NAMED} more" if len(known) > MOST_NAMED else ""
        super().__init__(
            f"no agent {SHORT.repr(agent)} in the tree; "
            f"there are: {', '.join(self.known[:MOST_NAMED]) or 'none'}{more}"
        )


class InvalidThreshold(RoutingError):
    """A threshold is no number from 0 to 1.

    Attributes:
        threshold: What was given.
    """

    def __init__(self, threshold: object) -> None:
        self.threshold = threshold
        super().__init__(
            f"{threshold!r} is no threshold; pass a number from 0 (whoever matches at all) to 1, "
            "or leave it out"
        )


class MatcherFailed(RoutingError):
    """A matcher said something that is no match.

    Attributes:
        matcher: The matcher.
        why: What is wrong.
    """

    def __init__(self, matcher: str, why: str) -> None:
        self.matcher = matcher
        self.why = why
        super().__init__(
            f"the matcher {matcher} failed: {why}; route with another one, such as LexicalMatcher"
        )


class DeriverFailed(RoutingError):
    """A model that was asked what an agent can do said something else.

    Attributes:
        agent: The agent.
        why: What is wrong.
    """

    def __init__(self, agent: str, why: str) -> None:
        self.agent = agent
        self.why = why
        super().__init__(
            f"the model did not say what {agent!r} can do: {why}; "
            "ask another model, or declare its capabilities"
        )
