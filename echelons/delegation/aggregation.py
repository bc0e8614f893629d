"""Aggregation of several responses into one: phase 4 of the recursive delegation. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from echelons.delegation.request import DelegationRequest, DelegationResponse, Status, Usage
from echelons.guards.dismissals import DISMISSED_PREFIX
from echelons.messaging.agent_question import AgentQuestion
from echelons.messaging.user_answer import UserAnswer
from echelons.tree.names import PATH_SEPARATOR

PATH_COST = 0.05
"""Confidence deducted for each agent on a response's path, to rank conflicting responses."""
SHARED_PREFIXES = ("limit:", "over_grant:")
"""Prefixes of the reason of a response that no other candidate could better: they share it."""
EXHAUSTED_PREFIXES = ("budget:", "limit:", "refused:", "repeated:")
"""Prefixes of the reason of a response whose agent had to stop early."""


Responses: TypeAlias = Sequence[DelegationResponse]


def compute_preference(response: DelegationResponse) -> float:
    """Return the rank of a response among others: its confidence less the cost of its path.

    Source: `resolve_conflicts` of the recursive delegation, `confidence - 0.05 * len(path)`.

    Examples:
        >>> near = DelegationResponse(
        ...     request_id="r", agent="a", status="fulfilled", confidence=0.8, path=("h", "a")
        ... )
        >>> round(compute_preference(near), 2)
        0.7
    """
    # Rounded: 0.85 - 0.05 * 3 and 0.8 - 0.05 * 2 differ as floating-point numbers.
    return round(response.confidence - PATH_COST * len(response.path), 12)


def choose_best(responses: Iterable[DelegationResponse]) -> DelegationResponse:
    """Return the response of the highest preference; of equal ones the first by path.

    Raises:
        ValueError: There are no responses.
    """
    return min(responses, key=lambda each: (-compute_preference(each), each.path, each.agent))


def settle_responses(
    request: DelegationRequest,
    responses: Responses,
    required: Collection[str] = (),
    abilities: Mapping[str, Collection[str]] | None = None,
) -> DelegationResponse:
    """Return the response to a routed task: a single response as it is, else their aggregate.

    A single partial response is aggregated too, unless its agent had to stop early.
    """
    first = responses[0] if len(responses) == 1 else None
    if first and (first.status is not Status.PARTIAL or _is_exhausted(first)):
        return first
    return aggregate_responses(request, responses, required, abilities)


def aggregate_responses(
    request: DelegationRequest,
    responses: Responses,
    required: Collection[str] = (),
    abilities: Mapping[str, Collection[str]] | None = None,
) -> DelegationResponse:
    """Return the responses to a request, combined into one.

    - Some are fulfilled and none partial: the best of them.
    - Some are fulfilled and some partial: all of these together, fulfilled.
    - Some are partial: if one stopped because a budget was exhausted, all of them together,
      partial, since more input would not help. If two or more have a result, and their agents'
      capabilities cover those required, all of them together, fulfilled. Else `needs_input`,
      with the partial results.
    - Some ask a question: `needs_input`, with the questions.
    - All are unable: one `unable` with the reasons of all.

    Args:
        request: The request.
        responses: Its responses, at least one, in the order of the attempts.
        required: Capabilities that the task needs; empty if unknown.
        abilities: The capabilities of each agent that answered, by its name.
    """
    by_status = {status: [each for each in responses if each.status is status] for status in Status}
    fulfilled, partial = by_status[Status.FULFILLED], by_status[Status.PARTIAL]
    asking = by_status[Status.NEEDS_INPUT]
    if fulfilled and not partial:
        answer = choose_best(fulfilled)
    elif fulfilled:
        answer = _combine_parts(request, [*fulfilled, *partial], fulfilled)
    elif partial and not asking and any(_is_exhausted(each) for each in partial):
        answer = _combine_parts(request, partial, partial, Status.PARTIAL)
    elif partial and not asking and _covers_required(partial, required, abilities or {}):
        answer = _combine_parts(request, partial, partial)
    elif partial or asking:
        answer = _build_questions(request, [*partial, *asking])
    else:
        answer = _build_unable(request, responses)
    # A single response that is passed on as it is keeps its own list.
    unchanged = len(responses) == 1 and answer is responses[0]
    parts = answer.subordinate_responses if unchanged else without_results(responses)
    usage = sum((each.usage for each in responses), Usage())
    update: dict[str, Any] = {"usage": usage, "subordinate_responses": parts}
    if told := collect_user_answers(responses):
        update["user_answers"] = told
    return answer.model_copy(update=update)


def _covers_required(
    partial: Responses,
    required: Collection[str],
    abilities: Mapping[str, Collection[str]],
) -> bool:
    # A partial response without a result covers none of its agent's capabilities.
    shown = [each for each in partial if each.result or each.partial_results]
    able = {name for each in shown for name in abilities.get(each.agent, ())}
    # A single agent's partial result does not cover even its own capabilities.
    return len(shown) > 1 and bool(required) and able.issuperset(required)


def is_dismissed(response: DelegationResponse) -> bool:
    """Return whether a response is that of an agent that was dismissed, as none says of itself."""
    return response.failed and response.reason.startswith(DISMISSED_PREFIX)


def _is_exhausted(response: DelegationResponse) -> bool:
    return response.reason.startswith(EXHAUSTED_PREFIXES)


def _combine_parts(
    request: DelegationRequest,
    parts: Responses,
    sure: Responses,
    status: Status = Status.FULFILLED,
) -> DelegationResponse:
    """Return several responses as one, their results in order of preference."""
    ordered = sorted(parts, key=lambda each: (-compute_preference(each), each.path, each.agent))
    reasons = (each.reason for each in ordered if _is_exhausted(each))
    return _build_response(
        request,
        status,
        "\n\n".join(f"{format_responder(each)}: {each.result}" for each in ordered if each.result),
        confidence=min(each.confidence for each in sure),
        path=choose_best(sure).path,
        reason=next(reasons, "") if status is Status.PARTIAL else "",
        partial_results=list_partial_results(ordered),
    )


def _build_questions(request: DelegationRequest, responses: Responses) -> DelegationResponse:
    asking = [each for each in responses if each.status is Status.NEEDS_INPUT]
    partial = [each for each in responses if each.status is Status.PARTIAL]
    unsaid = "it does not say what is missing"
    questions = [
        *(f"{format_responder(each)}: {each.result or each.reason}" for each in asking),
        *(f"{format_responder(each)} did a part only: {each.reason or unsaid}" for each in partial),
    ]
    done = (f"{format_responder(each)}: {each.result}" for each in partial if each.result)
    return _build_response(
        request,
        Status.NEEDS_INPUT,
        # The superior's model reads the reason, too, which names an only agent and what it lacks.
        responses[0].result if len(responses) == 1 else "\n\n".join(["\n".join(questions), *done]),
        confidence=max(each.confidence for each in responses),
        path=choose_best(responses).path,
        reason=f"more information is needed from you: {'; '.join(questions)}",
        partial_results=list_partial_results(responses),
        questions=collect_questions(responses),
    )


def _build_unable(request: DelegationRequest, responses: Responses) -> DelegationResponse:
    if len(responses) == 1:
        return responses[0]
    reasons = [
        f"{format_responder(each)}: {each.reason or 'it gives no reason'}" for each in responses
    ]
    reason = f"no agent can: {'; '.join(reasons) or 'there is no candidate'}"
    failed = any(each.failed for each in responses)
    return _build_response(request, Status.UNABLE, reason=reason, failed=failed)


def _build_response(
    request: DelegationRequest, status: Status, result: str = "", **more: object
) -> DelegationResponse:
    base = DelegationResponse(
        request_id=request.id, agent=request.current, status=status, result=result
    )
    return DelegationResponse.model_validate({**base.model_dump(), "path": request.path, **more})


def list_partial_results(responses: Iterable[DelegationResponse]) -> tuple[str, ...]:
    """Return the results of the partial responses."""
    return tuple(each.result for each in responses if each.status is Status.PARTIAL and each.result)


def collect_questions(responses: Iterable[DelegationResponse]) -> tuple[AgentQuestion, ...]:
    """Return the questions of several responses."""
    return tuple(question for each in responses for question in each.questions)


def collect_user_answers(responses: Iterable[DelegationResponse]) -> tuple[UserAnswer, ...]:
    """Return what the user was asked for several responses."""
    return tuple(told for each in responses for told in each.user_answers)


def without_results(responses: Responses) -> tuple[DelegationResponse, ...]:
    """Return responses without results and questions, which are stored in their agents' threads."""
    update: dict[str, Any] = {"result": "", "questions": (), "user_answers": ()}
    return tuple(each.model_copy(update=update) for each in responses)


def format_responder(response: DelegationResponse) -> str:
    """Return the path from the asking agent down to the one that answers, as a string."""
    return PATH_SEPARATOR.join(response.path[1:]) or response.agent
