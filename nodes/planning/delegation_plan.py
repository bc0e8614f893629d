"""Who takes the calls that name nobody: candidates, the best first, out of a route. Pure.

``reason`` asks the router and calls this; the delegation graph then tries one after the other,
or all at the same time.
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
    """Who was found for a task, or for a part of it.

    Attributes:
        task: The task.
        route: The ranking.
        ways: The ways to all who can, below the receiver.
    """

    task: str
    route: Route
    ways: Ways


class Finder(Protocol):
    """Finds who takes a task that names nobody."""

    def find(self, task: str, receiver: str, *, parts: int) -> tuple[Found, ...]:
        """Return who was found below a receiver: for the task, or for each part of it.

        Args:
            task: The task.
            receiver: Below whom.
            parts: How many parts it may have; with more it stays whole.
        """
        ...

    async def afind(self, task: str, receiver: str, *, parts: int) -> tuple[Found, ...]:
        """Do the same in an event loop."""
        ...


@dataclass(slots=True)
class Plan:
    """What the calls of a message come to.

    Attributes:
        requests: Requests with somebody to ask first, by the id of the call or the part.
        ways: Who else may take them, where nobody was named.
        parted: The calls that make several requests.
        refused: Requests that nobody is given, each with the reason.
    """

    requests: list[Delegation] = field(default_factory=list)
    ways: dict[str, Ways] = field(default_factory=dict)
    parted: list[Parted] = field(default_factory=list)
    refused: list[tuple[Delegation, DelegationError]] = field(default_factory=list)

    def take(self, request: Delegation, found: Found | None) -> None:
        """Take up a request; one that names nobody goes to who was found."""
        if request.subordinate:
            self.requests.append(request)
        if found and found.ways.ahead:
            self.ways[request.call_id] = found.ways
        elif not request.subordinate:
            self.refused.append((request, _no_candidate(found)))

    def refuse_repeated(self, answered: Callable[[str], Mapping[Way, Status]]) -> None:
        """Ask nobody again who has answered, unless a conversation is to begin anew.

        A request is refused if one of those who may take it has fulfilled the task, or if all
        are unable; else it goes to those who have not answered.

        Args:
            answered: Returns who has answered a task, and how.
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
        """Ask another subordinate first, also where the request is a part of a call."""
        given = replace(request, subordinate=subordinate)

        def put(requests: Iterable[Delegation]) -> list[Delegation]:
            return [given if each == request else each for each in requests]

        self.requests = put(self.requests)
        self.parted = [replace(each, parts=tuple(put(each.parts))) for each in self.parted]


def unnamed(asked: Sorted, rules: Delegating) -> Iterator[tuple[str, bool]]:
    """Yield the tasks for which nobody is named, and whether each may be split."""
    for each in asked.requests:
        # Who asks for several things has split his task already.
        whole = rules.splitting and isinstance(each, Delegation)
        for request in (each,) if isinstance(each, Delegation) else each.parts:
            if not request.subordinate:
                yield request.message, whole


def parts_of(asked: Sorted, splits: bool) -> int:
    """Return how many parts a task may have: one, and those for which there is room beside it."""
    return asked.room + 1 if splits else 1


def planned(
    asked: Sorted,
    found: Mapping[tuple[str, bool], Sequence[Found]],
    rules: Delegating,
    width: int | None = None,
    only: str = "",
) -> Plan:
    """Return what the calls of a message come to.

    Args:
        asked: The calls.
        found: Who was found, by what ``unnamed`` yields.
        rules: How the agent delegates.
        width: Requests that it may make side by side; ``None`` for any number.
        only: The agent's only subordinate, who takes what nobody is made for.
    """
    plan, room = Plan(refused=list(asked.refused)), asked.room
    for each in asked.requests:
        parts: list[tuple[Delegation, Found | None]] = []
        join: Join = All()
        if isinstance(each, Delegation):
            own = found.get((each.message, rules.splitting), ())
            if width is not None and len(own) - 1 > room:
                # Its one place is free again.
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
    """Return a request that nobody is given, and the answer to it."""
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
        # In a later message the same may be asked for.
        failed=isinstance(why, TooWide),
    )


def _or_only(request: Delegation, found: Sequence[Found], only: str) -> Delegation:
    """Return a request, given to the only subordinate if there is no other candidate."""
    nobody = not request.subordinate and not any(each.ways.ahead for each in found)
    return replace(request, subordinate=only) if nobody and only else request


def _no_candidate(found: Found | None) -> NoCandidate:
    short = found.route.short if found else ()
    return NoCandidate(short[0].agent, short[0].match) if short else NoCandidate()


def _asked_of(
    request: Delegation, found: Sequence[Found], rules: Delegating, room: int
) -> list[tuple[Delegation, Found | None]]:
    """Return the requests that one becomes: one, one a part, or one a candidate.

    Args:
        request: The request.
        found: Who was found.
        rules: How the agent delegates.
        room: How many more requests may go side by side with it, at least one a part.
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
    """Return the ways that are tried at the same time, each with those to try after it."""
    if rules.exploring == "ordered" or len(ways.ahead) < 2:
        return [ways]
    last = min(width, len(ways.ahead)) - 1
    alone = [replace(ways, ahead=(way,)) for way in ways.ahead[:last]]
    return [*alone, replace(ways, ahead=ways.ahead[last:])]
