"""`StateFunction`: a caller's function that is asked before a model call, such as a prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from langgraph.runtime import get_runtime

from echelons.agent import bind_state
from echelons.errors import EchelonsError
from echelons.guards.gate import Halt
from echelons.identity.failures import get_failure_log
from echelons.identity.lineage import require_identity
from echelons.identity.thread_history import Past
from echelons.nodes.tool_execution.async_only import arun_function, run_function
from echelons.nodes.tool_execution.current_request import find_payload
from echelons.plans import PlanStep
from echelons.run_context import get_context
from echelons.text.error_lines import describe_failure
from echelons.tree.names import PATH_SEPARATOR, PRIVATE_KEYS


class StateFunction:
    """A function of the state, or of the state and LangGraph's runtime, sync or async.

    Args:
        function: The function.
        failure: The class of the error of one that fails, with its `code` and its `text`.
    """

    def __init__(self, function: Any, failure: type[EchelonsError], code: str, text: str) -> None:
        bind = bind_state(function)
        assert bind is not None  # noqa: S101  the agent was checked when it was made
        self._bind = bind
        self._failure, self._code, self._text = failure, code, text

    def build_step(
        self, past: Past, state: Mapping[str, Any], config: Mapping[str, Any]
    ) -> PlanStep:
        """Return its call as a step of a plan, see `invoke`."""
        call = (past, state, config)
        return PlanStep(partial(self.invoke, *call), partial(self.ainvoke, *call))

    def invoke(self, past: Past, state: Mapping[str, Any], config: Mapping[str, Any]) -> Any | Halt:
        """Return what it returns, or the halt that has ended it.

        Raises:
            EchelonsError: It raised; the class is that of `failure`.
            EventLoopMissing: It is async, and the run is not a session's.
        """
        try:
            return run_function(self._bind_arguments(past, state, config), config)
        except Exception as error:
            raise self._build_failure(error, config) from error

    async def ainvoke(
        self, past: Past, state: Mapping[str, Any], config: Mapping[str, Any]
    ) -> Any | Halt:
        """Async version of `invoke`."""
        try:
            return await arun_function(self._bind_arguments(past, state, config), config)
        except Exception as error:
            raise self._build_failure(error, config) from error

    def refuse(self, returned: object, config: Mapping[str, Any]) -> EchelonsError:
        """Return the error of a function that returned something else than it should."""
        why = f"it returned a value of type {type(returned).__name__}"
        return self._make_failure(why, config)

    def _bind_arguments(
        self, past: Past, state: Mapping[str, Any], config: Mapping[str, Any]
    ) -> Callable[[], Any]:
        shown = {key: each for key, each in state.items() if key not in PRIVATE_KEYS}
        shown["messages"] = [*past.messages, *state["messages"]]
        payload = find_payload(config, state["messages"])
        # A text that is no input, which a graph around the tree may give, has none.
        if payload is not None or get_context(config).contract:
            shown["payload"] = payload
        return self._bind(shown, get_runtime())

    def _build_failure(self, error: Exception, config: Mapping[str, Any]) -> EchelonsError:
        why = describe_failure(error, self._code, get_failure_log(config).redactor)
        return self._make_failure(why, config)

    def _make_failure(self, why: str, config: Mapping[str, Any]) -> EchelonsError:
        agent = PATH_SEPARATOR.join(require_identity(config).path)
        return self._failure(self._text, code=self._code, agent=agent, why=why)
