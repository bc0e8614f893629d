"""Runs a tool without an async form in a thread, and keeps a result that comes too late.

A thread cannot be cancelled: when the task that waits for it is, the thread goes on, and so do
its side effects. The thread itself then delivers the result, so that it is not lost. `act`
uses it.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, TypeAlias

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import run_in_executor
from langchain_core.tools import BaseTool

LateCallback: TypeAlias = Callable[[Any], None]
"""Called in any thread with the result of a call after its task was cancelled."""


class DetachedCall:
    """A call whose thread may outlive the task that waits for it.

    Args:
        on_late_result: Called with the result if the thread ends only after `detach`.
    """

    def __init__(self, on_late_result: LateCallback) -> None:
        self._on_late_result = on_late_result
        self._lock = Lock()
        self._results: list[Any] = []
        self._is_detached = False

    def detach(self) -> None:
        """Stop waiting; from now on the result goes to the callback."""
        with self._lock:
            self._is_detached = True
            came = list(self._results)
        for each in came:
            self._on_late_result(each)

    async def ainvoke(self, tool: BaseTool, input: Any, config: RunnableConfig | None) -> Any:
        """Run the tool in a thread, as LangChain would."""
        return await run_in_executor(config, self._run, tool, input, config)

    def _run(self, tool: BaseTool, input: Any, config: RunnableConfig | None) -> Any:
        try:
            result = tool.invoke(input, config)
        except Exception as error:
            self._deliver(error)
            raise
        self._deliver(result)
        return result

    def _deliver(self, result: Any) -> None:
        with self._lock:
            self._results.append(result)
            left = self._is_detached
        if left:
            self._on_late_result(result)
