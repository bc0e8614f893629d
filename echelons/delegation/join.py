"""How several requests of a call are joined, and the race of candidates for one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from echelons.delegation.questions import AgentQuestion
from echelons.delegation.request import DelegationRequest, DelegationResponse, Status, Usage
from echelons.delegation.user_answers import UserAnswer
from echelons.errors import DelegationError, UnreadableRecord
from echelons.guards.dismissals import DISMISSED_PREFIX
from echelons.guards.gate import Gate, Halt, ScopedGate, get_gate
from echelons.run_context import get_context, with_context
from echelons.tree.names import PATH_SEPARATOR

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig


PATH_COST = 0.05
"""Confidence deducted for each agent on a response's path, to rank conflicting responses."""
SHARED_PREFIXES = ("limit:", "over_grant:")
"""Prefixes of the reason of a response that would hold for any other candidate too."""
EXHAUSTED_PREFIXES = ("budget:", "limit:", "refused:", "repeated:")
"""Prefixes of the reason of a response whose agent had to stop early."""


Responses: TypeAlias = Sequence[DelegationResponse]
T = TypeVar("T")
LOST_HALT = Halt("stopped", "others have answered, and that is enough")
"""The order that ends an entrant that has lost."""


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
    return round(response.confidence - PATH_COST * len(response.path.parts), 12)


def choose_best(responses: Iterable[DelegationResponse]) -> DelegationResponse:
    """Return the response of the highest preference; of equal ones the first by path."""
    return min(responses, key=_rank)


def _rank(response: DelegationResponse) -> tuple[float, tuple[str, ...], str]:
    return -compute_preference(response), response.path.parts, response.agent


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
    """
    by_status = {
        status: [response for response in responses if response.status is status]
        for status in Status
    }
    fulfilled, partial = by_status[Status.FULFILLED], by_status[Status.PARTIAL]
    asking = by_status[Status.NEEDS_INPUT]
    if fulfilled and not partial:
        answer = choose_best(fulfilled)
    elif fulfilled:
        answer = _combine_parts(request, [*fulfilled, *partial], fulfilled)
    elif partial and not asking and any(_is_exhausted(response) for response in partial):
        answer = _combine_parts(request, partial, partial, Status.PARTIAL)
    elif partial and not asking and _covers_required(partial, required, abilities or {}):
        answer = _combine_parts(request, partial, partial)
    elif partial or asking:
        answer = _build_questions(request, [*partial, *asking])
    else:
        answer = _build_unable(request, responses)
    # A single response that is passed on as it is keeps its own list.
    unchanged = len(responses) == 1 and answer is responses[0]
    parts = answer.subordinate_responses if unchanged else without_questions(responses)
    usage = sum((response.usage for response in responses), Usage())
    update: dict[str, Any] = {"usage": usage, "subordinate_responses": parts}
    if user_answers := collect_user_answers(responses):
        update["user_answers"] = user_answers
    return answer.model_copy(update=update)


def _covers_required(
    partial: Responses,
    required: Collection[str],
    abilities: Mapping[str, Collection[str]],
) -> bool:
    # A partial response without a result covers none of its agent's capabilities.
    shown = [response for response in partial if response.result or response.partial_results]
    covered = {name for response in shown for name in abilities.get(response.agent, ())}
    # A single agent's partial result does not cover even its own capabilities.
    return len(shown) > 1 and bool(required) and covered.issuperset(required)


def ends_search(response: DelegationResponse) -> bool:
    """Return whether no other candidate may try the task: a limit is reached, or one dismissed."""
    return response.reason.startswith(SHARED_PREFIXES) or is_dismissed(response)


def is_dismissed(response: DelegationResponse) -> bool:
    """Return whether a response is that of a dismissed agent: no agent says so itself."""
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
    ordered = sorted(parts, key=_rank)
    reasons = (response.reason for response in ordered if _is_exhausted(response))
    return _build_response(
        request,
        status,
        "\n\n".join(
            f"{format_responder(response)}: {response.result}"
            for response in ordered
            if response.result
        ),
        confidence=min(response.confidence for response in sure),
        path=choose_best(sure).path,
        reason=next(reasons, "") if status is Status.PARTIAL else "",
        partial_results=list_partial_results(ordered),
    )


def _build_questions(request: DelegationRequest, responses: Responses) -> DelegationResponse:
    asking = [response for response in responses if response.status is Status.NEEDS_INPUT]
    partial = [response for response in responses if response.status is Status.PARTIAL]
    no_reason = "it does not say what is missing"
    questions = [
        *(
            f"{format_responder(response)}: {response.result or response.reason}"
            for response in asking
        ),
        *(
            f"{format_responder(response)} did a part only: {response.reason or no_reason}"
            for response in partial
        ),
    ]
    done = (
        f"{format_responder(response)}: {response.result}"
        for response in partial
        if response.result
    )
    return _build_response(
        request,
        Status.NEEDS_INPUT,
        # The superior's model reads the reason, too, which names an only agent and what it lacks.
        responses[0].result if len(responses) == 1 else "\n\n".join(["\n".join(questions), *done]),
        confidence=max(response.confidence for response in responses),
        path=choose_best(responses).path,
        reason=f"more information is needed from you: {'; '.join(questions)}",
        partial_results=list_partial_results(responses),
        questions=collect_questions(responses),
    )


def _build_unable(request: DelegationRequest, responses: Responses) -> DelegationResponse:
    if len(responses) == 1:
        return responses[0]
    reasons = [
        f"{format_responder(response)}: {response.reason or 'it gives no reason'}"
        for response in responses
    ]
    reason = f"no agent can: {'; '.join(reasons) or 'there is no candidate'}"
    failed = any(response.failed for response in responses)
    return _build_response(request, Status.UNABLE, reason=reason, failed=failed)


def _build_response(
    request: DelegationRequest, status: Status, result: str = "", **more: object
) -> DelegationResponse:
    base = DelegationResponse(
        request_id=request.id, agent=request.current, status=status, result=result
    )
    return DelegationResponse.model_validate(
        {**base.model_dump(), "path": request.path_from_origin, **more}
    )


def list_partial_results(responses: Iterable[DelegationResponse]) -> tuple[str, ...]:
    """Return the results of the partial responses."""
    return tuple(
        response.result
        for response in responses
        if response.status is Status.PARTIAL and response.result
    )


def collect_questions(responses: Iterable[DelegationResponse]) -> tuple[AgentQuestion, ...]:
    """Return the questions of several responses."""
    return tuple(question for response in responses for question in response.questions)


def collect_user_answers(responses: Iterable[DelegationResponse]) -> tuple[UserAnswer, ...]:
    """Return what the user was asked for several responses."""
    return tuple(answer for response in responses for answer in response.user_answers)


def without_questions(responses: Responses) -> tuple[DelegationResponse, ...]:
    """Return responses without what was asked for them, as part of the response above them."""
    update: dict[str, Any] = {"questions": (), "user_answers": ()}
    return tuple(response.model_copy(update=update) for response in responses)


def format_responder(response: DelegationResponse) -> str:
    """Return the path from the asking agent down to the one that answers, as a string."""
    return PATH_SEPARATOR.join(response.path.parts[1:]) or response.agent


JOIN_NAMES = ("all", "first", "quorum", "best")
"""The names of the policies, as a model writes them."""


class JoinPolicy(ABC):
    """A policy by which the several requests of one call are joined."""

    name: str  # that a model uses
    enough: int = 0  # fulfilled tasks that stop the others; 0 to wait for every task

    @abstractmethod
    def join_responses(self, request: DelegationRequest, answers: Responses) -> DelegationResponse:
        """Return the responses to a call joined into one, given one response per task.

        `request` is the call as a request of its superior to itself. The responses are in the order
        of the tasks; if some stop the others, the fulfilled ones are in the order of their arrival.
        """

    def stored(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"join": self.name}


class JoinAll(JoinPolicy):
    """Wait for every request, and join all responses."""

    name = "all"

    def join_responses(self, request: DelegationRequest, answers: Responses) -> DelegationResponse:
        """Return all responses under one status; a single one as it is."""
        if len(answers) == 1:
            return answers[0]
        return _build_joint_response(request, answers, combine_statuses(answers))


class JoinQuorum(JoinPolicy):
    """Wait for a number of fulfilled responses, 1 or more."""

    name = "quorum"

    def __init__(self, count: int) -> None:
        self.enough = count

    def join_responses(self, request: DelegationRequest, answers: Responses) -> DelegationResponse:
        """Return the first `count` fulfilled responses; all there are, if those are too few."""
        fulfilled = _select_fulfilled(answers)
        if len(fulfilled) >= self.enough:
            return _build_joint_response(request, fulfilled[: self.enough], Status.FULFILLED)
        if not fulfilled:
            return settle_responses(request, answers)
        # After a question, an answer may still complete the quorum.
        short = _build_joint_response(request, answers, combine_statuses(answers))
        missing = f"quorum: {len(fulfilled)} of {self.enough} are fulfilled"
        return short.model_copy(update={"reason": f"{missing}; {short.reason}"})

    def stored(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"join": self.name, "n": self.enough}


class JoinFirst(JoinPolicy):
    """Wait for the first fulfilled response."""

    name = "first"
    enough = 1

    def join_responses(self, request: DelegationRequest, answers: Responses) -> DelegationResponse:
        """Return the first fulfilled response; the aggregate of all, if there is none."""
        fulfilled = _select_fulfilled(answers)
        return fulfilled[0] if fulfilled else settle_responses(request, answers)


class JoinBest(JoinPolicy):
    """Wait for every request, and take the best fulfilled response."""

    name = "best"

    def join_responses(self, request: DelegationRequest, answers: Responses) -> DelegationResponse:
        """Return the response of the highest preference; the aggregate, if none is fulfilled."""
        fulfilled = _select_fulfilled(answers)
        return choose_best(fulfilled) if fulfilled else settle_responses(request, answers)


def parse_join(name: Any, count: Any, requests: int) -> JoinPolicy:
    """Return the policy that a model names; `count` is the `n` of a quorum."""
    if name == "quorum" and (
        isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= requests
    ):
        raise _invalid_join(name, count, f"n must be a whole number from 1 to {requests}")
    if not isinstance(name, str) or name not in JOIN_NAMES:
        raise _invalid_join(name, count, f"join must be one of {', '.join(JOIN_NAMES)}")
    return load_join(name, count)


def _invalid_join(join: Any, count: Any, why: str) -> DelegationError:
    return DelegationError(
        "{join:short} with n={count:short} is no way to join: {why}",
        code="join",
        join=join,
        count=count,
        why=why,
    )


def load_join(name: str, count: int | None = None) -> JoinPolicy:
    """Return the policy with a stored name and count."""
    if name == JoinQuorum.name and count:
        return JoinQuorum(count)
    return {"first": JoinFirst, "best": JoinBest}.get(name, JoinAll)()


def join_call_responses(
    request: DelegationRequest,
    join: JoinPolicy,
    answers: Responses,
    responses: Responses,
) -> DelegationResponse:
    """Return the response to a call with several requests; see `JoinPolicy.join_responses`."""
    return join.join_responses(request, answers).model_copy(
        update={
            "request_id": request.id,
            "thread_id": "",
            "usage": sum((response.usage for response in responses), Usage()),
            "subordinate_responses": without_questions(responses),
            "user_answers": collect_user_answers(responses),
        }
    )


def combine_statuses(responses: Responses) -> Status:
    """Return the common status of several responses, or that of a mixture; `UNABLE` for none."""
    statuses = {response.status for response in responses}
    if len(statuses) == 1:
        return statuses.pop()
    if Status.NEEDS_INPUT in statuses:
        return Status.NEEDS_INPUT
    return Status.PARTIAL if statuses else Status.UNABLE


def _select_fulfilled(responses: Iterable[DelegationResponse]) -> list[DelegationResponse]:
    return [response for response in responses if response.status is Status.FULFILLED]


def _build_joint_response(
    request: DelegationRequest, answers: Responses, status: Status
) -> DelegationResponse:
    sections, unfulfilled = [], []
    for number, response in enumerate(answers, start=1):
        note = ""
        if response.status is not Status.FULFILLED:
            note = f"[{response.status}] {response.reason}".strip()
            unfulfilled.append(
                f"{format_responder(response)}: {response.reason or response.status}"
            )
        text = "\n".join(part for part in (note, response.result) if part)
        sections.append(f"{number}. {format_responder(response)}: {text}")
    done = (answer for answer in answers if answer.status in (Status.FULFILLED, Status.PARTIAL))
    return DelegationResponse(
        request_id=request.id,
        agent=request.current,
        status=status,
        result="\n\n".join(sections),
        confidence=min((answer.confidence for answer in done), default=0.0),
        path=request.path_from_origin,
        reason="" if status is Status.FULFILLED else "; ".join(unfulfilled),
        partial_results=list_partial_results(answers),
        failed=bool(answers) and all(response.failed for response in answers),
        questions=collect_questions(answers),
    )


@dataclass(frozen=True, slots=True)
class RaceEntry:
    """One request in a race: a part of a call that makes several."""

    race: str  # id of the call
    group: int  # number of the task: several agents may be asked to do the same one
    enough: int  # fulfilled tasks that stop the others; 0 to wait for every task

    def stored(self) -> list[Any]:
        """Return it as JSON."""
        return [self.race, self.group, self.enough]

    @classmethod
    def load(cls, stored: Any) -> RaceEntry:
        """Return the entrant from the JSON of `stored`."""
        match stored:
            case [str(race), int(group), int(enough)]:
                return cls(race, group, enough)
        raise UnreadableRecord(cls.__name__, "it is not stored as one")

    def has_lost(self, placed: Collection[int]) -> bool:
        """Return whether enough other tasks are fulfilled, given the groups that are."""
        return 0 < self.enough <= len(placed) and self.group not in placed


class Races(Protocol):
    """The races of a run, as nodes use them; the ledger of the checkpoints has them."""

    # A race has ended while one of its entrants waited for a human's answer.
    has_obsolete_interrupt: bool

    def begin(self) -> None:
        """Forget the waiting entrants, as a run begins; those that still wait register again."""

    def place(self, entrant: RaceEntry) -> int:
        """Record that an entrant has fulfilled its task; return its place, 1 for the first."""
        ...

    def has_lost(self, entrant: RaceEntry) -> bool:
        """Return whether a race is over and an entrant is not among the winners."""
        ...

    async def arun(self, work: Callable[[], T]) -> T:
        """Call some of these methods in an event loop; repeat all of it if the ledger was busy."""
        ...

    def register_waiting(self, entrant: RaceEntry) -> bool:
        """Register that an entrant waits for an answer; return whether it still has to."""
        ...

    def listen(self, entrant: RaceEntry, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back from any thread when an entrant has lost; return a function that ends it."""
        ...


class RaceGate(ScopedGate):
    """The gate of an entrant, which closes when it has lost."""

    def __init__(self, gate: Gate, races: Races, entrant: RaceEntry) -> None:
        super().__init__(gate)
        self._races = races
        self._entrant = entrant

    @property
    def halt(self) -> Halt | None:
        """The order to begin no more steps, once it has lost."""
        return LOST_HALT if self._races.has_lost(self._entrant) else None

    def leave(self, reply: Any, config: Mapping[str, Any]) -> Halt | None:
        """Count the tokens of a reply; return a `Halt` if it must not be acted on."""
        # Asked before the count: if the ledger is busy, all of this is done again.
        over = self.halt
        return self.gate.leave(reply, config) or over

    def listen(
        self, config: Mapping[str, Any], callback: Callable[[Halt], None]
    ) -> Callable[[], None]:
        """Register a callback for when the agent has lost or is stopped."""
        leave = self.gate.listen(config, callback)
        leave_race = self._races.listen(self._entrant, lambda: callback(LOST_HALT))

        def leave_both() -> None:
            leave()
            leave_race()

        return leave_both


def get_races(config: Mapping[str, Any]) -> Races:
    """Return the races in a run's config."""
    races = get_context(config).races
    if races is None:
        raise LookupError("the run is not part of a tree")
    return races


def with_race_gate(config: RunnableConfig, entrant: RaceEntry | None) -> RunnableConfig:
    """Return an entrant's config, with a gate of its own."""
    if entrant is None or not entrant.enough:
        return config
    gate = RaceGate(get_gate(config), get_races(config), entrant)
    return with_context(config, replace(get_context(config), gate=gate))
