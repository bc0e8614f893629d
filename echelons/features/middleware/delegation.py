"""Middleware around the requests to an agent's subordinates: `wrap_delegation`.

A wrap may call its handler several times: each further call is another request on the same thread
of the subordinate. Its progress so far is stored with the queued request, step by step; in each
step the wrap is run from its start, with what is stored, up to what is new. So nothing that has
ended is done again, over questions and the death of the process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

from langchain.agents.middleware.types import AgentMiddleware
from langchain_core.messages import AIMessageChunk
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphInterrupt
from langgraph.runtime import Runtime
from pydantic import ValidationError

from echelons.delegation.contract import Contract
from echelons.delegation.join import without_results
from echelons.delegation.request import DelegationRequest, DelegationResponse, Usage
from echelons.errors import UnreadableRecord
from echelons.features.feature import AttemptHooks
from echelons.features.middleware.level import CallChain, build_failure, list_names
from echelons.identity.lineage import derive_request_id, require_identity
from echelons.nodes.delegating.attempt import Attempt
from echelons.nodes.delegating.queued_request import QueuedRequest
from echelons.plans import Plan, PlanStep, arun_plan_steps, run_plan_steps
from echelons.text.input_limits import shorten_repr

F = TypeVar("F", bound=Callable[..., Any])


def _declare(hook: F) -> F:
    """Mark a hook that does nothing: only a class that overrides it defines it."""
    vars(hook)["is_empty_hook"] = True
    return hook


class DelegationMiddleware(AgentMiddleware[Any, Any]):
    """LangChain's `AgentMiddleware` with hooks around the requests to subordinates.

    `handler` takes the request down, and returns the response; it may be called several times, or
    not at all. Each further call is another request on the same thread of the subordinate, with
    the task and the context that it is given. The method is run from its start in each step, with
    the responses that are stored; `handler.once(function)` returns what a function returns, and
    stores it, so that it is not called again: for a model that is asked, or an effect. Its value
    must be JSON. `handler.ask(agent, task)` asks another subordinate of the same agent, on a thread
    of its own, and returns its response.

    Attributes:
        asks: Names of the subordinates that it asks; they are checked when its agent is made.
    """

    asks: tuple[str, ...] = ()

    @_declare
    def wrap_delegation(self, request: DelegationRequest, handler: Any) -> DelegationResponse:
        """Handle a request to a subordinate, and return the response for the superior."""
        response: DelegationResponse = handler(request)
        return response

    @_declare
    async def awrap_delegation(
        self, request: DelegationRequest, handler: Any
    ) -> DelegationResponse:
        """Async version of `wrap_delegation`; `handler` and what it offers are awaited."""
        response: DelegationResponse = await handler(request)
        return response

    @_declare
    def on_stream_chunk(self, chunk: AIMessageChunk, runtime: Runtime[Any]) -> None:
        """Take note of a chunk of the agent's reply."""


WRAP = "wrap_delegation"


class NextStepNeeded(BaseException):
    """Ends a wrap whose next call belongs into a step of its own.

    No `Exception`: a wrap that catches those would go on.
    """


class DelegationCalls(AttemptHooks):
    """The requests to one agent's subordinates, wrapped by its middleware."""

    def __init__(
        self, wraps: Sequence[Any], contracts: Mapping[str, Contract | None] = MappingProxyType({})
    ) -> None:
        self._wraps = wraps
        self._contracts = contracts
        self._chain = CallChain(WRAP, wraps, _read_result)

    def around_request(
        self,
        order: QueuedRequest,
        config: RunnableConfig,
        proceed: Callable[[QueuedRequest], Plan[Any]],
    ) -> Plan[Attempt | QueuedRequest]:
        """Run a request through all wraps, unless it is one that a wrap waits for.

        Raises:
            ConfigurationError: A middleware has failed.
            GraphInterrupt: The subordinate or a wrap asks.
        """
        if order.waiting:
            done: Attempt = yield from proceed(order)
            return done
        run = _Run(order, require_identity(config).thread_id)
        try:
            response = yield self._build_step(run, order, config, proceed)
            return run.finish(response)
        except NextStepNeeded:
            return run.build_next_step()
        except GraphInterrupt:
            if run.is_fresh:
                return run.build_next_step()
            raise

    def _build_step(
        self,
        run: _Run,
        order: QueuedRequest,
        config: RunnableConfig,
        proceed: Callable[[QueuedRequest], Plan[Any]],
    ) -> PlanStep:
        """Return the step that runs the wraps with their handler."""

        def send(request: DelegationRequest) -> Plan[DelegationResponse]:
            if (stored := run.replay("response")) is not None:
                return self._type(DelegationResponse.load(stored))
            attempt = yield from proceed(self._build_order(run, request, config))
            return self._type(run.note_attempt(attempt))

        def ask(agent: str, task: str) -> DelegationResponse:
            return self._type(run.ask(agent, task))

        def once(function: Callable[[], Any]) -> Any:
            stored = run.replay("value")
            return run.note_value(function()) if stored is None else stored[0]

        def handle(request: DelegationRequest) -> DelegationResponse:
            return run_plan_steps(send(request))

        async def aask(agent: str, task: str) -> DelegationResponse:
            return ask(agent, task)

        async def aonce(function: Callable[[], Awaitable[Any]]) -> Any:
            stored = run.replay("value")
            return run.note_value(await function()) if stored is None else stored[0]

        async def ahandle(request: DelegationRequest) -> DelegationResponse:
            return await arun_plan_steps(send(request))

        vars(handle).update(once=once, ask=ask)
        vars(ahandle).update(once=aonce, ask=aask)
        return PlanStep(
            partial(self._chain.run, order.request, handle, config),
            partial(self._chain.arun, order.request, ahandle, config),
        )

    def _type(self, response: DelegationResponse) -> DelegationResponse:
        """Return a response with its output as an instance."""
        return response.with_value(self._contracts.get(response.agent))

    def _build_order(self, run: _Run, request: Any, config: RunnableConfig) -> QueuedRequest:
        try:
            values = request.model_dump(warnings="none")
            return run.build_order(DelegationRequest.model_validate(values))
        except (AttributeError, ValidationError) as error:
            why = f"it gives its handler {shorten_repr(request)}, which is no request"
            raise build_failure(config, list_names(self._wraps), WRAP, why) from error


class _Run:
    """One run of the wraps around a request of an agent with a thread."""

    def __init__(self, order: QueuedRequest, thread_id: str) -> None:
        # Whether something has ended in this step that is not stored yet.
        self.is_fresh = False
        self._order = order
        self._thread_id = thread_id
        self._asked: tuple[str, str] | None = None
        self._log: list[Mapping[str, Any]] = [*order.wrap_log]
        self._place = 0
        self._attempt: Attempt | None = None

    def replay(self, kind: str) -> Any:
        """Return what is stored of the next call, `None` if it is still to be made.

        Raises:
            NextStepNeeded: The work of this step has to be stored first.
            UnreadableRecord: The wrap has made other calls before, or the log is damaged.
        """
        if self._place == len(self._log):
            if self.is_fresh:
                raise NextStepNeeded
            return None
        entry = self._log[self._place]
        self._place += 1
        if kind not in entry:
            why = "the wrap around the request makes other calls than before"
            raise UnreadableRecord(QueuedRequest.__name__, why)
        return entry[kind]

    def ask(self, agent: object, task: object) -> DelegationResponse:
        """Return the response of another subordinate.

        Raises:
            NextStepNeeded: It is still to be asked, in a step of its own.
            TypeError: The name or the task is no text.
            UnreadableRecord: As of `replay`.
        """
        if not (isinstance(agent, str) and isinstance(task, str)):
            what = f"({shorten_repr(agent)}, {shorten_repr(task)})"
            raise TypeError(f"handler.ask takes a subordinate's name and a task, not {what}")
        if self._place == len(self._log):
            self._asked = (agent, task)
            raise NextStepNeeded
        return DelegationResponse.load(self.replay("asked"))

    def build_order(self, request: DelegationRequest) -> QueuedRequest:
        """Return the queued request of the next attempt: a new one on the same thread."""
        earlier = sum("response" in entry for entry in self._log)
        first = self._order.request
        # Who it goes to, and when it has to be answered, is not the middleware's to change.
        changed = first.model_copy(update={"task": request.task, "context": request.context})
        if earlier:
            request_id = derive_request_id(self._order.thread_id, first.id, f"again/{earlier}")
            changed = changed.model_copy(update={"id": request_id})
        continues = self._order.continues or earlier > 0
        # Approved is what has run once already.
        log = self._order.wrap_log if earlier else ()
        return replace(self._order, request=changed, continues=continues, wrap_log=log)

    def note_attempt(self, attempt: Attempt) -> DelegationResponse:
        """Keep the response of an attempt."""
        self._attempt = attempt
        answer = attempt.answer.model_copy(update={"request_id": self._order.request.id})
        self._note({"response": answer.stored()})
        return answer

    def note_value(self, value: Any) -> Any:
        """Keep a value, which must be JSON."""
        self._note({"value": [value]})
        return value

    def _note(self, entry: Mapping[str, Any]) -> None:
        self._log.append(entry)
        self._place += 1
        self.is_fresh = True

    def build_next_step(self) -> QueuedRequest:
        """Return the request with all that the wraps have had, or what they ask meanwhile."""
        has_run = self._order.continues or any("response" in entry for entry in self._log)
        order = replace(self._order, wrap_log=tuple(self._log), continues=has_run)
        return order.build_side_request(*self._asked, self._thread_id) if self._asked else order

    def finish(self, answer: DelegationResponse) -> Attempt:
        """Return the attempt with the answer of the outermost wrap, and the usage of all."""
        responses, side_responses = (
            [DelegationResponse.load(entry[kind]) for entry in self._log if kind in entry]
            for kind in ("response", "asked")
        )
        answer = answer.model_copy(
            update={
                "request_id": self._order.request.id,
                "usage": sum((entry.usage for entry in (*responses, *side_responses)), Usage()),
                "side_responses": without_results(side_responses),
            }
        )
        last = self._attempt
        if last is None:
            return Attempt(answer)
        return last._replace(answer=answer)


def _read_result(result: Any) -> Any:
    """Return a response as it can be stored; a copy may have been given values of other types."""
    if not isinstance(result, DelegationResponse):
        return None
    try:
        return DelegationResponse.model_validate(result.model_dump(warnings="none"))
    except ValidationError:
        return None
