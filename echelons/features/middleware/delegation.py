"""Middleware around requests: what users write, and the library's verification and planning."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from langchain.agents.middleware.types import AgentMiddleware, ModelRequest, hook_config
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolCall,
)
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphInterrupt
from langgraph.runtime import Runtime
from langgraph.types import interrupt
from pydantic import ValidationError

from echelons.delegation.contract import Contract, SubordinateTool
from echelons.delegation.join import without_questions
from echelons.delegation.request import DelegationRequest, DelegationResponse, Status, Usage
from echelons.errors import InvalidSetting, UnreadableRecord
from echelons.features.feature import AttemptHooks
from echelons.features.middleware.level import CallChain, build_failure, list_names
from echelons.guards.gate import Halt, Pause
from echelons.identity.lineage import derive_request_id, require_identity
from echelons.models.bound_model import BoundModel
from echelons.models.door import CallRefused, ask_beside, find_config
from echelons.models.notices import build_notice
from echelons.nodes.attempt import Attempt
from echelons.nodes.request_queue import QueuedRequest
from echelons.plans import Plan, PlanStep, adrive_plan, arun_plan_steps, drive_plan, run_plan_steps
from echelons.prompts import fill_text, load_governance_texts
from echelons.text.input_limits import shorten_repr
from echelons.tree.names import ASK, DELEGATING_TOOLS, check_name

F = TypeVar("F", bound=Callable[..., Any])
WRAP = "wrap_delegation"
ANSWERS: tuple[Literal["accept", "reject"], ...] = ("accept", "reject")
"""What a human may answer when the limit is reached."""
_STEP = re.compile(r"\b(?:and|then|after|before|also|finally)\b|[,;.\n]", re.IGNORECASE)
_PLAN_CALL = "plan_"


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
                "side_responses": tuple(
                    side.model_copy(update={"result": ""})
                    for side in without_questions(side_responses)
                ),
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


class VerificationMiddleware(DelegationMiddleware):
    """Verifies each answer of a subordinate; a wrong one goes back with the reasons.

    The subordinate tries again on the same thread. When all attempts are rejected, or the one who
    verifies cannot tell, the user is asked: who accepts the last answer, or rejects it, which makes
    the response `unable`. A response that a limit or a budget leaves unverified is `partial`.

    Args:
        verify: Returns why an answer is wrong, or an empty text if it is right; or a chat model,
            such as that of the superior, which is asked that; or the name of another subordinate
            of the same superior, which gets it as a task. It is asked once for each answer, also
            over questions and crashes.
        max_attempts: Most attempts.

    Raises:
        ConfigurationError: `verify` is a text that is no agent's name.
        InvalidSetting: `max_attempts` is no positive number, or `verify` none of these.
    """

    def __init__(
        self,
        verify: Callable[[DelegationRequest, DelegationResponse], str] | BaseChatModel | str,
        *,
        max_attempts: int = 3,
    ) -> None:
        owner = type(self).__name__
        verifier: object = verify
        if not (isinstance(verifier, (BaseChatModel, str)) or callable(verifier)):
            why = "give a function of request and response, a chat model, or a subordinate's name"
            raise InvalidSetting(owner, "verify", verify, why)
        if type(max_attempts) is not int or max_attempts < 1:
            raise InvalidSetting(owner, "max_attempts", max_attempts, "give a number from 1")
        self.asks = (check_name(verify),) if isinstance(verify, str) else ()
        self._verify = verify
        self._max_attempts = max_attempts

    def wrap_delegation(self, request: DelegationRequest, handler: Any) -> DelegationResponse:
        """Return an answer that is right, or what the user says of the last one."""
        return drive_plan(
            self._plan(request), lambda step: self._build_step(request, handler, step).run()
        )

    async def awrap_delegation(
        self, request: DelegationRequest, handler: Any
    ) -> DelegationResponse:
        """Async version of `wrap_delegation`."""
        return await adrive_plan(
            self._plan(request), lambda step: self._build_step(request, handler, step).arun()
        )

    def _build_step(
        self,
        request: DelegationRequest,
        handler: Any,
        step: DelegationRequest | DelegationResponse,
    ) -> PlanStep:
        """Return the step that sends a request, or verifies a response, through a handler."""
        verify = self._verify
        if isinstance(step, DelegationRequest):
            call = partial(handler, step)
            return PlanStep(call, call)
        question = _build_question(request, step)
        if isinstance(verify, str):
            call = partial(handler.ask, verify, "\n".join(str(part.text) for part in question))
            return PlanStep(call, call)

        def check() -> Any:
            if isinstance(verify, BaseChatModel):
                return run_plan_steps(_ask_model(verify, question))
            return verify(request, step)

        async def acheck() -> Any:
            if isinstance(verify, BaseChatModel):
                return await arun_plan_steps(_ask_model(verify, question))
            return verify(request, step)

        return PlanStep(partial(handler.once, check), partial(handler.once, acheck))

    def _plan(
        self, request: DelegationRequest
    ) -> Generator[DelegationRequest | DelegationResponse, Any, DelegationResponse]:
        """Yield requests to send and responses to verify, and return the response."""
        request_again, left = request, self._max_attempts
        while True:
            response: DelegationResponse = yield request_again
            if response.status is not Status.FULFILLED:
                return response
            verdict = yield from _ask_for_verdict(response)
            while isinstance(verdict, Pause):
                interrupt(verdict.marker)
                verdict = yield from _ask_for_verdict(response)
            if isinstance(verdict, Halt):
                update = {"status": Status.PARTIAL, "reason": f"not verified: {verdict.reason}"}
                return response.model_copy(update=update)
            why, left = self._read_verdict(verdict), left - 1
            if not why:
                return response
            can_tell = isinstance(verdict, str) or verdict.status is Status.FULFILLED
            if not (left and can_tell):
                answer = interrupt(
                    {
                        "question": f"Accept the answer of {request.current} nevertheless?",
                        "task": request.task,
                        "answer": response.result,
                        "rejected": why,
                        "choices": list(ANSWERS),
                    },
                    response_schema={"enum": list(ANSWERS)},
                )
                if answer == "accept":
                    return response
                return response.model_copy(
                    update={
                        "status": Status.UNABLE,
                        "reason": f"rejected: {why}",
                        "confidence": 0.0,
                    }
                )
            task = f"Your answer was rejected: {why}\nDo the task again: {request.task}"
            request_again = request.model_copy(update={"task": task})

    def _read_verdict(self, verdict: DelegationResponse | str) -> str:
        """Return what is wrong; of what a model says, nothing counts as right but the word OK."""
        if isinstance(verdict, str) and not isinstance(self._verify, BaseChatModel):
            return verdict
        if isinstance(verdict, DelegationResponse):
            if verdict.status is not Status.FULFILLED:
                return f"{verdict.agent} cannot tell: {verdict.reason or verdict.status}"
            verdict = verdict.result
        text = verdict.strip()
        return "" if text.strip(".! ").upper() == "OK" else text or "it was not accepted"


def _ask_model(model: BaseChatModel, question: list[BaseMessage]) -> Plan[str]:
    """Return what a model says, asked as a call of the agent around the request."""
    bound = BoundModel.from_runnable(model)
    reply = yield from ask_beside(bound, question, find_config(), may_pause=True)
    return str(reply.text)


def _ask_for_verdict(
    response: DelegationResponse,
) -> Generator[DelegationResponse, Any, DelegationResponse | str | Halt | Pause]:
    try:
        return (yield response)  # type: ignore[no-any-return]  # a plan is sent what it asked for
    except CallRefused as refused:
        return refused.halt


def _build_question(request: DelegationRequest, response: DelegationResponse) -> list[BaseMessage]:
    exchange = json.dumps({"task": request.task, "answer": response.result}, ensure_ascii=False)
    return [SystemMessage(load_governance_texts()["verify"]), HumanMessage(exchange)]


class PlanMiddleware(AgentMiddleware[Any, Any]):
    """Lets an agent write its plan before it proceeds with a task.

    The plan is its first reply to each task, without calls, and so an event of the run. Then it
    proceeds; or it is asked for first: the user or the superior accepts the plan, or says what is
    wrong with it.

    Args:
        approve: The approver. `"superior"` is asked with `ask`, an agent as the user.
            The answer `"accept"` lets the agent proceed, any other text is the reason of a
            rejection, after which it writes another plan. `None` for no approval.
    """

    def __init__(self, *, approve: Literal["user", "superior"] | None = None) -> None:
        if approve not in (None, "user", "superior"):
            expected = 'give "user", "superior" or None'
            raise InvalidSetting(type(self).__name__, "approve", approve, expected)
        self._approve = approve

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[..., Any]) -> Any:
        """Ask for the plan, without tools, where a task has none yet."""
        if not self._needs_plan(request):
            return handler(request)
        return self._ask_superior(request, handler(self._change(request)))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[..., Awaitable[Any]]
    ) -> Any:
        """Async version of `wrap_model_call`."""
        if not self._needs_plan(request):
            return await handler(request)
        return self._ask_superior(request, await handler(self._change(request)))

    @hook_config(can_jump_to=["model"])
    def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Let the agent proceed with its plan, or ask the user about it."""
        if self._approve == "superior" or not _is_first_reply(state["messages"]):
            return None
        plan = str(state["messages"][-1].text)
        text = load_governance_texts()["proceed"]
        if self._approve == "user":
            question = "May the agent proceed with this plan? accept, or say what is wrong"
            answer = interrupt({"question": question, "plan": plan})
            if answer != "accept":
                text = fill_text(load_governance_texts()["replan"], why=str(answer))
        return {"messages": [build_notice(text)], "jump_to": "model"}

    def _needs_plan(self, request: ModelRequest[Any]) -> bool:
        """Return whether the last message is a task without a plan, or rejects one."""
        last = request.messages[-1] if request.messages else None
        if last is None or last.text == load_governance_texts()["proceed"]:
            return False
        reply = next(
            (message for message in request.messages[::-1] if isinstance(message, AIMessage)), None
        )
        calls = [call["id"] for call in reply.tool_calls] if reply else []
        if calls and (calls[0] or "").startswith(_PLAN_CALL):
            return str(last.text).strip(' .!"').lower() != "accept"
        return isinstance(last, HumanMessage)

    def _change(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        text = load_governance_texts()["plan"]
        return request.override(system_message=_add_text(request, text), tools=[])

    def _ask_superior(self, request: ModelRequest[Any], response: Any) -> Any:
        """Return the model's response with the question that it did not have to write."""
        if self._approve != "superior":
            return response
        *before, reply = response.result
        question = fill_text(load_governance_texts()["approve"], plan=str(reply.text))
        call = ToolCall(
            name=ASK,
            args={"question": question},
            id=f"{_PLAN_CALL}{len(request.messages)}",
            type="tool_call",
        )
        asking = reply.model_copy(update={"tool_calls": [call]})
        return replace(response, result=[*before, asking])


class ScoringMiddleware(AgentMiddleware[Any, Any]):
    """Decides by points whether an agent delegates a task or does it itself.

    A task of fewer points than the threshold is done without the tools that delegate; of another
    the agent reads that it should delegate it.

    Args:
        threshold: Points from which a task is delegated.
        score: Returns the points of a task; by default those of `score_task`.
    """

    def __init__(self, threshold: int = 4, *, score: Callable[[str], int] | None = None) -> None:
        owner = type(self).__name__
        if type(threshold) is not int or threshold < 1:
            raise InvalidSetting(owner, "threshold", threshold, "give a number from 1")
        if score is not None and not callable(score):
            raise InvalidSetting(owner, "score", score, "give a function of the task")
        self._threshold = threshold
        self._score = score or score_task

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[..., Any]) -> Any:
        """Tell the agent what the task is worth, and take the tools that do not fit."""
        return handler(self._change(request))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[..., Awaitable[Any]]
    ) -> Any:
        """Async version of `wrap_model_call`."""
        return await handler(self._change(request))

    def _change(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        tasks = [message for message in request.messages if isinstance(message, HumanMessage)]
        points = self._score(str(tasks[-1].text) if tasks else "")
        delegates = points >= self._threshold
        text = load_governance_texts()["delegate" if delegates else "do"]
        text = fill_text(text, points=str(points), threshold=str(self._threshold))
        tools = [tool for tool in request.tools if delegates or not _hands_on(tool)]
        return request.override(system_message=_add_text(request, text), tools=tools)


def score_task(task: str) -> int:
    """Return the points of a task: one for each step that it names, and for every 20 words.

    Examples:
        >>> score_task("Find a hotel")
        1
        >>> score_task("Find a hotel and a train, then book both, and write to Ann")
        4
    """
    steps = [step for step in _STEP.split(task) if step.strip()]
    return len(steps) + len(task.split()) // 20


def _is_first_reply(messages: list[BaseMessage]) -> bool:
    """Return whether the last message is a reply to a task that has no plan yet."""
    if len(messages) < 2 or not isinstance(messages[-1], AIMessage):
        return False
    before = messages[-2]
    is_proceeding = before.text == load_governance_texts()["proceed"]
    return isinstance(before, HumanMessage) and not is_proceeding


def _add_text(request: ModelRequest[Any], text: str) -> SystemMessage:
    system = request.system_message
    if system is None:
        return SystemMessage(text)
    if isinstance(system.content, str):
        return system.model_copy(update={"content": f"{system.content}\n\n{text}"})
    return system.model_copy(update={"content": [*system.content, {"type": "text", "text": text}]})


def _hands_on(tool: Any) -> bool:
    function = tool.get("function") if isinstance(tool, dict) else None
    is_delegating = isinstance(function, dict) and function.get("name") in DELEGATING_TOOLS
    return is_delegating or isinstance(tool, SubordinateTool)
