"""Runs a tool without an async form in a thread, and keeps a result that comes too late.

A thread cannot be cancelled: when the task that waits for it is, the thread goes on, and so do
its side effects. The thread itself then delivers the result, so that it is not lost. `act`
uses it.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import run_in_executor
from langchain_core.tools import BaseTool

from echelons.langgraph_internals import supports_async
from echelons.nodes.tool_execution.at_most_once import Late


def runs_in_a_thread(tool: BaseTool) -> bool:
    """Return whether LangChain runs a tool in a thread when it is called in an event loop."""
    return not supports_async(tool)


class Latecomer:
    """A call whose thread may outlive the task that waits for it.

    Args:
        late: Called with the result if the thread ends only after `detach`.
    """

    def __init__(self, late: Late) -> None:
        self._late = late
        self._lock = Lock()
        self._came: list[Any] = []
        self._left = False

    def leave(self) -> None:
        """Stop waiting; from now on the result goes to the callback."""
        with self._lock:
            self._left = True
            came = list(self._came)
        for each in came:
            self._late(each)

    async def ainvoke(self, tool: BaseTool, input: Any, config: RunnableConfig | None) -> Any:
        """Run the tool in a thread, as LangChain would."""
        return await run_in_executor(config, self._run, tool, input, config)

    def _run(self, tool: BaseTool, input: Any, config: RunnableConfig | None) -> Any:
        try:
            result = tool.invoke(input, config)
        except Exception as error:
            self._come(error)
            raise
        self._come(result)
        return result

    def _come(self, result: Any) -> None:
        with self._lock:
            self._came.append(result)
            left = self._left
        if left:
            self._late(result)
