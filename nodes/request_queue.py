"""A superior's request queue: requests, their attempts and answers, and which node takes what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from langchain_core.messages import ToolMessage
from langgraph.types import Command

from echelons.delegation.calls import NO_CANDIDATES, Candidates
from echelons.delegation.join import RaceEntry, ends_search, settle_responses
from echelons.delegation.notice import MARK_KEY, create_mark
from echelons.delegation.policy import DEFAULT_POLICY, DelegationPolicy
from echelons.delegation.questions import build_question_id, format_questions
from echelons.delegation.request import DelegationRequest, DelegationResponse, Status
from echelons.delegation.user_answers import format_user_answers
from echelons.errors import DelegationError, UnreadableRecord
from echelons.features.feature import SubordinateSource
from echelons.guards.limits import compute_deadline
from echelons.identity.lineage import (
    DELEGATED_KEY,
    NOTICES_KEY,
    derive_message_id,
    derive_request_id,
    derive_subordinate_thread_id,
    require_identity,
)
from echelons.identity.thread_history import Head, ThreadHistory
from echelons.nodes.planning.repeated_calls import mark_refused
from echelons.run_context import get_context
from echelons.tree.agent_path import AgentPath
from echelons.tree.names import CALL_SUBORDINATE, DELEGATING_TOOLS

REFUSE = "refuse"
DISPATCH = "dispatch"


@dataclass(frozen=True, slots=True)
class QueuedRequest:
    """One request of a delegation's queue, as it is stored.

    Attributes:
        request: The request, addressed to the subordinate of this attempt.
        call_id: Id of the superior's call that it answers, or of a part of one.
        thread_id: The subordinate's thread.
        continues: Whether the thread existed before the request.
        message_id: The superior's message, from which further attempts derive their thread ids.
        candidates: The remaining candidates.
        earlier_responses: The responses of earlier attempts.
        reset: Whether a relayed request starts new conversations on its route.
        race_entry: Its race entry, if it is a part of a call; `None` if it is the whole call.
        routed: Whether the router has found its candidates.
        wrap_log: The log of the middleware around this attempt so far: responses, and
            other values that it keeps.
        tool: Name of the tool that was called.
        is_new: Whether the call makes the subordinate.
        added: The facts of the added subordinates that it may go to, by name.
        waiting: The request whose middleware waits for the answer to this one; `None` if the
            superior's call does.
        beside: Whether its message has others for the subordinate, on other threads.
        mark: The mark of the notices of a thread that has no head yet; empty if it has.
    """

    request: DelegationRequest
    call_id: str
    thread_id: str
    continues: bool
    message_id: str = ""
    candidates: Candidates = NO_CANDIDATES
    earlier_responses: tuple[DelegationResponse, ...] = ()
    reset: bool = False
    race_entry: RaceEntry | None = None
    routed: bool = False
    wrap_log: tuple[Mapping[str, Any], ...] = ()
    tool: str = CALL_SUBORDINATE
    added: Mapping[str, Any] = field(default_factory=dict)
    waiting: QueuedRequest | None = None
    is_new: bool = False
    beside: bool = False
    mark: str = ""

    def stored(self) -> dict[str, Any]:
        """Return the queued request as JSON."""
        kept: dict[str, Any] = {
            "request": self.request.stored(),
            "call_id": self.call_id,
            "thread_id": self.thread_id,
            "continues": self.continues,
        }
        if self.candidates or self.earlier_responses or self.request.route:
            kept |= {
                "message_id": self.message_id,
                "ways": self.candidates.stored(),
                "tried": [response.stored() for response in self.earlier_responses],
                "reset": self.reset,
            }
        if self.race_entry:
            kept["part"] = self.race_entry.stored()
        if self.wrap_log:
            kept["wrap_log"] = [dict(entry) for entry in self.wrap_log]
        if self.tool != CALL_SUBORDINATE:
            kept["tool"] = self.tool
        if self.added:
            kept["spawned"] = dict(self.added)
        if self.waiting:
            kept["waiting"] = self.waiting.stored()
        marks = {"routed": self.routed, "new": self.is_new, "beside": self.beside}
        kept |= {name: True for name, is_set in marks.items() if is_set}
        if self.mark:
            kept[MARK_KEY] = self.mark
        return kept

    @classmethod
    def load(cls, stored: Mapping[str, Any]) -> QueuedRequest:
        """Return a queued request from JSON.

        Raises:
            UnreadableRecord: It, or the request in it, is damaged.
        """
        match stored:
            case {"request": given, "call_id": str(call), "thread_id": str(thread)}:
                request = DelegationRequest.load(given)
            case _:
                raise UnreadableRecord(cls.__name__, "it is not stored as one")
        return cls(
            request,
            call,
            thread,
            bool(stored.get("continues")),
            stored.get("message_id", ""),
            Candidates.load(stored["ways"]) if "ways" in stored else NO_CANDIDATES,
            tuple(DelegationResponse.load(response) for response in stored.get("tried", ())),
            stored.get("reset", False),
            RaceEntry.load(stored["part"]) if "part" in stored else None,
            stored.get("routed", False),
            _read_log(stored.get("wrap_log", ())),
            str(stored.get("tool", CALL_SUBORDINATE)),
            _read_added(stored["spawned"]) if "spawned" in stored else {},
            cls.load(stored["waiting"]) if "waiting" in stored else None,
            stored.get("new", False),
            stored.get("beside", False),
            str(stored.get(MARK_KEY, "")),
        )

    def without_deadline(self) -> QueuedRequest:
        """Return it without a deadline, which is set when the request before it has ended."""
        return replace(self, request=self.request.model_copy(update={"deadline": None}))

    def get_head(self, state: Mapping[str, Any]) -> Head | None:
        """Return the head of its thread, as far as the delegation's state knows."""
        heads: Mapping[str, Head] = state.get("heads") or {}
        if self.thread_id in heads:
            return heads[self.thread_id]
        return None if self.earlier_responses or self.waiting else state.get("head")

    def within(self, config: Mapping[str, Any]) -> QueuedRequest:
        """Return it with a request as its superior, with `config`, sends it."""
        turn, above = require_identity(config).turn, get_context(config).request
        return replace(self, request=self.request.within(above, turn))

    def get_mark(self, state: Mapping[str, Any]) -> str:
        """Return the mark of its thread's notices; empty in what an earlier version stored."""
        return (self.get_head(state) or {}).get(MARK_KEY) or self.mark

    def build_side_request(self, agent: str, task: str, superior: str) -> QueuedRequest:
        """Return a request to another subordinate, for whose answer this one waits.

        All that its middleware asks of one subordinate is on one thread.
        """
        agents = [entry["asked"]["agent"] for entry in self.wrap_log if "asked" in entry]
        request = self.request.model_copy(
            update={
                "id": derive_request_id(superior, self.request.id, f"ask/{len(agents)}"),
                "current": agent,
                "task": task,
                "context": {},
                "input": None,
                "path": self.request.path.parent / agent,
                "attempts": 1,
                "route": (),
                "why": "",
                "addressee": (),
            }
        )
        thread = derive_subordinate_thread_id(superior, self.request.id, f"ask/{agent}")
        return QueuedRequest(
            request,
            self.call_id,
            thread,
            continues=agent in agents,
            message_id=self.message_id,
            race_entry=self.race_entry,
            waiting=self,
            mark=create_mark(),
        )

    def pass_answer(self, answer: DelegationResponse) -> QueuedRequest | None:
        """Return the request that waits for the answer to this one, with the answer."""
        if self.waiting is None:
            return None
        entry = {"asked": self._with_thread_id(answer).stored()}
        return replace(self.waiting, wrap_log=(*self.waiting.wrap_log, entry))

    def build_next_attempt(self, answer: DelegationResponse, superior: str) -> QueuedRequest | None:
        """Return the next attempt, or `None` if the answer suffices or no candidate is left."""
        if not self.candidates.remaining or answer.status not in (Status.UNABLE, Status.PARTIAL):
            return None
        if ends_search(answer):
            return None
        current, *route = way = self.candidates.remaining[0]
        attempt = self.request.attempts + 1
        request = self.request.model_copy(
            update={
                "current": current,
                "route": tuple(route),
                "path": self.request.path.parent / current,
                "attempts": attempt,
                "why": self.candidates.reasons.get(way[-1], ""),
            }
        )
        thread = derive_subordinate_thread_id(superior, self.message_id, self.call_id, attempt)
        return replace(
            self,
            request=request,
            thread_id=thread,
            continues=False,
            candidates=self.candidates.without_first(),
            earlier_responses=(*self.earlier_responses, self._with_thread_id(answer)),
            wrap_log=(),
            mark=create_mark(),
        )

    def settle_attempts(self, answer: DelegationResponse) -> DelegationResponse:
        """Return the combined response of all attempts."""
        if not self.earlier_responses:
            # The parts of a call are joined when all have ended.
            if self.race_entry:
                return self._with_thread_id(answer)
            if not self.routed:
                return answer
        request = self.request.model_copy(
            update={
                "current": self.request.origin,
                "path": AgentPath(self.request.path_from_origin.parts[:1]),
            }
        )
        responses, candidates = self.collect_responses(answer) or [answer], self.candidates
        return settle_responses(request, responses, candidates.required, candidates.abilities)

    def collect_responses(self, answer: DelegationResponse) -> tuple[DelegationResponse, ...]:
        """Return the responses of all attempts; empty if this was the only one."""
        tried = self.earlier_responses
        return (*tried, self._with_thread_id(answer)) if tried else ()

    def _with_thread_id(self, answer: DelegationResponse) -> DelegationResponse:
        return answer.model_copy(update={"thread_id": self.thread_id})


def _read_log(stored: object) -> tuple[Mapping[str, Any], ...]:
    if isinstance(stored, Sequence) and all(isinstance(entry, Mapping) for entry in stored):
        return tuple(stored)
    raise UnreadableRecord(QueuedRequest.__name__, "its wrap_log is no list of objects")


def _read_added(stored: object) -> Mapping[str, Any]:
    if isinstance(stored, Mapping):
        return stored
    raise UnreadableRecord(QueuedRequest.__name__, "its spawned is no object")


def build_part_entry(
    response: DelegationResponse, place: int = 0, attempts: Sequence[DelegationResponse] = ()
) -> dict[str, Any]:
    """Return the entry of a finished part for the superior's state."""
    entry: dict[str, Any] = {"response": response.stored(), "place": place}
    if attempts:
        entry["attempts"] = [attempt.stored() for attempt in attempts]
    return entry


def build_tool_message(
    queued: QueuedRequest,
    answer: DelegationResponse,
    tool: str = "",
    more: tuple[Sequence[str], Mapping[str, Any]] = ((), {}),
) -> ToolMessage:
    """Return the tool message that answers a call, with the response as its artifact.

    `tool` is the tool that was called, if it is another than that of the request; `more` are
    further notices, and entries of the metadata. Its text is what the subordinate says; what the
    library says of the answer is noted beside it.
    """
    tool = tool or queued.tool
    unable = answer.status is Status.UNABLE
    plain = answer.status is Status.FULFILLED
    note = f"[{answer.status}] {answer.reason}".strip()
    # An agent that only asks may give its question as its result and as its reason.
    questions = "\n".join(question.text for question in answer.questions)
    is_repeated = not answer.result or answer.result in (answer.reason, questions)
    content = answer.result if plain else note if is_repeated else f"{note}\n{answer.result}"
    metadata: dict[str, Any] = {} if tool in DELEGATING_TOOLS else {DELEGATED_KEY: True}
    if notices := [*_iter_notices(queued, answer), *more[0]]:
        metadata[NOTICES_KEY] = notices
    metadata |= more[1]
    return ToolMessage(
        content,
        id=derive_message_id(queued.thread_id, f"answer/{queued.request.id}"),
        tool_call_id=queued.call_id,
        name=tool,
        artifact=answer.to_artifact(),
        status="error" if unable else "success",
        response_metadata=metadata,
        additional_kwargs={"unavailable": True} if unable else {},
    )


def _iter_notices(queued: QueuedRequest, answer: DelegationResponse) -> Iterator[str]:
    """Yield what the library says of an answer: it stands beside it, and goes no further."""
    yield from format_questions(answer.questions)
    yield from format_user_answers(answer.user_answers)
    if queued.beside and not answer.awaits_answer:
        conversation = build_question_id(answer.thread_id or queued.thread_id)
        yield f'To continue this conversation with {answer.agent}: answers="{conversation}"'


@dataclass(frozen=True, slots=True)
class RequestQueue:
    """Assigns a superior's queued requests to nodes and advances the queue.

    Attributes:
        nodes: The node that takes the requests for each subordinate, by its name.
        history: Reads the threads.
        timeouts: Seconds for each declared subordinate, by its name; `None` for no limit.
        policy: The superior's delegation policy.
        models: The model of each agent of the tree, by its name.
        source: What adds subordinates to the declared ones; `None` for nothing.
    """

    nodes: Mapping[str, str]
    history: ThreadHistory
    timeouts: Mapping[str, float | None] = field(default_factory=dict)
    policy: DelegationPolicy = DEFAULT_POLICY
    models: Mapping[str, Any] = field(default_factory=dict)
    source: SubordinateSource | None = None

    def get_timeout(self, order: QueuedRequest, config: Mapping[str, Any]) -> float | None:
        """Return the seconds of the subordinate of a queued request; `None` for no limit."""
        name = order.request.current
        if self.source and name in order.added:
            levels = self.source.count_levels(order.added[name], config)
            return self.policy.compute_timeout(levels)
        return self.timeouts.get(name)

    def find_refusal(self, order: QueuedRequest, config: Mapping[str, Any]) -> str | None:
        """Return why a queued request is refused, or `None` if its subordinate may take it."""
        name = order.request.current
        if name not in self.nodes and name not in order.added:
            return f"unknown_subordinate: no subordinate is called {name!r}"
        if order.continues and not self.history.is_durable(config):
            return "no_checkpointer: nothing was kept of the earlier conversation; use reset=true"
        try:
            check_request_path(order.request, config)
        except DelegationError as error:
            return error.reason
        return None

    def choose_node(self, stored: Mapping[str, Any], config: Mapping[str, Any]) -> str:
        """Return the node that takes a stored queued request."""
        order = QueuedRequest.load(stored)
        if self.find_refusal(order, config):
            return REFUSE
        return self.nodes.get(order.request.current, DISPATCH)

    def decide_next_step(
        self,
        order: QueuedRequest,
        answer: DelegationResponse,
        config: Mapping[str, Any],
        spent: float = 0.0,
        may_retry: bool = True,
    ) -> NextStep:
        """Return the step after an attempt of `spent` seconds; `config` is the superior's."""
        if waiting := order.pass_answer(answer):
            return NextStep(order, config, waiting)
        if answer.end in ("filtered", "refused"):
            order = self._leave_out_model(order, answer.agent, config)
        request = order.request.with_time_spent(spent)
        if may_retry and order.candidates.remaining and request.seconds != 0:
            superior = require_identity(config).thread_id
            timed = self._with_deadline(replace(order, request=request), config)
            following = timed.build_next_attempt(answer, superior)
            if following:
                return NextStep(order, config, following)
        attempts = order.collect_responses(answer)
        return NextStep(order, config, answer=order.settle_attempts(answer), attempts=attempts)

    def advance(self, state: Mapping[str, Any], step: NextStep, head: Head | None) -> Command[Any]:
        """Return the command that applies a step; `head` is that of the thread that has run."""
        order, queue = step.order, list(state["queue"][1:])
        update: dict[str, Any] = {}
        if head:
            update["heads"] = {order.thread_id: head}
        if step.next_attempt:
            queue.insert(0, step.next_attempt.stored())
        elif step.answer and order.race_entry:
            entry = build_part_entry(step.answer, step.place, step.attempts)
            update["parts"] = {order.request.id: entry}
        elif step.answer:
            more: tuple[Sequence[str], Mapping[str, Any]] = (), {}
            if self.source and order.added:
                more = self.source.describe(order, step.answer, step.config)
            message = build_tool_message(order, step.answer, more=more)
            # Earlier attempts may have said something.
            is_notice = not order.earlier_responses
            update["messages"] = [
                mark_refused(message, is_notice=is_notice) if step.refused else message
            ]
        if not queue and (waiting := state.get("waiting")):
            queue, update["waiting"] = [waiting[0]], 1
        if queue and not step.next_attempt:
            waited = QueuedRequest.load(queue[0])
            queue[0] = self._with_deadline(waited, step.config).stored()
        update["queue"] = queue
        return Command(update=update, goto=self.choose_node(queue[0], step.config) if queue else ())

    def _leave_out_model(
        self, order: QueuedRequest, agent: str, config: Mapping[str, Any]
    ) -> QueuedRequest:
        """Return a queued request without the candidates that have the model of an agent.

        A model that has refused a task, or its provider's filter, would do so again.
        """
        if (model := self._get_model(agent, order, config)) is None:
            return order
        remaining = tuple(
            way
            for way in order.candidates.remaining
            if not _is_same_model(self._get_model(way[-1], order, config), model)
        )
        return replace(order, candidates=replace(order.candidates, remaining=remaining))

    def _get_model(self, name: str, order: QueuedRequest, config: Mapping[str, Any]) -> Any:
        """Return the model of an agent, also of one that was added."""
        if self.source is None or name not in order.added:
            return self.models.get(name)
        model = self.source.find_model(order.added[name], config)
        # It inherits that of its superior.
        return self.models.get(require_identity(config).agent) if model is None else model

    def _with_deadline(self, order: QueuedRequest, config: Mapping[str, Any]) -> QueuedRequest:
        """Return a queued request that is sent now, with its deadline."""
        timeout = self.get_timeout(order, config)
        deadline = compute_deadline(config, (timeout, order.request.seconds))
        return replace(order, request=order.request.model_copy(update={"deadline": deadline}))


class NextStep(NamedTuple):
    """The step after an attempt: another attempt, or the answer.

    Attributes:
        order: The attempt.
        config: The superior's config.
        next_attempt: The next attempt, if there is one.
        answer: The combined response of all attempts, if there is no next one.
        place: The place of the answer in its race, from 1; 0 without a race.
        attempts: The responses of the attempts, if there were several.
        refused: Whether the call is answered without anything having been run for it.
    """

    order: QueuedRequest
    config: Mapping[str, Any]
    next_attempt: QueuedRequest | None = None
    answer: DelegationResponse | None = None
    place: int = 0
    attempts: Sequence[DelegationResponse] = ()
    refused: bool = False


def check_request_path(request: DelegationRequest, config: Mapping[str, Any]) -> None:
    """Check the path and the route of a request; `config` is that of the agent that sends it.

    Raises:
        DelegationError: An agent is on the path twice; the path is longer than the request allows;
            the path is deeper than the tree may be, with the trees around.
    """
    context, identity = get_context(config), require_identity(config)
    if context.request:
        request = request.within(context.request, identity.turn)
    path = (*request.path.parts, *request.route)
    for place, name in enumerate(path):
        if name in path[:place]:
            raise DelegationError(
                "it has been with {agent!r} already: {path: > }",
                code="cycle",
                path=path[: place + 1],
                agent=name,
            )
    if len(path) - 1 > request.max_hops:
        raise DelegationError(
            "it would pass {hops} agents, and may pass {limit}; ask a nearer agent, or raise "
            "max_hops in the DelegationPolicy of the agent that sends it",
            code="hops",
            hops=len(path) - 1,
            limit=request.max_hops,
        )
    level, limit = context.levels_around + len(identity.path), context.max_depth
    if (deepest := level + 1 + len(request.route)) > limit:
        raise DelegationError(
            "it would go down to level {depth}, trees within trees counted, and no request goes "
            "below {limit}; flatten them, and see that none runs itself again",
            code="depth",
            depth=deepest,
            limit=limit,
        )


def _is_same_model(first: Any, second: Any) -> bool:
    """Return whether two clients call one model of a provider, as far as their settings tell."""
    if first is second:
        return True
    if type(first) is not type(second) or not getattr(first, "lc_secrets", None):
        return False
    names = [
        getattr(client, "model_name", None) or getattr(client, "model", None)
        for client in (first, second)
    ]
    return isinstance(names[0], str) and names[0] == names[1]
