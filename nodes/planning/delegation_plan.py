"""Plans a reply's delegations: which subordinates, in order of fit, get each request. Pure.

`reason` asks the router and calls this; the delegation graph then tries the candidates one
after the other, or in parallel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from echelons.delegation.calls import Delegation, Parted, part_id
from echelons.delegation.candidates import Way, Ways
from echelons.delegation.join_policies import All, Join
from echelons.delegation.policy import Delegating
from echelons.delegation.request import DelegationRequest, DelegationResponse, Status
from echelons.errors import DelegationError, NoCandidate, RepeatedBrief, TooWide
from echelons.identity.lineage import Identity, request_id
from echelons.nodes.planning.tool_calls import Sorted
from echelons.routing import Route
from echelons.tree.names import PATH_SEPARATOR


@dataclass(frozen=True, slots=True)
class Found:
    """A task, or a part of one, with the candidates for it.

    Attributes:
        task: The task.
        route: The ranking.
        ways: The paths to all candidates, relative to the receiver.
    """

    task: str
    route: Route
    ways: Ways


class Finder(Protocol):
    """Finds candidates for a task that names no subordinate."""

    def find(self, task: str, receiver: str, *, parts: int) -> tuple[Found, ...]:
        """Return the candidates for a task, or for each of its parts, below a receiver.

        Args:
            task: The task.
            receiver: Name of the agent that delegates.
            parts: Most parts that the task may be split into; with more it stays whole.
        """
        ...

    async def afind(self, task: str, receiver: str, *, parts: int) -> tuple[Found, ...]:
        """Async version of `route_task`."""
        ...


@dataclass(slots=True)
class Plan:
    """The delegations of one message.

    Attributes:
        requests: Requests with the first subordinate to try.
        ways: Candidates of the routed requests, by the id of the call or the part.
        parted: The calls that make several requests.
        refused: Requests that are not sent, each with the reason.
    """

    requests: list[Delegation] = field(default_factory=list)
    ways: dict[str, Ways] = field(default_factory=dict)
    parted: list[Parted] = field(default_factory=list)
    refused: list[tuple[Delegation, DelegationError]] = field(default_factory=list)

    def take(self, request: Delegation, found: Found | None) -> None:
        """Add a request; one that names no subordinate goes to the routed candidates."""
        if request.subordinate:
            self.requests.append(request)
        if found and found.ways.ahead:
            self.ways[request.call_id] = found.ways
        elif not request.subordinate:
            self.refused.append((request, _no_candidate(found)))

    def refuse_repeated(self, answered: Callable[[str], Mapping[Way, Status]]) -> None:
        """Refuse requests that have been answered already, unless they reset the conversation.

        A request is refused if one of its candidates has fulfilled the task, or if all are
        unable; else it goes to the candidates that have not answered.

        Args:
            answered: Returns the candidates that have answered a task, with their status.
        """
        for each in [each for each in self.requests if not each.reset]:
            known = answered(each.message)
            ways = self.ways.get(each.call_id, Ways(((each.subordinate,),)))
            able = [way for way in ways.ahead if known.get(way) is Status.FULFILLED]
            ahead = tuple(way for way in ways.ahead if way not in known)
            if able or not ahead:
                who = PATH_SEPARATOR.join((able or ways.ahead)[0])
                self.requests.remove(each)
                self.ways.pop(each.call_id, None)
                self.refused.append((each, RepeatedBrief(who, each.message)))
            elif ahead != ways.ahead:
                self.ways[each.call_id] = replace(ways, ahead=ahead)
                self._give(each, ahead[0][0])

    def _give(self, request: Delegation, subordinate: str) -> None:
        """Reassign a request to another subordinate, also where it is a part of a call."""
        given = replace(request, subordinate=subordinate)

        def put(requests: Iterable[Delegation]) -> list[Delegation]:
            return [given if each == request else each for each in requests]

        self.requests = put(self.requests)
        self.parted = [replace(each, parts=tuple(put(each.parts))) for each in self.parted]


def unnamed(asked: Sorted, rules: Delegating) -> Iterator[tuple[str, bool]]:
    """Yield the tasks that name no subordinate, and whether each may be split."""
    for each in asked.requests:
        # A call with several requests is a task that the model has split already.
        whole = rules.splitting and isinstance(each, Delegation)
        for request in (each,) if isinstance(each, Delegation) else each.parts:
            if not request.subordinate:
                yield request.message, whole


def parts_of(asked: Sorted, splits: bool) -> int:
    """Return the most parts a task may have: one, plus the remaining width of the message."""
    return asked.room + 1 if splits else 1


def planned(
    asked: Sorted,
    found: Mapping[tuple[str, bool], Sequence[Found]],
    rules: Delegating,
    width: int | None = None,
    only: str = "",
) -> Plan:
    """Return the delegation plan for the calls of a message.

    Args:
        asked: The parsed calls.
        found: The routed tasks, by what `iter_unnamed_tasks` yields.
        rules: The agent's delegation policy.
        width: Most parallel requests; `None` for no limit.
        only: The agent's only subordinate, which takes tasks without a candidate.
    """
    plan, room = Plan(refused=list(asked.refused)), asked.room
    for each in asked.requests:
        parts: list[tuple[Delegation, Found | None]] = []
        join: Join = All()
        if isinstance(each, Delegation):
            own = found.get((each.message, rules.splitting), ())
            if width is not None and len(own) - 1 > room:
                # The place that its one call had reserved is free again.
                room += 1
                plan.refused.append((each, TooWide(len(own), width - room, width)))
                continue
            parts = _asked_of(_or_only(each, own, only), own, rules, room)
            room -= len(parts) - 1
            if len(parts) == 1:
                plan.take(*parts[0])
                continue
        else:
            join = each.join
            for part in each.parts:
                asked_of = _asked_of(part, found.get((part.message, False), ()), rules, room)
                room -= len(asked_of) - 1
                parts += asked_of
        numbered = [
            (replace(request, call_id=part_id(each.call_id, place)), candidates)
            for place, (request, candidates) in enumerate(parts, start=1)
        ]
        plan.parted.append(Parted(each.call_id, join, tuple(request for request, _ in numbered)))
        for request, candidates in numbered:
            plan.take(request, candidates)
    return plan


def refusal(
    request: Delegation, why: DelegationError, message: str, identity: Identity
) -> tuple[DelegationRequest, DelegationResponse]:
    """Return a request that is not sent, and the response to it."""
    asked = DelegationRequest(
        id=request_id(identity.thread_id, message, request.call_id),
        origin=identity.agent,
        current=identity.agent,
        task=request.message,
        path=(identity.agent,),
    )
    return asked, DelegationResponse(
        request_id=asked.id,
        agent=identity.agent,
        status=Status.UNABLE,
        path=asked.path,
        reason=why.reason,
        # The same request may be made again in a later message.
        failed=isinstance(why, TooWide),
    )


def _or_only(request: Delegation, found: Sequence[Found], only: str) -> Delegation:
    """Return a request, assigned to the only subordinate if it has no candidate."""
    nobody = not request.subordinate and not any(each.ways.ahead for each in found)
    return replace(request, subordinate=only) if nobody and only else request


def _no_candidate(found: Found | None) -> NoCandidate:
    short = found.route.short if found else ()
    return NoCandidate(short[0].agent, short[0].match) if short else NoCandidate()


def _asked_of(
    request: Delegation, found: Sequence[Found], rules: Delegating, room: int
) -> list[tuple[Delegation, Found | None]]:
    """Return the requests that one request becomes: itself, one a part, or one a candidate.

    Args:
        request: The request.
        found: The routed task, or its parts.
        rules: The agent's delegation policy.
        room: How many more requests may run in parallel, at least one a part.
    """
    if request.subordinate or not found:
        return [(request, None)]
    several: list[tuple[Delegation, Found | None]] = []
    room -= len(found) - 1
    for place, each in enumerate(found, start=request.group):
        beside = _side_by_side(each.ways, rules, room + 1)
        room -= len(beside) - 1
        for ways in beside:
            first = ways.ahead[0][0] if ways.ahead else ""
            asked = replace(request, subordinate=first, message=each.task, group=place)
            several.append((asked, replace(each, ways=ways)))
    return several


def _side_by_side(ways: Ways, rules: Delegating, width: int) -> list[Ways]:
    """Return the candidates that are tried in parallel, each with its own fallbacks."""
    if rules.exploring == "ordered" or len(ways.ahead) < 2:
        return [ways]
    last = min(width, len(ways.ahead)) - 1
    alone = [replace(ways, ahead=(way,)) for way in ways.ahead[:last]]
    return [*alone, replace(ways, ahead=ways.ahead[last:])]
