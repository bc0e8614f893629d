"""Plans a reply's delegations: which subordinates, in order of fit, get each request. Pure.

`reason` asks the router and calls this; the delegation graph then tries the candidates one
after the other, or in parallel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from echelons.delegation.calls import FanOutCall, SubordinateCall, build_part_id
from echelons.delegation.candidates import AgentPath, Candidates
from echelons.delegation.join_policies import JoinAll, JoinPolicy
from echelons.delegation.policy import DelegationPolicy
from echelons.delegation.request import DelegationRequest, DelegationResponse, Status
from echelons.errors import DelegationError, NoCandidate, RepeatedBrief, TooWide
from echelons.identity.lineage import Identity, derive_request_id
from echelons.nodes.planning.tool_calls import ParsedReply
from echelons.routing import Route
from echelons.tree.names import PATH_SEPARATOR


@dataclass(frozen=True, slots=True)
class RoutedTask:
    """A task, or a part of one, with the candidates for it.

    Attributes:
        task: The task.
        route: The ranking.
        candidates: The paths to all candidates, relative to the receiver.
    """

    task: str
    route: Route
    candidates: Candidates


class TaskRouter(Protocol):
    """Finds candidates for a task that names no subordinate."""

    def route_task(self, task: str, receiver: str, *, max_parts: int) -> tuple[RoutedTask, ...]:
        """Return the candidates for a task, or for each of its parts, below a receiver.

        Args:
            task: The task.
            receiver: Name of the agent that delegates.
            max_parts: Most parts that the task may be split into; with more it stays whole.
        """
        ...

    async def aroute_task(
        self, task: str, receiver: str, *, max_parts: int
    ) -> tuple[RoutedTask, ...]:
        """Async version of `route_task`."""
        ...


@dataclass(slots=True)
class DelegationPlan:
    """The delegations of one message.

    Attributes:
        requests: Requests with the first subordinate to try.
        candidates: Candidates of the routed requests, by the id of the call or the part.
        fan_outs: The calls that make several requests.
        refused: Requests that are not sent, each with the reason.
    """

    requests: list[SubordinateCall] = field(default_factory=list)
    candidates: dict[str, Candidates] = field(default_factory=dict)
    fan_outs: list[FanOutCall] = field(default_factory=list)
    refused: list[tuple[SubordinateCall, DelegationError]] = field(default_factory=list)

    def add_request(self, request: SubordinateCall, routed: RoutedTask | None) -> None:
        """Add a request; one that names no subordinate goes to the routed candidates."""
        if request.subordinate:
            self.requests.append(request)
        if routed and routed.candidates.remaining:
            self.candidates[request.call_id] = routed.candidates
        elif not request.subordinate:
            self.refused.append((request, _build_no_candidate_error(routed)))

    def refuse_repeated(self, answered: Callable[[str], Mapping[AgentPath, Status]]) -> None:
        """Refuse requests that have been answered already, unless they reset the conversation.

        A request is refused if one of its candidates has fulfilled the task, or if all are
        unable; else it goes to the candidates that have not answered.

        Args:
            answered: Returns the candidates that have answered a task, with their status.
        """
        for each in [each for each in self.requests if not each.reset]:
            known = answered(each.message)
            ways = self.candidates.get(each.call_id, Candidates(((each.subordinate,),)))
            able = [way for way in ways.remaining if known.get(way) is Status.FULFILLED]
            ahead = tuple(way for way in ways.remaining if way not in known)
            if able or not ahead:
                who = PATH_SEPARATOR.join((able or ways.remaining)[0])
                self.requests.remove(each)
                self.candidates.pop(each.call_id, None)
                self.refused.append((each, RepeatedBrief(who, each.message)))
            elif ahead != ways.remaining:
                self.candidates[each.call_id] = replace(ways, remaining=ahead)
                self._reassign(each, ahead[0][0])

    def _reassign(self, request: SubordinateCall, subordinate: str) -> None:
        """Reassign a request to another subordinate, also where it is a part of a call."""
        given = replace(request, subordinate=subordinate)

        def put(requests: Iterable[SubordinateCall]) -> list[SubordinateCall]:
            return [given if each == request else each for each in requests]

        self.requests = put(self.requests)
        self.fan_outs = [replace(each, parts=tuple(put(each.parts))) for each in self.fan_outs]


def iter_unnamed_tasks(parsed: ParsedReply, policy: DelegationPolicy) -> Iterator[tuple[str, bool]]:
    """Yield the tasks that name no subordinate, and whether each may be split."""
    for each in parsed.requests:
        # A call with several requests is a task that the model has split already.
        whole = policy.splitting and isinstance(each, SubordinateCall)
        for request in (each,) if isinstance(each, SubordinateCall) else each.parts:
            if not request.subordinate:
                yield request.message, whole


def compute_max_parts(parsed: ParsedReply, splits: bool) -> int:
    """Return the most parts a task may have: one, plus the remaining width of the message."""
    return parsed.remaining_width + 1 if splits else 1


def build_delegation_plan(
    parsed: ParsedReply,
    routed: Mapping[tuple[str, bool], Sequence[RoutedTask]],
    policy: DelegationPolicy,
    width: int | None = None,
    only_subordinate: str = "",
) -> DelegationPlan:
    """Return the delegation plan for the calls of a message.

    Args:
        parsed: The parsed calls.
        routed: The routed tasks, by what `iter_unnamed_tasks` yields.
        policy: The agent's delegation policy.
        width: Most parallel requests; `None` for no limit.
        only_subordinate: The agent's only subordinate, which takes tasks without a candidate.
    """
    plan, room = DelegationPlan(refused=list(parsed.refused)), parsed.remaining_width
    for each in parsed.requests:
        parts: list[tuple[SubordinateCall, RoutedTask | None]] = []
        join: JoinPolicy = JoinAll()
        if isinstance(each, SubordinateCall):
            own = routed.get((each.message, policy.splitting), ())
            if width is not None and len(own) - 1 > room:
                # The place that its one call had reserved is free again.
                room += 1
                plan.refused.append((each, TooWide(len(own), width - room, width)))
                continue
            parts = _expand_request(
                _default_to_only(each, own, only_subordinate), own, policy, room
            )
            room -= len(parts) - 1
            if len(parts) == 1:
                plan.add_request(*parts[0])
                continue
        else:
            join = each.join
            for part in each.parts:
                asked_of = _expand_request(
                    part, routed.get((part.message, False), ()), policy, room
                )
                room -= len(asked_of) - 1
                parts += asked_of
        numbered = [
            (replace(request, call_id=build_part_id(each.call_id, place)), candidates)
            for place, (request, candidates) in enumerate(parts, start=1)
        ]
        plan.fan_outs.append(
            FanOutCall(each.call_id, join, tuple(request for request, _ in numbered))
        )
        for request, candidates in numbered:
            plan.add_request(request, candidates)
    return plan


def build_refusal(
    request: SubordinateCall, error: DelegationError, message: str, identity: Identity
) -> tuple[DelegationRequest, DelegationResponse]:
    """Return a request that is not sent, and the response to it."""
    asked = DelegationRequest(
        id=derive_request_id(identity.thread_id, message, request.call_id),
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
        reason=error.reason,
        # The same request may be made again in a later message.
        failed=isinstance(error, TooWide),
    )


def _default_to_only(
    request: SubordinateCall, routed: Sequence[RoutedTask], only_subordinate: str
) -> SubordinateCall:
    """Return a request, assigned to the only subordinate if it has no candidate."""
    nobody = not request.subordinate and not any(each.candidates.remaining for each in routed)
    return (
        replace(request, subordinate=only_subordinate) if nobody and only_subordinate else request
    )


def _build_no_candidate_error(routed: RoutedTask | None) -> NoCandidate:
    short = routed.route.short if routed else ()
    return NoCandidate(short[0].agent, short[0].match) if short else NoCandidate()


def _expand_request(
    request: SubordinateCall, routed: Sequence[RoutedTask], policy: DelegationPolicy, room: int
) -> list[tuple[SubordinateCall, RoutedTask | None]]:
    """Return the requests that one request becomes: itself, one a part, or one a candidate.

    Args:
        request: The request.
        routed: The routed task, or its parts.
        policy: The agent's delegation policy.
        room: How many more requests may run in parallel, at least one a part.
    """
    if request.subordinate or not routed:
        return [(request, None)]
    several: list[tuple[SubordinateCall, RoutedTask | None]] = []
    room -= len(routed) - 1
    for place, each in enumerate(routed, start=request.group):
        beside = _split_candidates(each.candidates, policy, room + 1)
        room -= len(beside) - 1
        for ways in beside:
            first = ways.remaining[0][0] if ways.remaining else ""
            asked = replace(request, subordinate=first, message=each.task, group=place)
            several.append((asked, replace(each, candidates=ways)))
    return several


def _split_candidates(
    candidates: Candidates, policy: DelegationPolicy, width: int
) -> list[Candidates]:
    """Return the candidates that are tried in parallel, each with its own fallbacks."""
    if policy.exploring == "ordered" or len(candidates.remaining) < 2:
        return [candidates]
    last = min(width, len(candidates.remaining)) - 1
    alone = [replace(candidates, remaining=(way,)) for way in candidates.remaining[:last]]
    return [*alone, replace(candidates, remaining=candidates.remaining[last:])]
