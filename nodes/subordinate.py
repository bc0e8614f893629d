"""The nodes of a superior's delegation graph: its subordinates, `dispatch` and `refuse`."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any, TypeAlias, cast

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.checkpoint.base import EXCLUDED_METADATA_KEYS

from echelons.delegation.calls import RelayedRequest, is_response_message
from echelons.delegation.contract import Contract, dump_model, get_contract
from echelons.delegation.join import RaceEntry, get_races, with_race_gate, without_questions
from echelons.delegation.notice import MARK_KEY, create_mark
from echelons.delegation.questions import AgentQuestion
from echelons.delegation.request import (
    DelegationRequest,
    DelegationResponse,
    Status,
    Usage,
    render_facts,
)
from echelons.delegation.user_answers import UserAnswer
from echelons.errors import ConfigurationError, DelegationError, InvalidInput, UnreadableRecord
from echelons.features.feature import AttemptHooks, AttemptStep, collect, compose
from echelons.guards.circuit_breaker import AttemptOutcome
from echelons.guards.gate import HALT_KEY, Halt, Pause, Step, get_gate
from echelons.identity.lineage import (
    ADDRESSEE_KEY,
    END_KEY,
    REQUEST_CONTEXT_KEY,
    UNASKED_KEY,
    USER_ANSWERS_KEY,
    Identity,
    derive_message_id,
    require_identity,
)
from echelons.identity.thread_history import (
    Head,
    Past,
    build_head,
    build_head_step,
    build_past_step,
    join_path,
)
from echelons.langgraph_internals import TASK_ID_KEY
from echelons.models.notices import build_notice
from echelons.nodes.attempt import (
    Attempt,
    AttemptOptions,
    AttemptResult,
    LevelFailure,
    attempt,
    classify_outcome,
)
from echelons.nodes.base_node import Node
from echelons.nodes.messages import read_spent_usage
from echelons.nodes.planning.final_answer import read_final_answer
from echelons.nodes.planning.relay import RELAYED_RESPONSE_KEY
from echelons.nodes.request_queue import (
    DISPATCH,
    REFUSE,
    NextStep,
    QueuedRequest,
    RequestQueue,
    check_request_path,
)
from echelons.plans import Plan, arun_plan_steps, build_step, run_plan_steps
from echelons.run_context import get_context, with_context
from echelons.tree.members import Member
from echelons.tree.names import PATH_SEPARATOR
from echelons.tree.permission_rules import get_rights

NOTHING_KEPT: Mapping[str, Any] = {}
MAX_NODES = 256
"""Most subordinates with a node each; 2,000 flat nodes tripled the cost of a run."""


class Subordinate(Node):
    """The node of one subordinate, whose attempts run within the hooks of features.

    One that was made at run time shares a `circuit` with the others of its kind.
    """

    def __init__(
        self,
        member: Member,
        level: Runnable[Any, Any],
        queue: RequestQueue,
        hooks: Sequence[AttemptHooks] = (),
        circuit: str = "",
    ) -> None:
        super().__init__(member.name, subgraphs=[level])
        self._circuit = circuit
        self._agent = member.name
        self._level = level
        # A plain answer counts with the best declared confidence, or fully.
        self._confidence = max(member.capabilities.values(), default=1.0)
        self._contract = get_contract(member)
        self._rights = get_rights(member)
        self._queue = queue
        self._head_keys = frozenset(key for hook in hooks for key in hook.head_keys)
        self._around_request = collect(hooks, "around_request", AttemptHooks)
        around_attempt = collect(hooks, "around_attempt", AttemptHooks)
        around_level = collect(hooks, "around_level", AttemptHooks)
        self._enter_within = compose(around_attempt, self._enter)
        self._run_within = compose(around_level, self._run_level)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run the first request of the queue."""
        return run_plan_steps(self._run(input, config or {}))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Async version of `invoke`."""
        return await arun_plan_steps(self._run(input, config or {}))

    def _run(self, state: Mapping[str, Any], config: RunnableConfig) -> Plan[Any]:
        """Run the first request of the queue, within the hooks of features."""
        order, history = self._load_order(state, config), self._queue.history
        run: Callable[[QueuedRequest], Plan[Any]] = partial(self._attempt, state, config)
        for around in self._around_request[::-1]:
            run = partial(around, config=config, proceed=run)
        attempt: Attempt | QueuedRequest = yield from run(order)
        if isinstance(attempt, QueuedRequest):
            config_below = self._build_config(order, config)
            head = yield build_head_step(history, config_below)
            return self._advance(state, NextStep(order, config, next_attempt=attempt), head)
        config_below = attempt.config or self._build_config(order, config)
        head = yield build_head_step(history, config_below)
        step = self._decide_next_step(order, attempt, config)
        kept: dict[str, Any] = {}
        for settle in attempt.settles:
            kept |= yield from settle(attempt.answer, step, state, config_below)
        if entry := _get_winning_entry(step):
            races = get_races(config_below)
            place = yield build_step(partial(races.place, entry), races.arun)
            step = step._replace(place=place)
        return self._advance(state, step, head, attempt, kept)

    def _load_order(self, state: Mapping[str, Any], config: RunnableConfig) -> QueuedRequest:
        """Return the first request of the queue, with its input if the subordinate takes one."""
        order = QueuedRequest.load(state["queue"][0]).within(config)
        contract, request = self._contract, order.request
        if contract is None or contract.input is None or request.route:
            return order
        fields = request.input
        if fields is None and order.continues:
            # A message on a thread goes on with the input with which its conversation began.
            fields = (order.get_head(state) or {}).get("input")
        try:
            if fields is None:
                payload = contract.read_task(request.task)
            else:
                payload = contract.read_input(fields)
        except InvalidInput:
            # The attempt says so: it is no attempt of the subordinate.
            return order
        whole = request.model_copy(update={"input": fields or dump_model(payload)})
        return replace(order, request=whole.with_payload(payload))

    def _attempt(
        self, state: Mapping[str, Any], config: RunnableConfig, order: QueuedRequest
    ) -> Plan[Attempt]:
        """Run a request once with the subordinate, within the hooks of features."""
        config_below = self._build_config(order, config)
        options, failure = self._build_options(order, config_below, config)
        begun, gate = (
            monotonic() if options.begun is None else options.begun,
            get_gate(config_below),
        )
        if gate.backpressure:
            yield gate.backpressure.build_start_step(config_below["configurable"][TASK_ID_KEY])
        head, mark = order.get_head(state), order.get_mark(state)
        step = AttemptStep(order, head, mark, config_below, gate, options, failure)
        done: Attempt = yield from self._enter_within(step)
        # A feature may count more.
        return done._replace(spent=max(done.spent, monotonic() - begun))

    def _enter(self, step: AttemptStep) -> Plan[Attempt]:
        """Run an attempt that was admitted with what it claims."""
        order, config, gate, history = step.order, step.config, step.gate, self._queue.history
        enter = partial(gate.enter, Step.SUBORDINATE, config, step.claims)
        halt, failure = (yield build_step(enter, gate.arun)), step.failure
        if halt and not failure:
            failure = _reject_halted(halt, (yield build_head_step(history, config)))
        if failure:
            result = AttemptResult(failure)
        else:
            start = build_level_input(order, step.head, step.mark)
            if self._carried_keys and "previous" in start:
                start |= self._carry((yield build_past_step(history, start["previous"], config)))
            result = yield from self._run_within(replace(step, start=start))
        answer = build_response(order.request, result.outcome, self._confidence)
        if self._contract and self._contract.output and not order.request.route:
            answer = apply_output(answer, self._contract)
        answer = answer.with_thread(order.thread_id)
        if result.stop_reason:
            answer = answer.model_copy(update={"reason": f"{answer.reason}; {result.stop_reason}"})
        ended = result.outcome if isinstance(result.outcome, Mapping) else {}
        mark = str(ended.get(MARK_KEY) or "")
        end = classify_outcome(result.outcome)
        return Attempt(answer, result.stop_reason, config=config, mark=mark, end=end)._replace(
            refused=failure is not None
        )

    def _run_level(self, step: AttemptStep) -> Plan[AttemptResult]:
        return attempt(self._level, step.start, step.config, step.options)

    def _build_config(self, order: QueuedRequest, config: RunnableConfig) -> RunnableConfig:
        """Return the config of the subordinate for a request."""
        superior, request = require_identity(config), order.request
        identity = replace(
            superior,
            agent=self._agent,
            path=(*superior.path, self._agent),
            thread_id=order.thread_id,
            superior_thread_id=superior.thread_id,
            request_id=request.id,
        )
        is_added = self._agent in order.added
        context = get_context(config).enter_level(request, self._rights, is_added=is_added)
        named = with_identity(with_context(config, context), identity)
        return with_race_gate(named, order.race_entry) if order.race_entry else named

    def _build_options(
        self, order: QueuedRequest, config_below: RunnableConfig, config: RunnableConfig
    ) -> tuple[AttemptOptions, LevelFailure | None]:
        """Return the options of an attempt, and why it must not run, if so."""
        request, held = order.request, get_gate(config).held_attempts
        named: Any = config_below
        path = named["metadata"]["agent_path"]
        options = AttemptOptions(
            path=f"{path.rpartition(PATH_SEPARATOR)[0]}{PATH_SEPARATOR}{self._circuit}"
            if self._circuit
            else path,
            target=request.route[-1] if request.route else request.current,
            timeout=self._get_timeout(order, config),
            race_entry=order.race_entry,
            begun=held.find_begin(named) if held else None,
        )
        failure = _reject_misplaced(request, tuple(path.split(PATH_SEPARATOR)), config)
        return options, failure or self._reject_level() or self._reject_input(request)

    def _reject_level(self) -> LevelFailure | None:
        """Return why an added subordinate cannot be built of its facts; `None` if it can."""
        try:
            # Its level is compiled when something is first read of it.
            _ = self._carried_keys
        except ConfigurationError as error:
            return LevelFailure(f"invalid_agent: {error}", AttemptOutcome.NOTHING)
        return None

    def _reject_input(self, request: DelegationRequest) -> LevelFailure | None:
        """Return the failure of a request that is not of the contract, `None` if it is."""
        contract = self._contract
        if (
            contract is None
            or contract.input is None
            or request.route
            or request.payload is not None
        ):
            return None
        try:
            if request.input is None:
                contract.read_task(request.task)
            else:
                contract.read_input(request.input)
        except InvalidInput as error:
            return LevelFailure(f"invalid_input: {error}", AttemptOutcome.NOTHING)
        return None

    @property
    def _carried_keys(self) -> frozenset[str]:
        return getattr(self._level, "carried_keys", frozenset())

    def _carry(self, past: Past) -> dict[str, Any]:
        """Return the state of its middleware with which it has ended its last request."""
        return {key: past.values[key] for key in self._carried_keys if key in past.values}

    def _get_timeout(self, order: QueuedRequest, config: RunnableConfig) -> float | None:
        """Return the seconds of an attempt: its own, or what is left of the request's."""
        timeout, left = self._queue.get_timeout(order, config), order.request.seconds
        return left if left is not None and (timeout is None or left < timeout) else timeout

    def _decide_next_step(
        self, order: QueuedRequest, attempt: Attempt, config: RunnableConfig
    ) -> NextStep:
        entry, config_below = order.race_entry, attempt.config
        # A subordinate that was stopped because others have won needs no fallback. Its gate has
        # read the race already, so this does not block.
        has_lost = (
            config_below and entry and entry.enough and get_races(config_below).has_lost(entry)
        )
        may_retry = not (attempt.stop_reason or has_lost)
        return self._queue.decide_next_step(
            order, attempt.answer, config, attempt.spent, may_retry=may_retry
        )

    def _advance(
        self,
        state: Mapping[str, Any],
        step: NextStep,
        head: Head,
        done: Attempt | None = None,
        kept: Mapping[str, Any] = NOTHING_KEPT,
    ) -> Any:
        # A failed segment is part of the thread too; one without rows leaves the old head.
        kept_head: Head | None = step.order.get_head(state)
        if head:
            kept_head = {**head, **build_head(self._agent, join_path(step.order.request.route))}
            if "side" in (state.get("head") or ()):
                # So is the thread of another candidate for the same task.
                kept_head["side"] = True
            if self._contract and step.order.request.input is not None:
                kept_head["input"] = step.order.request.input
        if kept_head and (mark := step.order.get_mark(state) or (done.mark if done else "")):
            kept_head = Head(**{**kept_head, "notice_mark": mark})
        if kept_head and not self._head_keys.isdisjoint(kept_head):
            left = {key: value for key, value in kept_head.items() if key not in self._head_keys}
            kept_head = cast("Head", left)
        if kept:
            kept_head = cast("Head", {**(kept_head or build_head(self._agent, "")), **kept})
        if (source := self._queue.source) and self._agent in step.order.added:
            answer, began = done and done.answer, bool(done and (head or not done.refused))
            order, kept_head = source.keep(
                step.order, kept_head or build_head(self._agent, ""), answer, began=began
            )
            step = step._replace(order=order)
        return self._queue.advance(state, step, kept_head)


def _get_winning_entry(step: NextStep) -> RaceEntry | None:
    """Return the race entry of a request that has been fulfilled, if it takes part in a race."""
    entry, answer = step.order.race_entry, step.answer
    fulfilled = answer is not None and answer.status is Status.FULFILLED
    return entry if fulfilled and entry and entry.enough else None


def _reject_misplaced(
    request: DelegationRequest, path: Sequence[str], superior: Mapping[str, Any]
) -> LevelFailure | None:
    """Return the failure of a request that is addressed to another agent, `None` if it is not.

    The library makes no such request, but the database may have been edited.
    """
    # From its origin on, or, once it was taken, from the root of its tree on.
    names = request.path.parts
    whole = names[-2:] == path[-2:] and request.origin in names[:-1]
    whole = whole and names in (request.path_from_origin.parts, path[-len(names) :])
    if not whole or request.current != path[-1]:
        why = f"what is stored of it is not of a request of {path[-2]!r} to {path[-1]!r}"
        return LevelFailure(f"misplaced: {why}", AttemptOutcome.NOTHING)
    try:
        check_request_path(request, superior)
    except DelegationError as error:
        return LevelFailure(error.reason, AttemptOutcome.NOTHING)
    return None


def _reject_halted(halt: Halt | Pause, begun: Head) -> LevelFailure | None:
    """Return the failure of a halted subordinate, or `None` if it runs nevertheless.

    When a limit is reached, a subordinate that began before a crash or an interrupt still
    runs, so that it ends by itself with its partial result. A pause takes effect in `reason`.
    """
    if isinstance(halt, Pause) or (begun and (halt.finishes or halt.is_limit)):
        return None
    if halt.kind in ("dismissed", "over_grant"):
        return LevelFailure(halt.reason, AttemptOutcome.NOTHING)
    return LevelFailure(halt.reason if begun else f"not run: {halt.reason}")


def build_level_input(order: QueuedRequest, head: Head | None, mark: str = "") -> dict[str, Any]:
    """Return the input state of a subordinate's segment; its thread gets a mark if it has none."""
    request, thread = order.request, order.thread_id
    task = HumanMessage(request.task, id=derive_message_id(thread, request.id))
    if request.addressee:
        task.response_metadata[ADDRESSEE_KEY] = list(request.addressee)
        if request.context:
            task.response_metadata[REQUEST_CONTEXT_KEY] = request.context
    messages = [task]
    if facts := request.context:
        fact_id = derive_message_id(thread, f"context/{request.id}")
        # Before the task: the last message of a superior is the task, word for word.
        messages.insert(0, HumanMessage(render_facts(facts), id=fact_id))
    if request.siblings:
        place = derive_message_id(thread, f"siblings/{request.id}")
        siblings = ", ".join(request.siblings)
        messages.insert(0, build_notice(f"agents beside you: {siblings}", place))
    start: dict[str, Any] = {"messages": messages, "request": request.id}
    start[MARK_KEY] = mark or create_mark()
    if head and "checkpoint_id" in head:
        start["previous"] = dict(head)
    if order.request.route:
        start["forward"] = RelayedRequest(order.request, order.reset).stored()
    return start


def build_response(
    request: DelegationRequest, outcome: Mapping[str, Any] | LevelFailure, confidence: float
) -> DelegationResponse:
    """Return the response to a request from the output of its segment.

    A plain answer is `fulfilled` with the declared confidence; a report states its own status;
    a failure is `unable`, and so is an answer without text.
    """
    base = DelegationResponse(
        request_id=request.id,
        agent=request.current,
        status=Status.UNABLE,
        path=request.path_from_origin,
    )
    if isinstance(outcome, LevelFailure):
        return base.model_copy(update={"reason": outcome.reason, "failed": True})
    messages: list[BaseMessage] = outcome["messages"]
    reported: Mapping[str, Any] = outcome.get("response") or {}
    if RELAYED_RESPONSE_KEY in reported:
        # It is the response of the agent that answered, with the path to it.
        relayed = DelegationResponse.load(reported[RELAYED_RESPONSE_KEY])
        return relayed.model_copy(update={"request_id": request.id})
    results = [message for message in messages if isinstance(message, ToolMessage)]
    below = tuple(
        DelegationResponse.load(result.artifact)
        for result in results
        if is_response_message(result) and result.artifact is not None
    )
    usage = sum(map(read_spent_usage, messages), Usage())
    last = messages[-1] if messages else None
    answer_fields = read_final_answer(reported, messages)
    # A subordinate that is no agent has asked by itself.
    askers = [*results, last] if isinstance(last, AIMessage) else results
    status, reason = Status(answer_fields["status"]), answer_fields.get("reason", "")
    if last and not reason and UNASKED_KEY in last.response_metadata:
        reason = f"no subordinate was asked: {request.current} answered by itself"
    default = 0.0 if status is Status.UNABLE else confidence
    return base.model_copy(
        update={
            "status": status,
            "result": answer_fields.get("result", ""),
            "confidence": answer_fields.get("confidence", default),
            "reason": reason,
            # The agent did not report an empty or interrupted answer itself.
            "failed": status is Status.UNABLE
            and (HALT_KEY in answer_fields or answer_fields.get(END_KEY) == "empty"),
            "end": answer_fields.get(END_KEY, ""),
            "usage": sum((below_response.usage for below_response in below), usage),
            "questions": tuple(
                AgentQuestion.load(below_response).model_copy(
                    update={"path": request.path_from_origin}
                )
                for below_response in answer_fields.get("questions", ())
            ),
            "user_answers": tuple(
                answer.model_copy(update={"path": request.path_from_origin})
                for answer in _iter_user_answers(askers, below)
            ),
            "subordinate_responses": without_questions(below),
            "partial_results": _list_partial_results(answer_fields, results),
        }
    )


def _list_partial_results(
    answer_fields: Mapping[str, Any], results: Iterable[ToolMessage]
) -> tuple[str, ...]:
    """Return the results of the calls of an agent whose budget is used up, in order."""
    if answer_fields.get(HALT_KEY) != "budget":
        return ()
    return tuple(str(result.text) for result in results if result.status == "success")


def apply_output(answer: DelegationResponse, contract: Contract) -> DelegationResponse:
    """Return a response with its output; a fulfilled one without is `unable`."""
    if answer.status is not Status.FULFILLED or contract.output is None:
        return answer
    try:
        value = dump_model(contract.read_output(answer.result))
    except InvalidInput as error:
        why = f"invalid_output: {error}"
        update: dict[str, Any] = {"reason": why, "confidence": 0.0, "failed": True}
        return answer.model_copy(update={"status": Status.UNABLE, **update})
    return answer.model_copy(
        update={
            "result": json.dumps(value, ensure_ascii=False),
            "output": {"model": contract.output.__name__, "value": value},
        }
    )


def _iter_user_answers(
    results: Iterable[BaseMessage], below: Iterable[DelegationResponse]
) -> Iterator[UserAnswer]:
    """Yield what the user was asked for the calls of an agent, and about its requests."""
    for result in results:
        if USER_ANSWERS_KEY in result.response_metadata:
            marks = result.response_metadata[USER_ANSWERS_KEY]
            if not isinstance(marks, list):
                raise UnreadableRecord(UserAnswer.__name__, "they are no list")
            yield from map(UserAnswer.load, marks)
    for response in below:
        yield from (answer for answer in response.user_answers if len(answer.path.parts) == 1)


def with_identity(config: RunnableConfig, identity: Identity) -> RunnableConfig:
    """Return the config with an identity that the caller's metadata cannot override.

    LangGraph's notes on the superior's task are left out; it notes as much of every task below.
    """
    metadata = (config.get("metadata") or {}).items()
    kept = {key: value for key, value in metadata if key not in EXCLUDED_METADATA_KEYS}
    return {**config, "metadata": {**kept, **identity.to_metadata()}}


class Refuse(Node):
    """The node `refuse` of a delegation graph."""

    def __init__(self, queue: RequestQueue) -> None:
        super().__init__(REFUSE)
        self._queue = queue

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Answer the first request of the queue with `unable`."""
        config = config or {}
        order = QueuedRequest.load(input["queue"][0]).within(config)
        answer = DelegationResponse(
            request_id=order.request.id,
            agent=order.request.current,
            status=Status.UNABLE,
            path=order.request.path_from_origin,
            # The same rule sent the request here, so a reason is found again.
            reason=self._queue.find_refusal(order, config) or "refused",
            failed=True,
        )
        step = self._queue.decide_next_step(order, answer, config)
        step = step._replace(refused=not order.earlier_responses)
        return self._queue.advance(input, step, order.get_head(input))


BuildAdded: TypeAlias = Callable[[Any, Mapping[str, Any]], Subordinate]
"""Returns an added subordinate, from its facts and the config of the node."""


def assign_nodes(names: Collection[str]) -> dict[str, str]:
    """Return the name of the node that runs each subordinate, by the subordinate's name."""
    shared = len(names) > MAX_NODES
    return {name: DISPATCH if shared else name for name in names}


class Dispatch(Node):
    """The node `dispatch` of a delegation graph: for very many subordinates, and for added ones.

    The subordinates' graphs are not listed as its subgraphs: LangGraph would take the first
    for all of them. Studio therefore shows one node; sessions and thread stores, which read
    the checkpoints, show each agent.
    """

    def __init__(
        self,
        subordinates: Mapping[str, Subordinate],
        build_added: BuildAdded | None = None,
    ) -> None:
        super().__init__(DISPATCH)
        self._subordinates = subordinates
        self._build_added = build_added

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run the first request of the queue with the subordinate that it names."""
        return self._find_subordinate(input, config).invoke(input, config, **kwargs)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Async version of `invoke`."""
        return await self._find_subordinate(input, config).ainvoke(input, config, **kwargs)

    def _find_subordinate(
        self, state: Mapping[str, Any], config: RunnableConfig | None
    ) -> Subordinate:
        order = QueuedRequest.load(state["queue"][0])
        name = order.request.current
        if name in self._subordinates:
            return self._subordinates[name]
        if self._build_added is None or name not in order.added:
            raise UnreadableRecord(QueuedRequest.__name__, f"no subordinate is called {name!r}")
        return self._build_added(order.added[name], {**(config or {})})
