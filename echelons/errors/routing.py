"""Errors of routing: unknown agents, invalid thresholds, and failures of matchers and derivers."""

from __future__ import annotations

from collections.abc import Sequence

from echelons.errors.base import SHORT, EchelonsError

MOST_NAMED = 20
"""Names that a message lists."""


class RoutingError(EchelonsError):
    """A task cannot be routed as requested."""


class UnknownAgent(RoutingError):
    """A name or path leads to no agent of the tree.

    Attributes:
        agent: What was given.
        known: The known names.
    """

    agent: str
    known: Sequence[str]

    def _describe(self) -> str:
        more = len(self.known) - MOST_NAMED
        return (
            f"no agent {SHORT.repr(self.agent)} in the tree; there are: "
            f"{', '.join(self.known[:MOST_NAMED]) or 'none'}{f' and {more} more' * (more > 0)}"
        )


class InvalidThreshold(RoutingError):
    """A threshold is not a number from 0 to 1.

    Attributes:
        threshold: What was given.
    """

    threshold: object
    message = (
        "{threshold!r} is no threshold; pass a number from 0 (whoever matches at all) to 1, or "
        "leave it out"
    )


class MatcherFailed(RoutingError):
    """A matcher returned an invalid match.

    Attributes:
        matcher: The matcher.
        why: What is wrong.
    """

    matcher: str
    why: str
    message = "the matcher {matcher} failed: {why}; route with another one, such as LexicalMatcher"


class DeriverFailed(RoutingError):
    """A model returned no valid description of what an agent can do.

    Attributes:
        agent: The agent.
        why: What is wrong.
    """

    agent: str
    why: str
    message = (
        "the model did not say what {agent!r} can do: {why}; ask another model, or declare its "
        "capabilities"
    )
