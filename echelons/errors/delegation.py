"""Errors of delegation: requests that are not passed on.

Inside of a delegation they have these types; its superior is told ``unable`` with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence

from echelons.errors.base import SHORT, EchelonsError


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

    def __init__(self, path: Sequence[str]) -> None:
        self.path = tuple(path)
        super().__init__(f"it has been with {self.path[-1]!r} already: {' > '.join(self.path)}")


class TooManyHops(DelegationError):
    """A request has passed as many agents as it may.

    Attributes:
        hops: How many it would have passed.
        limit: How many it may.
    """

    code = "hops"

    def __init__(self, hops: int, limit: int) -> None:
        self.hops = hops
        self.limit = limit
        super().__init__(f"it would pass {hops} agents, and may pass {limit}")


class MisplacedRequest(DelegationError):
    """A request has come to somebody else than it says, or from somebody else.

    Attributes:
        agent: Who has it.
        superior: Whose it is.
    """

    code = "misplaced"

    def __init__(self, agent: str, superior: str) -> None:
        self.agent = agent
        self.superior = superior
        super().__init__(f"what is stored of it is not of a request of {superior!r} to {agent!r}")


class TooDeep(DelegationError):
    """A request would go further down than any tree does.

    One tree is checked when it is made. But a function or a graph below an agent may run another
    one, or the same again.

    Attributes:
        depth: The level that it would come to.
        limit: The deepest that there is.
    """

    code = "depth"

    def __init__(self, depth: int, limit: int) -> None:
        self.depth = depth
        self.limit = limit
        super().__init__(
            f"it would go down to level {depth}, trees within trees counted, and no request goes "
            f"below {limit}; flatten them, and see that none runs itself again"
        )


class TooWide(DelegationError):
    """A message makes more side by side than it may.

    Attributes:
        wanted: How many more a call of it makes.
        begun: How many the calls before it make.
        limit: How many all of them may.
    """

    code = "width"

    def __init__(self, wanted: int, begun: int, limit: int) -> None:
        self.wanted = wanted
        self.begun = begun
        self.limit = limit
        more = "1 more is" if wanted == 1 else f"{wanted} more are"
        super().__init__(
            f"{begun} of {limit} calls side by side in one message, and {more} wanted; "
            "make the others in a later message"
        )


class RepeatedBrief(DelegationError):
    """An agent is given a task that it has answered in the same turn.

    Attributes:
        agent: The agent.
        task: The task.
    """

    code = "repeated"

    def __init__(self, agent: str, task: str) -> None:
        self.agent = agent
        self.task = task
        super().__init__(
            f"{agent!r} has answered {SHORT.repr(task)} in this turn already; "
            "use that answer, ask for something else, or begin anew with reset=true"
        )


class NoCandidate(DelegationError):
    """Nobody below is made for a task.

    Attributes:
        nearest: Who comes nearest; empty if nobody does at all.
        match: How well, from 0 to 1.
    """

    code = "no_candidate"

    def __init__(self, nearest: str = "", match: float = 0.0) -> None:
        self.nearest = nearest
        self.match = match
        hint = f"; the nearest is {nearest!r}, with a match of {match:.2f}" if nearest else ""
        super().__init__(f"nobody below is made for this task{hint}")


class CircuitOpen(DelegationError):
    """An agent has failed too often, and is not asked for a while.

    Attributes:
        agent: The agent.
        failures: How often in a row.
        seconds: Until it is tried again.
    """

    code = "circuit_open"

    def __init__(self, agent: str, failures: int, seconds: float) -> None:
        self.agent = agent
        self.failures = failures
        self.seconds = seconds
        super().__init__(
            f"{agent!r} failed {failures} times in a row; it is tried again in {seconds:.3g} s"
        )


class TooManyFailures(DelegationError):
    """Subordinates of a superior fail so often that it does not try on.

    Attributes:
        superior: The superior.
        failures: How often.
        seconds: Within how many seconds.
    """

    code = "intensity"

    def __init__(self, superior: str, failures: int, seconds: float) -> None:
        self.superior = superior
        self.failures = failures
        self.seconds = seconds
        super().__init__(
            f"{failures} failures below {superior!r} within {seconds:g} s: it does not try on"
        )


class InvalidJoin(DelegationError):
    """Several requests are to be joined in a way that there is not.

    Attributes:
        join: The policy as it was given.
        count: How many responses were wanted.
        why: What is wrong.
    """

    code = "join"

    def __init__(self, join: object, count: object, why: str) -> None:
        self.join = join
        self.count = count
        self.why = why
        super().__init__(f"{SHORT.repr(join)} with n={SHORT.repr(count)} is no way to join: {why}")


class NoCircuit(DelegationError):
    """A circuit is to be closed that nobody has opened.

    Attributes:
        agent: The agent as it was given.
        known: Agents that have failed.
    """

    def __init__(self, agent: str, known: Sequence[str]) -> None:
        self.agent = agent
        self.known = tuple(known)
        super().__init__(
            f"{SHORT.repr(agent)} has not failed, so there is no circuit to close; "
            f"those that have: {', '.join(self.known) or 'none'}"
        )
