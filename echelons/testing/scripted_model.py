"""A chat model for tests that plays a script: deterministic, free, shared among agents.

It is a real `BaseChatModel`: LangChain and LangGraph treat it as any provider's, including
streaming, callbacks and bound tools.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import AsyncIterator, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import ensure_config
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import PrivateAttr

from echelons.errors import ScriptError, invalid_script
from echelons.plans import PlanStep
from echelons.testing.clock import Clock, SystemClock
from echelons.testing.provider_rules import (
    MESSAGE_RULES,
    OUTSIDE_RULES,
    ModelRequest,
    find_fault,
)
from echelons.testing.scripts import (
    MODEL_NAME,
    AgentScripts,
    Script,
    StepOutcome,
    as_chunks,
    as_message,
    as_outcome,
)
from echelons.tree.names import get_provider_tool_name


@dataclass(frozen=True)
class CallRecord:
    """One call of a model.

    Attributes:
        number: Its index among all calls of the model, from 0.
        agent: The name of the calling agent, or None if the call names none.
        path: The path of that agent in the tree, or None.
        thread_id: The id of the agent's thread, or None.
        messages: The conversation as the model saw it.
        tools: The names of the tools that it could call.
        metadata: All metadata of the call.
    """

    number: int
    agent: str | None
    path: str | None
    thread_id: str | None
    messages: tuple[BaseMessage, ...]
    tools: tuple[str, ...]
    metadata: Mapping[str, Any]

    @property
    def question(self) -> Hashable:
        """A key that is equal for calls of one agent with equal messages in the same thread."""
        return (self.agent, self.thread_id, tuple(_message_content(m) for m in self.messages))


def _message_content(message: BaseMessage) -> Hashable:
    """Return the content of a message, without its id and metadata."""
    calls = repr(message.tool_calls) if isinstance(message, AIMessage) else ""
    answered = message.tool_call_id if isinstance(message, ToolMessage) else ""
    return (message.type, repr(message.content), calls, answered)


class CallLog:
    """All calls of one model, shared by all bindings of it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started: list[CallRecord] = []
        self._finished: list[CallRecord] = []
        self._bindings: list[tuple[str, ...]] = []

    def record_start(
        self, metadata: Mapping[str, Any], messages: Iterable[BaseMessage], tools: Iterable[str]
    ) -> CallRecord:
        """Record that a call begins."""
        with self._lock:
            record = CallRecord(
                number=len(self._started),
                agent=metadata.get("agent"),
                path=metadata.get("agent_path"),
                thread_id=metadata.get("agent_thread_id"),
                messages=tuple(messages),
                tools=tuple(tools),
                metadata=dict(metadata),
            )
            self._started.append(record)
        return record

    def record_finish(self, record: CallRecord) -> None:
        """Record that a call gave its whole answer."""
        with self._lock:
            self._finished.append(record)

    def record_binding(self, tools: Iterable[str]) -> None:
        """Record that tools were bound."""
        with self._lock:
            self._bindings.append(tuple(tools))

    @property
    def started(self) -> list[CallRecord]:
        """All calls, in the order in which they began."""
        with self._lock:
            return list(self._started)

    @property
    def finished(self) -> list[CallRecord]:
        """The calls that gave their whole answer, in the order in which they did."""
        with self._lock:
            return list(self._finished)

    @property
    def bindings(self) -> list[tuple[str, ...]]:
        """The names of the tools of each binding, in order."""
        with self._lock:
            return list(self._bindings)

    def find_repeated(self) -> list[CallRecord]:
        """Return the calls whose question an earlier, finished call had already.

        Calls without a thread id count as one thread, so two equal delegations of an agent
        that passes no thread id look like a repetition.
        """
        ended = {record.number for record in self.finished}
        answered: set[Hashable] = set()
        repeated = []
        for record in self.started:
            if record.question in answered:
                repeated.append(record)
            if record.number in ended:
                answered.add(record.question)
        return repeated


CALLER_KEY = "echelons_caller"
"""The keyword argument that passes a call's metadata to `_stream`."""


class ScriptedModel(BaseChatModel):
    """A chat model that answers by script.

    A script is a list of steps, or a function of the messages that returns one (it may be
    async where the model is called with `ainvoke` and `astream`). A step is a text, a
    `Reply`, a `Call` or several, a whole `AIMessage`, or an exception to be raised.
    Which step comes next is counted in the conversation: the answers after the last human
    message, or after the first with `per_conversation`. The model keeps no state that an
    answer depends on, so a resumed process continues at the right step.

    It refuses what any provider would refuse, by `MESSAGE_RULES` of
    `echelons.testing.provider_rules`, so that a test fails where the real client would.

    Agents share one model, and so one record of `calls`; a copy is the same object.

    Args:
        scripts: One script per agent's name, with `"*"` for any other agent; or a single
            script for all. The calling agent is read from the metadata of the call, under
            `"agent"`.
        clock: The clock on which a reply's latency is waited; the system clock if left out.
        repeat_ids: Whether call ids start over in each message, as some providers' do.
        strict: Whether it refuses what a provider would refuse, with a `ScriptError`.
        **options: Further options of `BaseChatModel`.

    Raises:
        ScriptError: A script, or a step in a list, is of no known kind.

    Examples:
        >>> from echelons.testing import Call, ScriptedModel
        >>> model = ScriptedModel([Call("search", {"city": "Rome"}), "Go to Trastevere."])
        >>> model.invoke("Where to eat?").tool_calls[0]["name"]
        'search'
        >>> len(model.calls)
        1
    """

    _scripts: AgentScripts = PrivateAttr()
    _clock: Clock = PrivateAttr()
    _repeat_ids: bool = PrivateAttr()
    _strict: bool = PrivateAttr()
    _log: CallLog = PrivateAttr()

    def __init__(
        self,
        scripts: Mapping[str, Script] | Script,
        *,
        clock: Clock | None = None,
        repeat_ids: bool = False,
        strict: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._scripts = AgentScripts(scripts)
        self._clock = clock or SystemClock()
        self._repeat_ids = repeat_ids
        self._strict = strict
        self._log = CallLog()

    def __copy__(self) -> ScriptedModel:
        return self

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> ScriptedModel:
        return self

    @property
    def calls(self) -> list[CallRecord]:
        """All calls so far, in the order in which they began."""
        return self._log.started

    @property
    def finished_calls(self) -> list[CallRecord]:
        """The calls that gave their whole answer, in the order in which they did."""
        return self._log.finished

    @property
    def repeated_calls(self) -> list[CallRecord]:
        """The calls that asked what an earlier, finished call of that thread had asked."""
        return self._log.find_repeated()

    @property
    def bindings(self) -> list[tuple[str, ...]]:
        """The names of the tools of each `bind_tools`, in order."""
        return self._log.bindings

    def bind_tools(
        self, tools: Sequence[Any], *, tool_choice: str | None = None, **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Return the model, with the same record and script, bound to tools."""
        schemas = [
            tool if get_provider_tool_name(tool) else convert_to_openai_tool(tool) for tool in tools
        ]
        self._log.record_binding(_tool_names(schemas))
        if tool_choice is not None:
            kwargs["tool_choice"] = tool_choice
        return self.bind(tools=schemas, **kwargs)

    # Whenever a stream has a listener, LangChain calls `_stream` without a run manager and so
    # without metadata: the four entry points therefore pass the metadata as a keyword.

    def invoke(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AIMessage:
        """Answer with the next step of the caller's script."""
        return super().invoke(input, config, **_add_caller(config, kwargs))

    async def ainvoke(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AIMessage:
        """Async version of `invoke`."""
        return await super().ainvoke(input, config, **_add_caller(config, kwargs))

    def stream(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Iterator[AIMessageChunk]:
        """Answer with the next step of the caller's script, word by word."""
        return super().stream(input, config, **_add_caller(config, kwargs))

    def astream(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[AIMessageChunk]:
        """Async version of `stream`."""
        return super().astream(input, config, **_add_caller(config, kwargs))

    @property
    def model_name(self) -> str:
        """The name that its replies report."""
        return MODEL_NAME

    @property
    def _llm_type(self) -> str:
        return MODEL_NAME

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        record = self._record_start(messages, run_manager, kwargs)
        message, latency = self._make_message(record, self._next_outcome(record))
        if latency:
            self._clock.sleep(latency)
        return self._finish(record, message)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        record = self._record_start(messages, run_manager, kwargs)
        message, latency = self._make_message(record, await self._anext_outcome(record))
        if latency:
            await self._clock.asleep(latency)
        return self._finish(record, message)

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        record = self._record_start(messages, run_manager, kwargs)
        for steps, chunk in self._plan_chunks(record, self._next_outcome(record), run_manager):
            for step in steps:
                step.run()
            yield chunk

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        record = self._record_start(messages, run_manager, kwargs)
        outcome = await self._anext_outcome(record)
        for steps, chunk in self._plan_chunks(record, outcome, run_manager):
            for step in steps:
                await step.arun()
            yield chunk

    def _plan_chunks(
        self,
        record: CallRecord,
        outcome: Any,
        run_manager: CallbackManagerForLLMRun | AsyncCallbackManagerForLLMRun | None,
    ) -> Iterator[tuple[list[PlanStep], ChatGenerationChunk]]:
        """Yield the chunks of a reply, each with what is done before it."""
        message, latency = self._make_message(record, outcome)
        chunks = [ChatGenerationChunk(message=chunk) for chunk in as_chunks(message)]
        wait: list[PlanStep] = []
        if latency:
            share, clock = latency / len(chunks), self._clock
            wait = [PlanStep(partial(clock.sleep, share), partial(clock.asleep, share))]
        for chunk in chunks:
            steps = [*wait]
            if run_manager:
                tell: Any = partial(run_manager.on_llm_new_token, chunk.text, chunk=chunk)
                steps.append(PlanStep(tell, tell))
            yield steps, chunk
        self._log.record_finish(record)

    def _record_start(
        self,
        messages: list[BaseMessage],
        run_manager: CallbackManagerForLLMRun | AsyncCallbackManagerForLLMRun | None,
        kwargs: Mapping[str, Any],
    ) -> CallRecord:
        metadata = run_manager.metadata if run_manager else kwargs.get(CALLER_KEY, {})
        tools = kwargs.get("tools", ())
        record = self._log.record_start(metadata, messages, _tool_names(tools))
        if self._strict:
            # Agents of this library call their models in this node; others are foreign graphs.
            is_foreign = record.metadata.get("langgraph_node", "reason") != "reason"
            rules = OUTSIDE_RULES if is_foreign else MESSAGE_RULES
            if fault := find_fault(rules, ModelRequest(messages, tools)):
                caller = "{agent}" if record.agent else "a caller without a name"
                raise ScriptError(
                    f"a provider would refuse this request of {caller}: {{fault}}",
                    code="request_refused",
                    agent=record.agent,
                    fault=fault,
                )
        return record

    def _finish(self, record: CallRecord, message: AIMessage) -> ChatResult:
        self._log.record_finish(record)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _next_outcome(self, record: CallRecord) -> StepOutcome:
        step = self._scripts.find_script(record.agent).next(record.agent, record.messages)
        if inspect.iscoroutine(step):
            step.close()
        if inspect.isawaitable(step):
            raise invalid_script("an async function in a sync call", "ainvoke or astream")
        return as_outcome(step)

    async def _anext_outcome(self, record: CallRecord) -> StepOutcome:
        step = self._scripts.find_script(record.agent).next(record.agent, record.messages)
        return as_outcome(await step if inspect.isawaitable(step) else step)

    def _make_message(self, record: CallRecord, outcome: StepOutcome) -> tuple[AIMessage, float]:
        """Return a message of its own for an outcome, and its latency in seconds."""
        if isinstance(outcome, AIMessage):
            return outcome.model_copy(deep=True), 0.0
        if isinstance(outcome, BaseException):
            # The same exception may be raised many times: drop the traceback of the last time.
            raise outcome.with_traceback(None)
        if isinstance(outcome, type):
            raise outcome
        length = 0 if self._repeat_ids else len(record.messages)
        return as_message(outcome, length), outcome.latency


def _tool_names(schemas: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of tools; also of those that a provider runs."""
    return [
        schema["function"]["name"] if "function" in schema else get_provider_tool_name(schema)
        for schema in schemas
    ]


def _add_caller(config: RunnableConfig | None, kwargs: dict[str, Any]) -> dict[str, Any]:
    return {CALLER_KEY: ensure_config(config)["metadata"], **kwargs}
