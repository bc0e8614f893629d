"""Errors of delegation: requests that are not passed on.

Inside of a delegation they have these types; its superior is told `unable` with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence

from echelons.errors.base import EchelonsError


class DelegationError(EchelonsError):
    """A request is not passed on.

    Attributes:
        code: One word for it, with which the reason of the response begins.
    """

    code = "refused"

    @property
    def reason(self) -> str:
        """The reason as a superior is told it."""
        return f"{self.code}: {self}"


class DelegationCycle(DelegationError):
    """A request has been with an agent that it would come to again.

    Attributes:
        path: Agents that it has been with, and the next.
    """

    code = "cycle"

    path: Sequence[str]

    def _describe(self) -> str:
        return f"it has been with {self.path[-1]!r} already: {' > '.join(self.path)}"


class TooManyHops(DelegationError):
    """A request has passed as many agents as it may.

    Attributes:
        hops: How many it would have passed.
        limit: How many it may.
    """

    code = "hops"

    hops: int
    limit: int
    message = "it would pass {hops} agents, and may pass {limit}"


class MisplacedRequest(DelegationError):
    """A request has come to somebody else than it says, or from somebody else.

    Attributes:
        agent: Who has it.
        superior: Whose it is.
    """

    code = "misplaced"

    agent: str
    superior: str
    message = "what is stored of it is not of a request of {superior!r} to {agent!r}"


class TooDeep(DelegationError):
    """A request would go further down than any tree does.

    One tree is checked when it is made. But a function or a graph below an agent may run another
    one, or the same again.

    Attributes:
        depth: The level that it would come to.
        limit: The deepest that there is.
    """

    code = "depth"

    depth: int
    limit: int
    message = (
        "it would go down to level {depth}, trees within trees counted, and no request goes below "
        "{limit}; flatten them, and see that none runs itself again"
    )


class TooWide(DelegationError):
    """A message makes more side by side than it may.

    Attributes:
        wanted: How many more a call of it makes.
        begun: How many the calls before it make.
        limit: How many all of them may.
    """

    code = "width"

    wanted: int
    begun: int
    limit: int

    def _describe(self) -> str:
        more = "1 more is" if self.wanted == 1 else f"{self.wanted} more are"
        return (
            f"{self.begun} of {self.limit} calls side by side in one message, and {more} wanted; "
            "make the others in a later message"
        )


class RepeatedBrief(DelegationError):
    """An agent is given a task that it has answered in the same turn.

    Attributes:
        agent: The agent.
        task: The task.
    """

    code = "repeated"

    agent: str
    task: str
    message = (
        "{agent!r} has answered {task:short} in this turn already; use that answer, ask for "
        "something else, or begin anew with reset=true"
    )


class NoCandidate(DelegationError):
    """Nobody below is made for a task.

    Attributes:
        nearest: Who comes nearest; empty if nobody does at all.
        match: How well, from 0 to 1.
    """

    code = "no_candidate"

    nearest: str = ""
    match: float = 0.0

    def _describe(self) -> str:
        near = f"; the nearest is {self.nearest!r}, with a match of {self.match:.2f}"
        return f"nobody below is made for this task{near if self.nearest else ''}"


class InvalidJoin(DelegationError):
    """Several requests are to be joined in a way that there is not.

    Attributes:
        join: The policy as it was given.
        count: How many responses were wanted.
        why: What is wrong.
    """

    code = "join"

    join: object
    count: object
    why: str
    message = "{join:short} with n={count:short} is no way to join: {why}"


class NoCircuit(DelegationError):
    """A circuit is to be closed that nobody has opened.

    Attributes:
        agent: The agent as it was given.
        known: Agents that have failed.
    """

    agent: str
    known: Sequence[str]
    message = (
        "{agent:short} has not failed, so there is no circuit to close; those that have: {known}"
    )
