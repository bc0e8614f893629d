"""`run`: the only node of a level without an agent: a function, a Runnable or a graph.

Each kind has its own node class. Wrapped in a level, a function too has a thread with its
task and its answer.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import run_in_executor

from echelons.identity.lineage import message_id, require_identity
from echelons.identity.thread_history import History, Past
from echelons.nodes.base_node import Shell
from echelons.nodes.messages import RETURNED_KEY, mended
from echelons.nodes.planning.tool_calls import close

RUN = "run"


class RunFunction(Shell):
    """Runs a plain function on the task."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(RUN)
        self._function = function

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Call the function.

        Raises:
            TypeError: The function is async, and the tree is run with `invoke`.
        """
        result = self._function(_task(input))
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            raise TypeError("the function is async; run the tree with ainvoke or astream")
        return answered(result, config)

    async def ainvoke(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Any:
        """Async version of `invoke`."""
        if inspect.iscoroutinefunction(self._function):
            result = self._function(_task(input))
        else:
            # As LangChain does: on the event loop, a slow function would block every sibling.
            result = await run_in_executor(config, self._function, _task(input))
        return answered(await result if inspect.isawaitable(result) else result, config)


class RunRunnable(Shell):
    """Runs a Runnable on the task."""

    def __init__(self, runnable: Runnable[Any, Any]) -> None:
        super().__init__(RUN)
        self._runnable = runnable

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Invoke the Runnable."""
        return answered(self._runnable.invoke(_task(input), config), config)

    async def ainvoke(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Any:
        """Async version of `invoke`."""
        return answered(await self._runnable.ainvoke(_task(input), config), config)


class RunGraph(Shell):
    """Runs a foreign graph on the thread's messages."""

    def __init__(self, graph: Runnable[Any, Any], history: History) -> None:
        super().__init__(RUN, runs=[graph])
        self._graph = graph
        self._history = history

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Invoke the graph."""
        past = self._history.before(input.get("previous"), config or {})
        return answered(self._graph.invoke(_thread(past, input), config), config)

    async def ainvoke(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Any:
        """Async version of `invoke`."""
        past = await self._history.abefore(input.get("previous"), config or {})
        return answered(await self._graph.ainvoke(_thread(past, input), config), config)


def answered(result: Any, config: RunnableConfig | None) -> dict[str, Any]:
    """Return the update that stores a result as the thread's answer.

    Args:
        result: A message, a state with `messages` (its last counts), or anything that
            has a text form; bytes are read as UTF-8.
        config: The node's config.

    Raises:
        TypeError: The result has no text form.
        UnicodeDecodeError: The result is bytes that are not UTF-8.
    """
    identity, said = require_identity(config), _said(result)
    answer = AIMessage(
        _content(said),
        id=message_id(identity.thread_id, f"run/{identity.request_id}"),
        name=identity.agent,
        usage_metadata=said.usage_metadata if isinstance(said, AIMessage) else None,
        response_metadata={} if isinstance(said, AIMessage) else {RETURNED_KEY: True},
    )
    return {"messages": [mended(answer)]}


def _said(result: Any) -> Any:
    """Return the last message of a state; any other result unchanged."""
    said = result.get("messages") if isinstance(result, Mapping) else None
    if not isinstance(said, (list, tuple)):
        return result
    if not said or not isinstance(said[-1], BaseMessage):
        last = f"whose last is {type(said[-1]).__name__}" if said else "of which there are none"
        raise TypeError(f"returned messages {last}")
    return said[-1]


def _content(result: Any) -> str:
    if isinstance(result, BaseMessage):
        return str(result.text)
    if isinstance(result, (bytes, bytearray, memoryview)):
        # Bytes are mostly text that was not decoded; other bytes are useless as an answer.
        return bytes(result).decode()
    if isinstance(result, (BaseException, Iterator)) or not _has_a_text(type(result)):
        raise TypeError(f"returned {type(result).__name__}, which has no text")
    return "" if result is None else str(result)


def _has_a_text(kind: type) -> bool:
    # The default `repr` holds a memory address, which differs in each run.
    own = {name for each in kind.__mro__ if each is not object for name in vars(each)}
    return bool(own & {"__str__", "__repr__"})


def _task(state: Mapping[str, Any]) -> str:
    return str(state["messages"][-1].text)


def _thread(past: Past, state: Mapping[str, Any]) -> dict[str, Any]:
    return {"messages": close([*past.messages, *state["messages"]])}
