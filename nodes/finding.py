"""Who takes the calls that name nobody: candidates, the best first, out of a route. Pure.

``reason`` asks the router and calls this; the delegation graph then tries one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from langchain_core.messages import AIMessage, ToolMessage

from echelons.delegation import DelegationRequest, DelegationResponse, Status
from echelons.lineage import Identity, request_id
from echelons.names import CALL_SUBORDINATE
from echelons.nodes.calls import Abilities, Delegation
from echelons.nodes.orders import Order, tool_message
from echelons.routing import Route

Way = list[str]
"""Names from a subordinate down to the agent that a task is for."""


def unnamed(reply: object, abilities: Abilities) -> Iterator[str]:
    """Yield the tasks of a reply for which nobody is named, though several could be."""
    if not isinstance(reply, AIMessage) or len(abilities.subordinates) < 2:
        return
    for call in reply.tool_calls:
        task = call["args"].get("message")
        free = call["name"] == CALL_SUBORDINATE and not call["args"].get("subordinate")
        if free and isinstance(task, str) and task.strip():
            yield task


def routed(
    delegations: Sequence[Delegation], routes: Mapping[str, Route]
) -> tuple[list[Delegation], dict[str, list[Way]], list[tuple[Delegation, Route | None]]]:
    """Sort calls into those with somebody to ask, and those without.

    Args:
        delegations: The calls.
        routes: Who may take the tasks that name nobody, by task.

    Returns:
        The calls, each with the name of the first to ask; for those that named nobody the
        ways to all candidates, by call; and the calls that nobody can take.
    """
    named: list[Delegation] = []
    ways: dict[str, list[Way]] = {}
    nobodys: list[tuple[Delegation, Route | None]] = []
    for each in delegations:
        if each.subordinate:
            named.append(each)
            continue
        route = routes.get(each.message)
        found = _ways(route) if route else []
        if not found:
            nobodys.append((each, route))
            continue
        ways[each.call_id] = found
        first = found[0][0]
        named.append(Delegation(each.call_id, first, each.message, each.reset))
    return named, ways, nobodys


def unanswerable(
    call: Delegation, route: Route | None, message: AIMessage, identity: Identity
) -> ToolMessage:
    """Return the answer to a call that nobody can take."""
    request = DelegationRequest(
        id=request_id(identity.thread_id, message.id or "", call.call_id),
        origin=identity.agent,
        current=identity.agent,
        task=call.message,
        path=(identity.agent,),
    )
    nearest = route.short[0] if route and route.short else None
    hint = (
        f"; the nearest is {nearest.agent!r}, with a match of {nearest.match:.2f}"
        if nearest
        else ""
    )
    answer = DelegationResponse(
        request_id=request.id,
        agent=identity.agent,
        status=Status.UNABLE,
        path=request.path,
        reason=f"no_candidate: nobody below {identity.agent!r} is made for this task{hint}",
    )
    return tool_message(Order(request, call.call_id, identity.thread_id, continues=False), answer)


def _ways(route: Route) -> list[Way]:
    above = len(route.receiver)
    return [list(each.path[above:]) for each in route.candidates if len(each.path) > above]
