"""Errors of requests that are not passed on, of routing, and of stops and pauses."""

from __future__ import annotations

from collections.abc import Sequence

from echelons.errors.base import SHORT, EchelonsError


class DelegationError(EchelonsError):
    """A request is not passed on.

    Attributes:
        code: Code that the reason of the response begins with.
    """

    code = "refused"

    @property
    def reason(self) -> str:
        """The reason in the response to the superior."""
        return f"{self.code}: {self}"


class DelegationCycle(DelegationError):
    """A request would reach an agent a second time.

    Attributes:
        path: Agents that it has reached, and the next.
    """

    code = "cycle"

    path: Sequence[str]

    def _describe(self) -> str:
        return f"it has been with {self.path[-1]!r} already: {' > '.join(self.path)}"


class TooManyHops(DelegationError):
    """A request would pass more agents than its limit.

    Attributes:
        hops: Agents that it would have passed.
        limit: Agents that it may pass.
    """

    code = "hops"

    hops: int
    limit: int
    message = (
        "it would pass {hops} agents, and may pass {limit}; ask a nearer agent, or raise "
        "max_hops in the DelegationPolicy of the agent that sends it"
    )


class MisplacedRequest(DelegationError):
    """A stored request names another superior or another agent than the ones it is between.

    Attributes:
        agent: The agent that received it.
        superior: The agent that sent it.
    """

    code = "misplaced"

    agent: str
    superior: str
    message = "what is stored of it is not of a request of {superior!r} to {agent!r}"


class TooDeep(DelegationError):
    """A request would go deeper than any tree may be, through functions that run other trees.

    Attributes:
        depth: The level that it would reach.
        limit: The deepest level allowed.
    """

    code = "depth"

    depth: int
    limit: int
    message = (
        "it would go down to level {depth}, trees within trees counted, and no request goes below "
        "{limit}; flatten them, and see that none runs itself again"
    )


class TooWide(DelegationError):
    """A message makes more calls side by side than its limit.

    Attributes:
        wanted: Calls that it makes in addition.
        begun: Calls made before these.
        limit: The largest number of calls.
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


class SpawnRefused(DelegationError):
    """A subordinate cannot be made at run time.

    Attributes:
        why: What stands against it, with the limit and what to do.
    """

    code = "spawn"

    why: str
    message = "{why}"


class RepeatedBrief(DelegationError):
    """An agent gets a task that it has answered in the same turn, with nothing done since.

    Attributes:
        agent: The agent.
        task: The task.
    """

    code = "repeated"

    agent: str
    task: str
    message = (
        "{agent!r} has answered {task:short} in this turn already, and nothing else has been done "
        "since; use that answer, ask for something else, or begin anew with reset=true"
    )


class NoCandidate(DelegationError):
    """No subordinate matches a task.

    Attributes:
        nearest: The best match below the threshold; empty if there is none.
        match: Its score, from 0 to 1.
    """

    code = "no_candidate"

    nearest: str = ""
    match: float = 0.0

    def _describe(self) -> str:
        near = f"; the nearest is {self.nearest!r}, with a match of {self.match:.2f}"
        return f"no agent below fits this task{near if self.nearest else ''}"


class InvalidJoin(DelegationError):
    """The join policy of several requests is invalid.

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
    """There is no open circuit to close.

    Attributes:
        agent: The agent as it was given: its path or name.
        known: Paths of agents that have failed.
    """

    agent: str
    known: Sequence[str]
    message = (
        "{agent:short} has not failed, so there is no circuit to close; those that have: {known}"
    )


class RoutingError(EchelonsError):
    """A task cannot be routed as requested."""


class InvalidThreshold(RoutingError):
    """A threshold is not a number from 0 to 1.

    Attributes:
        threshold: What was given.
    """

    threshold: object
    message = (
        "{threshold!r} is no threshold; pass a number from 0 (any match) to 1, or leave it out"
    )


class MatcherFailed(RoutingError):
    """A matcher returned an invalid match.

    Attributes:
        matcher: The matcher.
        why: What is wrong.
    """

    code = "matcher_failed"
    matcher: str
    why: str
    message = "the matcher {matcher} failed: {why}; route with another one, such as LexicalMatcher"


class DeriverFailed(RoutingError):
    """The capabilities of an agent that declares none could not be derived.

    Attributes:
        agent: The agent.
        why: What is wrong.
    """

    code = "deriver_failed"
    agent: str
    why: str
    message = (
        "what {agent!r} can do could not be derived: {why}; derive it in another way, or declare "
        "its capabilities"
    )


class ControlError(EchelonsError):
    """An order cannot be carried out; nothing was changed."""


class UnknownPath(ControlError, RoutingError):
    """A name or path leads to no agent of the tree.

    Attributes:
        path: What was given.
        known: The names or paths of the tree.
    """

    path: str
    known: Sequence[str]

    def _describe(self) -> str:
        more = len(self.known) - 20
        return (
            f"no agent {SHORT.repr(self.path)} in the tree; there are: "
            f"{', '.join(self.known[:20]) or 'none'}{f' and {more} more' * (more > 0)}"
        )


class NothingRunning(ControlError):
    """An order was given to a thread whose last turn has ended.

    Attributes:
        thread: The thread's name or id.
    """

    thread: str
    message = (
        "no turn of thread {thread!r} is on its way, so nothing can be stopped or paused; an order "
        "holds for the turn that it is given in, and begins with it"
    )


class AgentDismissed(ControlError):
    """Something was meant for an agent that was dismissed, or that is below one.

    Attributes:
        path: The agent's path.
        dismissed: Path of the agent that was dismissed.
        at: When, ISO 8601, UTC; empty if that is not known.
        by: Who has dismissed it, as they said; empty if that is not known.
    """

    path: str
    dismissed: str
    at: str = ""
    by: str = ""

    def _describe(self) -> str:
        who = "it" if self.path == self.dismissed else SHORT.repr(self.dismissed)
        by, at = self.by and f" by {SHORT.repr(self.by)}", self.at and f" at {self.at}"
        way = "another agent"
        if "/" not in self.dismissed:
            way = "another thread, or a fork of this one from before"
        return (
            f"nothing reaches {SHORT.repr(self.path)}: {who} was dismissed{by}{at}, for good; use "
            f"{way}. Nothing was stored"
        )


class MessageRefused(ControlError):
    """A message was sent to an agent that cannot read it.

    Attributes:
        path: The receiver's path or name, as it was given.
        why: Why not, and what can be done.
    """

    path: str
    why: str
    message = "{path:short} was sent no message: {why}. Nothing was stored"


class MailboxFull(ControlError):
    """A message was sent to an agent that has too many unread ones.

    Attributes:
        path: The receiver's path.
        limit: The largest number of unread messages.
    """

    path: str
    limit: int
    message = (
        "{path:short} has {limit} unread messages, and may have no more; it reads them before its "
        "next model call. Nothing was stored"
    )


class NotPaused(ControlError):
    """There is no pause to lift at a path.

    Attributes:
        path: The path as it was given.
        paused: The paths that are paused.
    """

    path: str
    paused: Sequence[str]
    message = "nothing is paused at {path:short} or below it; paused are: {paused}"


class NotTakenOver(ControlError):
    """A thread was not taken from the run that holds it.

    Attributes:
        thread: The thread's name or id.
        why: Why not, and what can be done.
    """

    thread: str
    why: str
    message = "thread {thread!r} was not taken over: {why}. Nothing was changed"
