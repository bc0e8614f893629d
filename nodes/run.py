"""`run`: the only node of a level without an agent: a function, a Runnable, a graph or a human.

Each kind has its own node class. Wrapped in a level, a function too has a thread with its
task and its answer.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import aclosing, closing, contextmanager
from datetime import datetime
from functools import partial
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.channels import LastValue
from langgraph.errors import GraphDrained, GraphInterrupt, ParentCommand
from langgraph.types import Command, interrupt
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from echelons.delegation.contract import Contract
from echelons.delegation.questions import (
    HUMAN_ANSWER_SCHEMA,
    build_human_question,
    is_missed_answer,
    parse_human_answer,
)
from echelons.delegation.request import Status
from echelons.guards.gate import Gate, Halt, get_gate
from echelons.identity.lineage import (
    CALLS_KEY,
    END_KEY,
    QUESTIONS_KEY,
    RETURNED_KEY,
    derive_message_id,
    require_identity,
)
from echelons.identity.thread_history import CarriedState, GraphHistory, Head, Past, ThreadHistory
from echelons.langgraph_internals import RESUMING_KEY, STREAM_KEY
from echelons.models.notices import is_notice
from echelons.models.replies import read_reply_end
from echelons.models.usage import find_inner_calls, get_whole_usage
from echelons.nodes.base_node import Node
from echelons.nodes.messages import accept_message
from echelons.nodes.planning.relay import build_halt_update
from echelons.nodes.planning.tool_calls import answer_open_calls
from echelons.nodes.tool_execution.async_only import (
    arun_function,
    is_async_only,
    run_async,
    run_function,
)
from echelons.nodes.tool_execution.current_request import find_payload
from echelons.plans import Plan, PlanStep, arun_plan_steps, build_step, run_plan_steps
from echelons.text.json_schema import find_mismatch
from echelons.tree.names import RUN

_ORDINARY_ENDS = ("complete", "empty")
_REMOTE_KEYS: Final = ("thread_id", "checkpoint_ns", STREAM_KEY)
"""What a `RemoteGraph` needs of a config: its thread, and where in this run it is."""


class RunFunction(Node):
    """Runs a plain function on the task."""

    def __init__(self, function: Callable[..., Any], contract: Contract | None = None) -> None:
        super().__init__(RUN)
        self._function = function
        self._contract = contract

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Call the function; await an async one in the session's event loop.

        Raises:
            EventLoopMissing: The function is async, and the run is not a session's.
        """
        work = partial(self._function, _read_task(input, config))
        result = run_function(work, config or {})
        result = _read_own_result(result, self._contract, input["messages"])
        return _build_end_update(result, config)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Async version of `invoke`."""
        result = await arun_function(partial(self._function, _read_task(input, config)), config)
        result = _read_own_result(result, self._contract, input["messages"])
        return build_answer_update(result, config)


class RunRunnable(Node):
    """Runs a Runnable on the task."""

    def __init__(self, runnable: Runnable[Any, Any], contract: Contract | None = None) -> None:
        super().__init__(RUN)
        self._runnable = runnable
        self._contract = contract
        self._needs_loop = is_async_only(runnable)
        self._is_remote = is_remote(runnable)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Invoke the Runnable; one that is only async, in the session's event loop.

        Raises:
            EventLoopMissing: It is only async, and the run is not a session's.
        """
        task, passed = _read_task(input, config), self._build_config(config)
        if self._needs_loop:
            result = run_async(partial(self._runnable.ainvoke, task, passed), config or {})
            return _build_end_update(self._read_own_result(result, input), config)
        result = self._runnable.invoke(task, passed)
        return build_answer_update(self._read_own_result(result, input), config)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Async version of `invoke`."""
        result = await self._runnable.ainvoke(_read_task(input, config), self._build_config(config))
        return build_answer_update(self._read_own_result(result, input), config)

    def _build_config(self, config: RunnableConfig | None) -> RunnableConfig | None:
        """Return what the Runnable gets: a server only what its `RemoteGraph` names itself."""
        if config is None or not self._is_remote:
            return config
        configurable = config.get("configurable", {})
        kept = {key: configurable[key] for key in _REMOTE_KEYS if key in configurable}
        return {**config, "configurable": kept, "metadata": {}}

    def _read_own_result(self, returned: Any, state: Mapping[str, Any]) -> Any:
        return _read_own_result(returned, self._contract, state["messages"])


def is_remote(runnable: Any) -> bool:
    """Return whether a Runnable is a `RemoteGraph`, or a chain with one."""
    # Not imported for it: that takes long, and a program with one has imported it.
    remote = sys.modules.get("langgraph.pregel.remote")
    if remote is None:
        return False
    steps = (*getattr(runnable, "steps", ()), getattr(runnable, "bound", None))
    return isinstance(runnable, remote.RemoteGraph) or any(map(is_remote, filter(None, steps)))


class RunGraph(Node):
    """Runs a foreign graph on the thread's messages, in the state that it had there."""

    def __init__(self, graph: Any, history: GraphHistory, contract: Contract | None = None) -> None:
        super().__init__(RUN, subgraphs=[graph])
        self._graph = graph
        self._contract = contract
        self._history = history
        self._needs_loop = is_async_only(graph)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Invoke the graph; one with parts that are only async, in the session's event loop.

        Raises:
            EventLoopMissing: Parts are only async, and the run is not a session's.
        """
        return run_plan_steps(self._plan(input, config))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Async version of `invoke`."""
        return await arun_plan_steps(self._plan(input, config))

    def _plan(
        self, input: Any, config: RunnableConfig | None
    ) -> Generator[PlanStep, Any, dict[str, Any]]:
        around, previous, channels = config or {}, input.get("previous"), self._graph.channels
        history = self._history
        past = yield PlanStep(
            partial(history.load_past, previous, around),
            partial(history.aload_past, previous, around),
        )
        carried = previous, past, channels, around
        held = yield PlanStep(
            partial(history.carry_state, *carried), partial(history.acarry_state, *carried)
        )
        with _lead_commands_out():
            returned = yield self._build_run_step(*self._prepare_run(past, held, input, around))
        result = self._read_own_result(returned, past, held, input)
        update = _build_end_update(result, config)
        end = yield PlanStep(
            partial(history.load_head, around), partial(history.aload_head, around)
        )
        return {**update, **_build_heads_update(end, around)}

    def _read_own_result(
        self, returned: Any, past: Past, held: CarriedState | None, state: Mapping[str, Any]
    ) -> Any:
        """Return the result of the graph; empty if it has added no message of its own."""
        before = [*past.messages, *(held.messages if held else ()), *state["messages"]]
        return _read_own_result(returned, self._contract, before)

    def _build_run_step(self, state: Any, config: RunnableConfig) -> PlanStep:
        """Return the step that runs the graph; with backpressure, its own steps are held back."""
        run, arun = self._graph.invoke, self._graph.ainvoke
        if get_gate(config).backpressure:
            run, arun = self._run_held, self._arun_held
        step = PlanStep(partial(run, state, config), partial(arun, state, config))
        return (
            step._replace(run=partial(run_async, step.arun, config)) if self._needs_loop else step
        )

    def _run_held(self, state: Any, config: RunnableConfig) -> Any:
        """Run the graph, and hold back its steps, which its stream announces.

        Raises:
            GraphDrained: The run was left, or has answers to deliver; the graph continues from
                there when it is resumed.
        """
        result = None
        with closing(self._graph.stream(state, config, stream_mode=["tasks", "values"])) as parts:
            for mode, payload in parts:
                result = run_plan_steps(_hold_back(mode, payload, result, get_gate(config)))
        return result

    async def _arun_held(self, state: Any, config: RunnableConfig) -> Any:
        """Async version of `_run_held`."""
        result = None
        async with aclosing(
            self._graph.astream(state, config, stream_mode=["tasks", "values"])
        ) as parts:
            async for mode, payload in parts:
                result = await arun_plan_steps(_hold_back(mode, payload, result, get_gate(config)))
        return result

    def _prepare_run(
        self,
        past: Past,
        held: CarriedState | None,
        state: Mapping[str, Any],
        config: RunnableConfig,
    ) -> tuple[dict[str, Any], RunnableConfig]:
        """Return the input and the config of the graph."""
        messages = answer_open_calls([*past.messages, *state["messages"]])
        fields: dict[str, Any] = {}
        if (payload := find_payload(config, state["messages"])) is not None:
            fields = {key: value for key, value in payload if key in self._graph.channels}
        if held is None:
            return {**fields, "messages": messages}, config
        # What has no reducer is replaced, so it is given the whole thread again.
        if not isinstance(self._graph.channels["messages"], LastValue):
            held_ids = {id(message) for message in held.messages}
            whole = answer_open_calls([*held.messages, *state["messages"]])
            messages = [message for message in whole if id(message) not in held_ids]
        # A run that resumes sets this for all its graphs, but this one has not begun.
        configurable = {**config.get("configurable", {}), RESUMING_KEY: False}
        return {**fields, "messages": messages}, {**config, "configurable": configurable}


class RunHuman(Node):
    """Asks a human to work on the task, and waits for the answer in the inbox."""

    def __init__(self, history: ThreadHistory) -> None:
        super().__init__(RUN)
        self._history = history

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Interrupt with the task as a question; return the update of its answer."""
        config = config or {}
        past = self._history.load_past(input.get("previous"), config)
        return self._ask(past.messages, input["messages"], config)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Async version of `invoke`."""
        config = config or {}
        past = await self._history.aload_past(input.get("previous"), config)
        return self._ask(past.messages, input["messages"], config)

    def _ask(
        self, past: Sequence[BaseMessage], messages: Sequence[BaseMessage], config: RunnableConfig
    ) -> dict[str, Any]:
        """Return the update of a human's answer, or of the end of its time.

        Raises:
            GraphInterrupt: There is no answer yet.
        """
        identity = require_identity(config)
        if not self._history.is_durable(config):
            why = "no_checkpointer: nothing of this run is stored, so nobody can answer"
            report = {"status": str(Status.UNABLE), "reason": why}
            return {**build_answer_update(why, config), "response": report}
        # What is meant for agents is not for a person.
        *facts, task = [message for message in messages if not is_notice(message)]
        superior = identity.path[-2]
        noted: Mapping[str, Any] = task.response_metadata.get(QUESTIONS_KEY) or {}
        deadline: str | None = (noted.get(identity.request_id) or {}).get("deadline")
        question = build_human_question(
            identity.agent,
            str(task.text),
            "\n".join(str(fact.text) for fact in facts),
            [
                (identity.agent if isinstance(message, AIMessage) else superior, str(message.text))
                for message in past
                if not is_notice(message)
            ],
            deadline,
        )
        value, schema = question.build_interrupt_value(), dict(HUMAN_ANSWER_SCHEMA)
        while True:
            try:
                answer = interrupt(value, response_schema=schema)
            except GraphInterrupt:
                if deadline is not None:
                    get_gate(config).note_deadline(datetime.fromisoformat(deadline))
                raise
            if deadline is not None and is_missed_answer(answer):
                halt = Halt("timeout", f"{identity.agent!r} has not answered by {deadline}")
                return build_halt_update(halt, messages, identity)
            # A session has checked it; `Command(resume=...)` of LangGraph has not.
            if not find_mismatch(answer, schema):
                break
        result, report = parse_human_answer(answer)
        update = build_answer_update(result, config)
        return {**update, "response": report} if report else update


def _hold_back(mode: str, payload: Any, result: Any, gate: Gate) -> Plan[Any]:
    """Wait until the step that a part of a stream announces may begin; return the latest values."""
    if mode == "values":
        return payload
    held = gate.backpressure
    if held and "input" in payload:
        yield PlanStep(
            partial(held.wait_for_start, payload["id"]), partial(held.await_start, payload["id"])
        )
        if not held.is_open:
            raise GraphDrained("closed")
        yield build_step(gate.check_hold, gate.arun)
    return result


@contextmanager
def _lead_commands_out() -> Iterator[None]:
    """Let a command of the graph to the one around it fail where the level is run.

    LangGraph takes this level for that graph, in which a command may run the graph for ever.
    """
    try:
        yield
    except ParentCommand as error:
        raise ParentCommand(Command(graph=Command.PARENT)) from error


def _build_heads_update(end: Head, config: RunnableConfig) -> dict[str, Any]:
    """Return the update that stores where the graph has ended, for the thread's next request."""
    identity = require_identity(config)
    return {"heads": {identity.thread_id: {"agent": identity.agent, **end}}} if end else {}


def _build_end_update(result: Any | Halt, config: RunnableConfig | None) -> dict[str, Any]:
    """Return the update of a result, or of the halt that async work has ended with."""
    if isinstance(result, Halt):
        return build_halt_update(result, (), require_identity(config))
    return build_answer_update(result, config)


def build_answer_update(result: Any, config: RunnableConfig | None) -> dict[str, Any]:
    """Return the update that stores a result as the thread's answer.

    A result is a message, a state with `messages` (its last counts), or anything that has a
    text form; bytes are read as UTF-8.

    Raises:
        TypeError: The result has no text form.
        UnicodeDecodeError: The result is bytes that are not UTF-8.
    """
    identity, message = require_identity(config), _get_last_message(result)
    inner = find_inner_calls(config)
    usage = get_whole_usage(message) if isinstance(message, AIMessage) else None
    metadata: dict[str, Any] = {} if isinstance(message, AIMessage) else {RETURNED_KEY: True}
    if inner and inner.usage.model_calls:
        # They were counted when they ended.
        usage, metadata = None, {RETURNED_KEY: True, CALLS_KEY: inner.usage.model_dump()}
    refusal = ""
    if isinstance(message, AIMessage) and message.response_metadata.get(END_KEY) == "empty":
        metadata[END_KEY] = "empty"
    elif (
        isinstance(message, AIMessage)
        and (end := read_reply_end(message)).kind not in _ORDINARY_ENDS
    ):
        metadata[END_KEY] = end.kind
        if end.kind == "refused":
            refusal = end.why
        else:
            key, _, word = end.why.partition(": ")
            metadata[key] = word
    answer = AIMessage(
        _convert_to_text(message),
        id=derive_message_id(identity.thread_id, f"run/{identity.request_id}"),
        name=identity.agent,
        usage_metadata=usage,
        response_metadata=metadata,
        additional_kwargs={"refusal": refusal} if refusal else {},
    )
    return {"messages": [accept_message(answer, config or {})]}


def _get_last_message(result: Any) -> Any:
    """Return the last message of a state; any other result unchanged."""
    messages = result.get("messages") if isinstance(result, Mapping) else None
    if not isinstance(messages, (list, tuple)):
        return result
    if not messages or not isinstance(messages[-1], BaseMessage):
        last = (
            f"whose last is {type(messages[-1]).__name__}"
            if messages
            else "of which there are none"
        )
        raise TypeError(f"returned messages {last}")
    return messages[-1]


def _read_own_result(
    returned: Any, contract: Contract | None, before: Sequence[BaseMessage]
) -> Any:
    """Return a result; empty if it is nothing but messages that were there before."""
    result = read_result(returned, contract)
    if isinstance(result, HumanMessage):
        result = [result]
    if isinstance(result, list | tuple) and result and _are_messages(result):
        result = {"messages": result}
    messages = result.get("messages") if isinstance(result, Mapping) else None
    if not isinstance(messages, list | tuple) or not messages or not _are_messages(messages):
        return result
    if not (added := _find_own(messages, before)):
        return ""
    last = messages[-1]
    if not isinstance(last, AIMessage) or read_reply_end(last).kind != "empty":
        return result
    texts = (str(message.text) for message in reversed(added) if isinstance(message, AIMessage))
    text = next(filter(str.strip, texts), "")
    metadata = {**last.response_metadata, END_KEY: "empty"}
    return last.model_copy(update={"content": text, "response_metadata": metadata})


def _are_messages(values: Sequence[Any]) -> bool:
    return all(isinstance(value, BaseMessage) for value in values)


def _find_own(messages: Sequence[BaseMessage], before: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return the messages that were not there before."""
    ids = {message.id for message in before if message.id}
    texts = Counter((message.type, str(message.text)) for message in before)
    added: list[BaseMessage] = []
    for message in messages:
        text = (message.type, str(message.text))
        # A graph within a Runnable has given the task an id of its own.
        is_copy = text in texts and (message.type == "human" or not message.id)
        if message.id in ids or (is_copy and (message.type == "human" or texts[text] > 0)):
            texts[text] -= 1
        else:
            added.append(message)
    return added


def _convert_to_text(result: Any) -> str:
    if isinstance(result, BaseMessage):
        return str(result.text)
    if isinstance(result, (bytes, bytearray, memoryview)):
        # Bytes are mostly text that was not decoded; other bytes are useless as an answer.
        return bytes(result).decode()
    if isinstance(result, (BaseException, Iterator)) or not _has_text_form(type(result)):
        raise TypeError(f"returned {type(result).__name__}, which has no text")
    return "" if result is None else str(result)


def _has_text_form(kind: type) -> bool:
    # The default `repr` holds a memory address, which differs in each run.
    defined = {name for base in kind.__mro__ if base is not object for name in vars(base)}
    return bool(defined & {"__str__", "__repr__"})


def _read_task(state: Mapping[str, Any], config: RunnableConfig | None) -> Any:
    """Return the input that a contract declares, or the task in words."""
    payload = find_payload(config or {}, state["messages"])
    return str(state["messages"][-1].text) if payload is None else payload


def read_result(result: Any, contract: Contract | None) -> Any:
    """Return a result as JSON where a contract has an output; any other unchanged.

    Of a state, its `structured_response` counts, or the fields of the output that it has; of one
    that has neither, the last message. Whether it is valid, the superior's node says.
    """
    if contract is None or contract.output is None or isinstance(result, (BaseMessage, Halt)):
        return result
    if isinstance(result, Mapping) and "messages" in result:
        fields = {key: result[key] for key in contract.output.model_fields if key in result}
        result = result.get("structured_response") or fields or result
    if (isinstance(result, Mapping) and "messages" not in result) or isinstance(result, BaseModel):
        return json.dumps(to_jsonable_python(result, by_alias=True, fallback=str))
    return result
