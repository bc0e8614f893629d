"""Plans a reply's delegations: who gets each request, in order of fit, and its facts.

`reason` asks the router and calls this; the delegation graph then tries the candidates one
after the other, or in parallel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig

from echelons.delegation.calls import (
    Candidates,
    FanOutCall,
    NamesBelow,
    SubordinateCall,
    build_part_id,
)
from echelons.delegation.context import (
    MAX_EVENT,
    Condense,
    ContextPolicy,
    build_context,
    read_condensed,
)
from echelons.delegation.join import JoinAll, JoinPolicy
from echelons.delegation.notice import MARK_KEY, create_mark
from echelons.delegation.policy import DelegationPolicy
from echelons.delegation.request import DelegationRequest, DelegationResponse, Status
from echelons.errors import ConfigurationError, DelegationError, too_wide
from echelons.identity.lineage import (
    ASIDE_KEY,
    Identity,
    derive_request_id,
    derive_subordinate_thread_id,
)
from echelons.identity.thread_history import Head, build_head
from echelons.nodes.planning.task_router import RoutedTask
from echelons.nodes.planning.tool_calls import ParsedReply
from echelons.text.input_limits import check_context
from echelons.tree.agent_path import AgentPath
from echelons.tree.names import PATH_SEPARATOR

RoutedTasks: TypeAlias = Mapping[tuple[str, bool], Sequence[RoutedTask]]
"""The routed tasks of a message, by task and whether it may be split."""
IsPerson: TypeAlias = Callable[[str, str], bool]
"""Returns whether a person works on the tasks for a subordinate and the target below it."""


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
        if request.route:
            way = (request.subordinate, *request.route)
            self.candidates[request.call_id] = Candidates((way,))
        elif routed and routed.candidates.remaining:
            self.candidates[request.call_id] = routed.candidates
        elif not request.subordinate:
            short = routed.route.short if routed else ()
            near = "; the nearest is {nearest!r}, with a match of {match:.2f}" if short else ""
            error = DelegationError(
                f"no agent below fits this task{near}",
                code="no_candidate",
                nearest=short[0].agent if short else "",
                match=short[0].match if short else 0.0,
            )
            self.refused.append((request, error))

    def refuse_repeated(
        self, answered: Callable[[SubordinateCall], Mapping[NamesBelow, Status]]
    ) -> None:
        """Refuse requests that have been answered already, unless they reset the conversation.

        A request is refused if one of its candidates has fulfilled the task, or if all are
        unable; else it goes to the candidates that have not answered. `answered` returns the
        candidates that have answered a request's task, with their status.
        """
        # An answer to a question is no task, and may be that to another question, too.
        for request in [
            request for request in self.requests if not (request.reset or request.thread_id)
        ]:
            statuses = answered(request)
            candidates = self.candidates.get(request.call_id, Candidates(((request.subordinate,),)))
            fulfilled = [
                way for way in candidates.remaining if statuses.get(way) is Status.FULFILLED
            ]
            ahead = tuple(way for way in candidates.remaining if way not in statuses)
            if fulfilled or not ahead:
                agent = PATH_SEPARATOR.join((fulfilled or candidates.remaining)[0])
                self.requests.remove(request)
                self.candidates.pop(request.call_id, None)
                error = DelegationError(
                    "{agent!r} has answered {task:short} in this turn already, and nothing else "
                    "has been done since; use that answer, ask for something else, or begin "
                    "anew with reset=true",
                    code="repeated",
                    agent=agent,
                    task=request.message,
                )
                self.refused.append((request, error))
            elif ahead != candidates.remaining:
                self.candidates[request.call_id] = replace(candidates, remaining=ahead)
                # Replace a request, also where it is a part of a call.
                new = replace(request, subordinate=ahead[0][0])
                self.requests = [new if other == request else other for other in self.requests]
                self.fan_outs = [
                    replace(
                        call, parts=tuple(new if part == request else part for part in call.parts)
                    )
                    for call in self.fan_outs
                ]


def iter_unnamed_tasks(parsed: ParsedReply, policy: DelegationPolicy) -> Iterator[tuple[str, bool]]:
    """Yield the tasks that name no subordinate, and whether each may be split."""
    for call in parsed.requests:
        # A call with several requests is a task that the model has split already.
        whole = policy.splitting and isinstance(call, SubordinateCall)
        for request in (call,) if isinstance(call, SubordinateCall) else call.parts:
            if not request.subordinate:
                yield request.message, whole


def compute_max_parts(parsed: ParsedReply, splits: bool) -> int:
    """Return the most parts a task may have: one, plus the remaining width of the message."""
    return parsed.remaining_width + 1 if splits else 1


def build_delegation_plan(
    parsed: ParsedReply,
    routed: RoutedTasks,
    policy: DelegationPolicy,
    width: int | None = None,
    only_subordinate: str = "",
) -> DelegationPlan:
    """Return the delegation plan for the calls of a message.

    Args:
        parsed: The parsed calls.
        routed: The routed tasks.
        policy: The agent's delegation policy.
        width: Most parallel requests; `None` for no limit.
        only_subordinate: The agent's only subordinate, which takes tasks without a candidate.
    """
    plan, room = DelegationPlan(refused=list(parsed.refused)), parsed.remaining_width
    # Of equal candidates, each request of the message gets another, as long as there are some.
    at_work: set[str] = set()
    if routed:
        for call in parsed.requests:
            whole = (call,) if isinstance(call, SubordinateCall) else call.parts
            at_work.update(part.subordinate for part in whole)
    for call in parsed.requests:
        parts: list[tuple[SubordinateCall, RoutedTask | None]] = []
        join: JoinPolicy = JoinAll()
        if isinstance(call, SubordinateCall):
            tasks, request = routed.get((call.message, policy.splitting), ()), call
            if width is not None and len(tasks) - 1 > room:
                # The place that its one call had reserved is free again.
                room += 1
                plan.refused.append((call, too_wide(len(tasks), width - room, width)))
                continue
            if not (call.subordinate or any(task.candidates.remaining for task in tasks)):
                request = replace(call, subordinate=only_subordinate)
            parts = _expand_request(request, tasks, policy, room, at_work)
            room -= len(parts) - 1
            if len(parts) == 1:
                plan.add_request(*parts[0])
                continue
        else:
            join = call.join
            for part in call.parts:
                tasks = routed.get((part.message, False), ())
                expanded = _expand_request(part, tasks, policy, room, at_work)
                room -= len(expanded) - 1
                parts += expanded
        numbered: list[SubordinateCall] = []
        for place, (request, routed_task) in enumerate(parts, start=1):
            numbered.append(replace(request, call_id=build_part_id(call.call_id, place)))
            plan.add_request(numbered[-1], routed_task)
        plan.fan_outs.append(FanOutCall(call.call_id, join, tuple(numbered)))
    return plan


def choose_threads(
    delegations: Sequence[SubordinateCall],
    targets: Mapping[str, str],
    existing: Mapping[str, Head],
    message: AIMessage,
    identity: Identity,
    is_person: IsPerson,
) -> tuple[dict[str, str], dict[str, Head]]:
    """Return thread ids by call id, in call order, and the state entry of each of these threads.

    The first task of a message for a subordinate goes on with its latest conversation, or starts
    one. Each other starts a side conversation, so that they run side by side; it never becomes the
    latest. A person gets one after another, on one thread. A call with `reset` starts a thread that
    becomes the latest, and one that names a conversation goes on with that.

    A subordinate that relays requests has conversations for each target: on one thread, requests
    for two agents below it would wait for each other.

    Args:
        delegations: The calls.
        targets: Relay targets below the subordinate (`way` of a `Head`), by call id.
        existing: The existing threads, in the order of their start.
        message: The message that contains the calls.
        identity: The agent that calls.
        is_person: Returns whether a person works on the tasks for a subordinate and a target.
    """
    latest = {
        (head["agent"], head.get("way", "")): thread
        for thread, head in existing.items()
        if "side" not in head
    }
    threads: dict[str, str] = {}
    used: dict[str, Head] = {}
    begun: set[tuple[str, str]] = set()
    for delegation in delegations:
        recipient = delegation.subordinate, targets.get(delegation.call_id, "")
        thread = delegation.thread_id or (None if delegation.reset else latest.get(recipient))
        is_named = bool(delegation.thread_id or delegation.reset)
        is_side = recipient in begun and not (is_named or is_person(*recipient))
        if thread is None or is_side:
            superior, message_id = identity.thread_id, message.id or ""
            thread = derive_subordinate_thread_id(superior, message_id, delegation.call_id)
            if not is_side:
                latest[recipient] = thread
        # One that goes on with a side conversation leaves the latest to the others.
        if thread == latest.get(recipient):
            begun.add(recipient)
        threads[delegation.call_id] = thread
        head = existing.get(thread) or build_head(*recipient)
        if MARK_KEY not in head:
            # Before the thread runs, so that a crash does not change it.
            head = Head(**{**head, "notice_mark": create_mark()})
        used.setdefault(thread, Head(**{**head, "side": True}) if is_side else head)
    return threads, used


def list_side_by_side(threads: Mapping[str, str], heads: Mapping[str, Head]) -> list[str]:
    """Return the ids of the calls whose subordinate was sent others, on other threads.

    Args:
        threads: The thread ids of a message's calls.
        heads: The heads of these threads.
    """
    recipients = [(head["agent"], head.get("way", "")) for head in heads.values()]
    several = {recipient for recipient, count in Counter(recipients).items() if count > 1}
    shared = {
        thread for thread, recipient in zip(heads, recipients, strict=True) if recipient in several
    }
    return [call_id for call_id, thread in threads.items() if thread in shared]


def condense_context(
    policy: ContextPolicy | Condense,
    messages: Sequence[BaseMessage],
    identity: Identity,
    config: RunnableConfig,
    call: SubordinateCall,
) -> Mapping[str, Any]:
    """Return the facts that a policy passes to a subordinate of its superior's work.

    Args:
        policy: The superior's.
        messages: Its conversation.
        identity: The superior.
        config: The config of its task.
        call: The request.

    Raises:
        ConfigurationError: The function of a policy raised, or returned something else.
    """
    tasks = (
        str(message.text)
        for message in reversed(messages)
        if message.type == "human" and ASIDE_KEY not in message.response_metadata
    )
    whole = build_context(
        (*identity.path, call.subordinate) if call.subordinate else (),
        config,
        payload=None if call.input is None else dict(call.input),
        recent_events=tuple(_iter_events(messages)),
        preview=next(tasks, ""),
    )
    condense = policy.condense if isinstance(policy, ContextPolicy) else policy
    try:
        return check_context(read_condensed(condense(whole)), "the context")
    # The function is the caller's.
    except Exception as error:
        raise ConfigurationError(
            "the context that {agent!r} gives failed: {why}; let the function of "
            "DelegationPolicy(context=…) return a DelegationContext, and resume the turn",
            code="context_failed",
            agent=PATH_SEPARATOR.join(identity.path),
            why=str(error),
        ) from error


def build_refusal(
    request: SubordinateCall, error: DelegationError, message: str, identity: Identity
) -> tuple[DelegationRequest, DelegationResponse]:
    """Return a request that is not sent, and the response to it."""
    refused = DelegationRequest(
        id=derive_request_id(identity.thread_id, message, request.call_id),
        origin=identity.agent,
        current=identity.agent,
        task=request.message,
        path=AgentPath(identity.agent),
    )
    return refused, DelegationResponse(
        request_id=refused.id,
        agent=identity.agent,
        status=Status.UNABLE,
        path=refused.path,
        reason=error.reason,
        # The same request may be made again in a later message.
        failed=error.code == "width",
    )


def _expand_request(
    request: SubordinateCall,
    routed: Sequence[RoutedTask],
    policy: DelegationPolicy,
    room: int,
    at_work: set[str],
) -> list[tuple[SubordinateCall, RoutedTask | None]]:
    """Return the requests that one request becomes: itself, one a part, or one a candidate.

    `room` is how many more requests may run in parallel, at least one a part. The agents that
    get the requests are added to `at_work`.
    """
    if request.subordinate or not routed:
        return [(request, None)]
    several: list[tuple[SubordinateCall, RoutedTask | None]] = []
    room -= len(routed) - 1
    for place, task in enumerate(routed, start=request.group):
        tried = _split_candidates(task.prefer_idle(at_work).candidates, policy, room + 1)
        room -= len(tried) - 1
        for branch in tried:
            first = branch.remaining[0][0] if branch.remaining else ""
            at_work.update(branch.remaining[0][-1:] if branch.remaining else ())
            expanded = replace(request, subordinate=first, message=task.task, group=place)
            several.append((expanded, replace(task, candidates=branch)))
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


def _iter_events(messages: Sequence[BaseMessage]) -> Iterator[str]:
    """Yield the messages and calls of an agent, a line each."""
    for message in messages:
        text = " ".join(str(message.text).split())[:MAX_EVENT]
        verb = {"human": "told", "tool": f"{message.name} returned"}.get(message.type, "said")
        if text:
            yield f"{verb}: {text}"
        for call in message.tool_calls if isinstance(message, AIMessage) else ():
            yield f"called: {call['name']}"
